/* mute_dishes - a complete out-of-tree stage: sets the electric field of chosen dishes to zero.
 *
 *   cc -shared -fPIC -o mute_dishes.so mute_dishes.c $(pkg-config --cflags --libs beamring)
 *   BEAMRING_PLUGIN_PATH=. beamring run pipeline.yaml */
#include <runtime/stage.h>

#include <string.h>

struct mute {
    struct br_ints dishes; /* parameter: indices along the dish axis */
    size_t ndishes;        /* length of the dish axis, the fastest one */
};

static const struct br_param params[] = {
    BR_PARAM("dishes", BR_P_INTS, struct mute, dishes,
             "dishes to silence, counted from 0 in the order of the dish axis", .required = true, .min = 0,
             .max = 65535),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2"}, {0}};
static const struct br_port outputs[] = {{"out", "the same, with the chosen dishes at zero"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct mute *mute = self;
    const struct br_array *array = &br_stage_input(stage, 0)->array;
    if (array->dtype != BR_INT4X2 || br_array_axis(array, "dish") != (int)array->naxes - 1)
        return br_stage_fail(stage, BR_E_INVALID, "the input must be int4x2 with the dish axis last");
    mute->ndishes = br_array_length(array, "dish");
    for (size_t i = 0; i < mute->dishes.count; i++)
        if ((size_t)mute->dishes.value[i] >= mute->ndishes)
            return br_stage_fail_at(stage, "dishes",
                                    "dish %lld does not exist; the input has dishes 0 to %zu",
                                    (long long)mute->dishes.value[i], mute->ndishes - 1);
    return BR_OK; /* the output's description is already a copy of the input's */
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    const struct mute *mute = self;
    const struct br_stream *stream = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED; /* the input has ended, and nothing is held back */

    size_t bytes = br_frame_bytes(stream, in);
    memcpy(out->data, in->data, bytes);
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(stream, in));
    uint8_t *e = out->data; /* one byte per dish, rows of ndishes */
    for (uint8_t *row = e; row < e + bytes; row += mute->ndishes)
        for (size_t i = 0; i < mute->dishes.count; i++) row[mute->dishes.value[i]] = 0;
    return BR_CONSUMED | BR_PRODUCED;
}

/* Which dishes are silent may change while the stage runs. An update comes as a second struct, which
 * configure has checked; its list lives until the next update holds. A stage that makes something of its
 * parameters (a table, memory of a GPU) makes it in `prepare`, exchanges it here, and frees the old one in
 * `discard`. */
static const char *const updates[] = {"dishes", NULL};

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    struct mute *mute = self;
    const struct mute *with = fresh;
    (void)stage, (void)sample; /* the next frame is the first that begins at this sample or after it */
    mute->dishes = with->dishes;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "mute_dishes",
    .summary = "sets the electric field of chosen dishes to zero",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .size = sizeof(struct mute),
    .configure = configure,
    .process = process,
    .updates = updates,
    .commit = commit,
};
