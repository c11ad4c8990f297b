#include "stages/packetize/l0_encode.h"
#include "kernels/common/cpu.h"
#include "kernels/common/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if BR_X86_64
#include <immintrin.h>
#endif

/* The loops over beams. All run over L0_GROUP beams, however many there are. */
struct l0_loops {
    void (*extremes)(float *restrict low, float *restrict high, const float *restrict x);
    void (*round)(uint8_t *restrict levels, const float *restrict x, const float *restrict offset, const float *restrict scale);
};

static void find_extremes(float *restrict low, float *restrict high, const float *restrict x)
{
    for (size_t b = 0; b < L0_GROUP; b++) {
        low[b] = x[b] < low[b] ? x[b] : low[b];
        high[b] = x[b] > high[b] ? x[b] : high[b];
    }
}

/* What is no number becomes 254. */
static void round_levels(uint8_t *restrict levels, const float *restrict x, const float *restrict offset, const float *restrict scale)
{
    const float magic = 0x1.8p23f; /* adding it leaves an integer, rounded half to even by the addition itself */
    for (size_t b = 0; b < L0_GROUP; b++) {
        float v = (x[b] - offset[b]) / scale[b];
        v = v < 254 ? v : 254;
        v = v > 1 ? v : 1;
        levels[b] = (uint8_t)(int)((v + magic) - magic);
    }
}

static const struct l0_loops loops_generic = {find_extremes, round_levels};

#if BR_X86_64
__attribute__((target("avx2"))) static void find_extremes_avx2(float *restrict low, float *restrict high, const float *restrict x)
{
    for (size_t b = 0; b < L0_GROUP; b += 8) {
        __m256 v = _mm256_loadu_ps(x + b); /* where it is no number the second operand wins */
        _mm256_storeu_ps(low + b, _mm256_min_ps(v, _mm256_loadu_ps(low + b)));
        _mm256_storeu_ps(high + b, _mm256_max_ps(v, _mm256_loadu_ps(high + b)));
    }
}

__attribute__((target("avx2"))) static void round_levels_avx2(uint8_t *restrict levels, const float *restrict x,
                                                              const float *restrict offset, const float *restrict scale)
{
    const __m256 least = _mm256_set1_ps(1), most = _mm256_set1_ps(254);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t b = 0; b < L0_GROUP; b += 32) {
        __m256i v[4];
        for (size_t i = 0; i < 4; i++) {
            size_t at = b + 8 * i;
            __m256 y = _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(x + at), _mm256_loadu_ps(offset + at)), _mm256_loadu_ps(scale + at));
            v[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, most), least));
        }
        /* packing works on the halves of a register: the four-byte groups come out as 0 2 4 6 | 1 3 5 7 */
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_storeu_si256((__m256i *)(void *)(levels + b), _mm256_permutevar8x32_epi32(bytes, order));
    }
}

static const struct l0_loops loops_avx2 = {find_extremes_avx2, round_levels_avx2};
#endif

int l0_encoder_create(struct l0_encoder *e)
{
    size_t rows = (size_t)e->nup * e->steps;
    e->row = aligned_alloc(64, rows * L0_GROUP * sizeof *e->row);
    e->levels = aligned_alloc(64, rows * L0_GROUP);
    e->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) e->loops = &loops_avx2;
#endif
    if (e->row == NULL || e->levels == NULL) return -1;
    memset(e->row, 0, rows * L0_GROUP * sizeof *e->row);
    return 0;
}

void l0_encoder_free(struct l0_encoder *e)
{
    free(e->row);
    free(e->levels);
}

#if BR_X86_64
/* 16 rows of 16 bytes, turned. */
static void turn_tile(const uint8_t *levels, uint8_t *const *data, size_t at)
{
    __m128i a[16], b[16];
    for (size_t i = 0; i < 16; i++) a[i] = _mm_load_si128((const __m128i *)(const void *)(levels + i * L0_GROUP));
    /* four rounds of interleaving row i with row i + 8: after them byte k of row i is byte i of row k */
    for (unsigned round = 0; round < 4; round++) {
        for (size_t i = 0; i < 8; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
        memcpy(a, b, sizeof a);
    }
    for (size_t i = 0; i < 16; i++) _mm_storeu_si128((__m128i *)(void *)(data[i] + at), a[i]);
}
#endif

/* levels [rows][L0_GROUP] -> data[beam][rows] */
static void turn(const uint8_t *levels, size_t rows, size_t count, uint8_t *const *data)
{
    size_t b = 0;
#if BR_X86_64
    for (; rows % 16 == 0 && b + 16 <= count; b += 16)
        for (size_t r = 0; r < rows; r += 16) turn_tile(levels + r * L0_GROUP + b, data + b, r);
#endif
    for (; b < count; b++)
        for (size_t r = 0; r < rows; r++) data[b][r] = levels[r * L0_GROUP + b];
}

static void take_row(const struct l0_encoder *e, const void *in, size_t at, size_t count, float *row)
{
    if (e->half) br_half_to_float_array(row, (const uint16_t *)in + at, count);
    else memcpy(row, (const float *)in + at, count * sizeof *row);
    if (e->factor != 1.0f)
        for (size_t b = 0; b < count; b++) row[b] *= e->factor;
}

void l0_encode(struct l0_encoder *e, const void *in, const uint8_t *valid, size_t stride, const uint32_t *channel, size_t first,
               size_t count, uint8_t *const *data, float *scale, float *offset)
{
    float low[L0_GROUP], high[L0_GROUP], start[L0_GROUP], divisor[L0_GROUP];
    size_t T = e->steps;
    bool any = false;
    for (size_t b = 0; b < L0_GROUP; b++) {
        low[b] = INFINITY;
        high[b] = -INFINITY;
    }
    for (size_t u = 0; u < e->nup; u++)
        for (size_t t = 0; t < T; t++) {
            size_t at = channel[u] * stride + t;
            if (valid != NULL && valid[at] == 0) continue;
            float *row = e->row + (u * T + t) * L0_GROUP;
            take_row(e, in, at * e->nbeams + first, count, row);
            e->loops->extremes(low, high, row);
            any = true;
        }
    for (size_t b = 0; b < L0_GROUP; b++) {
        float step = any && b < count ? (high[b] - low[b]) / 253 : 0;
        bool varies = step > 0 && step <= 3e38f;
        divisor[b] = varies ? step : 1;
        start[b] = varies ? low[b] - step : any && b < count && fabsf(low[b]) <= 3e38f ? low[b] : 0;
        if (b >= count) continue;
        scale[b] = varies ? step : 0;
        offset[b] = start[b];
    }
    for (size_t u = 0; u < e->nup; u++)
        for (size_t t = 0; t < T; t++) {
            size_t at = channel[u] * stride + t, r = u * T + t;
            if (valid != NULL && valid[at] == 0) memset(e->levels + r * L0_GROUP, 0, L0_GROUP);
            else e->loops->round(e->levels + r * L0_GROUP, e->row + r * L0_GROUP, start, divisor);
        }
    turn(e->levels, (size_t)e->nup * T, count, data);
}
