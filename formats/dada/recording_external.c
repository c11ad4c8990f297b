/* recording_external.c - the description of a DADA file of others: the electric field, 4+4 or 8+8 bit, in the
 * order that ORDER or the user says. Nothing is assumed that does not stand in either of them. */
#include "formats/dada/recording_describe.h"

#include "formats/common/axis_order.h"

#include <inttypes.h>
#include <stdio.h>

/* A length from the header or from the pipeline, which must agree. */
static int agree(struct describe *d, const char *key, const char *axis, size_t given, const char *giver,
                 size_t *length)
{
    uint64_t value = 0;
    int found = dada_get_u64(d->header, key, 1, RECORDING_MAX_ELEMENTS, &value, d->error);
    if (found < 0) return found;
    if (found && given > 0 && given != value)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: %s is %llu, but %s has %zu: the recording's shape contradicts it",
                       d->header->file, key, (unsigned long long)value, giver, given);
    if (!found) value = given;
    if (value == 0)
        return br_fail(d->error, BR_E_INVALID, "%s: %s is missing and %s does not say how many (%s axis)",
                       d->header->file, key, giver, axis);
    *length = (size_t)value;
    return BR_OK;
}

/* Keys of axes that E[time][freq][pol][dish] does not have, and of samples that lie in heaps. */
static const char *const other_axes[] = {"NBEAM", "NBAND", "NSUBBAND", "NSTREAM", NULL},
                         *const heaps[] = {"INNER_T", "HEAP_NSAMP", "NSAMP_PER_HEAP", "SAMPLES_PER_HEAP",
                                           NULL};

static const char *above_one(const struct dada_header *header, const char *const *keys, uint64_t *value)
{
    struct br_error ignored = {0};
    for (; *keys != NULL; keys++)
        if (dada_get_u64(header, *keys, 2, UINT64_MAX, value, &ignored) > 0) return *keys;
    return NULL;
}

/* A header whose other keys contradict samples that lie as ORDER says. */
static int check_layout(struct describe *d, const size_t length[AXIS_COUNT], size_t sample_bytes)
{
    uint64_t value = 0;
    const char *file = d->header->file, *key = above_one(d->header, other_axes, &value);
    if (key != NULL)
        return br_fail(d->error, BR_E_INVALID,
                       "%s: %s is %" PRIu64
                       ", an axis that ORDER '%s' does not place; if the file holds only "
                       "[time][freq][pol][dish], say how: `stream: {order: TFPA}`",
                       file, key, value, dada_get(d->header, "ORDER"));
    key = above_one(d->header, heaps, &value);
    uint64_t resolution = 0, samples = 0;
    if (key != NULL) {
        samples = value;
    } else {
        int found = dada_get_u64(d->header, "RESOLUTION", 0, UINT64_MAX, &resolution, d->error);
        if (found < 0) return found;
        if (resolution > 0 && resolution % sample_bytes != 0 && sample_bytes % resolution != 0)
            return br_fail(
                d->error, BR_E_INVALID,
                "%s: RESOLUTION is %" PRIu64 " bytes, but a sample of %zu channels, %zu polarisations "
                "and %zu dishes has %zu: something in the header is wrong, or another axis is missing; "
                "if nothing is, say how the axes lie: `stream: {order: TFPA}`",
                file, resolution, length[AXIS_F], length[AXIS_P], length[AXIS_A], sample_bytes);
        key = "RESOLUTION";
        value = resolution;
        samples = resolution / sample_bytes;
    }
    if (samples <= 1) return BR_OK;
    return br_fail(
        d->error, BR_E_INVALID,
        "%s: %s is %" PRIu64 ", so that %" PRIu64 " samples belong together, and ORDER '%s' does not say "
        "how they lie; give `stream: {order: ...}`, slowest axis first: \"TFPA\" if sample follows "
        "sample, or for heaps such as [pol][freq][time] \"pol,freq,time:%" PRIu64 "\"",
        file, key, value, samples, dada_get(d->header, "ORDER"), samples);
}

/* What ORDER says, else the user. */
static int describe_order(struct describe *d, const size_t length[AXIS_COUNT], size_t sample_bytes)
{
    static const char *const names[] = {"time", "freq", "pol", "dish"};
    struct axis_order said, own;
    const char *text = d->hints->order, *header = dada_get(d->header, "ORDER"), *why = "",
               *file = d->header->file;
    if (text != NULL && axis_order_parse(text, &said, &why) != 0)
        return br_fail(d->error, BR_E_INVALID, "`stream: order` is '%s': %s", text, why);
    int lacks = text != NULL ? axis_order_lacks(&said, length) : -1;
    if (lacks >= 0)
        return br_fail(d->error, BR_E_INVALID, "%s: `stream: order` is '%s', without the axis %s of %zu",
                       file, text, names[lacks], length[lacks]);
    bool understood = header != NULL && axis_order_parse(header, &own, &why) == 0;
    lacks = understood ? axis_order_lacks(&own, length) : -1;
    if (!understood || lacks >= 0) {
        if (text != NULL) {
            d->out->order = said;
            return BR_OK;
        }
        if (header == NULL)
            return br_fail(
                d->error, BR_E_INVALID,
                "%s: ORDER is missing, so that nothing says how its axes lie; give `stream: {order: ...}`, "
                "slowest axis first: TFPA is [time][freq][pol][dish]",
                file);
        char reason[96];
        snprintf(reason, sizeof reason, "the axis %s of %zu is not in it", lacks >= 0 ? names[lacks] : "",
                 lacks >= 0 ? length[lacks] : 0);
        return br_fail(
            d->error, BR_E_INVALID,
            "%s: ORDER is '%.40s': %s; give `stream: {order: ...}`, slowest axis first: TFPA, or for heaps "
            "\"pol,freq,time:256\"",
            file, header, lacks >= 0 ? reason : why);
    }
    if (text == NULL) {
        d->out->order = own;
        return check_layout(d, length, sample_bytes);
    }
    struct br_error contradiction = {0};
    bool clear = check_layout(d, length, sample_bytes) == BR_OK;
    *d->error = contradiction; /* what the user says settles it */
    if (clear && !axis_order_same(&own, &said, length) && (d->hints->override & BR_HINT_ORDER) == 0)
        return br_fail(
            d->error, BR_E_INVALID,
            "%s: ORDER says %s, but `stream: order` says %s; take the key out of `stream:`, or insist on "
            "it: `stream: {override: [order]}`",
            file, header, text);
    d->out->order = said;
    return BR_OK;
}

int describe_external(struct describe *d)
{
    struct recording *r = d->out;
    struct br_stream *s = &r->stream;
    uint64_t bits = 0, ndim = 0;
    int found = dada_get_u64(d->header, "NBIT", 0, UINT64_MAX, &bits, d->error);
    if (found < 0) return found;
    if (!found || (bits != 4 && bits != 8))
        return dada_bad(
            d->header, "NBIT", d->error,
            "4 or 8: a file without DTYPE holds an electric field, complex numbers of 4+4 or 8+8 bits");
    found = dada_get_u64(d->header, "NDIM", 0, UINT64_MAX, &ndim, d->error);
    if (found < 0) return found;
    if (!found || ndim != 2)
        return dada_bad(d->header, "NDIM", d->error, "2: a file without DTYPE holds complex numbers");
    size_t length[AXIS_COUNT] = {1, 1, 1, 1};
    const struct br_stream_hints *hints = d->hints;
    int status = agree(d, "NCHAN", "freq", hints->nfreq, "`stream: freq_mhz`", &length[AXIS_F]);
    if (status == BR_OK) status = agree(d, "NPOL", "pol", hints->npol, "`stream: npol`", &length[AXIS_P]);
    if (status == BR_OK)
        status = agree(d, "NANT", "dish", d->telescope ? d->telescope->ndishes : 0, "`telescope: dishes`",
                       &length[AXIS_A]);
    if (status != BR_OK) return status;
    /* one step a frame until the reader chooses */
    status = br_array_init(&s->array, bits == 8 ? BR_INT8X2 : BR_INT4X2, "time,freq,pol,dish",
                           (size_t[]){1, length[AXIS_F], length[AXIS_P], length[AXIS_A]}, d->error);
    if (status != BR_OK) {
        br_error_context(d->error, "%s", d->header->file);
        return status;
    }
    status = describe_order(d, length, br_array_bytes(&s->array));
    if (status != BR_OK) return status;
    static const struct axis_order plain = {4, {AXIS_T, AXIS_F, AXIS_P, AXIS_A}, 0};
    r->plain = axis_order_same(&r->order, &plain, length);
    s->frame_samples = 1;
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, length[AXIS_F], 1, 1, 0};
    s->nchannels = length[AXIS_F];
    s->scale = 1;
    return BR_OK;
}
