/* The flagger's output for seeded noise, for tests/oracle/flag.py. */
#include "tests/kernels/flag/flag_run.h"

static void one(const char *directory, const struct flag_case *c, enum br_backend backend)
{
    struct flag_run r;
    struct br_why why;
    char name[64];
    flag_make(&r, c);
    if (flag_run(&r, c, backend, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    size_t F = c->channels, N = c->inputs, steps = c->end - c->begin;
    double numbers[] = {(double)c->block,
                        (double)c->begin,
                        (double)c->end,
                        (double)r.rules.block_sigma,
                        (double)r.rules.input_sigma,
                        (double)r.rules.least_power,
                        (double)r.rules.most_power,
                        (double)r.expected,
                        (double)r.p.least_level};
    snprintf(name, sizeof name, "%s_%s", c->name, backend == BR_REFERENCE ? "reference" : "cpu");
    uint32_t *piece = calloc(c->calls, sizeof *piece); /* where each begins */
    for (size_t k = 0; k < c->calls; k++) piece[k] = (uint32_t)flag_piece(c, k);
    dump_array(directory, name, "piece", "<u4", piece, 1, (size_t[]){c->calls});
    free(piece);
    dump_array(directory, name, "numbers", "<f8", numbers, 1, (size_t[]){9});
    dump_array(directory, name, "e", "|u1", r.e, 3, (size_t[]){steps, F, N});
    dump_array(directory, name, "valid", "|u1", r.valid ? r.valid : r.e, 2,
               (size_t[]){r.valid ? steps : 0, F});
    dump_array(directory, name, "bad", "|u1", r.bad, 1, (size_t[]){N});
    dump_array(directory, name, "out", "|u1", r.out, 3, (size_t[]){steps, F, N});
    dump_array(directory, name, "sk", "<f4", r.sk ? (void *)r.sk : (void *)r.e, 3,
               (size_t[]){r.sk ? r.rows : 0, F, N});
    dump_array(directory, name, "s0", "<u4", r.s0, 2, (size_t[]){c->nblocks, F});
    dump_array(directory, name, "sums", "<u4", r.sums, 4, (size_t[]){c->nblocks, F, 2, N});
    dump_array(directory, name, "lost", "<u2", r.lost, 3, (size_t[]){c->nblocks, F, N});
    dump_array(directory, name, "reason", "|u1", r.reason, 2, (size_t[]){c->nblocks, F});
    dump_array(directory, name, "used", "<u4", r.used, 1, (size_t[]){F});
    dump_array(directory, name, "input", "<u4", r.input, 2, (size_t[]){2, N});
    flag_free(&r);
}

/* --- how often noise of many inputs is flagged --- */

static const struct flag_case fields[] = {
    {"lost 1 %", 256, 32, 8, 1024, 0, 8192, 1, 0, 8, NOISE, false, {16, 8, 1}, false},
    {"lost 2 %", 256, 32, 8, 1024, 0, 8192, 1, 0, 8, NOISE, false, {16, 8, 2}, false},
    {"lost 5 %", 256, 32, 8, 1024, 0, 8192, 1, 0, 8, NOISE, false, {16, 8, 5}, false},
    {"lost 10 %", 256, 32, 8, 1024, 0, 8192, 1, 0, 8, NOISE, false, {16, 8, 10}, false},
    {"pairs of samples", 256, 32, 8, 256, 0, 8192, 1, 0, 8, NOISE, false, {2, 64, 10}, false},
    {"single samples", 256, 32, 8, 704, 0, 8192, 1, 0, 8, NOISE, false, {1, 64, 5}, false},
    {"levels -7 to 7", 256, 32, 8, 1024, 0, 8192, 1, 0, 12.5, NOISE, false, {0}, true},
    {"the same, lost 5 %", 256, 32, 8, 1024, 0, 8192, 1, 0, 20, NOISE, false, {16, 8, 5}, true},
};

/* {flagged blocks, of, flagged inputs of channels, of}; the two one after the other: neither depends on the
 * other one. */
static void count(const struct flag_case *c, double counts[4])
{
    struct flag_run r;
    struct br_flag *plan;
    size_t F = c->channels, N = c->inputs;
    flag_make(&r, c);
    if (br_flag_create(&plan, BR_CPU, &r.p, NULL) != 0) exit(1);
    for (int inputs = 0; inputs < 2; inputs++) {
        struct br_flag_rules rules = {inputs ? 50 : 2, inputs ? 3 : 50, 1, 76, NULL};
        br_flag_begin(plan, &rules);
        br_flag_add(plan, 0, c->end, r.e, r.valid, r.out);
        br_flag_end(plan, r.out, NULL);
        struct br_flag_result result = br_flag_wait(plan);
        for (size_t k = 0; !inputs && k < c->nblocks * F; k++) counts[0] += result.reason[k] != BR_FLAG_KEPT;
        for (size_t n = 0; inputs && n < 2 * N; n++) counts[2] += result.input[n];
    }
    counts[1] += (double)(c->nblocks * F);
    counts[3] += (double)(F * N);
    br_flag_destroy(plan);
    flag_free(&r);
}

int main(int argc, char **argv)
{
    double counts[sizeof fields / sizeof *fields][4] = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < FLAG_CASES; i++) {
        one(argv[1], &flag_cases[i], BR_REFERENCE);
        one(argv[1], &flag_cases[i], BR_CPU);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) count(&fields[i], counts[i]);
    dump_array(argv[1], "shares", "counts", "<f8", counts, 2, (size_t[]){sizeof fields / sizeof *fields, 4});
    return 0;
}
