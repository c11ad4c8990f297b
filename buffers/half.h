/* half.h - float16 (IEEE binary16) bits to and from float32.
 *
 * Rounding is to nearest, ties to even, subnormals included. Values that are too large become infinity, so
 * callers that need finite results clamp to +-BR_HALF_MAX first. NaN stays NaN (made quiet, the upper bits of
 * the payload kept). Both implementations of the array functions (with F16C instructions and in plain C) give
 * the same bits. */
#ifndef BEAMRING_BUFFERS_HALF_H
#define BEAMRING_BUFFERS_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BR_HALF_MAX 65504.0f

static inline float br_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff, bits;
    float value;
    if (magnitude >= 0x7c00) { /* infinity, NaN */
        bits = 0x7f800000 | (magnitude & 0x3ff) << 13 | (magnitude > 0x7c00 ? 0x400000 : 0);
    } else if (magnitude >= 0x400) {
        bits = (magnitude << 13) + ((127 - 15) << 23);
    } else { /* subnormal: an integer number of 2^-24, exact in float32 */
        value = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t br_half_from_float(float value)
{
    uint32_t bits, magnitude;
    uint16_t sign;
    memcpy(&bits, &value, sizeof bits);
    sign = (uint16_t)(bits >> 16 & 0x8000);
    magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (magnitude < 0x38800000) { /* below 2^-14: the result is subnormal (or 2^-14) */
        /* Adding 0.5 leaves multiples of 2^-24, rounded to even by the addition itself. */
        float small;
        memcpy(&small, &magnitude, sizeof small);
        small += 0.5f;
        memcpy(&bits, &small, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - ((127 - 15) << 23)) >> 13));
}

/* Two float16 values in one word, `low` in its lower half. */
static inline uint32_t br_half_pair(double low, double high)
{
    return br_half_from_float((float)low) | (uint32_t)br_half_from_float((float)high) << 16;
}

/* Converts `count` values; in and out must not overlap. */
void br_half_to_float_array(float *out, const uint16_t *in, size_t count);
void br_half_from_float_array(uint16_t *out, const float *in, size_t count);

#ifdef __cplusplus
}
#endif
#endif
