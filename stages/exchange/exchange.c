/* exchange - the corner turn between the ranks of a job: all channels of some beams out of some channels
 * of all beams, and back.
 *
 * A frame's header goes to all ranks by the runtime's posts, its data by messages. Frames of all ranks
 * begin at multiples of their length in the base counter, so that what belongs together has the same
 * number, the block. A block is put together in the output's own frames, several at a time, and goes on
 * when no rank can have anything of it any more: its next frame is a later one, or its stream has ended. */
#include "stages/exchange/exchange.h"

#include "runtime/stage.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/shape.h"
#include "stages/exchange/nccl.h"
#include "stages/exchange_description.h"

#include <stdio.h>
#include <string.h>

static const char *const directions[] = {"beams", "channels", NULL};
static const struct br_param params[] = {
    PARAM(CHOICE, struct exchange, to,
          "`beams`: from some channels of all beams to all channels of some beams; `channels`: the reverse",
          .def = "beams", .choices = directions),
    PARAM(INTS, struct exchange, shares,
          "how many beams (`to: channels`: coarse channels) each rank gets, in the order of ranks; default: "
          "evenly",
          .min = 1, .max = 1 << 30),
    PARAM(INT, struct exchange, frames, "frames in flight at the same time", .def = "4", .min = 1,
          .max = MAX_FRAMES),
    PARAM(BOOL, struct exchange, holes, "whether channels may be missing between the bands of two ranks",
          .def = "false"),
    {0},
};
static const struct br_port inputs[] = {
    {"in", "any stream with freq and beam axes: J[freq][time][beam], J[beam][freq][pol][time]"}, {0}};
static const struct br_port outputs[] = {{"out", "the same axes, with other channels and beams"}, {0}};

static int check_input(struct br_stage *stage, const struct br_stream *in)
{
    char text[200];
    br_array_format(&in->array, text, sizeof text);
    if (in->packets != NULL || br_array_axis(&in->array, "beam") < 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the input is %s; expected an array with freq and beam axes, such as that of "
                             "frb_beams or baseband_beamform",
                             text);
    if (in->side.naxes > 0 || br_dtype_bits(in->array.dtype) < 8)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "the input is %s%s; expected whole bytes and no scales: put it before the stage that "
            "quantizes",
            text, in->side.naxes > 0 ? " with scales beside it" : "");
    int status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    for (unsigned z = 0; z < in->nzones; z++)
        if (in->frame_samples % in->zone[z].downsample != 0)
            return br_stage_fail(
                stage, BR_E_INVALID,
                "frames span %llu base samples, which are not a whole number of time steps of %u",
                (unsigned long long)in->frame_samples, in->zone[z].downsample);
    return BR_OK;
}

/* Prints the rates at which all other ranks together send to `rank` and receive from it. */
static void say_what_crosses(struct br_stage *stage, const struct exchange *x)
{
    const struct plan *plan = &x->plan;
    double frames = 1 / ((double)plan->all.frame_samples * br_stream_sample_s(&plan->all)), out = 0, in = 0;
    for (unsigned r = 0; r < plan->ranks; r++) {
        if (r == plan->rank) continue;
        out += (double)plan_message_bytes(plan, &plan->out[r], 0, plan->all.frame_samples);
        in += (double)plan_message_bytes(plan, &plan->in[r], 0, plan->all.frame_samples);
    }
    br_stage_crosses(stage, out * frames, in * frames);
}

static int configure(struct br_stage *stage, void *self)
{
    struct exchange *x = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    char why[200] = "";
    int status = check_input(stage, in);
    x->plan.gpu = br_stage_device(stage) >= 0 && nccl_is_there(why, sizeof why);
    if (status == BR_OK)
        status = plan_make(stage, &x->plan, strcmp(x->to, "beams") == 0, x->shares.value, x->shares.count,
                           x->holes);
    if (status != BR_OK) return status;
    for (unsigned r = 0; r < x->plan.ranks; r++) {
        if (plan_message_bytes(&x->plan, &x->plan.out[r], 0, in->frame_samples) <= BR_MESSAGE_MOST) continue;
        return br_stage_fail(stage, BR_E_INVALID,
                             "a frame's part for rank %u has more than 2 GiB; expected "
                             "shorter frames",
                             r);
    }
    if (!x->plan.gpu && br_stage_device(stage) >= 0)
        status = br_stage_decline_gpu(stage, "data go through the host's memory: %s",
                                      why[0] != '\0' ? why : "another rank has no GPU, or no NCCL");
    if (status != BR_OK) return status;
    x->way = x->plan.gpu ? &nccl_way : &host_way;
    if (x->plan.ranks > 1 && br_stage_device(stage) < 0 && !br_stage_has_messages(stage))
        return br_stage_fail(
            stage, BR_E_INVALID,
            "in the host's memory ranks exchange data by MPI; expected `beamring run --mpi`");
    say_what_crosses(stage, x);
    *br_stage_output(stage, 0) = x->plan.to[x->plan.rank];
    br_stage_suggest_depth(stage, 0, (unsigned)x->frames + 2);
    return BR_OK;
}

static size_t most_cells(const struct exchange *x)
{
    size_t most = br_stream_max_validity(&x->plan.to[x->plan.rank]);
    for (unsigned r = 0; r < x->plan.ranks; r++) {
        size_t n = br_stream_max_validity(&x->plan.from[r]);
        if (n > most) most = n;
    }
    return most;
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct exchange *x = self;
    m->host += 3 * most_cells(x) + (size_t)x->frames * x->plan.ranks * sizeof(struct cover);
    x->way->memory(stage, x, m);
}

static int start(struct br_stage *stage, void *self)
{
    struct exchange *x = self;
    unsigned n = x->plan.ranks;
    size_t cells = most_cells(x) + 8;
    for (unsigned i = 0; i < (unsigned)x->frames; i++)
        x->open[i].of = br_stage_alloc(stage, n * sizeof *x->open[i].of);
    x->reached = br_stage_alloc(stage, n * sizeof *x->reached);
    x->ended = br_stage_alloc(stage, n * sizeof *x->ended);
    x->cells = br_stage_alloc(stage, cells);
    x->cell_copy = br_stage_alloc(stage, cells);
    x->packed = br_stage_alloc(stage, cells + 64);
    x->wait_text = br_stage_alloc(stage, n * sizeof *x->wait_text);
    for (unsigned r = 0; r < n; r++) {
        char *text = br_stage_alloc(stage, 32);
        snprintf(text, 32, "rank %u", r);
        x->wait_text[r] = text;
    }
    return x->way->start(stage, x);
}

/* --- headers --- */

struct header {
    uint64_t first, samples; /* samples 0: there is nothing more */
    uint64_t complete;       /* else validity follows */
};

static int post(struct br_stage *stage, struct exchange *x, const struct br_frame *in)
{
    struct header h = {0};
    unsigned char *at = x->packed;
    size_t bytes = sizeof h;
    if (x->plan.ranks == 1) return BR_OK;
    if (in != NULL) {
        h = (struct header){in->first, in->samples, in->complete};
        if (!in->complete)
            bytes += validity_pack(in->valid, br_frame_cells(br_stage_input(stage, 0), in), at + sizeof h);
    }
    memcpy(at, &h, sizeof h);
    return br_stage_post(stage, at, bytes);
}

/* The next header of a rank; false: there is none yet. */
static bool peek(struct br_stage *stage, unsigned rank, struct header *h, const uint8_t **validity,
                 size_t *bytes)
{
    size_t length;
    const unsigned char *post = br_stage_next_post(stage, rank, &length);
    if (post == NULL || length < sizeof *h) return false;
    memcpy(h, post, sizeof *h);
    *validity = post + sizeof *h;
    *bytes = length - sizeof *h;
    return true;
}

/* --- blocks --- */

/* The base sample before which nothing new of this rank can come. */
static uint64_t earliest(struct br_stage *stage, const struct exchange *x, unsigned rank,
                         const struct br_frame *in)
{
    struct header h;
    const uint8_t *validity;
    size_t bytes;
    if (x->ended[rank]) return UINT64_MAX;
    if (rank == x->plan.rank) return in != NULL ? in->first : x->reached[rank];
    if (peek(stage, rank, &h, &validity, &bytes)) return h.samples > 0 ? h.first : UINT64_MAX;
    return x->reached[rank];
}

/* The open block of this number, opened if it can be: when it is known which blocks come before it, and
 * there is a frame for it. NULL: not now. */
static struct open *find(struct br_stage *stage, struct exchange *x, uint64_t block,
                         const struct br_frame *in, struct br_frame *out)
{
    uint64_t length = x->plan.all.frame_samples;
    for (unsigned i = 0; i < x->nopen; i++)
        if (x->open[i].block == block) return &x->open[i];
    if (x->nopen == (unsigned)x->frames || block < x->next) return NULL;
    for (unsigned r = 0; block > x->next && r < x->plan.ranks; r++)
        if (earliest(stage, x, r, in) / length < block) return NULL;
    struct br_frame *frame = x->nopen == 0 ? out : br_stage_lend_ahead(stage, 0, x->nopen);
    if (frame == NULL) return NULL;
    struct open *open = &x->open[x->nopen++];
    open->block = block;
    open->frame = frame;
    open->marked = open->begun = open->held = false;
    open->pending = 0;
    for (unsigned r = 0; r < x->plan.ranks; r++) open->of[r].count = 0;
    frame->first = block_begin(x, block);
    frame->samples = length;
    frame->complete = true;
    x->next = block + 1;
    return open;
}

/* Takes what other ranks have announced, as far as there is room. *any: something was taken. Status. */
static int take_headers(struct br_stage *stage, struct exchange *x, const struct br_frame *in,
                        struct br_frame *out, bool *any)
{
    uint64_t length = x->plan.all.frame_samples;
    for (unsigned r = 0; r < x->plan.ranks; r++) {
        struct header h;
        const uint8_t *validity;
        size_t bytes;
        while (r != x->plan.rank && peek(stage, r, &h, &validity, &bytes)) {
            struct piece piece = {h.first, h.first + h.samples};
            if (h.samples == 0) {
                x->ended[r] = true;
                *any = true;
                br_stage_drop_post(stage, r);
                continue;
            }
            uint64_t block = h.first / length;
            const struct br_stream *from = &x->plan.from[r];
            struct br_frame theirs = {.first = h.first, .samples = h.samples};
            if (h.first < x->reached[r] || h.samples > length || (piece.end - 1) / length != block ||
                (h.complete == 0 &&
                 !validity_unpack(validity, bytes, x->cells, br_frame_cells(from, &theirs))))
                return br_stage_fail(stage, BR_E_INTERNAL, "rank %u announces a frame that cannot be", r);
            struct open *open = find(stage, x, block, in, out);
            if (open != NULL && open->of[r].count == MAX_PIECES)
                return br_stage_fail(stage, BR_E_INTERNAL, "rank %u sends a block in too many pieces", r);
            if (open == NULL || !x->way->can_receive(x, r, &piece)) break;
            int status = x->way->receive(stage, x, r, open, &piece);
            if (status != BR_OK) return status;
            block_cover(x, open, r, &piece, h.complete != 0 ? NULL : x->cells);
            x->reached[r] = piece.end;
            *any = true;
            br_stage_drop_post(stage, r);
        }
    }
    return BR_OK;
}

/* Tells the others of this rank's frame as soon as it is there, whether or not there is room for it: what
 * comes before it can go on then. They do not hear the rest of a block that has too many pieces. */
static int announce(struct br_stage *stage, struct exchange *x, const struct br_frame *in, uint64_t block)
{
    if (x->posted) return BR_OK;
    if (block != x->own_block) x->own_pieces = 0;
    x->own_block = block;
    x->posted = true;
    x->torn = x->own_pieces == MAX_PIECES;
    x->own_pieces += x->torn ? 0 : 1;
    return x->torn ? BR_OK : post(stage, x, in);
}

/* This rank's frame: to the others, and into the block. 1: done; 0: not now. */
static int take_own(struct br_stage *stage, struct exchange *x, const struct br_frame *in,
                    struct br_frame *out)
{
    const struct plan *plan = &x->plan;
    struct piece piece = {in->first, in->first + in->samples};
    uint64_t block = in->first / plan->all.frame_samples;
    unsigned me = plan->rank;
    if ((piece.end - 1) / plan->all.frame_samples != block)
        return br_stage_fail(stage, BR_E_INTERNAL, "a frame spans a boundary of frames, at sample %llu",
                             (unsigned long long)in->first);
    int status = announce(stage, x, in, block);
    if (status != BR_OK) return status;
    if (x->torn) {
        br_stage_count_lost(stage, BR_LOST_OTHER, in->samples);
        x->reached[me] = piece.end;
        x->posted = false;
        return 1;
    }
    struct open *open = find(stage, x, block, in, out);
    if (open == NULL || !x->way->can_send(x)) return 0;
    const struct crossing *c = &plan->in[me];
    for (unsigned i = 0; i < c->nstrips && status == BR_OK; i++) {
        const struct strip *s = &c->strip[i];
        size_t length[BR_MAX_AXES], nsteps = br_time_steps(in->first, in->samples, s->downsample);
        uint64_t begin = block_begin(x, block);
        plan_lengths(plan, c, i, nsteps, length);
        struct view from = plan_view(&plan->from[me], s->from, c->beam_from, in->first, in->samples, 0);
        struct view to = plan_view(&plan->to[me], s->to, c->beam_to, begin, plan->all.frame_samples,
                                   block_step(begin, &piece, s->downsample));
        status = plan_copy(stage, &x->copies, plan, length, open->frame->data, &to, in->data, &from);
    }
    if (status == BR_OK) status = x->way->send(stage, x, in);
    if (status != BR_OK) return status;
    block_cover(x, open, me, &piece, in->complete ? NULL : in->valid);
    x->reached[me] = piece.end;
    x->posted = false;
    return 1;
}

/* True when it is known who has what of an open block; else `*late` is a rank that it waits for. */
static bool is_known(struct br_stage *stage, const struct exchange *x, const struct br_frame *in,
                     const struct open *open, unsigned *late)
{
    for (unsigned r = 0; r < x->plan.ranks; r++) {
        *late = r;
        if (earliest(stage, x, r, in) < block_begin(x, open->block + 1)) return false;
    }
    return true;
}

/* Begins all open blocks, in their order. Status. */
static int begin_known(struct br_stage *stage, struct exchange *x, const struct br_frame *in)
{
    unsigned late;
    for (unsigned i = 0; x->way->begin != NULL && i < x->nopen; i++) {
        struct open *open = &x->open[i];
        if (open->begun) continue;
        if (!is_known(stage, x, in, open, &late)) break;
        int begun = x->way->begin(stage, x, open);
        if (begun <= 0) return begun;
        open->begun = true;
    }
    return BR_OK;
}

/* Hands on the oldest block. */
static int close_oldest(struct br_stage *stage, struct exchange *x)
{
    struct open first = x->open[0];
    int status = block_close(stage, x, &first);
    if (status != BR_OK) return status;
    x->nopen--;
    memmove(&x->open[0], &x->open[1], x->nopen * sizeof x->open[0]);
    x->open[x->nopen].of = first.of;
    return BR_PRODUCED;
}

static bool all_over(const struct exchange *x)
{
    for (unsigned r = 0; r < x->plan.ranks; r++)
        if (!x->ended[r]) return false;
    return x->nopen == 0;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct exchange *x = self;
    const struct br_frame *in = io->in[0];
    unsigned late = 0;
    for (unsigned i = 0; i < x->nopen; i++) x->open[i].held = x->open[i].begun;
    if (x->nopen > 0) { /* lent before, and now handed out as a fresh one */
        struct br_frame *out = x->open[0].frame = io->out[0];
        out->first = block_begin(x, x->open[0].block);
        out->samples = x->plan.all.frame_samples;
        out->complete = !x->open[0].marked;
    }
    if (in == NULL && !x->told_end) {
        x->told_end = x->ended[x->plan.rank] = true;
        int status = post(stage, x, NULL);
        if (status != BR_OK) return status;
    }
    for (;;) {
        uint64_t seen = br_stage_events(stage);
        bool any = false;
        int result = 0;
        int status = br_stage_await(stage, UINT64_MAX, 0); /* has a rank failed? */
        if (status == BR_OK) status = x->way->collect(stage, x);
        if (status == BR_OK) status = take_headers(stage, x, in, io->out[0], &any);
        if (status != BR_OK) return status;
        if (in != NULL) {
            int taken = take_own(stage, x, in, io->out[0]);
            if (taken < 0) return taken;
            if (taken > 0) {
                result |= BR_CONSUMED;
                in = NULL; /* but its stream goes on: x->reached says how far it is */
            }
        }
        status = begin_known(stage, x, in);
        if (status != BR_OK) return status;
        if (x->nopen > 0 && is_known(stage, x, in, &x->open[0], &late)) {
            status = x->way->settle(stage, x, &x->open[0]);
            if (status != BR_OK) return status;
            if (x->open[0].pending == 0) {
                status = close_oldest(stage, x);
                if (status < 0) return status;
                result |= status;
            }
        }
        if (result != 0) return result;
        if (any) continue;
        if (x->told_end && all_over(x) && x->way->idle(x)) return BR_FINISHED;
        br_stage_waits_for(stage, x->wait_text[late]);
        status =
            br_stage_await(stage, seen, x->nopen > 0 && x->nopen < (unsigned)x->frames ? 5000000 : 100000000);
        br_stage_waits_for(stage, NULL);
        if (status != BR_OK) return status;
    }
}

static int stop(struct br_stage *stage, void *self)
{
    struct exchange *x = self;
    x->way->stop(stage, x);
    return BR_OK;
}

STAGE_EXPORT(exchange, struct exchange,
             "the corner turn between the ranks of a job: from channels to beams and back", .inputs = inputs,
             .outputs = outputs, .flags = BR_STAGE_CUDA, .memory = memory);
