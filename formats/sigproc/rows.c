#include "formats/sigproc/rows.h"

#include "buffers/half.h"

#include <math.h>
#include <string.h>

enum { TIME_CONSTANT = 1024, TILE = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The signed level of an element, 0 (the mean) for a reserved code. */
static int level_of(const struct rows *rows, size_t i)
{
    const uint8_t *data = rows->data;
    if (rows->form == ROWS_UINT8) return data[i] == 0 ? 0 : data[i] - 128;
    int nibble = data[i / 2] >> (i % 2 * 4) & 15;
    return nibble == 8 ? 0 : nibble < 8 ? nibble : nibble - 16;
}

/* Tiles keep both the reads along time and the writes along frequency in the cache. */
static void levels(const struct rows *rows, const struct sigproc_band *band, size_t beam, size_t from,
                   size_t steps, uint8_t *out)
{
    size_t n = band->nchannels;
    for (size_t c0 = 0; c0 < n; c0 += TILE)
        for (size_t t0 = 0; t0 < steps; t0 += TILE)
            for (size_t c = c0; c < least(n, c0 + TILE); c++) {
                size_t channel = band->channel[c],
                       at = (beam * rows->nchannels + channel) * rows->nsteps + from;
                const uint8_t *valid =
                    rows->valid == NULL ? NULL : rows->valid + channel * rows->nsteps + from;
                for (size_t t = t0; t < least(steps, t0 + TILE); t++)
                    out[t * n + c] = valid != NULL && valid[t] == BR_MISSING
                                         ? ROWS_MEAN_LEVEL
                                         : (uint8_t)(ROWS_MEAN_LEVEL + level_of(rows, at + t));
            }
}

/* Levels turned back into intensities. The offset of a block is its mean. */
static void restored(struct rows *rows, const struct sigproc_band *band, size_t beam, size_t from,
                     size_t steps, float *out)
{
    size_t n = band->nchannels;
    for (size_t c = 0; c < n; c++) {
        size_t channel = band->channel[c], row = beam * rows->nchannels + channel;
        const float *side = rows->side + 2 * row;
        const uint8_t *valid = rows->valid == NULL ? NULL : rows->valid + channel * rows->nsteps + from;
        float scale = (float)(side[0] * rows->scale), offset = (float)(side[1] * rows->scale);
        float *mean = &rows->mean[channel * rows->nbeams + beam];
        if (!isfinite(scale) || !isfinite(offset)) scale = 0, offset = *mean;
        if (scale != 0 || offset != 0) *mean = offset;
        for (size_t t = 0; t < steps; t++)
            out[t * n + c] = valid != NULL && valid[t] == BR_MISSING
                                 ? *mean
                                 : scale * (float)level_of(rows, row * rows->nsteps + from + t) + offset;
    }
}

static float value_at(const struct rows *rows, size_t i)
{
    return (float)(rows->scale * (double)(rows->form == ROWS_F16
                                              ? br_half_to_float(((const uint16_t *)rows->data)[i])
                                              : ((const float *)rows->data)[i]));
}

static void floats(struct rows *rows, const struct sigproc_band *band, const size_t *beam, size_t nbeams,
                   size_t from, size_t steps, float *out)
{
    size_t n = band->nchannels;
    for (size_t c = 0; c < n; c++)
        for (size_t t = 0; t < steps; t++) {
            size_t channel = band->channel[c], cell = channel * rows->nsteps + from + t;
            bool missing = rows->valid != NULL && rows->valid[cell] == BR_MISSING;
            for (size_t b = 0; b < nbeams; b++) {
                float *mean = &rows->mean[channel * rows->nbeams + beam[b]],
                      *to = &out[(b * steps + t) * n + c];
                uint16_t *seen = &rows->seen[channel * rows->nbeams + beam[b]];
                *to = missing ? NAN : value_at(rows, cell * rows->nbeams + beam[b]);
                if (!isfinite(*to)) { /* also what a stage has made so: it must not stay in the mean */
                    *to = *mean;
                    continue;
                }
                if (*seen < TIME_CONSTANT) ++*seen;
                *mean += (*to - *mean) / (float)*seen;
            }
        }
}

static void hole(const struct rows *rows, const struct sigproc_band *band, size_t beam, size_t steps,
                 void *out)
{
    size_t n = band->nchannels;
    if (!rows->floats) {
        memset(out, ROWS_MEAN_LEVEL, steps * n);
        return;
    }
    float *value = out;
    for (size_t t = 0; t < steps; t++)
        for (size_t c = 0; c < n; c++) value[t * n + c] = rows->mean[band->channel[c] * rows->nbeams + beam];
}

void rows_make(struct rows *rows, const struct sigproc_band *band, const size_t *beam, size_t nbeams,
               size_t from, size_t steps, void *out)
{
    size_t bytes = steps * band->nchannels * rows_value_bytes(rows);
    if (rows->data != NULL && (rows->form == ROWS_F16 || rows->form == ROWS_F32)) {
        floats(rows, band, beam, nbeams, from, steps, out);
        return;
    }
    for (size_t b = 0; b < nbeams; b++) {
        void *to = (uint8_t *)out + b * bytes;
        if (rows->data == NULL)
            hole(rows, band, beam[b], steps, to);
        else if (rows->floats)
            restored(rows, band, beam[b], from, steps, to);
        else
            levels(rows, band, beam[b], from, steps, to);
    }
}
