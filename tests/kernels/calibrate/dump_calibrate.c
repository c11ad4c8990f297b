/* The gains that calibrate computes from seeded visibilities, for tests/oracle/calibrate.py. */
#include "tests/kernels/calibrate/calibrate_run.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < sizeof calibrate_cases / sizeof *calibrate_cases; i++) {
        const struct calibrate_case *c = &calibrate_cases[i];
        const char *d = argv[1], *name = c->name;
        struct calibrate_run r;
        struct br_why why = {""};
        size_t n = c->inputs;
        calibrate_make(&r, c);
        if (br_calibrate(&r.p, r.sum, r.samples, &r.result, &why) != 0 || !r.result.solved) {
            fprintf(stderr, "%s: %s%s\n", name, why.text, r.result.why.text);
            return 1;
        }
        double numbers[] = {(double)r.p.reference, r.result.snr, r.result.residual, c->samples};
        dump_array(d, name, "numbers", "<f8", numbers, 1, (size_t[]){4});
        dump_array(d, name, "sum", "<f8", r.sum, 2, (size_t[]){r.pairs, 2});
        dump_array(d, name, "samples", "<f8", r.samples, 1, (size_t[]){r.pairs});
        dump_array(d, name, "truth", "<f8", r.truth, 2, (size_t[]){n, 2});
        dump_array(d, name, "gain", "<f8", r.result.gain, 2, (size_t[]){n, 2});
        dump_array(d, name, "snr", "<f8", r.result.gain_snr, 1, (size_t[]){n});
        dump_array(d, name, "misfit", "<f8", r.result.misfit, 1, (size_t[]){n});
        dump_array(d, name, "flag", "|u1", r.result.flag, 1, (size_t[]){n});
        calibrate_free(&r);
    }
    return 0;
}
