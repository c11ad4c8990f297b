#include "stages/common/stage/gains.h"
#include "stages/common/stage/shape.h"

#include <stdio.h>

int br_stage_gains(struct br_stage *stage, const char *path, const struct br_gains_shape *s,
                   struct br_gains *gains)
{
    struct br_error error = {0};
    char freq[80];
    *gains = (struct br_gains){0};
    if (path == NULL) return BR_OK;
    int status = br_stage_reads_file(stage, "gains", path);
    if (status != BR_OK) return status;
    if ((s->stream != NULL && br_gains_check_channels(path, s->stream, &error) != BR_OK) ||
        br_gains_read(gains, path, &error) != BR_OK)
        return br_stage_fail_at(stage, "gains", "%s", error.text);
    size_t count = gains->nfreq * gains->npol * gains->ndishes;
    gains->value = br_stage_keep(stage, gains->value, count * 2 * sizeof(float));
    if (gains->npol == s->npol && gains->ndishes == s->ndishes &&
        (gains->nfreq == 1 || gains->nfreq == s->ncoarse || gains->nfreq == s->nfine))
        return BR_OK;
    snprintf(freq, sizeof freq, s->ncoarse != s->nfine ? "1, %zu (coarse) or %zu (fine)" : "1 or %zu",
             s->ncoarse, s->nfine);
    return br_stage_fail_at(stage, "gains",
                            "%s: /gain is [%zu][%zu][%zu]; expected freq %s, pol %zu, dish %zu", path,
                            gains->nfreq, gains->npol, gains->ndishes, freq, s->npol, s->ndishes);
}
