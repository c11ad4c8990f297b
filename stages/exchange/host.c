/* host.c - data through the host's memory: messages of the runtime, which MPI carries.
 *
 * A frame is packed, a part for each rank, into one of `frames` slots, which is free again when all have
 * got theirs. Incoming data is received directly into the output's frame where it lies there in one piece (a
 * frame whose slowest axis is freq, turned to beams), and through a buffer where not, or where it is a
 * part of a frame. */
#include "stages/exchange/exchange.h"

#include "stages/common/stage/shape.h"

#include <stdlib.h>

struct slot {
    struct br_message *to; /* [ranks] */
    unsigned char *memory;
    bool busy;
};

struct coming {
    struct br_message message;
    unsigned char *buffer; /* NULL: for what goes right to its place */
    bool busy, staged;
    struct br_frame *frame;
    uint64_t block;
    struct piece piece;
};

struct carrier {
    struct slot slot[MAX_FRAMES];
    struct coming **coming; /* [ranks] of [ncoming] */
    unsigned ncoming;
    size_t *most; /* [ranks] bytes of the largest message from each */
};

/* True when a whole frame's part from `rank` lies in one piece in the output. */
static bool lies_in_one_piece(const struct plan *plan, unsigned rank)
{
    const struct crossing *c = &plan->in[rank];
    const struct br_stream *to = &plan->to[plan->rank];
    size_t length[BR_MAX_AXES];
    if (c->nstrips != 1) return false;
    struct br_part part = plan_part(to, c->strip[0].to, 0, to->frame_samples);
    plan_lengths(plan, c, 0, part.nsteps, length);
    struct view v = plan_view(to, c->strip[0].to, c->beam_to, 0, to->frame_samples, 0);
    return plan_is_dense(plan, length, &v);
}

static size_t slot_bytes(const struct exchange *x)
{
    size_t bytes = 0;
    for (unsigned r = 0; r < x->plan.ranks; r++)
        if (r != x->plan.rank)
            bytes += plan_message_bytes(&x->plan, &x->plan.out[r], 0, x->plan.all.frame_samples);
    return bytes;
}

/* Buffers for messages from a rank; those beyond them go right to their place. */
static unsigned buffers(const struct exchange *x, unsigned rank)
{
    return lies_in_one_piece(&x->plan, rank) ? 1 : (unsigned)x->frames;
}

static void memory(struct br_stage *stage, const struct exchange *x, struct br_memory *m)
{
    (void)stage;
    m->host += br_stream_max_bytes(&x->plan.to[x->plan.rank]) + (size_t)x->frames * slot_bytes(x);
    for (unsigned r = 0; r < x->plan.ranks; r++)
        if (r != x->plan.rank)
            m->host +=
                buffers(x, r) * plan_message_bytes(&x->plan, &x->plan.in[r], 0, x->plan.all.frame_samples);
}

static int start(struct br_stage *stage, struct exchange *x)
{
    unsigned n = x->plan.ranks;
    struct carrier *c = x->carrier = br_stage_alloc(stage, sizeof *c);
    size_t scratch = br_stream_max_bytes(&x->plan.to[x->plan.rank]), bytes = slot_bytes(x);
    x->scratch = malloc(scratch);
    if (x->scratch == NULL) return br_no_memory(stage, scratch);
    for (unsigned i = 0; n > 1 && i < (unsigned)x->frames; i++) {
        c->slot[i].to = br_stage_alloc(stage, n * sizeof *c->slot[i].to);
        c->slot[i].memory = malloc(bytes + 1);
        if (c->slot[i].memory == NULL) return br_no_memory(stage, bytes);
    }
    c->ncoming = (unsigned)x->frames + 1;
    c->coming = br_stage_alloc(stage, n * sizeof *c->coming);
    for (unsigned r = 0; r < n; r++) {
        c->coming[r] = br_stage_alloc(stage, c->ncoming * sizeof *c->coming[r]);
        if (r == x->plan.rank) continue;
        bytes = plan_message_bytes(&x->plan, &x->plan.in[r], 0, x->plan.all.frame_samples);
        for (unsigned i = 0; i < buffers(x, r); i++) {
            c->coming[r][i].buffer = malloc(bytes + 1);
            if (c->coming[r][i].buffer == NULL) return br_no_memory(stage, bytes);
        }
    }
    return BR_OK;
}

static struct slot *free_slot(struct exchange *x)
{
    struct carrier *c = x->carrier;
    for (unsigned i = 0; i < (unsigned)x->frames; i++)
        if (!c->slot[i].busy) return &c->slot[i];
    return NULL;
}

static bool can_send(struct exchange *x)
{
    return x->plan.ranks == 1 || free_slot(x) != NULL;
}

static int send(struct br_stage *stage, struct exchange *x, const struct br_frame *in)
{
    const struct plan *plan = &x->plan;
    struct slot *slot = free_slot(x);
    size_t at = 0;
    if (plan->ranks == 1) return BR_OK;
    slot->busy = true;
    /* Each rank begins with its neighbour, so that not all send to the same one at a time. */
    for (unsigned k = 1; k < plan->ranks; k++) {
        unsigned r = (plan->rank + k) % plan->ranks;
        const struct crossing *c = &plan->out[r];
        struct br_message *m = &slot->to[r];
        size_t bytes;
        int status = plan_pack(stage, &x->copies, plan, c, in, slot->memory + at, &bytes);
        if (status != BR_OK) return status;
        m->done = 1;
        if (bytes == 0) continue;
        m->data = slot->memory + at;
        m->bytes = bytes;
        m->peer = r;
        m->sends = true;
        at += bytes;
        status = br_stage_message(stage, m);
        if (status != BR_OK) return status;
    }
    return BR_OK;
}

/* A free receive for a message from `from` about `piece`. NULL: none is free. */
static struct coming *free_coming(struct exchange *x, unsigned from, const struct piece *piece)
{
    struct carrier *c = x->carrier;
    bool whole = piece->end - piece->first == x->plan.all.frame_samples;
    bool direct = whole && lies_in_one_piece(&x->plan, from);
    for (unsigned i = c->ncoming; i-- > 0;) /* those with buffers come last */
        if (!c->coming[from][i].busy && (direct || c->coming[from][i].buffer != NULL)) {
            c->coming[from][i].staged = !direct;
            return &c->coming[from][i];
        }
    return NULL;
}

static bool can_receive(struct exchange *x, unsigned from, const struct piece *piece)
{
    return free_coming(x, from, piece) != NULL;
}

static int receive(struct br_stage *stage, struct exchange *x, unsigned from, struct open *open,
                   const struct piece *piece)
{
    const struct plan *plan = &x->plan;
    const struct crossing *c = &plan->in[from];
    struct coming *m = free_coming(x, from, piece);
    size_t bytes = plan_message_bytes(plan, c, piece->first, piece->end - piece->first);
    if (bytes == 0) return BR_OK;
    m->busy = true;
    m->frame = open->frame;
    m->block = open->block;
    m->piece = *piece;
    m->message.data = m->buffer;
    if (!m->staged) {
        struct view v = plan_view(&plan->to[plan->rank], c->strip[0].to, c->beam_to,
                                  block_begin(x, open->block), plan->all.frame_samples, 0);
        m->message.data = (unsigned char *)open->frame->data + v.offset;
    }
    m->message.bytes = bytes;
    m->message.peer = from;
    m->message.sends = false;
    open->pending++;
    return br_stage_message(stage, &m->message);
}

/* From the buffer to its place. */
static int place(struct br_stage *stage, struct exchange *x, unsigned from, const struct coming *m)
{
    const struct plan *plan = &x->plan;
    const struct crossing *c = &plan->in[from];
    uint64_t begin = block_begin(x, m->block);
    size_t at = 0;
    for (unsigned i = 0; i < c->nstrips; i++) {
        const struct strip *s = &c->strip[i];
        size_t length[BR_MAX_AXES];
        size_t nsteps = br_time_steps(m->piece.first, m->piece.end - m->piece.first, s->downsample);
        size_t bytes = plan_lengths(plan, c, i, nsteps, length);
        struct view dense = plan_dense(plan, length);
        struct view to = plan_view(&plan->to[plan->rank], s->to, c->beam_to, begin, plan->all.frame_samples,
                                   block_step(begin, &m->piece, s->downsample));
        int status = plan_copy(stage, &x->copies, plan, length, m->frame->data, &to, m->buffer + at, &dense);
        if (status != BR_OK) return status;
        at += bytes;
    }
    return BR_OK;
}

static int collect(struct br_stage *stage, struct exchange *x)
{
    struct carrier *c = x->carrier;
    for (unsigned i = 0; i < (unsigned)x->frames && x->plan.ranks > 1; i++) {
        struct slot *slot = &c->slot[i];
        bool done = slot->busy;
        for (unsigned r = 0; done && r < x->plan.ranks; r++)
            if (r != x->plan.rank) done = br_message_done(&slot->to[r]);
        if (done) slot->busy = false;
    }
    for (unsigned r = 0; r < x->plan.ranks; r++)
        for (unsigned i = 0; i < c->ncoming; i++) {
            struct coming *m = &c->coming[r][i];
            if (!m->busy || !br_message_done(&m->message)) continue;
            int status = m->staged ? place(stage, x, r, m) : BR_OK;
            if (status != BR_OK) return status;
            m->busy = false;
            for (unsigned k = 0; k < x->nopen; k++)
                if (x->open[k].block == m->block) x->open[k].pending--;
        }
    return BR_OK;
}

static int settle(struct br_stage *stage, struct exchange *x, struct open *open)
{
    (void)stage, (void)x, (void)open;
    return BR_OK;
}

static bool idle(struct exchange *x)
{
    struct carrier *c = x->carrier;
    for (unsigned i = 0; i < (unsigned)x->frames; i++)
        if (c->slot[i].busy) return false;
    return true;
}

static void stop(struct br_stage *stage, struct exchange *x)
{
    struct carrier *c = x->carrier;
    bool busy = false;
    if (c == NULL) return;
    for (unsigned i = 0; i < (unsigned)x->frames; i++) busy |= c->slot[i].busy;
    for (unsigned r = 0; c->coming != NULL && r < x->plan.ranks; r++)
        for (unsigned i = 0; c->coming[r] != NULL && i < c->ncoming; i++) busy |= c->coming[r][i].busy;
    if (busy && !br_stage_halt_messages(stage)) return; /* it may still be written to */
    for (unsigned i = 0; i < (unsigned)x->frames; i++) free(c->slot[i].memory);
    for (unsigned r = 0; c->coming != NULL && r < x->plan.ranks; r++)
        for (unsigned i = 0; c->coming[r] != NULL && i < c->ncoming; i++) free(c->coming[r][i].buffer);
    free(x->scratch);
    x->scratch = NULL;
    x->carrier = NULL;
}

const struct way host_way = {start,   memory, can_send, can_receive, send, receive,
                             collect, NULL,   settle,   idle,        stop};
