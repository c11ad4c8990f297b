/* extents_planes.c - reading extents whose axes lie in another order than the stream's. */
#include "formats/pieces/extents.h"

#include "formats/chime/planes.h"
#include "formats/common/fileio.h"

#include <string.h>

/* Frequency slower than time: some channels at a time, so that both the reads and the writes are long enough.
 * Dishes may be slower still. */
static int read_planes(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    const struct extent *x = &e->extent[p->extent];
    bool apart = !extent_cell_is_whole(e, x); /* a plane is one dish, its polarisations side by side */
    size_t unit = (size_t)x->stride_time, parts = apart ? e->ndish : 1, n = (size_t)(p->to - p->from);
    size_t most = (size_t)EXTENTS_PLANE / unit, nchannels = e->stream.nchannels;
    if (most == 0) most = 1; /* extents_start made room for it */
    for (size_t i = 0; i < n; i += most) {
        size_t rows = n - i < most ? n - i : most, plane = rows * unit + EXTENTS_PLANE_PAD;
        uint8_t *out =
            (uint8_t *)e->out->data + (p->row + i) * e->row_bytes + (x->channel + p->channel) * e->cell_bytes;
        for (size_t d = 0; d < parts; d++) {
            const uint8_t *in[EXTENTS_PLANES];
            for (size_t c = 0; c < p->nchannels; c++) {
                uint64_t at = x->offset + (p->channel + c) * x->stride_freq + d * x->stride_dish +
                              (p->from - x->first + i) * unit;
                int status = fileio_read_all(e->fd[x->file], e->files.path[x->file], scratch + c * plane,
                                             rows * unit, at, error);
                if (status != BR_OK) return status;
                in[c] = scratch + c * plane;
            }
            if (!apart) {
                planes_to_rows(in, p->nchannels, unit, rows, 0, out, e->row_bytes, e->cell_bytes, e->far);
                continue;
            }
            for (size_t t = 0; t < rows; t++)
                for (size_t c = 0; c < p->nchannels; c++)
                    for (size_t q = 0; q < e->npol; q++)
                        memcpy(out + t * e->row_bytes + c * e->cell_bytes +
                                   (q * e->ndish + d) * e->element_bytes,
                               in[c] + t * unit + q * e->element_bytes, e->element_bytes);
        }
        if (e->coding != CODING_INT4X2)
            extents_put_cells(e, out, e->row_bytes, out, e->row_bytes, p->nchannels * e->cell_bytes, rows,
                              e->out->valid + (p->row + i) * nchannels + x->channel + p->channel, nchannels);
    }
    return BR_OK;
}

/* True when what is faster than time is what read_planes knows: all inputs of a channel in the stream's
 * order, or the polarisations of one dish. */
static bool in_planes(const struct extents *e, const struct extent *x)
{
    bool whole = extent_cell_is_whole(e, x) && x->stride_time == e->cell_bytes;
    bool one_dish = (e->npol == 1 || x->stride_pol == e->element_bytes) && x->stride_dish > x->stride_time &&
                    x->stride_time == e->npol * e->element_bytes;
    return (x->nchannels == 1 || x->stride_freq > x->stride_time) && (whole || one_dish);
}

uint32_t extents_across(const struct extents *e, const struct extent *x)
{
    bool channels_inside = x->nchannels > 1 && x->stride_freq < x->stride_time;
    return channels_inside && !in_planes(e, x) ? x->nchannels : EXTENTS_PLANES;
}

/* `n` elements, `from` and `to` bytes apart. */
static void put_elements(const uint8_t *in, size_t from, uint8_t *out, size_t to, size_t n, size_t bytes)
{
    if (bytes == 1)
        for (size_t i = 0; i < n; i++) out[i * to] = in[i * from];
    else
        for (size_t i = 0; i < n; i++) memcpy(out + i * to, in + i * from, bytes);
}

/* Any order. What is faster than time lies within stride_time bytes; one read for each place on the axes that
 * are slower. */
static int read_scattered(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    const struct extent *x = &e->extent[p->extent];
    size_t unit = (size_t)x->stride_time, n = (size_t)(p->to - p->from), size = e->element_bytes;
    size_t most = (size_t)EXTENTS_PLANE / unit > 0 ? (size_t)EXTENTS_PLANE / unit : 1;
    const size_t count[3] = {p->nchannels, e->npol, e->ndish};
    const uint64_t stride[3] = {x->stride_freq, x->stride_pol, x->stride_dish};
    const size_t pitch[3] = {e->cell_bytes, e->ndish * size, size};
    size_t slow[3], fast[3], span = size; /* of a time step, from the piece's first channel to its last */
    for (int k = 0; k < 3; k++) {
        slow[k] = stride[k] >= unit ? count[k] : 1;
        fast[k] = stride[k] >= unit ? 1 : count[k];
        span += (fast[k] - 1) * (size_t)stride[k];
    }
    uint64_t first = x->offset + p->channel * x->stride_freq;
    uint8_t *target =
        (uint8_t *)e->out->data + p->row * e->row_bytes + (x->channel + p->channel) * e->cell_bytes;
    for (size_t i = 0; i < n; i += most) {
        size_t rows = n - i < most ? n - i : most;
        for (size_t s = 0; s < slow[0] * slow[1] * slow[2]; s++) {
            size_t at[3] = {s / slow[2] / slow[1], s / slow[2] % slow[1], s % slow[2]};
            uint64_t offset = first + (p->from - x->first + i) * unit;
            uint8_t *out = target + i * e->row_bytes;
            for (int k = 0; k < 3; k++) {
                offset += at[k] * stride[k];
                out += at[k] * pitch[k];
            }
            int status = fileio_read_all(e->fd[x->file], e->files.path[x->file], scratch,
                                         (rows - 1) * unit + span, offset, error);
            if (status != BR_OK) return status;
            for (size_t c = 0; c < fast[0]; c++)
                for (size_t q = 0; q < fast[1]; q++)
                    for (size_t d = 0; d < fast[2]; d++)
                        put_elements(scratch + c * stride[0] + q * stride[1] + d * stride[2], unit,
                                     out + c * pitch[0] + q * pitch[1] + d * pitch[2], e->row_bytes, rows,
                                     size);
        }
    }
    if (e->coding != CODING_INT4X2)
        extents_put_cells(e, target, e->row_bytes, target, e->row_bytes, p->nchannels * e->cell_bytes, n,
                          e->out->valid + p->row * e->stream.nchannels + x->channel + p->channel,
                          e->stream.nchannels);
    return BR_OK;
}

int extents_read_planes(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    return in_planes(e, &e->extent[p->extent]) ? read_planes(e, p, scratch, error)
                                               : read_scattered(e, p, scratch, error);
}
