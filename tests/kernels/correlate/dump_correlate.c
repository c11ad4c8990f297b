/* The correlator's output for seeded inputs, for tests/oracle/correlate.py. */
#include "tests/kernels/correlate/correlate_run.h"

static void one(const char *directory, const struct correlate_case *c, enum br_backend backend)
{
    struct correlate_run r;
    struct br_why why;
    char name[64];
    correlate_make(&r, c);
    if (correlate_run(&r, c, backend, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    int64_t numbers[] = {c->autos};
    snprintf(name, sizeof name, "%s_%s", c->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "numbers", "<i8", numbers, 1, (size_t[]){1});
    dump_array(directory, name, "e", "|u1", r.e, 3, (size_t[]){c->samples, c->channels, c->inputs});
    dump_array(directory, name, "valid", "|u1", r.valid ? r.valid : r.e, 2,
               (size_t[]){r.valid ? c->samples : 0, c->channels});
    dump_array(directory, name, "v", "<i4", r.v, 3, (size_t[]){c->channels, r.nbaselines, 2});
    correlate_free(&r);
}

DUMP_MAIN(correlate_cases, one)
