/* The unpacker's fast loops against its definition, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"
#include "tests/kernels/unpack/packets_run.h"

static void run(enum br_backend backend, struct packets_run *r)
{
    struct br_unpack *plan;
    struct br_why why;
    if (br_unpack_create(&plan, backend, &r->p, &why) != 0) fail_msg("%s", why.text);
    br_unpack_execute(plan, r->nblocks, r->in, r->receipt, r->out, r->sums);
    br_unpack_destroy(plan);
    assert_int_equal(r->out[r->out_bytes], 0xa5);
    assert_int_equal(r->sums[r->sum_count], 0xa5a5a5a5);
}

static void the_same_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < PACKETS_CASES; i++) {
        struct packets_run reference, cpu;
        packets_make(&reference, &packets_cases[i]);
        packets_make(&cpu, &packets_cases[i]);
        run(BR_REFERENCE, &reference);
        run(BR_CPU, &cpu);
        if (memcmp(reference.out, cpu.out, reference.out_bytes) != 0)
            fail_msg("%s: E", packets_cases[i].name);
        if (memcmp(reference.sums, cpu.sums, reference.sum_count * sizeof *cpu.sums) != 0)
            fail_msg("%s: sums", packets_cases[i].name);
        packets_free(&reference);
        packets_free(&cpu);
    }
}

/* The largest sums: 32768 samples of -8 - 8i. */
static void the_largest_sums_are_exact(void **state)
{
    (void)state;
    const struct packets_case c = {"", "ti", {256, 4}, 1, 1, 128, 1, false, false, 128, 0, 0, AS_SENT};
    struct packets_run r;
    packets_make(&r, &c);
    memset(r.in, 0x88, r.in_bytes);
    run(BR_CPU, &r);
    for (size_t n = 0; n < 4; n++) {
        assert_int_equal(r.sums[n], 32768);
        assert_int_equal(r.sums[4 + n], 32768 * 128);
        assert_int_equal(r.sums[8 + n], 32768 * 128 * 128);
    }
    packets_free(&r);
}

/* A piece of a frame by a plan of its own gives what the whole frame gives. */
static void blocks_are_independent(void **state)
{
    (void)state;
    const struct packets_case *c = &packets_cases[0];
    struct packets_run whole, piece;
    struct br_unpack *plan;
    packets_make(&whole, c);
    packets_make(&piece, c);
    run(BR_CPU, &whole);
    const struct br_unpack_params *p = &piece.p;
    size_t from = c->sum_packets, row = p->nchannels * p->npositions, packets = p->nsources * p->nstreams;
    assert_int_equal(br_unpack_create(&plan, BR_CPU, p, NULL), 0);
    br_unpack_execute(plan, c->nblocks - from, piece.in + from * packets * p->packet_bytes, NULL,
                      piece.out + from * p->packet_samples * row, piece.sums + 3 * row);
    br_unpack_execute(plan, from, piece.in, NULL, piece.out, piece.sums);
    br_unpack_destroy(plan);
    assert_memory_equal(piece.out, whole.out, whole.out_bytes);
    assert_memory_equal(piece.sums, whole.sums, whole.sum_count * sizeof *whole.sums);
    packets_free(&whole);
    packets_free(&piece);
}

static void refuse(const struct br_unpack_params *p, const char *text)
{
    struct br_unpack *plan;
    struct br_why why = {""};
    int status = br_unpack_create(&plan, BR_CPU, p, &why);
    assert_refused(status, plan, &why, text);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct packets_run r;
    packets_make(&r, &packets_cases[0]);
    struct br_unpack_params p = r.p;
    p.nsources = 0;
    refuse(&p, "at least 1");
    p = r.p, p.nchannels++;
    refuse(&p, "expected 8 streams x 48");
    p = r.p, p.receipt_bytes = 15;
    refuse(&p, "expected a bit for each");
    p = r.p, p.sum_samples = 24;
    refuse(&p, "a multiple of a packet's 16");
    p = r.p, p.sum_samples = 2 * BR_UNPACK_MAX_SUM;
    refuse(&p, "at most 32768");
    p = r.p, p.time_stride++;
    refuse(&p, "does not lie in a packet of its source");
    p = r.p, p.npositions--;
    refuse(&p, "goes to position 127 of 127");
    uint32_t *position = (uint32_t *)(void *)(uintptr_t)r.p.position;
    position[1] = position[0];
    refuse(&r.p, "inputs 0 and 1 both go to position 0");
    packets_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_the_reference),
        cmocka_unit_test(the_largest_sums_are_exact),
        cmocka_unit_test(blocks_are_independent),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
