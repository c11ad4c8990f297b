#include "stages/packetize/l0_encode.h"
#include "buffers/half.h"
#include "kernels/common/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if BR_X86_64
#include <immintrin.h>
#endif

/* One (beam group, coarse channel): where its values are, and what is made of them. */
struct tile {
    const uint8_t *in;    /* first beam, fine channel 0 of the input, step 0 */
    const uint8_t *valid; /* likewise, or NULL */
    const uint32_t *channel;
    size_t stride;     /* steps of the input per channel */
    size_t step_bytes; /* of the input between two steps */
    size_t count;      /* beams */
};

/* The loops over the values of a tile. low, high, offset, scale are [L0_GROUP]; levels [nup steps][L0_GROUP].
 */
struct l0_loops {
    void (*extremes)(const struct l0_encoder *e, const struct tile *tile, float *low, float *high);
    void (*round)(const struct l0_encoder *e, const struct tile *tile, const float *offset,
                  const float *scale);
};

static inline const uint8_t *row_of(const struct tile *tile, size_t u, size_t t)
{
    return tile->in + (tile->channel[u] * tile->stride + t) * tile->step_bytes;
}

static inline bool is_missing(const struct tile *tile, size_t u, size_t t)
{
    return tile->valid != NULL && tile->valid[tile->channel[u] * tile->stride + t] == 0;
}

static void take_row(const struct l0_encoder *e, const uint8_t *in, size_t count, float *row)
{
    if (e->half)
        br_half_to_float_array(row, (const uint16_t *)(const void *)in, count);
    else
        memcpy(row, in, count * sizeof *row);
    for (size_t b = 0; b < count; b++) row[b] *= e->factor;
}

static void find_extremes(const struct l0_encoder *e, const struct tile *tile, float *low, float *high)
{
    for (size_t u = 0; u < e->nup; u++)
        for (size_t t = 0; t < e->steps; t++) {
            float x[L0_GROUP];
            if (is_missing(tile, u, t)) continue;
            take_row(e, row_of(tile, u, t), tile->count, x);
            for (size_t b = 0; b < tile->count; b++) {
                low[b] = x[b] < low[b] ? x[b] : low[b];
                high[b] = x[b] > high[b] ? x[b] : high[b];
            }
        }
}

/* NaN becomes 254. */
static void round_levels(const struct l0_encoder *e, const struct tile *tile, const float *offset,
                         const float *scale)
{
    const float magic =
        0x1.8p23f; /* adding it leaves an integer, rounded half to even by the addition itself */
    for (size_t u = 0; u < e->nup; u++)
        for (size_t t = 0; t < e->steps; t++) {
            float x[L0_GROUP];
            uint8_t *levels = e->levels + (u * e->steps + t) * L0_GROUP;
            if (is_missing(tile, u, t)) {
                memset(levels, 0, L0_GROUP);
                continue;
            }
            take_row(e, row_of(tile, u, t), tile->count, x);
            for (size_t b = 0; b < tile->count; b++) {
                float v = (x[b] - offset[b]) / scale[b];
                v = v < 254 ? v : 254;
                v = v > 1 ? v : 1;
                levels[b] = (uint8_t)(int)((v + magic) - magic);
            }
        }
}

static const struct l0_loops loops_generic = {find_extremes, round_levels};

#if BR_X86_64
enum { WIDE = 32 }; /* beams at a time: a cache line of f16, and as many registers as there are */

#define FAST __attribute__((target("avx2,f16c")))

FAST static inline __m256 eight(const uint16_t *row)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)row));
}

/* Rows of the input are often powers of two apart, of which a cache keeps few: the first pass puts them side
 * by side for the second. f16 with a factor of 1 and whole groups of 32 beams: the usual case. */
static bool is_plain(const struct l0_encoder *e, const struct tile *tile)
{
    return e->half && e->factor == 1.0f && tile->count % WIDE == 0;
}

FAST static void find_extremes_avx2(const struct l0_encoder *e, const struct tile *tile, float *low,
                                    float *high)
{
    if (!is_plain(e, tile)) {
        find_extremes(e, tile, low, high);
        return;
    }
    for (size_t b = 0; b < tile->count; b += WIDE) {
        __m256 least[4], most[4];
        for (size_t i = 0; i < 4; i++) {
            least[i] = _mm256_set1_ps(INFINITY);
            most[i] = _mm256_set1_ps(-INFINITY);
        }
        for (size_t u = 0; u < e->nup; u++)
            for (size_t t = 0; t < e->steps; t++) {
                const uint8_t *row = row_of(tile, u, t);
                uint16_t *copy = e->copy + (u * e->steps + t) * L0_GROUP + b;
                if (is_missing(tile, u, t)) continue;
                for (size_t i = 0; i < 4; i++) {
                    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(row + 2 * (b + 8 * i)));
                    _mm_store_si128((__m128i *)(void *)(copy + 8 * i), halves);
                    __m256 x = _mm256_cvtph_ps(halves); /* for NaN the second operand wins */
                    least[i] = _mm256_min_ps(x, least[i]);
                    most[i] = _mm256_max_ps(x, most[i]);
                }
            }
        for (size_t i = 0; i < 4; i++) {
            _mm256_storeu_ps(low + b + 8 * i, least[i]);
            _mm256_storeu_ps(high + b + 8 * i, most[i]);
        }
    }
}

FAST static void round_levels_avx2(const struct l0_encoder *e, const struct tile *tile, const float *offset,
                                   const float *scale)
{
    if (!is_plain(e, tile)) {
        round_levels(e, tile, offset, scale);
        return;
    }
    const __m256 least = _mm256_set1_ps(1), most = _mm256_set1_ps(254);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t b = 0; b < tile->count; b += WIDE) {
        __m256 start[4], divisor[4];
        for (size_t i = 0; i < 4; i++) {
            start[i] = _mm256_loadu_ps(offset + b + 8 * i);
            divisor[i] = _mm256_loadu_ps(scale + b + 8 * i);
        }
        for (size_t u = 0; u < e->nup; u++)
            for (size_t t = 0; t < e->steps; t++) {
                uint8_t *levels = e->levels + (u * e->steps + t) * L0_GROUP + b;
                const uint16_t *row = e->copy + (u * e->steps + t) * L0_GROUP + b;
                __m256i v[4];
                if (is_missing(tile, u, t)) {
                    memset(levels, 0, WIDE);
                    continue;
                }
                for (size_t i = 0; i < 4; i++) {
                    __m256 y = _mm256_div_ps(_mm256_sub_ps(eight(row + 8 * i), start[i]), divisor[i]);
                    v[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, most), least));
                }
                /* packing works on the halves of a register: the four-byte groups come out as 0 2 4 6 | 1 3 5
                 * 7 */
                __m256i bytes =
                    _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
                _mm256_storeu_si256((__m256i *)(void *)levels, _mm256_permutevar8x32_epi32(bytes, order));
            }
    }
}

static const struct l0_loops loops_avx2 = {find_extremes_avx2, round_levels_avx2};
#endif

int l0_encoder_create(struct l0_encoder *e)
{
    size_t rows = (size_t)e->nup * e->steps;
    e->levels = aligned_alloc(64, rows * L0_GROUP);
    e->copy = aligned_alloc(64, rows * L0_GROUP * sizeof *e->copy);
    e->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2() && br_cpu_has_f16c()) e->loops = &loops_avx2;
#endif
    return e->levels != NULL && e->copy != NULL ? 0 : -1;
}

void l0_encoder_free(struct l0_encoder *e)
{
    free(e->levels);
    free(e->copy);
}

#if BR_X86_64
/* 16 rows of 16 bytes, turned. */
static void transpose_tile(const uint8_t *levels, uint8_t *const *data, size_t at)
{
    __m128i a[16], b[16];
    for (size_t i = 0; i < 16; i++)
        a[i] = _mm_load_si128((const __m128i *)(const void *)(levels + i * L0_GROUP));
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
static void transpose(const uint8_t *levels, size_t rows, size_t count, uint8_t *const *data)
{
    size_t b = 0;
#if BR_X86_64
    for (; rows % 16 == 0 && b + 16 <= count; b += 16)
        for (size_t r = 0; r < rows; r += 16) transpose_tile(levels + r * L0_GROUP + b, data + b, r);
#endif
    for (; b < count; b++)
        for (size_t r = 0; r < rows; r++) data[b][r] = levels[r * L0_GROUP + b];
}

/* Whether the tile has a sample at all. */
static bool has_any(const struct l0_encoder *e, const struct tile *tile)
{
    for (size_t u = 0; u < e->nup; u++)
        for (size_t t = 0; t < e->steps; t++)
            if (!is_missing(tile, u, t)) return true;
    return false;
}

void l0_encode(struct l0_encoder *e, const void *in, const uint8_t *valid, size_t stride,
               const uint32_t *channel, size_t first, size_t count, uint8_t *const *data, float *scale,
               float *offset)
{
    float low[L0_GROUP], high[L0_GROUP], start[L0_GROUP], divisor[L0_GROUP];
    size_t value_bytes = e->half ? 2 : 4;
    const struct tile tile = {.in = (const uint8_t *)in + first * value_bytes,
                              .valid = valid,
                              .channel = channel,
                              .stride = stride,
                              .step_bytes = e->nbeams * value_bytes,
                              .count = count};
    bool any = has_any(e, &tile);
    for (size_t b = 0; b < L0_GROUP; b++) {
        low[b] = INFINITY;
        high[b] = -INFINITY;
    }
    e->loops->extremes(e, &tile, low, high);
    for (size_t b = 0; b < count; b++) {
        float step = any ? (high[b] - low[b]) / 253 : 0;
        bool varies = step > 0 && step <= 3e38f;
        divisor[b] = varies ? step : 1;
        start[b] = varies ? low[b] - step : any && fabsf(low[b]) <= 3e38f ? low[b] : 0;
        scale[b] = varies ? step : 0;
        offset[b] = start[b];
    }
    e->loops->round(e, &tile, start, divisor);
    transpose(e->levels, (size_t)e->nup * e->steps, count, data);
}
