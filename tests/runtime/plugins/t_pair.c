/* t_pair - for tests: collects two input frames into one output frame; what is left over goes out when the
 * input ends. */
#include <runtime/stage.h>

#include <string.h>

struct pair {
    uint64_t held; /* samples in the output frame so far */
};

static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {{"out", "frames of twice the length"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)self;
    struct br_stream *out = br_stage_output(stage, 0);
    out->frame_samples *= 2;
    out->array.axis[0].length *= 2;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage;
    struct pair *p = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return p->held > 0 ? BR_PRODUCED | BR_FINISHED : BR_FINISHED;
    memcpy((uint8_t *)out->data + p->held, in->data, in->samples);
    out->first = p->held == 0 ? in->first : out->first;
    out->samples = p->held += in->samples;
    if (in->first / in->samples % 2 == 0) return BR_CONSUMED;
    p->held = 0;
    return BR_CONSUMED | BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_pair",
    .summary = "joins frames",
    .inputs = inputs,
    .outputs = outputs,
    .size = sizeof(struct pair),
    .configure = configure,
    .process = process,
};
