#include "formats/common/baselines.h"

int baselines_find(struct baselines *baselines, size_t count, size_t ndishes, size_t npol,
                   struct br_error *error)
{
    unsigned found = 0;
    for (size_t p = 1; p <= 2; p++)
        for (int autos = 0; autos < 2; autos++) {
            size_t n = p * ndishes;
            if ((npol != 0 && p != npol) || (autos ? n : n * (n + 1) / 2) != count) continue;
            if (n == 1 && autos) continue; /* one input is the same either way */
            *baselines = (struct baselines){ndishes, p, n, autos != 0};
            found++;
        }
    if (found == 1) return BR_OK;
    if (found > 1)
        return br_fail(error, BR_E_INVALID,
                       "%zu baselines of %zu dishes: one polarisation with all pairs, or two with "
                       "autocorrelations alone; say how many polarisations there are",
                       count, ndishes);
    size_t one = ndishes, two = 2 * ndishes;
    return br_fail(
        error, BR_E_INVALID,
        "there are %zu baselines; expected %zu or %zu of %zu dishes in one or two polarisations, or "
        "%zu or %zu autocorrelations",
        count, one * (one + 1) / 2, two * (two + 1) / 2, ndishes, one, two);
}
