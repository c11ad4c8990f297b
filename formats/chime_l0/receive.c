#include "formats/chime_l0/receive.h"
#include "buffers/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAR_WINDOWS = 16 };
#define QUIET_NS UINT64_C(1000000000)

int l0_receiver_prepare(struct l0_receiver *r, struct br_error *error)
{
    memset(r->beam_of, 0, sizeof r->beam_of);
    memset(r->coarse_of, 0, sizeof r->coarse_of);
    for (size_t b = 0; b < r->nbeams; b++) {
        if (r->beam_of[r->beam_ids[b]] != 0)
            return br_fail(error, BR_E_INVALID, "beam %u is listed twice", r->beam_ids[b]);
        r->beam_of[r->beam_ids[b]] = (uint16_t)(b + 1);
    }
    for (size_t c = 0; c < r->ncoarse; c++) {
        if (r->coarse_ids[c] >= L0_CHANNELS || r->coarse_of[r->coarse_ids[c]] != 0)
            return br_fail(error, BR_E_INVALID, "channel %u is listed twice, or beyond 1023",
                           r->coarse_ids[c]);
        r->coarse_of[r->coarse_ids[c]] = (uint16_t)(c + 1);
    }
    r->buffer = malloc((size_t)L0_BATCH * L0_BUFFER);
    r->message = calloc(L0_BATCH, sizeof *r->message);
    r->piece = calloc(L0_BATCH, sizeof *r->piece);
    if (r->buffer == NULL || r->message == NULL || r->piece == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for packets");
    for (size_t i = 0; i < L0_BATCH; i++) {
        r->piece[i] = (struct iovec){r->buffer + i * L0_BUFFER, L0_BUFFER};
        r->message[i].msg_hdr = (struct msghdr){.msg_iov = &r->piece[i], .msg_iovlen = 1};
    }
    r->assembly = (struct assembly){.nbeams = r->nbeams,
                                    .nchannels = r->ncoarse * r->nupfreq,
                                    .row = r->nsteps,
                                    .units = r->nbeams * r->ncoarse,
                                    .window = r->base.window,
                                    .counts = &r->base.counts};
    return assembly_create(&r->assembly, error);
}

void l0_receiver_free(struct l0_receiver *r)
{
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    free(r->buffer);
    free(r->message);
    free(r->piece);
    r->buffer = NULL;
    r->message = NULL;
    r->piece = NULL;
    assembly_free(&r->assembly);
}

static bool refuse(struct l0_receiver *r, const char *why)
{
    r->why = why;
    r->base.counts.malformed++;
    return true;
}

static const char *is_expected(const struct l0_receiver *r, const struct l0_packet *p)
{
    if (p->nupfreq != r->nupfreq || p->nsteps != r->nsteps || p->counts_per_sample != r->counts_per_sample)
        return "nupfreq, ntsamp or fpga_counts_per_sample are not those expected";
    if (p->version == 2 && p->frame0_ns != r->frame0_ns) return "fpga_frame0_ns is not the stream's epoch";
    if (p->count > INT64_MAX) return "fpga_count is out of range";
    for (size_t b = 0; b < p->nbeams; b++)
        if (r->beam_of[l0_u16(p->beam_ids, b)] == 0) return "it holds a beam that is not expected";
    for (size_t f = 0; f < p->nfreq; f++)
        if (r->coarse_of[l0_u16(p->freq_ids, f)] == 0) return "it holds a channel that is not expected";
    return NULL;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

static bool is_near(const struct l0_receiver *r, uint64_t number, uint64_t place)
{
    return distance(number, place) < FAR_WINDOWS * (uint64_t)r->base.window;
}

/* Whether it is none of those that agreed before. */
static bool is_different(struct l0_receiver *r, const struct l0_packet *p, uint64_t number)
{
    const struct l0_key key = {number, l0_u16(p->beam_ids, 0), l0_u16(p->freq_ids, 0)};
    for (unsigned i = 0; i < r->different && i < L0_BELIEVE; i++) {
        const struct l0_key *k = &r->agreeing[i];
        if (k->number == key.number && k->beam == key.beam && k->coarse == key.coarse) return false;
    }
    r->agreeing[r->different++ % L0_BELIEVE] = key;
    return true;
}

/* The stream's time is now that of block `number`. Open blocks are handed on first, unless they are to be
 * taken back, or was hardly anything. */
static void move(struct l0_receiver *r, uint64_t number)
{
    struct assembly *a = &r->assembly;
    const bool none = r->base.counts.blocks == 0;
    const bool back = number < a->tail, late = back && !none && number < a->from;
    snprintf(
        r->base.complaint, sizeof r->base.complaint,
        "the packets' time has gone %s, from block %" PRIu64 " to %" PRIu64 ": most of them say so%s",
        back ? "back" : "ahead", a->tail, number,
        late
            ? "; later blocks have been published, so that all data are late until that time is reached again"
            : "");
    if (!late && (back || (none && r->taken < L0_BELIEVE))) {
        assembly_forget(a);
        r->base.counts.malformed += r->taken;
        r->base.counts.received -= r->taken;
    }
    r->moving = true;
    r->target = number;
    r->different = r->votes = 0;
    r->taken = 0;
}

/* False when the packet's time is too far from the others' to be believed yet. */
static bool believe(struct l0_receiver *r, const struct l0_packet *p, uint64_t number)
{
    const struct assembly *a = &r->assembly;
    if (r->moving && is_near(r, a->tail, r->target)) r->moving = false;
    if (!a->started || is_near(r, number, a->tail) || (r->moving && is_near(r, number, r->target)))
        return true;
    if (br_clock_ns() - a->since_ns > QUIET_NS) r->votes = 0;
    if (distance(number, r->strange) >= r->base.window) r->different = 0;
    r->strange = number;
    if (!is_different(r, p, number)) return false;
    if (r->votes > 0) r->votes--;
    if (r->different < L0_BELIEVE || r->votes > 0) return false;
    move(r, number);
    return true;
}

static void scatter(struct l0_receiver *r, const struct l0_packet *p, struct assembly_block *block)
{
    size_t cell = (size_t)r->nupfreq * r->nsteps;
    bool fresh = false;
    for (size_t b = 0; b < p->nbeams; b++)
        for (size_t f = 0; f < p->nfreq; f++) {
            size_t beam = r->beam_of[l0_u16(p->beam_ids, b)] - 1u,
                   coarse = r->coarse_of[l0_u16(p->freq_ids, f)] - 1u;
            if (!assembly_mark(block, beam * r->ncoarse + coarse)) continue;
            fresh = true;
            size_t from = b * p->nfreq + f, to = (beam * r->ncoarse + coarse) * r->nupfreq;
            const uint8_t *data = p->data + from * cell;
            uint8_t *levels = block->levels + to * r->nsteps;
            for (size_t i = 0; i < cell; i++) levels[i] = data[i] == 255 ? 0 : data[i];
            float scale = l0_f32(p->scales, from), offset = l0_f32(p->offsets, from) + 128 * scale;
            for (size_t u = 0; u < r->nupfreq; u++) {
                block->side[2 * (to + u)] = scale;
                block->side[2 * (to + u) + 1] = offset;
            }
        }
    *(fresh ? &r->base.counts.received : &r->base.counts.duplicate) += 1;
    r->taken += fresh;
    if (fresh && r->votes < L0_VOTES) r->votes++;
}

bool l0_receiver_take(struct l0_receiver *r, const uint8_t *bytes, size_t length)
{
    struct l0_packet packet;
    struct assembly_block *block;
    const char *why = l0_parse(&packet, bytes, length);
    if (why == NULL) why = is_expected(r, &packet);
    if (why != NULL) return refuse(r, why);
    uint64_t number = packet.count / ((uint64_t)r->counts_per_sample * r->nsteps);
    if (!believe(r, &packet, number)) return refuse(r, "its fpga_count is far from that of the others");
    struct assembly *a = &r->assembly;
    if (r->moving && a->started &&
        number >= a->tail + r->base.window) /* there is room before and, most, behind it */
        assembly_pass(a, number - r->base.window / 4);
    enum assembly_answer where = assembly_open(&r->assembly, number, &block);
    if (where == ASSEMBLY_FULL) return false;
    if (where == ASSEMBLY_OPEN) scatter(r, &packet, block);
    r->assembly.since_ns = br_clock_ns();
    return true;
}

int l0_receiver_stream(const struct l0_receiver *r, struct br_stream *stream,
                       void *(*alloc)(void *owner, size_t bytes), void *owner, struct br_error *error)
{
    size_t F = r->ncoarse * r->nupfreq, lengths[3] = {r->nbeams, F, r->nsteps};
    double *mhz = alloc(owner, F * sizeof *mhz), *width = alloc(owner, F * sizeof *width);
    const struct br_telescope *telescope = stream->telescope;
    for (size_t f = 0; f < F; f++) {
        mhz[f] = l0_channel_mhz(r->coarse_ids[f / r->nupfreq], (unsigned)(f % r->nupfreq), r->nupfreq);
        width[f] = L0_WIDTH_MHZ / r->nupfreq;
    }
    *stream = (struct br_stream){.frame_samples = (uint64_t)r->counts_per_sample * r->nsteps,
                                 .epoch_ns = (int64_t)r->frame0_ns,
                                 .sample_ns = {L0_COUNT_NS, 1},
                                 .nchannels = F,
                                 .freq_mhz = mhz,
                                 .width_mhz = width,
                                 .nzones = 1,
                                 .zone = {{0, F, r->nupfreq, r->counts_per_sample, 0}},
                                 .scale = 1,
                                 .telescope = telescope,
                                 .nbeams = r->nbeams};
    stream->side = (struct br_array){
        .dtype = BR_F32, .naxes = 3, .axis = {{"beam", r->nbeams}, {"freq", F}, {"number", 2}}};
    return br_array_init(&stream->array, BR_UINT8, "beam,freq,time", lengths, error);
}

/* --- the calls ---------------------------------------------------------------------------------------- */

/* Takes packets until one must wait. */
static int take_packets(struct l0_receiver *r, int ms, struct br_error *error)
{
    for (unsigned round = 0; round < 16; round++) {
        for (; r->next < r->nbatch; r->next++)
            if (!l0_receiver_take(r, r->buffer + (size_t)r->next * L0_BUFFER, r->message[r->next].msg_len))
                return BR_OK;
        r->next = r->nbatch = 0;
        if (assembly_ready(&r->assembly, false) != NULL) return BR_OK;
        struct pollfd wait = {.fd = r->fd, .events = POLLIN};
        int n = round == 0 ? poll(&wait, 1, ms) : 1;
        if (n < 0 && errno != EINTR)
            return br_fail(error, BR_E_IO, "cannot wait for packets: %s", strerror(errno));
        if (n <= 0) return BR_OK;
        int got = recvmmsg(r->fd, r->message, L0_BATCH, MSG_DONTWAIT, NULL);
        if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNREFUSED)
            return br_fail(error, BR_E_IO, "cannot receive packets: %s", strerror(errno));
        if (got <= 0) return BR_OK;
        r->nbatch = (unsigned)got;
    }
    return BR_OK;
}

static int listen_at(struct receiver *receiver, const struct net_address *at, struct br_error *error)
{
    struct l0_receiver *r = (struct l0_receiver *)receiver;
    r->fd = net_udp_receiver(at, r->buffer_bytes, r->interface, error);
    if (r->fd < 0) return BR_E_IO;
    receiver->port = net_port(r->fd);
    return BR_OK;
}

static int step(struct receiver *receiver, int ms, struct br_error *error)
{
    struct l0_receiver *r = (struct l0_receiver *)receiver;
    uint64_t malformed = receiver->counts.malformed;
    int status = take_packets(r, ms, error);
    if (malformed == 0 && receiver->counts.malformed > 0 && receiver->complaint[0] == '\0')
        snprintf(receiver->complaint, sizeof receiver->complaint, "the first malformed packet: %s", r->why);
    return status;
}

static bool fill(struct receiver *receiver, const struct br_stream *stream, bool flush,
                 struct br_frame *frame)
{
    return assembly_take(&((struct l0_receiver *)receiver)->assembly, stream, flush, frame);
}

static void free_receiver(struct receiver *receiver)
{
    l0_receiver_free((struct l0_receiver *)receiver);
}

const struct receiver_format chime_l0_receiver = {.name = "chime-l0",
                                                  .udp = true,
                                                  .bytes = sizeof(struct l0_receiver) +
                                                           (size_t)L0_BATCH * L0_BUFFER,
                                                  .listen = listen_at,
                                                  .step = step,
                                                  .fill = fill,
                                                  .free = free_receiver};
