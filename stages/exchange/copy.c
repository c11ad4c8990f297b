/* copy.c - parts of frames in memory; see plan.h. */
#include "stages/exchange/plan.h"

#include <string.h>

static size_t element(const struct plan *plan)
{
    return br_dtype_bits(plan->all.array.dtype) / 8;
}

struct br_part plan_part(const struct br_stream *stream, size_t channel, uint64_t first, uint64_t samples)
{
    unsigned n = br_stream_nparts(stream);
    struct br_part part = br_stream_part(stream, 0, first, samples);
    for (unsigned i = 1; i < n && channel >= part.first_channel + part.nchannels; i++)
        part = br_stream_part(stream, i, first, samples);
    return part;
}

size_t plan_lengths(const struct plan *plan, const struct crossing *c, unsigned i, size_t nsteps,
                    size_t length[BR_MAX_AXES])
{
    const struct br_array *a = &plan->all.array;
    size_t bytes = element(plan);
    for (unsigned k = 0; k < a->naxes; k++) {
        length[k] = a->axis[k].length;
        if (strcmp(a->axis[k].name, "freq") == 0) length[k] = c->strip[i].nfreq;
        if (strcmp(a->axis[k].name, "beam") == 0) length[k] = c->nbeam;
        if (strcmp(a->axis[k].name, "time") == 0) length[k] = nsteps;
        bytes *= length[k];
    }
    return bytes;
}

struct view plan_view(const struct br_stream *stream, size_t channel, size_t beam, uint64_t first,
                      uint64_t samples, size_t step)
{
    struct br_part part = plan_part(stream, channel, first, samples);
    const struct br_array *a = &stream->array;
    struct view v = {.offset = part.offset};
    size_t stride = br_dtype_bits(a->dtype) / 8;
    for (unsigned k = a->naxes; k-- > 0;) {
        size_t length = a->axis[k].length, skip = 0;
        v.stride[k] = stride;
        if (strcmp(a->axis[k].name, "freq") == 0) {
            length = part.nchannels;
            skip = channel - part.first_channel;
        } else if (strcmp(a->axis[k].name, "time") == 0) {
            length = part.nsteps;
            skip = step;
        } else if (strcmp(a->axis[k].name, "beam") == 0) {
            skip = beam;
        }
        v.offset += skip * stride;
        stride *= length;
    }
    return v;
}

struct view plan_dense(const struct plan *plan, const size_t length[BR_MAX_AXES])
{
    struct view v = {0};
    size_t stride = element(plan);
    for (unsigned k = plan->all.array.naxes; k-- > 0;) {
        v.stride[k] = stride;
        stride *= length[k];
    }
    return v;
}

size_t plan_message_bytes(const struct plan *plan, const struct crossing *c, uint64_t first, uint64_t samples)
{
    size_t bytes = 0, length[BR_MAX_AXES];
    for (unsigned i = 0; i < c->nstrips; i++)
        bytes += plan_lengths(plan, c, i, br_time_steps(first, samples, c->strip[i].downsample), length);
    return bytes;
}

/* The innermost axes that lie in one piece in both: returns their bytes, and the number of axes left. */
static size_t dense_run(const struct plan *plan, const size_t *length, const size_t *a, const size_t *b,
                        unsigned *left)
{
    size_t width = element(plan);
    unsigned n = plan->all.array.naxes;
    while (n > 0 && ((a[n - 1] == width && b[n - 1] == width) || length[n - 1] == 1)) width *= length[--n];
    *left = n;
    return width;
}

bool plan_is_dense(const struct plan *plan, const size_t length[BR_MAX_AXES], const struct view *view)
{
    unsigned left;
    dense_run(plan, length, view->stride, view->stride, &left);
    return left == 0;
}

int copies_make(struct br_stage *stage, struct copies *copies)
{
    unsigned n = copies->count;
    copies->count = 0;
    return n > 0 ? br_stage_copy_all(stage, copies->rows, n) : BR_OK;
}

static int add(struct br_stage *stage, struct copies *copies, struct br_rows rows)
{
    copies->rows[copies->count++] = rows;
    bool full = copies->count == sizeof copies->rows / sizeof *copies->rows;
    return full || br_stage_device(stage) < 0 ? copies_make(stage, copies) : BR_OK;
}

int plan_copy(struct br_stage *stage, struct copies *copies, const struct plan *plan,
              const size_t length[BR_MAX_AXES], void *to, const struct view *to_view, const void *from,
              const struct view *from_view)
{
    unsigned left;
    size_t width = dense_run(plan, length, to_view->stride, from_view->stride, &left);
    unsigned char *t = (unsigned char *)to + to_view->offset;
    const unsigned char *f = (const unsigned char *)from + from_view->offset;
    if (left == 0) return add(stage, copies, (struct br_rows){t, width, f, width, width, 1});
    /* Rows along the innermost axis that is left, and along those around it that go on evenly. */
    unsigned inner = left - 1;
    size_t rows = length[inner], t_pitch = to_view->stride[inner], f_pitch = from_view->stride[inner];
    while (inner > 0 && to_view->stride[inner - 1] == rows * t_pitch &&
           from_view->stride[inner - 1] == rows * f_pitch)
        rows *= length[--inner];
    size_t at[BR_MAX_AXES] = {0};
    for (;;) {
        size_t t_at = 0, f_at = 0;
        for (unsigned k = 0; k < inner; k++) {
            t_at += at[k] * to_view->stride[k];
            f_at += at[k] * from_view->stride[k];
        }
        int status = add(stage, copies, (struct br_rows){t + t_at, t_pitch, f + f_at, f_pitch, width, rows});
        if (status != BR_OK) return status;
        unsigned k = inner;
        while (k > 0 && ++at[k - 1] == length[k - 1]) at[--k] = 0;
        if (k == 0) return BR_OK;
    }
}

int plan_set(struct br_stage *stage, const struct plan *plan, const size_t length[BR_MAX_AXES], void *to,
             const struct view *view, int byte)
{
    unsigned left;
    size_t width = dense_run(plan, length, view->stride, view->stride, &left);
    unsigned char *t = (unsigned char *)to + view->offset;
    size_t at[BR_MAX_AXES] = {0};
    if (left == 0) return br_stage_set_rows(stage, t, width, byte, width, 1);
    unsigned inner = left - 1;
    for (;;) {
        size_t t_at = 0;
        for (unsigned k = 0; k < inner; k++) t_at += at[k] * view->stride[k];
        int status = br_stage_set_rows(stage, t + t_at, view->stride[inner], byte, width, length[inner]);
        if (status != BR_OK) return status;
        unsigned k = inner;
        while (k > 0 && ++at[k - 1] == length[k - 1]) at[--k] = 0;
        if (k == 0) return BR_OK;
    }
}

int plan_pack(struct br_stage *stage, struct copies *copies, const struct plan *plan,
              const struct crossing *c, const struct br_frame *in, unsigned char *to, size_t *bytes)
{
    *bytes = 0;
    for (unsigned i = 0; i < c->nstrips; i++) {
        const struct strip *s = &c->strip[i];
        size_t length[BR_MAX_AXES];
        size_t strip_bytes =
            plan_lengths(plan, c, i, br_time_steps(in->first, in->samples, s->downsample), length);
        struct view from =
            plan_view(&plan->from[plan->rank], s->from, c->beam_from, in->first, in->samples, 0);
        struct view dense = plan_dense(plan, length);
        int status = plan_copy(stage, copies, plan, length, to + *bytes, &dense, in->data, &from);
        if (status != BR_OK) return status;
        *bytes += strip_bytes;
    }
    return BR_OK;
}
