/* validity.c - which outputs are missing, and which share of the inputs the others have.
 *
 * An output is missing when its window touches a missing sample. Otherwise inputs that are not there are
 * zeros, which go through the filter like any other sample, and what is left of the power of noise is the
 * sum of W[s]^2 times the share of sample s: the mean of the shares over the window, weighted by its
 * square. Samples are taken together in parts of 16, or of U where that is less, since packets are not
 * shorter. */
#include "kernels/common/validity.h"
#include "kernels/upchannelize/plan.h"

#include <math.h>
#include <string.h>

/* Samples of a part at most, and what the weights of all parts of a window add up to: 32 bits hold the sums.
 */
enum { MOST_PART = 16, PARTS_WEIGH = 65536 };

/* plan->missing_in of the input of blocks [first, first + blocks). Returns whether any of it is there in
 * part. */
static bool find_missing(struct br_upchannelize *plan, const uint8_t *e_valid, size_t valid_row, size_t first,
                         size_t blocks)
{
    size_t F = plan->nchannels, U = plan->U;
    uint8_t *now = plan->missing_in + (plan->M - 1) * F, share = 0;
    memset(now, 0, blocks * F);
    if (!e_valid) return false;
    /* without a branch, so that many gaps cost no more than few */
    for (size_t t = 0; t < blocks * U; t++) {
        const uint8_t *valid = e_valid + (first * U + t) * valid_row;
        uint8_t *missing = now + t / U * F;
        for (size_t f = 0; f < F; f++) {
            missing[f] |= valid[f] == 0;
            share |= (uint8_t)(valid[f] + 1); /* 0 and 255 leave but the lowest bit */
        }
    }
    return share > 1;
}

unsigned br_upchannelize_parts(const struct br_upchannelize *plan)
{
    return plan->U > MOST_PART ? plan->U / MOST_PART : 1;
}

void br_upchannelize_weigh_parts(struct br_upchannelize *plan)
{
    unsigned n = plan->M * br_upchannelize_parts(plan), length = plan->M * plan->U / n, most = 0;
    double all = 0;
    uint32_t sum = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) all += plan->window[s] * plan->window[s];
    for (unsigned k = 0; k < n; k++) {
        double part = 0;
        for (unsigned s = k * length; s < (k + 1) * length; s++) part += plan->window[s] * plan->window[s];
        /* never 0, so that what lacks anything is never taken for whole */
        plan->part_weight[k] = 1 + (uint32_t)(all > 0 && isfinite(all) ? part / all * (PARTS_WEIGH - n) : 0);
        sum += plan->part_weight[k];
        if (plan->part_weight[k] > plan->part_weight[most]) most = k;
    }
    plan->part_weight[most] += PARTS_WEIGH - sum;
}

/* plan->lack_in of the input of blocks [first, first + blocks). */
static void find_lacks(struct br_upchannelize *plan, const uint8_t *e_valid, size_t valid_row, size_t first,
                       size_t blocks)
{
    size_t F = plan->nchannels, U = plan->U, parts = br_upchannelize_parts(plan), length = U / parts;
    uint16_t *now = plan->lack_in + (plan->M - 1) * parts * F;
    memset(now, 0, blocks * parts * F * sizeof *now);
    for (size_t t = 0; e_valid && t < blocks * U; t++) {
        const uint8_t *valid = e_valid + (first * U + t) * valid_row;
        uint16_t *lack = now + t / length * F;
        for (size_t f = 0; f < F; f++) lack[f] = (uint16_t)(lack[f] + VALID_WHOLE - valid[f]);
    }
}

/* Marks the U fine channels of each missing output, of `count` (time, channel): out_valid [count][U]. */
static void mark_missing(uint8_t *out_valid, const uint8_t *missing, size_t count, size_t U)
{
    const uint8_t *from = missing, *end = missing + count, *to;
    for (; (from = memchr(from, 1, (size_t)(end - from))) != NULL; from = to) {
        to = memchr(from, 0, (size_t)(end - from));
        if (to == NULL) to = end;
        memset(out_valid + (size_t)(from - missing) * U, 0, (size_t)(to - from) * U);
    }
}

/* The shares of the outputs of `blocks` blocks that are not whole: out_valid [blocks][F][U], all 255 so far.
 */
static void mark_shares(struct br_upchannelize *plan, uint8_t *out_valid, size_t blocks)
{
    size_t F = plan->nchannels, U = plan->U, parts = br_upchannelize_parts(plan);
    const uint32_t total = (uint32_t)(PARTS_WEIGH * VALID_WHOLE * (U / parts));
    uint32_t *sum = plan->lack_out;
    for (size_t b = 0; b < blocks; b++, out_valid += F * U) {
        memset(sum, 0, F * sizeof *sum);
        for (size_t k = 0; k < plan->M * parts; k++) {
            const uint16_t *lack = plan->lack_in + (b * parts + k) * F;
            const uint32_t weight = plan->part_weight[k];
            for (size_t f = 0; f < F; f++) sum[f] += weight * lack[f];
        }
        for (size_t f = 0; f < F; f++)
            if (sum[f] > 0) memset(out_valid + f * U, validity_share(total - sum[f], total), U);
    }
}

/* Keeps what the next job's windows reach back to. */
static void keep_history(struct br_upchannelize *plan, size_t count, bool shares)
{
    size_t kept = (plan->M - 1) * plan->nchannels, parts = br_upchannelize_parts(plan);
    memmove(plan->missing_in, plan->missing_in + count, kept);
    plan->gaps = memchr(plan->missing_in, 1, kept) != NULL;
    if (!shares) return; /* then it is all 0 */
    memmove(plan->lack_in, plan->lack_in + parts * count, parts * kept * sizeof *plan->lack_in);
    plan->shares = false;
    for (size_t i = 0; i < parts * kept && !plan->shares; i++) plan->shares = plan->lack_in[i] != 0;
}

int br_upchannelize_flag(struct br_upchannelize *plan, const uint8_t *e_valid, size_t valid_row, size_t first,
                         size_t blocks, uint8_t *out_valid)
{
    size_t F = plan->nchannels, U = plan->U, M = plan->M, count = blocks * F;
    const uint8_t *in = plan->missing_in;
    uint8_t *out = plan->missing_out;
    if (out_valid) memset(out_valid + first * F * U, VALID_WHOLE, count * U);
    if (!e_valid && !plan->gaps && !plan->shares) return 0;
    bool shares = find_missing(plan, e_valid, valid_row, first, blocks) || plan->shares;
    if (shares) find_lacks(plan, e_valid, valid_row, first, blocks);
    if (shares && out_valid) mark_shares(plan, out_valid + first * F * U, blocks);
    /* each block with gaps makes this and the next M-1 outputs missing */
    memcpy(out, in, count);
    for (size_t m = 1; m < M; m++)
        for (size_t i = 0; i < count; i++) out[i] |= in[m * F + i];
    int any = memchr(out, 1, count) != NULL;
    if (any && out_valid) mark_missing(out_valid + first * F * U, out, count, U);
    keep_history(plan, count, shares);
    return any;
}
