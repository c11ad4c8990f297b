#include "formats/frb_node/receive.h"
#include "buffers/clock.h"
#include "buffers/half.h"
#include "formats/common/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STUCK_S = 1, FAR_WINDOWS = 16 };
#define LIVE_NS  UINT64_C(2000000000)
#define MAX_BODY ((size_t)1 << 30)

/* Says why a sender is to be closed. */
#define refuse(r, ...)                                                                                       \
    (snprintf((r)->base.complaint, WIRE_COMPLAINT, "a sender was closed: " __VA_ARGS__),                     \
     (r)->base.counts.malformed++, false)

int frb_receiver_prepare(struct frb_receiver *r, struct br_error *error)
{
    const struct frb_node_document *d = &r->document;
    r->assembly = (struct assembly){.nbeams = d->beam_ids.count,
                                    .nchannels = d->freq_channels.count,
                                    .row = FRB_NODE_ROW,
                                    .units = d->freq_channels.count,
                                    .window = r->base.window,
                                    .missing = 0x88,
                                    .nibbles = true,
                                    .counts = &r->base.counts};
    int status = assembly_create(&r->assembly, error);
    r->ready = status == BR_OK;
    return status;
}

/* --- one connection ------------------------------------------------------------------------------------- */

static void expect(struct frb_connection *c, enum frb_connection_state state, size_t bytes)
{
    c->state = state;
    c->got = 0;
    c->want = bytes;
}

void frb_connection_begin(struct frb_receiver *r, struct frb_connection *c)
{
    *c = (struct frb_connection){.heard_at = br_clock_ns()};
    expect(c, FRB_PREFIX, FRB_NODE_PREFIX);
    r->open++;
}

void frb_connection_end(struct frb_receiver *r, struct frb_connection *c)
{
    free(c->buffer);
    free(c->channel);
    frb_node_free(&c->document);
    *c = (struct frb_connection){.state = FRB_FREE};
    r->open--;
}

uint8_t *frb_connection_room(struct frb_connection *c, size_t *bytes)
{
    *bytes = c->state == FRB_WAITING || c->state == FRB_HELD ? 0 : c->want - c->got;
    return (c->state == FRB_PREFIX || c->state == FRB_HEAD ? c->head : c->buffer) + c->got;
}

/* Returns memory for the next part of a message; it only grows. */
static bool make_room(struct frb_receiver *r, struct frb_connection *c, size_t bytes)
{
    if (bytes <= c->size) return true;
    uint8_t *grown = realloc(c->buffer, bytes);
    if (grown == NULL) {
        br_fail(&r->failure, BR_E_NO_MEMORY, "no memory for a message of %zu bytes", bytes);
        return false;
    }
    c->buffer = grown;
    c->size = bytes;
    return true;
}

static bool take_prefix(struct frb_receiver *r, struct frb_connection *c)
{
    uint32_t magic;
    int32_t length;
    memcpy(&magic, c->head, 4);
    memcpy(&c->flags, c->head + 4, 4);
    memcpy(&length, c->head + 8, 4);
    if (magic != FRB_NODE_MAGIC)
        return refuse(r, "it began with 0x%08x; expected the magic number 0x%08x", magic, FRB_NODE_MAGIC);
    if ((c->flags & ~(uint32_t)FRB_NODE_ACK) != 0) return refuse(r, "it set unknown flags 0x%08x", c->flags);
    if (length <= 0 || length > FRB_NODE_YAML_MAX)
        return refuse(r, "it announced a document of %d bytes; expected 1 to %d", length, FRB_NODE_YAML_MAX);
    expect(c, FRB_TEXT, (size_t)length);
    return make_room(r, c, (size_t)length);
}

struct place {
    int64_t channel;
    uint32_t index;
};

/* Finds the place of each of the sender's channels in the stream. */
static bool place_channels(struct frb_receiver *r, struct frb_connection *c)
{
    const struct frb_node_ints *all = &r->document.freq_channels, *own = &c->document.freq_channels;
    struct place *places = malloc(all->count * sizeof *places);
    c->channel = malloc(own->count * sizeof *c->channel);
    bool ok = places != NULL && c->channel != NULL;
    if (!ok) br_fail(&r->failure, BR_E_NO_MEMORY, "no memory for %zu channels", all->count);
    for (size_t i = 0; ok && i < all->count; i++) places[i] = (struct place){all->value[i], (uint32_t)i};
    if (ok) qsort(places, all->count, sizeof *places, order_int64);
    for (size_t i = 0; ok && i < own->count; i++) {
        struct place wanted = {own->value[i], 0},
                     *found = bsearch(&wanted, places, all->count, sizeof *places, order_int64);
        ok = found != NULL || refuse(r, "it sends channel %" PRId64 ", which is not expected", own->value[i]);
        if (ok) c->channel[i] = found->index;
    }
    free(places);
    return ok;
}

/* The document is known and the receiver is ready: minichunks may follow. */
static bool join(struct frb_receiver *r, struct frb_connection *c)
{
    struct br_error why = {0};
    if (!frb_node_agree(&r->document, &c->document, &why)) return refuse(r, "its document: %s", why.text);
    if (!place_channels(r, c)) return false;
    size_t cells = c->document.beam_ids.count * c->document.freq_channels.count;
    if (cells > MAX_BODY / FRB_NODE_CELL)
        return refuse(r, "minichunks of %zu beams x channels are too large", cells);
    expect(c, FRB_HEAD, FRB_NODE_HEADER);
    return make_room(r, c, cells * FRB_NODE_CELL);
}

/* When enough senders have connected, the receiver takes all their channels. */
static bool adopt(struct frb_receiver *r)
{
    unsigned waiting = 0;
    size_t total = 0;
    const struct frb_connection *first = NULL;
    for (unsigned i = 0; i < FRB_CONNECTIONS; i++) {
        const struct frb_connection *c = &r->connection[i];
        if (c->state != FRB_WAITING) continue;
        if (first == NULL) first = c;
        waiting++;
        total += c->document.freq_channels.count;
    }
    if (waiting < r->senders) return true;
    if (frb_node_copy(&r->document, &first->document, &r->failure) != BR_OK) return false;
    int64_t *all = malloc(total * sizeof *all);
    if (all == NULL) {
        br_fail(&r->failure, BR_E_NO_MEMORY, "no memory for %zu channels", total);
        return false;
    }
    size_t n = 0, distinct = 0;
    for (unsigned i = 0; i < FRB_CONNECTIONS; i++) {
        const struct frb_node_ints *own = &r->connection[i].document.freq_channels;
        if (r->connection[i].state != FRB_WAITING ||
            !frb_node_agree(&r->document, &r->connection[i].document, NULL))
            continue;
        memcpy(all + n, own->value, own->count * sizeof *all);
        n += own->count;
    }
    if (r->senders > 1) qsort(all, n, sizeof *all, order_int64); /* keep the order of a single sender */
    for (size_t i = 0; i < n; i++)
        if (distinct == 0 || all[i] != all[distinct - 1]) all[distinct++] = all[i];
    free(r->document.freq_channels.value);
    r->document.freq_channels = (struct frb_node_ints){distinct, all};
    size_t cells = distinct * r->document.beam_ids.count;
    if (r->max_bytes > 0 && cells > r->max_bytes / r->base.window / (FRB_NODE_ROW + 8)) {
        size_t beams = r->document.beam_ids.count;
        frb_node_free(&r->document);
        return refuse(r, "%zu beams and %zu channels need more memory than is allowed", beams, distinct);
    }
    return frb_receiver_prepare(r, &r->failure) == BR_OK;
}

static bool take_text(struct frb_receiver *r, struct frb_connection *c)
{
    struct br_error why = {0};
    size_t length = strnlen((const char *)c->buffer, c->want); /* a sender may pad with zeros */
    if (c->buffer[c->want - 1] != 0) return refuse(r, "its document does not end in a zero byte");
    for (size_t i = length; i < c->want; i++)
        if (c->buffer[i] != 0) return refuse(r, "its document goes on behind the zero byte at %zu", length);
    if (frb_node_parse(&c->document, (const char *)c->buffer, length, &why) != BR_OK)
        return refuse(r, "its document: %s", why.text);
    if (r->ready) return join(r, c);
    expect(c, FRB_WAITING, 0);
    if (!adopt(r)) return false;
    bool ok = true;
    for (unsigned i = 0; r->ready && i < FRB_CONNECTIONS; i++) {
        struct frb_connection *other = &r->connection[i];
        if (other->state != FRB_WAITING || join(r, other)) continue;
        if (other == c)
            ok = false;
        else
            frb_connection_end(r, other);
    }
    return ok;
}

static bool take_head(struct frb_receiver *r, struct frb_connection *c)
{
    uint32_t magic;
    uint64_t seq, last = c->seq, step = (uint64_t)r->document.seq_per_frb_time_sample * FRB_NODE_STEPS;
    memcpy(&magic, c->head, 4);
    memcpy(&seq, c->head + 4, 8);
    if (magic != FRB_NODE_MAGIC)
        return refuse(r, "a minichunk began with 0x%08x; expected 0x%08x", magic, FRB_NODE_MAGIC);
    if (seq % step != 0 || seq > INT64_MAX - step)
        return refuse(r, "a minichunk with seq %" PRIu64 "; expected a multiple of %" PRIu64, seq, step);
    if (c->any && seq <= last)
        return refuse(r, "seq went from %" PRIu64 " to %" PRIu64 "; expected it to grow", last, seq);
    c->any = true;
    c->seq = seq;
    expect(c, FRB_BODY, c->document.beam_ids.count * c->document.freq_channels.count * FRB_NODE_CELL);
    return true;
}

static void answer(struct frb_connection *c, bool assembled)
{
    if ((c->flags & FRB_NODE_ACK) == 0) return;
    if (c->nanswers < FRB_ANSWERS) c->answer[c->nanswers++] = assembled;
    if (c->stuck_at == 0) c->stuck_at = br_clock_ns();
}

/* Puts the body into its block. */
static void scatter(struct frb_receiver *r, const struct frb_connection *c, struct assembly_block *block)
{
    size_t F = c->document.freq_channels.count, all = r->assembly.nchannels;
    const uint8_t *scales = c->buffer, *levels = c->buffer + 4 * r->assembly.nbeams * F;
    bool fresh = false;
    for (size_t f = 0; f < F; f++) {
        if (!assembly_mark(block, c->channel[f])) continue;
        fresh = true;
        for (size_t b = 0; b < r->assembly.nbeams; b++) {
            size_t to = b * all + c->channel[f], from = b * F + f;
            uint16_t pair[2];
            memcpy(pair, scales + 4 * from, 4);
            block->side[2 * to] = br_half_to_float(pair[0]);
            block->side[2 * to + 1] = br_half_to_float(pair[1]);
            memcpy(block->levels + to * FRB_NODE_ROW, levels + from * FRB_NODE_ROW, FRB_NODE_ROW);
        }
    }
    *(fresh ? &r->base.counts.received : &r->base.counts.duplicate) += 1;
}

/* True if the block is so far ahead that all data of the other senders would be late. A sender with a wrong
 * clock waits until the others reach that time or fall silent. If all senders have moved on, none waits. */
static bool far_ahead(const struct frb_receiver *r, const struct frb_connection *c, uint64_t number,
                      uint64_t step)
{
    const struct assembly *a = &r->assembly;
    uint64_t far = a->tail + (uint64_t)FAR_WINDOWS * a->window, now = br_clock_ns();
    if (!a->started || number < far) return false;
    for (unsigned i = 0; i < FRB_CONNECTIONS; i++) {
        const struct frb_connection *o = &r->connection[i];
        bool sends = o->state == FRB_HEAD || o->state == FRB_BODY || o->state == FRB_HELD;
        if (o != c && sends && o->any && o->seq / step < far && now - o->heard_at < LIVE_NS) return true;
    }
    return false;
}

static void place_body(struct frb_receiver *r, struct frb_connection *c)
{
    struct assembly_block *block;
    uint64_t step = (uint64_t)r->document.seq_per_frb_time_sample * FRB_NODE_STEPS;
    if (far_ahead(r, c, c->seq / step, step)) {
        if (c->state != FRB_HELD)
            snprintf(r->base.complaint, sizeof r->base.complaint,
                     "a sender's seq %" PRIu64 " is far ahead of the others': it waits for them", c->seq);
        c->state = FRB_HELD;
        return;
    }
    enum assembly_answer where = assembly_open(&r->assembly, c->seq / step, &block);
    if (where == ASSEMBLY_FULL) {
        c->state = FRB_HELD;
        return;
    }
    uint64_t duplicates = r->base.counts.duplicate;
    if (where == ASSEMBLY_OPEN) scatter(r, c, block);
    r->assembly.since_ns = br_clock_ns();
    answer(c, where == ASSEMBLY_OPEN && r->base.counts.duplicate == duplicates);
    expect(c, FRB_HEAD, FRB_NODE_HEADER);
}

bool frb_connection_got(struct frb_receiver *r, struct frb_connection *c, size_t bytes)
{
    c->got += bytes;
    c->heard_at = br_clock_ns();
    if (c->got < c->want) return true;
    switch (c->state) {
    case FRB_PREFIX:
        return take_prefix(r, c);
    case FRB_TEXT:
        return take_text(r, c);
    case FRB_HEAD:
        return take_head(r, c);
    case FRB_BODY:
        place_body(r, c);
        return true;
    default:
        return true;
    }
}

void frb_receiver_retry(struct frb_receiver *r)
{
    for (unsigned i = 0; i < FRB_CONNECTIONS; i++)
        if (r->connection[i].state == FRB_HELD) place_body(r, &r->connection[i]);
}

/* --- the network ---------------------------------------------------------------------------------------- */

static void begin(void *owner, unsigned peer)
{
    struct frb_receiver *r = owner;
    frb_connection_begin(r, &r->connection[peer]);
}

static uint8_t *room(void *owner, unsigned peer, size_t *bytes)
{
    struct frb_receiver *r = owner;
    return frb_connection_room(&r->connection[peer], bytes);
}

/* At most one minichunk is read from a peer at a time, so that no sender with waiting data runs ahead of the
 * others. */
static enum tcp_next got(void *owner, unsigned peer, size_t bytes)
{
    struct frb_receiver *r = owner;
    struct frb_connection *c = &r->connection[peer];
    bool body = c->state == FRB_BODY;
    if (!frb_connection_got(r, c, bytes)) return TCP_CLOSE;
    return r->failure.status != BR_OK || (body && c->state != FRB_BODY) ? TCP_LATER : TCP_MORE;
}

static bool may_close(const void *owner, unsigned peer)
{
    const struct frb_connection *c = &((const struct frb_receiver *)owner)->connection[peer];
    return c->state == FRB_HEAD && c->got == 0;
}

/* A sender that has sent its document may be silent. */
static bool may_be_silent(const void *owner, unsigned peer)
{
    const struct frb_connection *c = &((const struct frb_receiver *)owner)->connection[peer];
    return c->state != FRB_PREFIX && c->state != FRB_TEXT;
}

static bool is_known(const void *owner, unsigned peer)
{
    const struct frb_connection *c = &((const struct frb_receiver *)owner)->connection[peer];
    return c->channel != NULL || c->state == FRB_WAITING;
}

static const uint8_t *pending(const void *owner, unsigned peer, size_t *bytes)
{
    const struct frb_connection *c = &((const struct frb_receiver *)owner)->connection[peer];
    *bytes = c->nanswers;
    return c->answer;
}

static bool sent(void *owner, unsigned peer, size_t bytes)
{
    struct frb_connection *c = &((struct frb_receiver *)owner)->connection[peer];
    memmove(c->answer, c->answer + bytes, c->nanswers - bytes);
    c->nanswers -= bytes;
    if (c->nanswers == 0) c->stuck_at = 0;
    return c->nanswers == 0 ||
           (c->nanswers < FRB_ANSWERS && br_clock_ns() - c->stuck_at < (uint64_t)STUCK_S * 1000000000);
}

static void end(void *owner, unsigned peer)
{
    struct frb_receiver *r = owner;
    frb_connection_end(r, &r->connection[peer]);
}

static const struct tcp_calls calls = {begin,    room,    got,  may_close, may_be_silent,
                                       is_known, pending, sent, end};

static int listen_at(struct receiver *receiver, const struct net_address *address, struct br_error *error)
{
    struct frb_receiver *r = (struct frb_receiver *)receiver;
    r->server = (struct tcp_server){.calls = &calls,
                                    .owner = r,
                                    .most = FRB_CONNECTIONS,
                                    .handshake_s = receiver->handshake_s,
                                    .counts = &receiver->counts,
                                    .complaint = receiver->complaint};
    int status = tcp_server_listen(&r->server, address, error);
    if (status == BR_OK) receiver->port = net_port(r->server.listener);
    return status;
}

/* Publishes complete frames before reading more, so that a repeated piece counts as late or as a duplicate
 * independently of how long the earlier frames take. */
static int step(struct receiver *receiver, int ms, struct br_error *error)
{
    struct frb_receiver *r = (struct frb_receiver *)receiver;
    if (assembly_ready(&r->assembly, false) != NULL) return BR_OK;
    frb_receiver_retry(r);
    int status = tcp_server_step(&r->server, r->ready && r->assembly.pressed ? 0 : ms, error);
    if (status != BR_OK) return status;
    if (r->failure.status != BR_OK) return br_fail(error, r->failure.status, "%s", r->failure.text);
    return BR_OK;
}

static bool fill(struct receiver *receiver, const struct br_stream *stream, bool flush,
                 struct br_frame *frame)
{
    struct frb_receiver *r = (struct frb_receiver *)receiver;
    if (!assembly_take(&r->assembly, stream, flush, frame)) return false;
    frb_receiver_retry(r);
    return true;
}

static unsigned connected(const struct receiver *receiver)
{
    return ((const struct frb_receiver *)receiver)->open;
}

void frb_receiver_free(struct frb_receiver *r)
{
    if (r->server.calls != NULL) tcp_server_close(&r->server);
    for (unsigned i = 0; i < FRB_CONNECTIONS; i++)
        if (r->connection[i].state != FRB_FREE) frb_connection_end(r, &r->connection[i]);
    assembly_free(&r->assembly);
    frb_node_free(&r->document);
}

static void free_receiver(struct receiver *receiver)
{
    frb_receiver_free((struct frb_receiver *)receiver);
}

const struct receiver_format frb_node_receiver = {.name = "frb-node",
                                                  .bytes = sizeof(struct frb_receiver),
                                                  .listen = listen_at,
                                                  .step = step,
                                                  .fill = fill,
                                                  .connected = connected,
                                                  .free = free_receiver};
