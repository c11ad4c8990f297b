/* Two F-engines with the same ids, whose counters begin again, start again and jump; one pauses, one is
 * late. Time is simulated, and each payload says when it was made: a frame must not hold it at another time,
 * but where the stage says that it counts by the machine's clock. */
#include "../stage_driver.h"
#include "buffers/clock.h"
#include "stages/capture/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct br_stage_type capture_stage;

/* As CRS, with few samples. A slot is the time of one packet of a board. */
static const char text[] = "byte_order: little\n"
                           "bytes: 46\n"
                           "fields:\n"
                           "  source: {offset: 2, bytes: 2}\n"
                           "  seq: {offset: 6, bytes: 8}\n"
                           "sequence: {fields: seq%s}\n"
                           "source: {fields: source}\n"
                           "payload: {offset: 14, axes: [freq, time, input], lengths: [2, 16, 1]}\n"
                           "coding: {values: offset_binary, real: high}\n"
                           "sample_ns: 640000\n"
                           "freq_mhz: {first: 400, step: 0.1953125}\n"
                           "sources: {count: 4}\n"
                           "streams: {count: 1}\n";

enum { SOURCES = 4, BYTES = 46, HEADER = 14, STEP = 16, FRAME = 4 * STEP, OPEN = 3, FRAMES = 16 };
#ifndef SEEDS
#define SEEDS 60
#endif
enum { PERIOD_BITS = 17, PERIOD = 1 << PERIOD_BITS }; /* samples, where a counter starts again: 83.9 s */
#define SLOT_NS    (STEP * INT64_C(640000))
#define T0         INT64_C(1800000000000000000)                 /* of slot 0, Unix time */
#define S(seconds) ((int64_t)((seconds)*1e9 / (double)SLOT_NS)) /* in slots */

struct engine {
    bool sends;
    int64_t ahead; /* slots: how far its time is ahead of the true one */
    int64_t zero;  /* the slot of which its counter says 0 */
    int64_t every; /* it sends each so manieth slot */
};

static struct {
    struct br_stage *stage;
    struct capture *c;
    struct br_frame *frame[FRAMES];
    unsigned head;
    struct engine a, b;                  /* the F-engine, and another one */
    int64_t slot, step_ns, told;         /* told: the slot of sample 0, by the controller */
    unsigned asked, answers_in;          /* looks after which the controller has answered */
    int64_t taken, wrong, by_clock, off; /* packets of a; of all, at a wrong time; `off`: slots */
    int64_t first_wrong;                 /* sample */
    bool full, blocked;                  /* there is no other free frame; the stage's thread is not run */
    bool failed, verbose;
    char text[4096]; /* that was said */
    uint64_t random;
} t;

/* --- instead of the C library's clock, and of epoch.c ------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t ns = (clock == CLOCK_REALTIME ? T0 + t.step_ns : INT64_C(1000000000000)) + t.slot * SLOT_NS;
    *now = (struct timespec){ns / 1000000000, ns % 1000000000};
    return 0;
}

int epoch_ask(const char *url, int64_t *epoch_ns, struct br_error *error)
{
    (void)url, (void)error;
    *epoch_ns = T0 + t.told * SLOT_NS;
    return BR_OK;
}

int epoch_watch_start(struct epoch_watch **watch, const char *url, int64_t epoch_ns, struct br_error *error)
{
    (void)url, (void)epoch_ns, (void)error;
    *watch = (struct epoch_watch *)(void *)&t;
    return BR_OK;
}

uint64_t epoch_watch_hurry(struct epoch_watch *watch)
{
    (void)watch;
    return t.asked + t.answers_in;
}

bool epoch_watch_asked(const struct epoch_watch *watch, uint64_t enough)
{
    (void)watch;
    return ++t.asked > enough;
}

int64_t epoch_watch_latest(const struct epoch_watch *watch, uint64_t *failures)
{
    (void)watch;
    *failures = 0;
    return T0 + t.told * SLOT_NS;
}

void epoch_watch_stop(struct epoch_watch *watch)
{
    (void)watch;
}

/* --- the node ---------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t n)
{
    t.random ^= t.random << 13;
    t.random ^= t.random >> 7;
    return (t.random ^= t.random << 17) % n;
}

/* Samples that were counted by the clock, or until a jump was told, were off by as much as is said. */
static void said(const char *line)
{
    int64_t sample, off;
    const char *at = strstr(line, "from sample "), *by = strstr(line, "the count was off by ");
    if (t.verbose) print_message("%7.3f %s\n", (double)(t.slot * SLOT_NS) * 1e-9, line);
    snprintf(t.text + strlen(t.text), sizeof t.text - strlen(t.text), "%s\n", line);
    if (strstr(line, "the frames from sample") != NULL) t.by_clock = 0; /* another count */
    if (at == NULL || by == NULL) return;
    assert_int_equal(sscanf(at, "from sample %" SCNd64, &sample), 1);
    assert_int_equal(sscanf(by, "the count was off by %" SCNd64, &off), 1);
    if (t.by_clock > 0) assert_int_equal(off, t.off * STEP);
    if (t.wrong > 0 && off == t.off * STEP && t.first_wrong >= sample) t.wrong = 0;
}

static struct br_frame *lend(unsigned ahead)
{
    return t.full ? NULL : t.frame[(t.head + ahead) % FRAMES];
}

static void check(const struct br_frame *frame)
{
    const struct packet_layout *l = &t.c->layout;
    for (size_t b = 0; b < frame->samples / STEP; b++)
        for (size_t s = 0; s < SOURCES; s++) {
            const uint8_t *receipt = (const uint8_t *)frame->side + b * l->receipt_bytes;
            int64_t slot[2], here = (t.c->epoch_ns - T0) / SLOT_NS + (int64_t)(frame->first / STEP + b);
            if ((receipt[s / 8] >> s % 8 & 1) == 0) continue;
            memcpy(slot, (const uint8_t *)frame->data + b * l->block_bytes + s * l->packet_bytes,
                   sizeof slot);
            if (t.c->by_clock) {
                if (slot[1] == 0) {
                    if (t.by_clock++ > 0) assert_int_equal(slot[0] - here, t.off);
                    t.off = slot[0] - here;
                }
                continue;
            }
            t.taken += slot[1] == 0;
            if (slot[0] == here) continue;
            if (t.wrong == 0) t.first_wrong = (int64_t)(frame->first + b * STEP);
            if (slot[1] == 0) t.off = slot[0] - here;
            t.wrong++;
        }
}

static void process(void)
{
    uint64_t one = 1;
    int status = BR_PRODUCED;
    while (status == BR_PRODUCED) {
        assert_int_equal(write(t.c->window.wake, &one, sizeof one), sizeof one);
        status = driver_process(t.stage, NULL, t.frame[t.head]);
        if (status != BR_PRODUCED) break;
        check(t.frame[t.head]);
        t.head = (t.head + 1) % FRAMES;
        t.blocked = t.full && t.c->ngiven == 0; /* as the runtime, which waits for a free frame */
        if (t.blocked) return;
    }
    if (status != BR_OK && t.verbose)
        print_message("%7.3f fails: %s\n", (double)(t.slot * SLOT_NS) * 1e-9, t.stage->error);
    t.failed = t.failed || status != BR_OK;
}

static void send_packet(const struct engine *e, size_t source)
{
    int64_t slot = t.slot + e->ahead, which = e != &t.a;
    uint64_t counter = (uint64_t)(slot - e->zero) * STEP;
    uint8_t bytes[BYTES] = {0};
    if (!e->sends || slot < e->zero || slot % e->every != 0) return;
    if (t.c->window.period > 0) counter %= PERIOD;
    bytes[2] = (uint8_t)source;
    memcpy(bytes + 6, &counter, sizeof counter);
    memcpy(bytes + HEADER, &slot, sizeof slot);
    memcpy(bytes + HEADER + sizeof slot, &which, sizeof which);
    window_enter(&t.c->window, t.c->window.thread);
    receiver_take(t.c->receiver, bytes, BYTES, 0);
    window_leave(t.c->window.thread);
}

/* Packets come until `slot`; the stage looks after each slot, and now and then between two packets. */
static void run_until(int64_t slot)
{
    for (; t.slot < slot && !t.failed; t.slot++) {
        for (size_t s = 0; s < SOURCES; s++) {
            send_packet(&t.a, s);
            send_packet(&t.b, s);
            if (draw(8) == 0 && !t.failed && !t.blocked) process();
        }
        if (!t.failed && !t.blocked) process();
    }
}

/* Counters of `a` were 0 at slot `zero`; the other one has the same, and does not send. */
static void begin(int64_t zero, bool starts_again, uint64_t seed)
{
    static char path[] = "/tmp/capture_jumps_XXXXXX.yaml";
    static const char *const address = "127.0.0.1:0";
    bool verbose = getenv("VERBOSE") != NULL;
    memset(&t, 0, sizeof t);
    memcpy(strchr(path, '_') + 7, "XXXXXX", 6);
    int fd = mkstemps(path, 5);
    char description[sizeof text + 32], bits[32] = "";
    if (starts_again) snprintf(bits, sizeof bits, ", bits: %d", PERIOD_BITS);
    int n = snprintf(description, sizeof description, text, bits);
    assert_int_equal(write(fd, description, (size_t)n), n);
    close(fd);
    t.verbose = verbose;
    t.random = seed * 2654435761u + 88172645463325252u;
    t.told = zero;
    t.answers_in = (unsigned)draw(4);
    t.a = t.b = (struct engine){true, 0, zero, 1};
    t.b.sends = false;
    t.stage = driver_new(&capture_stage);
    t.c = t.stage->self;
    t.stage->said = said;
    t.stage->lend = lend;
    driver_set_string(t.stage, "packet", path);
    driver_set_strings(t.stage, "addresses", &address, 1);
    driver_set_string(t.stage, "backend", "socket");
    driver_set_string(t.stage, "epoch_url", "http://nobody");
    driver_set_int(t.stage, "frame_samples", FRAME);
    driver_set_int(t.stage, "open", OPEN);
    if (driver_configure(t.stage) != BR_OK || driver_start(t.stage) != BR_OK) fail_msg("%s", t.stage->error);
    for (unsigned i = 0; i < FRAMES; i++) t.frame[i] = driver_frame(&t.stage->out[0]);
    unlink(path);
}

static void end(void)
{
    assert_int_equal(driver_stop(t.stage), BR_OK);
    for (unsigned i = 0; i < FRAMES; i++) driver_frame_free(t.frame[i]);
    driver_free(t.stage);
}

/* --- cases --------------------------------------------------------------------------------------- */

static uint64_t sum_of(enum window_reason reason)
{
    uint64_t n = 0;
    for (size_t s = 0; s <= SOURCES; s++) n += window_count(&t.c->window, s, reason);
    return n;
}

/* The other one numbers as this one, and is 43 s ahead: when the counters begin again, its own go on where
 * those were, or nearly. The first packet of each board looks like a late one of before. */
static void test_the_other_goes_on_where_this_one_was(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        begin(-S(30), false, seed);
        int64_t reset = S(13) + (int64_t)draw((uint64_t)S(2)) - S(1);
        int64_t told = reset + (int64_t[]){-S(0.5), S(0.2), S(3)}[seed % 3];
        t.b.ahead = S(43);
        t.b.every = 3;
        run_until(S(9));
        t.b.sends = true;
        run_until(told < reset ? told : reset);
        if (told < reset) t.told = reset;
        run_until(reset);
        t.a.zero = t.b.zero = reset;
        run_until(told);
        t.told = reset;
        run_until(S(20));
        assert_false(t.failed);
        assert_true(t.wrong <= SOURCES && t.taken > S(10) * SOURCES);
        end();
    }
}

/* A run begins while another F-engine that is far ahead sends, and this machine's clock is wrong. */
static void test_begins_while_another_one_sends(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        begin(-S(50), seed % 2 == 0, seed);
        t.slot += (int64_t)seed % 3; /* the first packets are of both, or of this one */
        t.b = (struct engine){true, S(43), t.a.zero, 3};
        t.step_ns = seed % 4 < 2 ? INT64_C(5600000000) : 0;
        run_until(S(8));
        assert_false(t.failed);
        assert_int_equal(t.wrong, 0);
        assert_int_equal(t.c->resets, 0);
        assert_true(t.taken > S(4) * SOURCES);
        end();
    }
}

/* The stream followed another F-engine that was 1.5 s ahead while this one paused: it waits until that time
 * is there again, and goes on. */
static void test_waits_until_its_time_is_there_again(void **state)
{
    (void)state;
    begin(-S(30), false, 1);
    run_until(S(3));
    t.a.sends = false;
    t.b = (struct engine){true, S(1.5), t.a.zero, 1};
    run_until(S(6));
    t.a.sends = true;
    t.b.sends = false;
    run_until(S(9));
    int64_t before = t.taken;
    run_until(S(14));
    assert_false(t.failed);
    assert_int_equal(t.wrong, 0);
    assert_true(t.taken - before > S(4.8) * SOURCES);
    assert_true(t.c->resets <= 2);
    end();
}

/* Packets that find no frame: since readers hold all, or since the stage's thread is not run. */
static void test_who_is_too_slow(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        begin(-S(30), false, 1);
        run_until(S(2));
        t.full = full;
        while (full && !t.blocked) run_until(t.slot + 1);
        t.blocked = true;
        run_until(t.slot + S(0.5));
        assert_true(sum_of(full ? WINDOW_NO_FRAME : WINDOW_BEHIND) > SOURCES * S(0.2));
        assert_int_equal(sum_of(full ? WINDOW_BEHIND : WINDOW_NO_FRAME), 0);
        t.full = t.blocked = false;
        run_until(t.slot + S(1));
        assert_non_null(
            strstr(t.text, full ? "a later stage is too slow" : "this stage's thread was not run"));
        assert_null(strstr(t.text, full ? "this stage's thread was not run" : "a later stage is too slow"));
        assert_int_equal(t.wrong, 0);
        end();
    }
}

/* Slots at which test_in_all_orders will do something. */
static struct {
    int64_t may_reset, tell, zero, resumes, other_ends, steps_back;
    bool unseen; /* the counters began again in a pause, or just before it */
} plan;

/* Its counter starts again within some seconds, or has: a jump now would not be seen. */
static bool near_wrap(void)
{
    int64_t in_period = (t.slot - t.a.zero) * STEP % PERIOD / STEP;
    return t.c->window.period > 0 && (in_period < S(11) || in_period > PERIOD / STEP - S(11));
}

static bool may_reset(void)
{
    return !near_wrap() && t.slot >= plan.may_reset && plan.tell == INT64_MAX;
}

/* The counters begin again; the controller says so within 4 s. Those of the other one too, or they go on. */
static void begin_again(void)
{
    bool alike = llabs(t.b.ahead - (t.slot - t.a.zero)) < S(4); /* the other one would go on where it was */
    if (!may_reset() || (t.b.sends && (alike || !t.a.sends))) return;
    plan.unseen = !t.a.sends;
    plan.may_reset = t.slot + S(12);
    plan.tell = t.slot + (int64_t)draw((uint64_t)S(4));
    plan.zero = t.a.zero = t.slot;
    t.a.ahead = 0;
    if (draw(2) == 0 || llabs(t.slot + t.b.ahead - t.b.zero) < S(8)) t.b.zero = t.slot;
}

/* The other one has the numbers of this one and another time, or repeats what has been. */
static void other_begins(void)
{
    if (t.b.sends || plan.unseen || plan.tell != INT64_MAX) return;
    int64_t far = S(5) + (int64_t)draw((uint64_t)S(38));
    t.b = (struct engine){true, (int64_t[]){far, far, -far, -2}[draw(4)], t.a.zero, 2 + (int64_t)draw(2)};
    plan.other_ends = t.slot + (int64_t)draw((uint64_t)S(8));
}

static void other_begins_again(void)
{
    if (!may_reset()) return;
    t.b = (struct engine){true, 0, t.slot, t.b.every};
    plan.other_ends = t.slot + S(4);
    plan.may_reset = t.slot + S(12);
}

/* And comes back with another delay. */
static void pause_for_a_while(void)
{
    if (!t.a.sends) return;
    t.a.sends = false;
    t.a.ahead = -(int64_t)draw((uint64_t)S(0.4));
    plan.unseen = t.slot < plan.may_reset - S(11);
    plan.resumes = t.slot + (int64_t)draw((uint64_t)S(6));
}

static void step_clock(void)
{
    if (t.step_ns != 0) return;
    t.step_ns = (int64_t)draw(16000000000) - 8000000000;
    plan.steps_back = t.slot + (int64_t)draw((uint64_t)S(6));
}

static void test_in_all_orders(void **state)
{
    (void)state;
    static void (*const events[])(void) = {begin_again,        other_begins,      other_begins,
                                           other_begins_again, pause_for_a_while, step_clock};
    int64_t taken = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(-S(30) - (int64_t)seed, seed % 2 == 0, seed);
        plan = (typeof(plan)){.may_reset = S(5), .tell = INT64_MAX};
        while (t.slot < S(60) && !t.failed) {
            run_until(t.slot + 1 + (int64_t)draw(260));
            if (t.slot >= plan.tell) t.told = plan.zero, plan.tell = INT64_MAX;
            if (t.slot >= plan.resumes) t.a.sends = true, plan.unseen = false;
            if (t.slot >= plan.other_ends) t.b.sends = false;
            if (t.slot >= plan.steps_back) t.step_ns = 0;
            events[draw(sizeof events / sizeof *events)]();
        }
        if (t.failed || t.wrong != 0)
            fail_msg("seed %d: %d wrong; %s", (int)seed, (int)t.wrong, t.stage->error);
        taken += t.taken;
        end();
    }
    print_message("%d packets of the one taken, of %d\n", (int)taken, SEEDS * (int)S(60) * SOURCES);
    assert_true(taken > SEEDS * S(60) * SOURCES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_other_goes_on_where_this_one_was),
        cmocka_unit_test(test_begins_while_another_one_sends),
        cmocka_unit_test(test_waits_until_its_time_is_there_again),
        cmocka_unit_test(test_who_is_too_slow),
        cmocka_unit_test(test_in_all_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
