/* unpack - packets as they came to the electric field, and sums of powers on the way. */
#include "kernels/unpack/unpack.h"
#include "formats/packets/layout.h"
#include "runtime/stage.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/packet.h"
#include "stages/common/stage/shape.h"
#include "stages/unpack_description.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { UNPACK_PLANS = 64 };
enum { JOBS_EACH = 8 }; /* of a frame, for each thread: the last ones end nearly together */

struct unpack {
    /* parameters */
    const char *order;
    struct br_ints positions;
    int64_t pols, sums, threads;

    const struct packet_layout *layout;
    size_t npol, ndish;

    /* the inputs that have a position, in the packets' order */
    size_t ninputs;
    size_t *input_offset;   /* [ninputs] */
    uint32_t *input_source; /* [ninputs] */
    uint32_t *position;     /* [ninputs]: pol x ndish + dish */

    struct br_cuda *cuda; /* NULL on the CPU */
    struct br_unpack *plan[UNPACK_PLANS];
    unsigned nplans;
};

static const struct br_param params[] = {
    PARAM(INT, struct unpack, pols,
          "polarisations; default: as the packets say, or inputs / dishes of the telescope", .min = 1,
          .max = 64),
    PARAM(CHOICE, struct unpack, order,
          "how inputs are numbered (source after source, and within a source in the order of its packets): "
          "pol x dishes + dish, or dish x pols + pol",
          .def = "pol_dish", .choices = packet_orders),
    PARAM(INTS, struct unpack, positions,
          "for each input pol x dishes + dish; overrides `order`; -1: it is not a dish and is left out; "
          "positions without an input are zero",
          .min = -1, .max = 1 << 24),
    PARAM(INT, struct unpack, sums,
          "samples in a block of the second output (sums of powers): a multiple of a packet's samples that "
          "divides the frame",
          .unit = "samples", .min = 1, .max = BR_UNPACK_MAX_SUM),
    PARAM(INT, struct unpack, threads, "on the CPU: how many of the pipeline's threads share a frame; 0: all",
          .def = "0", .min = 0, .max = UNPACK_PLANS),
    {0},
};
static const struct br_port inputs[] = {{"in", "packets as received (capture, replay of pcap)"}, {0}};
static const struct br_port outputs[] = {
    {"out", "E[time][freq][pol][dish], int4x2"},
    {"sums", "may be left out: uint32 [time][freq][moment][pol][dish], moment = number of samples that "
             "arrived, sum of |E|^2, sum of |E|^4"},
    {0}};

/* --- configure --------------------------------------------------------------------------------- */

/* Polarisations and dishes, as the parameter, the packets or the telescope have them. */
static int find_shape(struct br_stage *stage, struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    const struct br_telescope *t = br_stage_telescope(stage);
    size_t dishes = t != NULL ? t->ndishes : 0;
    u->npol = u->pols > 0 ? (size_t)u->pols : l->npol;
    if (u->npol == 0 && dishes > 0 && l->ninputs % dishes == 0) u->npol = l->ninputs / dishes;
    char two[80] = "write ";
    if (l->ninputs % 2 == 0)
        snprintf(two, sizeof two, "write `pols: 2` for %zu dishes with two polarisations, ", l->ninputs / 2);
    if (u->npol == 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the number of polarisations is not known: neither the packets nor the "
                             "telescope say how %zu inputs "
                             "divide; %s`pols: 1` for %zu dishes, or add `telescope:` with its dishes",
                             l->ninputs, two, l->ninputs);
    if (u->pols > 0 && l->npol > 0 && u->npol != l->npol)
        return br_stage_fail_at(stage, "pols", "%" PRId64 " polarisations, but the packets have %zu", u->pols,
                                l->npol);
    u->ndish = dishes > 0 ? dishes : l->ninputs / u->npol;
    if (u->positions.count > 0 && u->ndish > 0) return BR_OK;
    if (u->npol * u->ndish != l->ninputs)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the packets bring %zu inputs, which are not %zu polarisations of %zu dishes; "
                             "give `positions`, one for each input, -1 for those that are not a dish",
                             l->ninputs, u->npol, u->ndish > 0 ? u->ndish : 1);
    return BR_OK;
}

/* Fills in npol, ndish and the inputs' tables. */
static int place_inputs(struct br_stage *stage, struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    size_t n = l->ninputs;
    int status = find_shape(stage, u);
    if (status != BR_OK) return status;
    const struct packet_places places = {u->positions, u->order, u->npol, u->ndish};
    const int64_t *position = packet_place_inputs(stage, l, &places);
    if (position == NULL) return BR_E_INVALID;
    u->input_offset = br_stage_alloc(stage, n * sizeof *u->input_offset);
    u->input_source = br_stage_alloc(stage, n * sizeof *u->input_source);
    u->position = br_stage_alloc(stage, n * sizeof *u->position);
    u->ninputs = 0;
    for (size_t i = 0; i < n; i++) {
        if (position[i] < 0) continue;
        u->input_offset[u->ninputs] = l->input_offset[i];
        u->input_source[u->ninputs] = l->input_source[i];
        u->position[u->ninputs++] = (uint32_t)position[i];
    }
    return u->ninputs > 0 ? BR_OK : br_stage_fail_at(stage, "positions", "no input has a position");
}

static int check_sums(struct br_stage *stage, const struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    bool wanted = br_stage_output(stage, 1) != NULL;
    if (u->sums == 0 && wanted)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the second output has sums of powers; give `sums`, the samples of a block");
    if (u->sums > 0 && !wanted)
        return br_stage_fail_at(stage, "sums", "there is no output for them; expected `out: [field, sums]`");
    if (u->sums > 0 && ((size_t)u->sums % l->packet_samples != 0 || l->frame_samples % (size_t)u->sums != 0))
        return br_stage_fail_at(
            stage, "sums", "%lld is not a multiple of a packet's %zu samples that divides a frame of %zu",
            (long long)u->sums, l->packet_samples, l->frame_samples);
    return BR_OK;
}

static int describe(struct br_stage *stage, const struct unpack *u, unsigned i)
{
    struct br_stream *out = br_stage_output(stage, i);
    size_t F = u->layout->nchannels, T = u->layout->frame_samples, P = u->npol, D = u->ndish;
    out->packets = NULL;
    out->side.naxes = 0;
    if (i == 0) return br_output_array(stage, out, BR_INT4X2, "time,freq,pol,dish", (size_t[]){T, F, P, D});
    out->zone[0].downsample = (unsigned)u->sums;
    return br_output_array(stage, out, BR_UINT32, "time,freq,moment,pol,dish",
                           (size_t[]){T / (size_t)u->sums, F, BR_UNPACK_SUMS, P, D});
}

static int configure(struct br_stage *stage, void *self)
{
    struct unpack *u = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    char text[160];
    if (in->packets == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is %s; it needs packets as received, from `capture` or a `replay` of "
                             "pcap files (a recording of them does not state their order)",
                             br_array_format(&in->array, text, sizeof text));
    u->layout = in->packets;
    int status = place_inputs(stage, u);
    if (status == BR_OK) status = check_sums(stage, u);
    for (unsigned i = 0; i < (u->sums > 0 ? 2u : 1u) && status == BR_OK; i++) status = describe(stage, u, i);
    return status;
}

/* --- start and stop ---------------------------------------------------------------------------- */

static unsigned count_plans(const struct br_stage *stage, const struct unpack *u)
{
    unsigned threads = br_stage_threads(stage);
    if (br_stage_device(stage) >= 0) return 1;
    if (u->threads > 0 && u->threads < threads) threads = (unsigned)u->threads;
    return threads < UNPACK_PLANS ? threads : UNPACK_PLANS;
}

/* Memory of a plan, and on a GPU the tables of channels and positions. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct unpack *u = self;
    const struct packet_layout *l = u->layout;
    size_t positions = u->npol * u->ndish, width = (positions + 31) / 32 * 32;
    size_t tables = 20 * l->nchannels + 48 * u->ninputs + 8 * positions;
    size_t rows = (l->packet_samples + 1) * width + (u->sums > 0 ? 8 * l->nchannels * width : 0);
    br_stage_uploads_memory(stage, 0, m);
    m->host += count_plans(stage, u) * (tables + (br_stage_device(stage) < 0 ? rows : 0));
    if (br_stage_device(stage) >= 0) m->device += 8 * (positions + l->nchannels);
}

static int start(struct br_stage *stage, void *self)
{
    struct unpack *u = self;
    const struct packet_layout *l = u->layout;
    enum br_backend backend;
    int status = br_stage_backend(stage, 0, &backend, &u->cuda);
    if (status != BR_OK) return status;
    struct br_unpack_params p = {.nsources = l->nsources,
                                 .nstreams = l->nstreams,
                                 .packet_samples = l->packet_samples,
                                 .packet_bytes = l->packet_bytes,
                                 .receipt_bytes = l->receipt_bytes,
                                 .time_stride = l->time_stride,
                                 .packet_channels = l->packet_channels,
                                 .channel_stride = l->channel_stride,
                                 .nchannels = l->nchannels,
                                 .channel_offset = l->channel_offset,
                                 .channel_stream = l->channel_stream,
                                 .ninputs = u->ninputs,
                                 .input_offset = u->input_offset,
                                 .input_source = u->input_source,
                                 .position = u->position,
                                 .npositions = u->npol * u->ndish,
                                 .offset_binary = l->offset_binary,
                                 .real_high = l->real_high,
                                 .sum_samples = (size_t)u->sums,
                                 .cuda = u->cuda};
    unsigned n = count_plans(stage, u);
    for (u->nplans = 0; u->nplans < n; u->nplans++) {
        struct br_why why = {""};
        if (br_unpack_create(&u->plan[u->nplans], backend, &p, &why) != 0)
            return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    }
    return br_stage_gpu_holds(stage, u->cuda);
}

static int stop(struct br_stage *stage, void *self)
{
    struct unpack *u = self;
    for (unsigned i = 0; i < UNPACK_PLANS; i++) br_unpack_destroy(u->plan[i]);
    br_stage_gpu_end(stage, u->cuda);
    return BR_OK;
}

/* --- process ----------------------------------------------------------------------------------- */

/* One frame, of which each job is some blocks. */
struct share {
    const struct unpack *u;
    const struct br_frame *in, *sums; /* sums: NULL if not wanted */
    uint8_t *out;
    size_t blocks, per_sum; /* of packets; blocks that go together */
    size_t groups, per_job; /* such groups of blocks */
};

static void unpack_share(void *arg, size_t job, unsigned worker)
{
    const struct share *s = arg;
    const struct packet_layout *l = s->u->layout;
    size_t row = l->nchannels * s->u->npol * s->u->ndish;
    size_t from = job * s->per_job, first = from * s->per_sum, end = first + s->per_job * s->per_sum;
    if (end > s->blocks) end = s->blocks;
    uint32_t *sums = s->sums != NULL ? (uint32_t *)s->sums->data + from * BR_UNPACK_SUMS * row : NULL;
    br_unpack_execute(s->u->plan[worker], end - first, (const uint8_t *)s->in->data + first * l->block_bytes,
                      (const uint8_t *)s->in->side + first * l->receipt_bytes,
                      s->out + first * l->packet_samples * row, sums);
}

static int unpack_frame(struct br_stage *stage, struct share *s)
{
    s->groups = (s->blocks + s->per_sum - 1) / s->per_sum;
    s->per_job = s->groups / (JOBS_EACH * s->u->nplans) + 1;
    if (s->u->nplans == 1) s->per_job = s->groups;
    if (s->groups == 0) return BR_OK;
    size_t jobs = (s->groups + s->per_job - 1) / s->per_job;
    if (jobs == 1) {
        unpack_share(s, 0, 0);
        return BR_OK;
    }
    int status = br_stage_parallel_begin(stage, s->u->nplans, jobs, unpack_share, s);
    return status == BR_OK ? br_stage_parallel_end(stage) : status;
}

/* The share of the inputs of each block of sums: the mean over its samples; what a frame that was cut short
 * lacks of its last block is missing. */
static void sum_validity(const struct unpack *u, const struct br_stream *stream, const struct br_frame *in,
                         struct br_frame *out)
{
    size_t F = u->layout->nchannels, block = (size_t)u->sums, samples = (size_t)in->samples;
    out->complete = in->complete && samples % block == 0;
    if (out->complete) return;
    for (size_t b = 0; b * block < samples; b++) {
        size_t end = (b + 1) * block < samples ? (b + 1) * block : samples;
        for (size_t f = 0; f < F; f++) {
            uint64_t sum = 0;
            for (size_t t = b * block; t < end; t++) sum += in->complete ? BR_VALID : in->valid[t * F + f];
            out->valid[b * F + f] = br_validity(sum, BR_VALID * block);
        }
    }
    br_frame_close_validity(stream, out);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct unpack *u = self;
    const struct packet_layout *l = u->layout;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0], *sums = u->sums > 0 ? io->out[1] : NULL;
    if (in == NULL) return BR_FINISHED;
    struct share share = {u,
                          in,
                          sums,
                          out->data,
                          (size_t)in->samples / l->packet_samples,
                          u->sums > 0 ? (size_t)u->sums / l->packet_samples : 1,
                          0,
                          0};
    int status = unpack_frame(stage, &share);
    if (status != BR_OK) return status;
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, (size_t)in->samples * l->nchannels);
    if (sums != NULL) sum_validity(u, br_stage_output(stage, 1), in, sums);
    status = br_stage_gpu_check(stage, u->cuda);
    return status == BR_OK ? BR_CONSUMED | BR_PRODUCED : status;
}

STAGE_EXPORT(unpack, struct unpack, "converts packets to the electric field", .inputs = inputs,
             .outputs = outputs, .flags = BR_STAGE_CUDA | BR_STAGE_OPTIONAL_OUTPUTS, .memory = memory);
