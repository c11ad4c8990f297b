/* validity.c - how much of a block is there, and what its intensities are multiplied by for it.
 *
 * The noise's power in a sample is proportional to the share of the inputs that is there. A block's sums
 * are divided by the sum of the shares of its samples, so that its level is that of a whole one: samples
 * that are missing and inputs that are missing count alike. */
#include "kernels/common/validity.h"
#include "kernels/frb_grid/plan.h"

#include <string.h>

double br_frb_grid_restore(const struct br_frb_grid *plan, uint64_t shares, uint8_t *validity)
{
    const uint64_t total = (uint64_t)plan->downsample * VALID_WHOLE;
    bool masked = shares == 0 || (double)shares / (double)total < plan->threshold;
    *validity = masked ? 0 : validity_share(shares, total);
    return masked ? 0 : (double)total / (double)shares;
}

#if BR_WITH_CUDA
/* Of `steps` samples, at most 255, of every channel: how many are missing. Returns whether any sample is
 * there in part, in which case these numbers are not enough. */
static bool count_gaps(uint16_t *lack, const uint8_t *e_valid, size_t valid_row, size_t F, unsigned steps)
{
    uint8_t *gaps = (uint8_t *)lack, share = 0;
    memset(gaps, 0, F);
    for (unsigned t = 0; t < steps; t++, e_valid += valid_row)
        for (size_t f = 0; f < F; f++) {
            gaps[f] = (uint8_t)(gaps[f] + (e_valid[f] == 0));
            share |= (uint8_t)(e_valid[f] + 1); /* 0 and 255 leave but the lowest bit */
        }
    return share > 1;
}

/* Likewise the sum of what each lacks, in 255ths. Returns whether any is missing altogether. */
static bool sum_lacks(uint16_t *lack, const uint8_t *e_valid, size_t valid_row, size_t F, unsigned steps)
{
    uint8_t gap = 0;
    memset(lack, 0, F * sizeof *lack);
    for (unsigned t = 0; t < steps; t++, e_valid += valid_row)
        for (size_t f = 0; f < F; f++) {
            lack[f] = (uint16_t)(lack[f] + VALID_WHOLE - e_valid[f]);
            gap |= e_valid[f] == 0;
        }
    return gap != 0;
}

bool br_frb_grid_count_valid(struct br_frb_grid *plan, const uint8_t *e_valid, size_t valid_row, size_t count)
{
    const size_t F = plan->nchannels;
    bool missing = false;
    if (!e_valid || (valid_row == F && validity_complete(e_valid, count * F))) {
        plan->all_valid += (unsigned)count;
        return false;
    }
    while (count > 0) {
        const unsigned steps = count < UINT8_MAX ? (unsigned)count : UINT8_MAX;
        const unsigned whole = steps * VALID_WHOLE;
        uint64_t *shares = plan->shares;
        if (count_gaps(plan->lack, e_valid, valid_row, F, steps)) {
            missing |= sum_lacks(plan->lack, e_valid, valid_row, F, steps);
            for (size_t f = 0; f < F; f++) shares[f] += whole - plan->lack[f];
        } else {
            const uint8_t *gaps = (const uint8_t *)plan->lack;
            unsigned any = 0;
            for (size_t f = 0; f < F; f++) any |= gaps[f];
            for (size_t f = 0; any && f < F; f++) shares[f] += whole - gaps[f] * (unsigned)VALID_WHOLE;
            if (!any) plan->all_valid += steps;
            missing |= any != 0;
        }
        e_valid += steps * valid_row;
        count -= steps;
    }
    return missing;
}
#endif
