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
                        (double)r.expected};
    snprintf(name, sizeof name, "%s_%s", c->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "numbers", "<f8", numbers, 1, (size_t[]){8});
    dump_array(directory, name, "e", "|u1", r.e, 3, (size_t[]){steps, F, N});
    dump_array(directory, name, "valid", "|u1", r.valid ? r.valid : r.e, 2,
               (size_t[]){r.valid ? steps : 0, F});
    dump_array(directory, name, "bad", "|u1", r.bad, 1, (size_t[]){N});
    dump_array(directory, name, "out", "|u1", r.out, 3, (size_t[]){steps, F, N});
    dump_array(directory, name, "sk", "<f4", r.sk ? (void *)r.sk : (void *)r.e, 3,
               (size_t[]){r.sk ? r.rows : 0, F, N});
    dump_array(directory, name, "s0", "<u4", r.s0, 2, (size_t[]){c->nblocks, F});
    dump_array(directory, name, "sums", "<u4", r.sums, 4, (size_t[]){c->nblocks, F, 2, N});
    dump_array(directory, name, "reason", "|u1", r.reason, 2, (size_t[]){c->nblocks, F});
    dump_array(directory, name, "used", "<u4", r.used, 1, (size_t[]){F});
    dump_array(directory, name, "input", "<u4", r.input, 2, (size_t[]){2, N});
    flag_free(&r);
}

DUMP_MAIN(flag_cases, one)
