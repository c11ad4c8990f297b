#include "stages/simulate/receiver.h"
#include "stages/common/stage/random.h"

#include <stdlib.h>

enum { DISHES_PER_BLOCK = 4 };

int receiver_make(struct receiver *receiver, size_t ndishes, double rms, const int16_t *table, uint64_t seed)
{
    size_t padded = (ndishes + DISHES_PER_BLOCK - 1) / DISHES_PER_BLOCK * DISHES_PER_BLOCK;
    *receiver = (struct receiver){
        .ndishes = ndishes, .padded = padded, .rms = (float)rms, .seed = seed, .table = table};
    receiver->noise = calloc(2 * padded, sizeof *receiver->noise);
    return receiver->noise != NULL ? 0 : -1;
}

void receiver_free(struct receiver *receiver)
{
    free(receiver->noise);
    receiver->noise = NULL;
}

/* Noise of all dishes, in units of 1 / GAUSSIAN_UNIT of its rms: four dishes from one random block. */
static void draw(struct receiver *receiver, uint64_t sample, uint32_t line)
{
    int16_t *re = receiver->noise, *im = receiver->noise + receiver->padded;
    const int16_t *table = receiver->table;
    for (size_t d = 0; d < receiver->padded; d += DISHES_PER_BLOCK) {
        uint32_t r[4];
        random_block(receiver->seed, sample, line, RANDOM_NOISE | (uint32_t)(d / DISHES_PER_BLOCK), r);
        for (size_t i = 0; i < DISHES_PER_BLOCK; i++) {
            re[d + i] = table[r[i] & 0xffff];
            im[d + i] = table[r[i] >> 16];
        }
    }
}

/* As a nibble: adding 1.5 * 2^23 leaves the nearest integer in the lowest bits of a float, in two's
 * complement. */
static inline uint32_t level(float v)
{
    union {
        float f;
        uint32_t u;
    } x;
    v = v < -7 ? -7 : v;
    v = v > 7 ? 7 : v;
    x.f = v + 12582912.0f;
    return x.u & 15;
}

static inline void multiply(const float *factor, float *re, float *im)
{
    float was = *re;
    *re = factor[0] * was - factor[1] * *im;
    *im = factor[0] * *im + factor[1] * was;
}

unsigned receiver_digitize(struct receiver *receiver, uint64_t sample, uint32_t line,
                           const float *restrict re, const float *restrict im, const float *restrict rotation,
                           uint8_t *restrict e)
{
    const int16_t *restrict zr = receiver->noise, *restrict zi = receiver->noise + receiver->padded;
    float unit = receiver->rms / GAUSSIAN_UNIT;
    unsigned beyond = 0;
    const float *gain = receiver->gain;
    if (gain != NULL) gain += 2 * receiver->ndishes * (line % receiver->gain_lines);
    draw(receiver, sample, line);
    for (size_t d = 0; d < receiver->ndishes; d++) {
        float a = re[d] + unit * zr[d], b = im[d] + unit * zi[d];
        if (gain != NULL) multiply(gain + 2 * d, &a, &b);
        if (rotation != NULL) multiply(rotation + 2 * d, &a, &b);
        beyond += (unsigned)(a > 7.5f) + (unsigned)(a < -7.5f) + (unsigned)(b > 7.5f) + (unsigned)(b < -7.5f);
        e[d] = (uint8_t)(level(a) | level(b) << 4);
    }
    return beyond;
}
