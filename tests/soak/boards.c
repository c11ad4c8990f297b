/* boards.c - the boards of a simulated F-engine: they send packets in real time, and keep a ledger of what
 * became of each.
 *
 *   soak_boards DESCRIPTION PAYLOADS TABLE LEDGER BOARDS THREADS BUNDLE PORT EPOCH_NS SLOTS FRAME_SLOTS SEED
 *
 * A slot is the time of one packet of a board; slot n begins at EPOCH_NS + n slots, whatever the counters say
 * meanwhile. Thread i sends for its share of the boards to port PORT + i. PAYLOADS has TABLE payloads, one
 * behind the other; LEDGER is made: a byte of the marks below for each slot [board][slot]. FRAME_SLOTS: slots
 * of the node's frame. Packets go out in bundles of BUNDLE, which the kernel takes and gives as one: its
 * counters count bundles. All bundles have this many, so that packets follow from them.
 *
 * Orders come as lines on stdin, a word and numbers; it ends with it. "dead BOARD...", "loss SHARE",
 * "burst PACKETS", "reorder PACKETS", "late SHARE", "duplicate SHARE", "near 0|1" and "far 0|1" (a second
 * F-engine with the same ids), "noise SHARE", "begin_again SLOT": the counters are 0 there. In the end it
 * says as a JSON object what it has sent, and by how many slots it was late at most. */
#include "buffers/clock.h"
#include "formats/packets/header.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { BOARDS = 1024, THREADS = 32, BATCH = 64, HEADER = 64, HELD = 1 << 14, BLOCK = 512 };
enum { TOGETHER = 32 }; /* slots */
enum { SENT = 1, DEAD = 2, LOST = 4, TWIN = 8 };
enum { FAR_NS = 1 << 30 }; /* times 40: how far ahead the other F-engine is that is far */

struct order {
    double loss, late, duplicate, noise;
    uint64_t burst, reorder, next_zero;
    bool near, far, dead[BOARDS];
};

struct engine {
    struct packet_description *packet;
    const uint8_t *payload; /* [table][payload_bytes] */
    uint8_t *ledger;        /* [boards][slots] */
    uint64_t table, boards, threads, bundle, port, epoch_ns, slots, frame_slots, seed, slot_ns;
    uint64_t begin_ns;   /* of slot 0, by the monotonic clock; it may be below 0 */
    uint64_t start, end; /* slots; end: until then */
    uint64_t step;       /* counts of a slot */
    pthread_mutex_t lock;
    struct order order;
    _Atomic uint64_t slot[THREADS]; /* that each thread is at: they stay together, as boards do */
};

struct packet {
    uint64_t counter, due;
    uint64_t board, row;
};

struct sender {
    struct engine *engine;
    pthread_t id;
    struct order order;
    uint64_t number;
    int fd;
    struct sockaddr_in to;
    uint64_t first, last; /* its boards */
    uint64_t random, losing, zero, latest;
    uint64_t genuine, copies, twins, noise, failed;
    size_t nheld, nblock, nout;
    struct packet held[HELD], block[BLOCK]; /* in a ring from `held_at`; to be shuffled */
    size_t held_at;
    uint8_t whole[PACKET_MAX_BYTES], header[BATCH][HEADER];
    struct iovec piece[BATCH][2];
    struct mmsghdr message[BATCH];
};

static uint64_t draw(struct sender *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool chance(struct sender *s, double share)
{
    return share > 0 && (double)(draw(s) >> 11) * 0x1p-53 < share;
}

/* The row of the payloads that a board sends in a slot: boards.py has the same. */
static uint64_t which_payload(const struct engine *e, uint64_t slot, uint64_t board)
{
    return (slot * 31 + board * 97 + slot / e->table * 13) % e->table;
}

/* Whole bundles; the rest waits for more packets. */
static void send_out(struct sender *s)
{
    unsigned each = (unsigned)s->engine->bundle, bundles = (unsigned)s->nout / each;
    for (unsigned at = 0; at < bundles;) {
        int sent = sendmmsg(s->fd, s->message + at, bundles - at, 0);
        if (sent > 0)
            at += (unsigned)sent;
        else if (errno != EINTR)
            s->failed += each, at++;
    }
    s->nout -= bundles * each;
    for (size_t i = 0; i < s->nout && bundles > 0; i++) {
        memcpy(s->header[i], s->header[bundles * each + i], HEADER);
        s->piece[i][0].iov_len = s->piece[bundles * each + i][0].iov_len;
        s->piece[i][1] = s->piece[bundles * each + i][1];
    }
}

static void put(struct sender *s, const struct packet *p)
{
    const struct packet_description *d = s->engine->packet;
    uint8_t *payload;
    struct packet_header header = {.counter = packet_remainder(p->counter, packet_sequence_period(d)),
                                   .source = (int64_t)p->board};
    struct br_error error = {0};
    if (packet_header_write(d, &header, s->whole, &payload, &error) != BR_OK) {
        fprintf(stderr, "soak_boards: %s\n", error.text);
        exit(1);
    }
    memcpy(s->header[s->nout], s->whole, d->payload_offset); /* all of the packet was written */
    s->piece[s->nout][0].iov_len = d->payload_offset;
    s->piece[s->nout][1] =
        (struct iovec){(uint8_t *)s->engine->payload + p->row * d->payload_bytes, d->payload_bytes};
    if (++s->nout == BATCH) send_out(s);
}

static void put_noise(struct sender *s)
{
    uint64_t bytes[4000], each = s->engine->bundle;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) bytes[i] = draw(s);
    int segment = (int)(1 + draw(s) % 2000), packet = (int)s->engine->packet->bytes;
    s->noise += each;
    if (each > 1) setsockopt(s->fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
    if (sendto(s->fd, bytes, each * (size_t)segment, 0, (struct sockaddr *)&s->to, sizeof s->to) < 0)
        s->failed += each;
    if (each > 1) setsockopt(s->fd, IPPROTO_UDP, UDP_SEGMENT, &packet, sizeof packet);
}

static void put_block(struct sender *s)
{
    for (size_t i = s->nblock; i > 0; i--) {
        size_t k = draw(s) % i;
        put(s, &s->block[k]);
        s->block[k] = s->block[i - 1];
    }
    s->nblock = 0;
}

static bool lost(struct sender *s)
{
    if (s->losing == 0 && chance(s, s->order.loss)) s->losing = s->order.burst;
    s->losing -= s->losing > 0;
    return s->losing > 0;
}

static uint8_t *mark(const struct sender *s, uint64_t board, uint64_t slot)
{
    return s->engine->ledger + board * s->engine->slots + slot;
}

static struct packet make(const struct sender *s, uint64_t board, uint64_t slot)
{
    return (struct packet){(slot - s->zero) * s->engine->step, 0, board,
                           which_payload(s->engine, slot, board)};
}

/* A second F-engine with the same numbers: it repeats what has been, or has other counters. */
static void put_twin(struct sender *s, uint64_t board, uint64_t slot)
{
    uint64_t at = s->order.near ? slot - 2 : slot + 40 * (uint64_t)FAR_NS / s->engine->slot_ns;
    if (slot % 3 != 0 || !(s->order.near || s->order.far) || at < s->zero) return;
    struct packet p = make(s, board, at);
    s->twins++;
    if (at < s->engine->slots) *mark(s, board, at) |= TWIN;
    put(s, &p);
}

static void send_one(struct sender *s, uint64_t board, uint64_t slot)
{
    const struct order *o = &s->order;
    if (o->dead[board] || lost(s)) {
        *mark(s, board, slot) |= o->dead[board] ? DEAD : LOST;
        return;
    }
    unsigned times = 1 + chance(s, o->duplicate);
    struct packet p = make(s, board, slot);
    *mark(s, board, slot) |= SENT;
    s->genuine++;
    s->copies += times - 1;
    if (s->nheld < HELD && chance(s, o->late)) {
        p.due = slot + s->engine->frame_slots * 5 / 8 + draw(s) % (s->engine->frame_slots * 5 / 2);
        s->held[(s->held_at + s->nheld++) % HELD] = p;
        times--;
    }
    for (; times > 0; times--) {
        if (o->reorder > 0)
            s->block[s->nblock++] = p;
        else
            put(s, &p);
        if (s->nblock == BLOCK) put_block(s);
    }
    put_twin(s, board, slot);
}

static void send_slot(struct sender *s, uint64_t slot)
{
    if (slot >= s->order.next_zero && s->zero != s->order.next_zero) {
        put_block(s);
        s->zero = s->order.next_zero;
    }
    for (uint64_t board = s->first; board < s->last; board++) send_one(s, board, slot);
    if (s->nblock > s->order.reorder) put_block(s);
    if (s->first == 0 && chance(s, s->order.noise)) put_noise(s);
    for (; s->nheld > 0 && s->held[s->held_at].due <= slot; s->nheld--) {
        put(s, &s->held[s->held_at]);
        s->held_at = (s->held_at + 1) % HELD;
    }
}

/* The clock may be set meanwhile: only the time of the beginning is its. */
static uint64_t slot_now(const struct engine *e)
{
    return (br_clock_ns() - e->begin_ns) / e->slot_ns;
}

/* Until no other thread is far behind. */
static void wait_for_others(const struct sender *s, uint64_t slot)
{
    for (uint64_t i = 0; i < s->engine->threads; i++)
        while (atomic_load(&s->engine->slot[i]) + TOGETHER < slot)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void *run(void *arg)
{
    struct sender *s = arg;
    struct engine *e = s->engine;
    uint64_t slot = e->start, end = UINT64_MAX;
    while (slot < end) {
        uint64_t now = slot_now(e);
        pthread_mutex_lock(&e->lock);
        s->order = e->order;
        end = e->end;
        pthread_mutex_unlock(&e->lock);
        if (now > slot && now - slot > s->latest) s->latest = now - slot;
        for (; slot < now && slot < end; slot++) {
            atomic_store(&e->slot[s->number], slot);
            if (e->threads > 1) wait_for_others(s, slot);
            send_slot(s, slot);
        }
        atomic_store(&e->slot[s->number], slot);
        send_out(s);
        nanosleep(&(struct timespec){.tv_nsec = (long)(e->slot_ns < 2000000 ? 500000 : 2000000)}, NULL);
    }
    atomic_store(&e->slot[s->number], UINT64_MAX / 2);
    put_block(s);
    for (; s->nheld > 0; s->nheld--) put(s, &s->held[s->held_at++ % HELD]);
    send_out(s);
    for (struct packet last = make(s, s->first, end - 1); s->nout > 0; send_out(s)) { /* fills the bundle */
        s->copies++;
        put(s, &last);
    }
    return NULL;
}

static void take(struct engine *e, char *line)
{
    struct order *o = &e->order;
    char *rest, *word = strtok_r(line, " ", &rest);
    double value = strtod(rest, NULL);
    if (word == NULL) return;
    if (strcmp(word, "dead") == 0) {
        memset(o->dead, 0, sizeof o->dead);
        for (char *one; (one = strtok_r(NULL, " ", &rest)) != NULL;)
            o->dead[strtoul(one, NULL, 10) % BOARDS] = true;
    } else if (strcmp(word, "loss") == 0)
        o->loss = value;
    else if (strcmp(word, "burst") == 0)
        o->burst = (uint64_t)value;
    else if (strcmp(word, "reorder") == 0)
        o->reorder = (uint64_t)value;
    else if (strcmp(word, "late") == 0)
        o->late = value;
    else if (strcmp(word, "duplicate") == 0)
        o->duplicate = value;
    else if (strcmp(word, "near") == 0)
        o->near = value != 0;
    else if (strcmp(word, "far") == 0)
        o->far = value != 0;
    else if (strcmp(word, "noise") == 0)
        o->noise = value;
    else if (strcmp(word, "begin_again") == 0)
        o->next_zero = (uint64_t)value;
    else
        fprintf(stderr, "soak_boards: no such order: %s\n", word);
}

/* Until stdin ends, or the ledger. */
static void listen_to(struct engine *e)
{
    char line[8192];
    while (slot_now(e) + 1000000000 / e->slot_ns < e->slots) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        if (poll(&in, 1, 100) <= 0) continue;
        if (fgets(line, sizeof line, stdin) == NULL) break;
        line[strcspn(line, "\n")] = '\0';
        pthread_mutex_lock(&e->lock);
        take(e, line);
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_lock(&e->lock);
    e->end = slot_now(e) + 200000000 / e->slot_ns; /* all threads end with the same slot */
    if (e->end > e->slots) e->end = e->slots;
    pthread_mutex_unlock(&e->lock);
}

static void *map(const char *path, size_t bytes, bool make)
{
    int fd = open(path, make ? O_RDWR | O_CREAT : O_RDONLY, 0644);
    void *at = MAP_FAILED;
    if (fd >= 0 && (!make || ftruncate(fd, (off_t)bytes) == 0))
        at = mmap(NULL, bytes, make ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    return at;
}

static struct sender *begin(struct engine *e, uint64_t number)
{
    struct sender *s = calloc(1, sizeof *s);
    if (s == NULL || (s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) exit(1);
    s->engine = e;
    s->number = number;
    s->random = e->seed * 1000003 + number;
    s->first = number * e->boards / e->threads;
    s->last = (number + 1) * e->boards / e->threads;
    s->to = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)(e->port + number)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int segment = (int)e->packet->bytes;
    if (e->bundle > 1 && setsockopt(s->fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) {
        perror("soak_boards: bundles");
        exit(1);
    }
    for (unsigned i = 0; i < BATCH; i++) s->piece[i][0].iov_base = s->header[i];
    for (unsigned i = 0; i < BATCH / e->bundle; i++)
        s->message[i].msg_hdr = (struct msghdr){.msg_name = &s->to,
                                                .msg_namelen = sizeof s->to,
                                                .msg_iov = s->piece[i * e->bundle],
                                                .msg_iovlen = 2 * e->bundle};
    if (pthread_create(&s->id, NULL, run, s) != 0) exit(1);
    return s;
}

int main(int argc, char **argv)
{
    static struct engine e = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = UINT64_MAX, .order = {.burst = 1}};
    uint64_t *number[] = {&e.boards,   &e.threads, &e.bundle,      &e.port,
                          &e.epoch_ns, &e.slots,   &e.frame_slots, &e.seed};
    struct br_error error = {0};
    if (argc != 13 || packet_description_load(&e.packet, argv[1], &error) != BR_OK) {
        fprintf(stderr, "soak_boards: %s\n", argc == 13 ? error.text : "12 arguments, see boards.c");
        return 2;
    }
    e.table = strtoull(argv[3], NULL, 10);
    for (int i = 0; i < 8; i++) *number[i] = strtoull(argv[5 + i], NULL, 10);
    const struct packet_description *d = e.packet;
    if (e.table == 0 || e.boards == 0 || e.boards > BOARDS || e.threads == 0 || e.threads > THREADS ||
        e.bundle == 0 || e.bundle > 16 || BATCH % e.bundle != 0 || d->spead || d->payload_offset > HEADER ||
        d->payload_offset + d->payload_bytes != d->bytes) {
        fprintf(stderr, "soak_boards: too many boards or threads, or packets of another kind\n");
        return 2;
    }
    e.step = d->nsamples / (uint64_t)d->sequence_samples;
    e.slot_ns = d->nsamples * (uint64_t)d->sample_ns.num / (uint64_t)d->sample_ns.den;
    e.payload = map(argv[2], e.table * d->payload_bytes, false);
    e.ledger = map(argv[4], e.boards * e.slots, true);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    e.begin_ns = br_clock_ns() - ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - e.epoch_ns);
    setvbuf(stdin, NULL, _IONBF, 0); /* or poll would not see what is read already */
    e.start = slot_now(&e);
    for (uint64_t i = 0; i < e.threads; i++) atomic_store(&e.slot[i], e.start);
    struct sender *sender[THREADS];
    for (uint64_t i = 0; i < e.threads; i++) sender[i] = begin(&e, i);
    listen_to(&e);
    uint64_t n[5] = {0}, latest = 0;
    for (uint64_t i = 0; i < e.threads; i++) {
        struct sender *s = sender[i];
        pthread_join(s->id, NULL);
        const uint64_t its[] = {s->genuine, s->copies, s->twins, s->noise, s->failed};
        for (int k = 0; k < 5; k++) n[k] += its[k];
        if (s->latest > latest) latest = s->latest;
        close(s->fd);
        free(s);
    }
    printf("{\"start\": %ju, \"end\": %ju, \"latest\": %ju, \"count\": {\"genuine\": %ju, \"copies\": %ju, "
           "\"twins\": %ju, \"noise\": %ju, \"failed\": %ju}}\n",
           (uintmax_t)e.start, (uintmax_t)e.end, (uintmax_t)latest, (uintmax_t)n[0], (uintmax_t)n[1],
           (uintmax_t)n[2], (uintmax_t)n[3], (uintmax_t)n[4]);
    packet_description_free(e.packet);
    return 0;
}
