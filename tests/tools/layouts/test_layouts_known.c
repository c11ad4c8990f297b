/* The layout checker on layouts whose answers are known: the swizzle<2, 3, 3> of a 16 by 16 tile of
 * float16, number by number, and the shared-memory layouts of the first FRB kernel's note, with its
 * printed formulas (some of which are wrong) and the right ones. */
#include "kernels/common/layout.h"
#include "tools/layouts/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- swizzles ---- */

enum { GROUPS = 32 }; /* of 8 float16 in a tile of 16 by 16: 16 rows of 2 */

static unsigned swizzled(unsigned group)
{
    unsigned offset = br_swizzle(2, 3, 3, group * 8);
    assert_int_equal(offset % 8, 0);
    return offset / 8;
}

/* Which group stands where, in rows of 8 (all banks once), and which lane it is of. */
static void tile_of_16_by_16(void **state)
{
    (void)state;
    static const unsigned group_at[GROUPS] = {0,  1,  2,  3,  4,  5,  6,  7,  9,  8,  11, 10, 13, 12, 15, 14,
                                              18, 19, 16, 17, 22, 23, 20, 21, 27, 26, 25, 24, 31, 30, 29, 28};
    /* lanes down the columns of groups */
    static const unsigned column_lane[GROUPS] = {0,  16, 1,  17, 2,  18, 3,  19, 20, 4,  21,
                                                 5,  22, 6,  23, 7,  9,  25, 8,  24, 11, 27,
                                                 10, 26, 29, 13, 28, 12, 31, 15, 30, 14};
    for (unsigned place = 0; place < GROUPS; place++) {
        unsigned group = group_at[place], lane = group % 2 * 16 + group / 2;
        assert_int_equal(swizzled(group), place);
        assert_int_equal(swizzled(place), group);
        assert_int_equal(lane, column_lane[place]);
    }
    /* The order within a group is kept. */
    for (unsigned offset = 0; offset < 256; offset++)
        assert_int_equal(br_swizzle(2, 3, 3, offset), swizzled(offset / 8) * 8 + offset % 8);
}

/* Two such tiles side by side, written with 64 bits a lane, lanes 8 rows of 4: which groups stand in each
 * row of four, and the first of the two lanes that write each of them. */
static void two_tiles_written_by_halves(void **state)
{
    (void)state;
    static const unsigned group_at[16][2] = {{0, 1},   {2, 3},   {4, 5},   {6, 7},   {9, 8},   {11, 10},
                                             {13, 12}, {15, 14}, {18, 19}, {16, 17}, {22, 23}, {20, 21},
                                             {27, 26}, {25, 24}, {31, 30}, {29, 28}};
    static const unsigned first_lane[16][2] = {{0, 2},   {4, 6},   {8, 10},  {12, 14}, {18, 16}, {22, 20},
                                               {26, 24}, {30, 28}, {4, 6},   {0, 2},   {12, 14}, {8, 10},
                                               {22, 20}, {18, 16}, {30, 28}, {26, 24}};
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 2; column++) {
            unsigned group = swizzled(row * 2 + column);
            assert_int_equal(group, group_at[row][column]);
            assert_int_equal(group / 2 % 8 * 4 + group % 2 * 2, first_lane[row][column]);
            /* the second tile: 32 groups later, in the same order */
            assert_int_equal(br_swizzle(2, 3, 3, 256 + (row * 2 + column) * 8), 256 + group * 8);
        }
}

/* Writing the tile down its columns and reading it along its rows: free of conflicts with the swizzle and
 * not without. */
static void columns_of_a_tile(void **state)
{
    (void)state;
    for (int with = 0; with <= 1; with++) {
        struct layouts report = {0};
        layouts_variant(&report, "swizzle");
        struct layouts_region *tile = layouts_region(&report, LAYOUTS_SHARED, "tile", 256, 2);
        struct layouts_pass *write = layouts_begin(tile, LAYOUTS_WRITE, "columns");
        struct layouts_pass *read = layouts_begin(tile, LAYOUTS_READ, "rows");
        struct layouts_access columns = {.bytes = 16}, rows = {.bytes = 16};
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned group = lane % 16 * 2 + lane / 16;
            layouts_lane_items(&columns, lane, (with ? swizzled(group) : group) * 16, group * 8);
            layouts_lane_items(&rows, lane, (with ? swizzled(lane) : lane) * 16, lane * 8);
        }
        layouts_access(write, &columns);
        layouts_access(read, &rows);
        layouts_end(write, 1, 1);
        layouts_end(read, 1, 1);
        assert_int_equal(layouts_wavefronts(&rows), 4);
        assert_int_equal(layouts_wavefronts(&columns), with ? 4 : 8);
        assert_int_equal(report.failures, with ? 0 : 1);
        layouts_finish(&report);
    }
}

/* The lowest `bits` bits in reverse order. */
static unsigned bits_reversed(unsigned value, unsigned bits)
{
    unsigned reversed = 0;
    for (unsigned i = 0; i < bits; i++) reversed |= (value >> i & 1) << (bits - 1 - i);
    return reversed;
}

static void swizzles_of_the_accelerator(void **state)
{
    (void)state;
    for (unsigned row = 0; row < 16; row++)
        for (unsigned piece = 0; piece < 8; piece++) {
            assert_int_equal(br_swizzle_128_bytes(row * 128 + piece * 16),
                             row * 128 + (piece ^ row % 8) * 16);
            if (piece < 4)
                assert_int_equal(br_swizzle_64_bytes(row * 64 + piece * 16),
                                 row * 64 + (piece ^ row / 2 % 4) * 16);
            if (piece < 2)
                assert_int_equal(br_swizzle_32_bytes(row * 32 + piece * 16),
                                 row * 32 + (piece ^ row / 4 % 2) * 16);
        }
}

/* ---- the first FRB kernel's shared memory ---- */

struct telescope {
    int D, M, N, W, Touter, Tinner;
    int fsh1_bytes, fsh2_bytes, gsh_bytes; /* as tabulated */
};

static const struct telescope telescopes[] = {
    {64, 8, 8, 4, 64, 8, 8320, 9344, 8512},        {64, 8, 12, 6, 48, 6, 8320, 13920, 12608},
    {256, 16, 16, 16, 64, 8, 32896, 34944, 33152}, {256, 16, 20, 20, 40, 5, 32896, 43600, 41344},
    {512, 24, 24, 24, 48, 4, 65792, 76896, 66048},
};
enum { TELESCOPES = 5 };

/* Which of the printed formulas to use. */
enum { RIGHT = 0, PRINTED_NLO = 1, PRINTED_PADDING = 2, PRINTED_TIME = 4 };

static int power_of_two(int n)
{
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

static int log_of(int power)
{
    int bits = 0;
    while (1 << bits < power) bits++;
    return bits;
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

static int fsh1_stride(const struct telescope *t)
{
    return t->D == 64 ? 260 : 257;
}

static int fsh1(const struct telescope *t, int tau, int d)
{
    return tau + 32 * (d % 8) + fsh1_stride(t) * (d / 8);
}

static int fsh2_stride(const struct telescope *t)
{
    return 32 * (t->M + 1) + 32 / power_of_two(t->N);
}

static int fsh2(const struct telescope *t, int tau, int m, int n)
{
    return tau + 33 * m + fsh2_stride(t) * n;
}

static int gsh_stride(const struct telescope *t, int q0)
{
    int Mpad = power_of_two(t->M), Npad = power_of_two(t->N), s1 = 2 * Mpad * t->Tinner + 32 / Npad;
    return q0 ? Npad * s1 + Mpad : s1;
}

static int gsh(const struct telescope *t, int tau, int pol, int m, int q)
{
    int Mpad = power_of_two(t->M), bits = log_of(power_of_two(t->N));
    return m + pol * Mpad + tau * 2 * Mpad +
           (int)bits_reversed((unsigned)q / 2, (unsigned)bits) * gsh_stride(t, 0) + q % 2 * gsh_stride(t, 1);
}

static int bit(int value, int number)
{
    return value >> number & 1;
}

/* From global memory to Fsh1, and from there to registers. An item is [d][tau of 32]. */
static void check_fsh1(struct layouts *report, const struct telescope *t)
{
    int half = t->Touter / 2;
    struct layouts_region *region =
        layouts_region(report, LAYOUTS_SHARED, "Fsh1", (size_t)(fsh1_stride(t) * t->D / 8), 4);
    layouts_expect(report, fsh1_stride(t) * t->D / 8 * 4 == t->fsh1_bytes, "Fsh1 has another size");
    layouts_padding(region, 0, (size_t)(fsh1_stride(t) * t->D / 8));
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "Fsh1 write");
    int written = 0, tiles = t->D == 64 ? t->Touter / 8 : t->D / 256 * half;
    for (int tile = 0; tile < tiles; tile++)
        for (int r = 0; r < 8; r++) {
            struct layouts_access access = {.bytes = 4};
            for (int lane = 0; lane < 32; lane++) {
                int d = r, tau; /* d0 d1 d2 in the registers */
                d += bit(lane, 0) * 16 + bit(lane, 1) * 32;
                if (t->D == 64) {
                    d += bit(lane, 2) * 8;
                    tau = 4 * tile + lane / 8;
                } else {
                    d += bit(lane, 2) * 64 + bit(lane, 3) * 128 + bit(lane, 4) * 8 + tile / half * 256;
                    tau = tile % half;
                }
                layouts_lane_items(&access, (unsigned)lane, fsh1(t, tau, d) * 4, d * 32 + tau);
                written++;
            }
            layouts_access(write, &access);
        }
    layouts_end(write, 0, 1);
    layouts_expect(report, written == t->D * half, "Fsh1: %d of %d are written", written, t->D * half);

    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "Fsh1 read");
    for (int d = 0; d < t->D; d++) {
        struct layouts_access access = {.bytes = 4, .items = true};
        for (int lane = 0; lane < 32; lane++) {
            layouts_lane(&access, (unsigned)lane, fsh1(t, lane, d) * 4);
            access.item[lane][0] = lane < half ? d * 32 + lane : LAYOUTS_ANY;
        }
        layouts_access(read, &access);
    }
    layouts_end(read, 0, 1);
}

/* From registers to Fsh2, and from there to the registers of the first FFT. An item is [m][n][tau of 32]. */
static void check_fsh2(struct layouts *report, const struct telescope *t, int formulas)
{
    int Npad = power_of_two(t->N), Mt = 32 / Npad, Mw = common_divisor(t->M / Mt, t->W), Tw = t->W / Mw;
    int Tr = t->Touter / 2 / Tw, Mr = t->M / (Mt * Mw), size = fsh2_stride(t) * t->N;
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "Fsh2", (size_t)size, 4);
    layouts_expect(report, size * 4 == t->fsh2_bytes, "Fsh2 has another size");
    layouts_padding(region, 0, (size_t)size);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "Fsh2 write");
    for (int m = 0; m < t->M; m++)
        for (int n = 0; n < t->N; n++) {
            struct layouts_access access = {.bytes = 4};
            for (int lane = 0; lane < 32; lane++)
                layouts_lane_items(&access, (unsigned)lane, fsh2(t, lane, m, n) * 4,
                                   (m * t->N + n) * 32 + lane);
            layouts_access(write, &access);
        }
    layouts_end(write, 0, 1);

    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "Fsh2 read");
    static uint8_t got[32 * 32 * 32];
    memset(got, 0, sizeof got);
    for (int w = 0; w < t->W; w++)
        for (int tr = 0; tr < Tr; tr++)
            for (int mr = 0; mr < Mr; mr++) {
                struct layouts_access access = {.bytes = 4, .items = true};
                for (int lane = 0; lane < 32; lane++) {
                    /* what the thread is to hold: thread bits <-> nhi0 nhi1 nlo0 (m0.. nlo1..), and the
                     * warp's and register's */
                    int mt = lane / 8 % Mt, nhi = lane % 4, nlo = lane / 8 / Mt * 2 + bit(lane, 2);
                    int tau = tr * Tw + w / Mw, m = mr * Mt * Mw + w % Mw * Mt + mt,
                        n = nhi * (t->N / 4) + nlo;
                    bool padded = nlo >= t->N / 4;
                    access.item[lane][0] = padded ? LAYOUTS_ANY : (m * t->N + n) * 32 + tau;

                    /* where it reads */
                    int read_nlo = formulas & PRINTED_NLO ? lane / 8 / Mt + bit(lane, 2) : nlo;
                    int s0 =
                        w / Mw + 33 * (w % Mw * Mt + mt) + fsh2_stride(t) * (nhi * (t->N / 4) + read_nlo);
                    int s = (formulas & PRINTED_TIME ? tr : tr * Tw) + 33 * Mt * Mw * mr;
                    int furthest = s0 + (Tr - 1) * Tw + 33 * Mt * Mw * (Mr - 1);
                    bool moved = formulas & PRINTED_PADDING ? read_nlo >= t->N / 4 : furthest >= size;
                    layouts_lane(&access, (unsigned)lane, ((moved ? s0 & 31 : s0) + s) * 4);
                    if (!padded) got[(tau * t->M + m) * t->N + n]++;
                }
                layouts_access(read, &access);
            }
    layouts_end(read, 0, UINT32_MAX); /* padded threads read anything */
    bool once = true;
    for (int i = 0; i < t->Touter / 2 * t->M * t->N; i++) once = once && got[i] == 1;
    layouts_expect(report, once, "registers of the first FFT do not hold each element once");
}

/* From the first FFT to Gsh, and from there to the second. An item is the place itself: one for each (tau,
 * pol, m, q). */
static void check_gsh(struct layouts *report, const struct telescope *t)
{
    int Mpad = power_of_two(t->M), Npad = power_of_two(t->N), Mt = 32 / Npad, size = 2 * gsh_stride(t, 1);
    int qhi_bits = log_of(Npad) - 2, q_bits = 5 - log_of(Mpad);
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "Gsh", (size_t)size, 4);
    layouts_expect(report, size * 4 == t->gsh_bytes, "Gsh has another size");
    layouts_padding(region, 0, (size_t)size);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "Gsh write");
    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "Gsh read");
    for (int tau = 0; tau < t->Tinner; tau++)
        for (int pol = 0; pol < 2; pol++) {
            for (int m0 = 0; m0 < t->M; m0 += Mt)
                for (int r = 0; r < 2; r++) {
                    struct layouts_access access = {.bytes = 4};
                    for (int lane = 0; lane < 32; lane++) {
                        int high = lane / 4, q = r + lane % 4 * 2 + high % (1 << qhi_bits) * 8;
                        int m = m0 + (high >> qhi_bits);
                        layouts_lane_items(&access, (unsigned)lane, gsh(t, tau, pol, m, q) * 4,
                                           ((tau * 2 + pol) * 64 + q) * 32 + m);
                    }
                    layouts_access(write, &access);
                }
            for (int q0 = 0; q0 < 2 * t->N; q0 += 32 / Mpad) {
                struct layouts_access access = {.bytes = 4, .items = true};
                for (int lane = 0; lane < 32; lane++) {
                    int high = lane / 8, q = q0 + high % (1 << q_bits);
                    int mlo = bit(lane, 2) + (high >> q_bits) * 2, m = lane % 4 * (t->M / 4) + mlo;
                    layouts_lane(&access, (unsigned)lane, gsh(t, tau, pol, m, q) * 4);
                    access.item[lane][0] = mlo < t->M / 4 ? ((tau * 2 + pol) * 64 + q) * 32 + m : LAYOUTS_ANY;
                }
                layouts_access(read, &access);
            }
        }
    layouts_end(write, 0, 1);
    layouts_end(read, 0, UINT32_MAX);
}

static unsigned failures_with(int telescope, int formulas, char *last, size_t size)
{
    struct layouts report = {0};
    layouts_variant(&report, "case %d", telescope + 1);
    check_fsh1(&report, &telescopes[telescope]);
    check_fsh2(&report, &telescopes[telescope], formulas);
    check_gsh(&report, &telescopes[telescope]);
    unsigned failures = report.failures;
    if (last) snprintf(last, size, "%s", report.last);
    layouts_finish(&report);
    return failures;
}

static void frb_layouts_are_right(void **state)
{
    (void)state;
    for (int i = 0; i < TELESCOPES; i++) {
        char last[512];
        unsigned failures = failures_with(i, RIGHT, last, sizeof last);
        if (failures) fail_msg("case %d: %u failures, the last: %s", i + 1, failures, last);
    }
}

/* The low part of n without its factor 2: other elements than the FFT wants, wherever the low part has
 * more than one bit. */
static void frb_low_index_as_printed(void **state)
{
    (void)state;
    for (int i = 0; i < TELESCOPES; i++) {
        char last[512];
        unsigned failures = failures_with(i, PRINTED_NLO, last, sizeof last);
        assert_int_equal(failures > 0, i != 0);
        if (failures) assert_non_null(strstr(last, "for item"));
    }
}

/* Every padded thread moved to another address of its bank: two-way conflicts where there are such threads
 * and N is not a power of two: cases 2, 4 and 5. */
static void frb_padded_threads_as_printed(void **state)
{
    (void)state;
    for (int i = 0; i < TELESCOPES; i++) {
        char last[512];
        unsigned failures = failures_with(i, PRINTED_PADDING, last, sizeof last);
        assert_int_equal(failures > 0, i == 1 || i == 3 || i == 4);
        if (failures) assert_non_null(strstr(last, "2 wavefronts, 1 allowed"));
    }
}

/* Registers one time apart, where warps are too: wrong wherever warps differ in time. */
static void frb_times_as_printed(void **state)
{
    (void)state;
    for (int i = 0; i < TELESCOPES; i++)
        assert_int_equal(failures_with(i, PRINTED_TIME, NULL, 0) > 0, i != 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_of_16_by_16),
        cmocka_unit_test(two_tiles_written_by_halves),
        cmocka_unit_test(columns_of_a_tile),
        cmocka_unit_test(swizzles_of_the_accelerator),
        cmocka_unit_test(frb_layouts_are_right),
        cmocka_unit_test(frb_low_index_as_printed),
        cmocka_unit_test(frb_padded_threads_as_printed),
        cmocka_unit_test(frb_times_as_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
