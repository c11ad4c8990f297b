/* The device inlines that kernels share, each alone: values of int4, transposes, matrix products, the tensor
 * memory accelerator. */
#include "buffers/half.h"
#include "kernels/common/fragments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/dump.h"

/* ---- index arithmetic, on the CPU ---- */

/* Byte selectors as __byte_perm reads them: nibble i of the selector names the byte that byte i comes from.
 */
static uint32_t byte_perm(uint32_t low, uint32_t high, unsigned selector)
{
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; i++) result |= (uint32_t)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return result;
}

static void selectors_exchange_bits(void **state)
{
    (void)state;
    const uint32_t x[2] = {0x03020100u,
                           0x13121110u}; /* the register in the high nibble, the byte in the low one */
    for (unsigned simd = 0; simd < 2; simd++)
        for (unsigned reg = 0; reg < 2; reg++) {
            uint32_t y = byte_perm(x[0], x[1], br_transpose_selector(simd, reg));
            for (unsigned part = 0; part < 4; part++) {
                struct br_cell from = br_transpose_source(simd, reg, part);
                assert_int_equal(y >> part * 8 & 255, from.row << 4 | from.column);
                /* the register's bit and the byte's have changed places */
                assert_int_equal(from.row, part >> simd & 1);
                assert_int_equal(from.column >> simd & 1, reg);
                assert_int_equal(from.column & ~(1u << simd), part & ~(1u << simd));
            }
        }
}

/* Each fragment holds each element of its matrix once. */
static void fragments_hold_all_once(void **state)
{
    (void)state;
    static const struct {
        unsigned registers, parts, lanes, rows, columns;
        struct br_cell (*of)(unsigned reg, unsigned part, unsigned lane);
        struct br_cell (*sum_of)(unsigned reg, unsigned lane);
    } fragments[] = {
        {4, 4, 32, 16, 32, br_mma_s8_a, NULL},     {2, 4, 32, 32, 8, br_mma_s8_b, NULL},
        {4, 2, 32, 16, 16, br_mma_f16_a, NULL},    {2, 2, 32, 16, 8, br_mma_f16_b, NULL},
        {2, 2, 32, 16, 8, br_mma_f16_a, NULL},     {1, 2, 32, 8, 8, br_mma_f16_b, NULL}, /* k of 8 */
        {4, 1, 32, 16, 8, NULL, br_mma_c},         {4, 4, 128, 64, 32, br_wgmma_s8_a, NULL},
        {4, 2, 128, 64, 16, br_wgmma_f16_a, NULL}, {4, 1, 128, 64, 8, NULL, br_wgmma_c},
        {128, 1, 128, 64, 256, NULL, br_wgmma_c},
    };
    for (size_t i = 0; i < sizeof fragments / sizeof *fragments; i++) {
        static uint8_t count[64][256];
        memset(count, 0, sizeof count);
        for (unsigned reg = 0; reg < fragments[i].registers; reg++)
            for (unsigned part = 0; part < fragments[i].parts; part++)
                for (unsigned lane = 0; lane < fragments[i].lanes; lane++) {
                    struct br_cell cell =
                        fragments[i].of ? fragments[i].of(reg, part, lane) : fragments[i].sum_of(reg, lane);
                    assert_true(cell.row < fragments[i].rows && cell.column < fragments[i].columns);
                    count[cell.row][cell.column]++;
                }
        for (unsigned row = 0; row < fragments[i].rows; row++)
            for (unsigned column = 0; column < fragments[i].columns; column++)
                assert_int_equal(count[row][column], 1);
    }
}

static void descriptors(void **state)
{
    (void)state;
    uint64_t d = br_wgmma_descriptor(0x12340, 128, 1024, BR_WGMMA_128);
    assert_int_equal(d & 0x3fff, 0x1234);
    assert_int_equal(d >> 16 & 0x3fff, 128 / 16);
    assert_int_equal(d >> 32 & 0x3fff, 1024 / 16);
    assert_int_equal(d >> 62, 1);
    /* the addresses of all shared memory that a block may have, and nothing above the field */
    assert_int_equal(br_wgmma_descriptor(227 * 1024, 0, 0, BR_WGMMA_PLAIN), 227 * 64);
    assert_int_equal(br_wgmma_descriptor(0x40010, 0, 0, BR_WGMMA_PLAIN), 1);
}

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/common/inlines.h"

static uint64_t seed = 77;

static void done(int status)
{
    if (status != 0) fail_msg("%s", cudaGetErrorString(cudaGetLastError()));
}

static void int4_values(void **state)
{
    NEEDS_GPU();
    uint32_t *memory = gpu_both_sides(8 * 1024, 0xee), *words = memory + 768;
    int32_t *re = (int32_t *)memory, *im = re + 256;
    for (unsigned i = 0; i < 256; i++) words[i] = (uint32_t)dump_random(&seed);
    done(inlines_int4(re, im, memory + 512, words, memory + 1024, memory + 1280, memory + 1536));
    for (unsigned i = 0; i < 256; i++) {
        int low = (int)(i & 15), high = (int)(i >> 4);
        assert_int_equal(re[i], low > 7 ? low - 16 : low);
        assert_int_equal(im[i], high > 7 ? high - 16 : high);
        assert_int_equal(memory[512 + i], i);
        for (unsigned part = 0; part < 4; part++) {
            unsigned byte = words[i] >> part * 8 & 255;
            int x = (int)(byte & 15), y = (int)(byte >> 4);
            x = x > 7 ? x - 16 : x;
            y = y > 7 ? y - 16 : y;
            assert_int_equal((int8_t)(memory[1024 + i] >> part * 8), 16 * x);
            assert_int_equal((int8_t)(memory[1280 + i] >> part * 8), 16 * y);
            assert_int_equal((int8_t)(memory[1536 + i] >> part * 8), 16 * (-y - 1));
        }
    }
    gpu_ok(cudaFree(memory));
}

/* Byte `part` of register `reg` of lane `lane`. */
static uint32_t byte_of(const uint32_t *words, unsigned reg, unsigned lane, unsigned part)
{
    return words[reg * 32 + lane] >> part * 8 & 255;
}

static void transposes(void **state)
{
    NEEDS_GPU();
    uint32_t *in = gpu_both_sides(4 * 64 * INLINES_TRANSPOSES, 0xee),
             *out = gpu_both_sides(4 * 64 * INLINES_TRANSPOSES, 0xee);
    for (unsigned i = 0; i < 64 * INLINES_TRANSPOSES; i++) in[i] = (uint32_t)dump_random(&seed);
    done(inlines_transpose(in, out));
    for (unsigned which = 0; which < INLINES_TRANSPOSES; which++) {
        const uint32_t *x = in + which * 64, *y = out + which * 64;
        for (unsigned reg = 0; reg < 2; reg++)
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned part = 0; part < 4; part++) {
                    unsigned from_part = (part & ~(1u << which)) | reg << which;
                    assert_int_equal(byte_of(y, reg, lane, part),
                                     byte_of(x, part >> which & 1, lane, from_part));
                }
    }
    gpu_ok(cudaFree(in));
    gpu_ok(cudaFree(out));
}

/* Small integers as float16: products and sums are exact. */
static uint16_t small_half(int *value)
{
    *value = (int)(dump_random(&seed) % 17) - 8;
    return br_half_from_float((float)*value);
}

static void products_of_a_warp(void **state)
{
    NEEDS_GPU();
    static const int depth[] = {32, 16, 8};
    for (int which = 0; which < 3; which++) {
        int k = depth[which], a[16 * 32], b[32 * 8], expected[16 * 8];
        void *da = gpu_both_sides(1024, 0xee), *db = gpu_both_sides(1024, 0xee),
             *dc = gpu_both_sides(512, 0xee);
        for (int i = 0; i < 16 * k; i++) {
            uint16_t half = small_half(&a[i]);
            if (which == 0)
                ((int8_t *)da)[i] = (int8_t)(a[i] = (int)(dump_random(&seed) % 256) - 128);
            else
                ((uint16_t *)da)[i] = half;
        }
        for (int i = 0; i < k * 8; i++) {
            uint16_t half = small_half(&b[i]);
            if (which == 0)
                ((int8_t *)db)[i] = (int8_t)(b[i] = (int)(dump_random(&seed) % 256) - 128);
            else
                ((uint16_t *)db)[i] = half;
        }
        for (int i = 0; i < 128; i++) {
            expected[i] = i - 50;
            if (which == 0)
                ((int32_t *)dc)[i] = expected[i];
            else
                ((float *)dc)[i] = (float)expected[i];
            for (int j = 0; j < k; j++) expected[i] += a[i / 8 * k + j] * b[j * 8 + i % 8];
        }
        done(inlines_mma(which, da, db, dc));
        for (int i = 0; i < 128; i++)
            assert_int_equal(which == 0 ? ((int32_t *)dc)[i] : (int)((float *)dc)[i], expected[i]);
        gpu_ok(cudaFree(da));
        gpu_ok(cudaFree(db));
        gpu_ok(cudaFree(dc));
    }
}

static void loads_of_matrices(void **state)
{
    NEEDS_GPU();
    uint16_t *rows = gpu_both_sides(512, 0xee);
    uint32_t *registers = gpu_both_sides(512, 0xee);
    for (unsigned i = 0; i < 256; i++) rows[i] = (uint16_t)i;
    done(inlines_load_matrices(rows, registers));
    for (unsigned m = 0; m < 4; m++)
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned k = 0; k < 2; k++)
                assert_int_equal(registers[m * 32 + lane] >> k * 16 & 0xffff,
                                 (m * 8 + lane / 4) * 8 + lane % 4 * 2 + k);
    gpu_ok(cudaFree(rows));
    gpu_ok(cudaFree(registers));
}

/* Minus the mean of a beam's 16 values, whatever their signs. */
static void pivots(void **state)
{
    NEEDS_GPU();
    uint32_t *x = gpu_both_sides(256, 0xee);
    float *start = gpu_both_sides(512, 0xee), sum[8] = {0};
    for (unsigned i = 0; i < 64; i++) {
        unsigned beam = i % 32 / 4;
        x[i] = 0;
        for (unsigned half = 0; half < 2; half++) {
            float value = (float)(int)(dump_random(&seed) % 64) + 40 * ((float)beam - 4);
            x[i] |= (uint32_t)br_half_from_float(value) << 16 * half;
            sum[beam] += value;
        }
    }
    done(inlines_pivot(x, start));
    for (unsigned i = 0; i < 128; i++)
        assert_true(start[i] == -br_half_to_float(br_half_from_float(sum[i % 32 / 4] / 16)));
    gpu_ok(cudaFree(x));
    gpu_ok(cudaFree(start));
}

/* c += a b with a 64 rows and k 128 bytes, b as columns of as many. */
static bool product_of_a_warpgroup(int is_float, int columns, int swizzled)
{
    int k = is_float ? 64 : 128;
    uint8_t *a = gpu_both_sides(64 * 128, 0xee), *b = gpu_both_sides((size_t)columns * 128, 0xee);
    void *c = gpu_both_sides((size_t)(64 * columns) * 4, 0xee);
    static int x[64 * 128], y[192 * 128];
    for (int i = 0; i < (64 + columns) * k; i++) {
        int *value = i < 64 * k ? &x[i] : &y[i - 64 * k];
        uint16_t half = small_half(value);
        if (!is_float) *value = (int)(dump_random(&seed) % 256) - 128;
        uint8_t *bytes = i < 64 * k ? a : b;
        int at = i < 64 * k ? i : i - 64 * k;
        if (is_float)
            ((uint16_t *)bytes)[at] = half;
        else
            bytes[at] = (uint8_t)*value;
    }
    for (int i = 0; i < 64 * columns; i++)
        if (is_float)
            ((float *)c)[i] = (float)(i % 100);
        else
            ((int32_t *)c)[i] = i % 100;
    int status = inlines_wgmma(is_float, columns, swizzled, a, b, c);
    if (status != 1) done(status);
    for (int i = 0; status == 0 && i < 64 * columns; i++) {
        int expected = i % 100;
        for (int j = 0; j < k; j++) expected += x[i / columns * k + j] * y[i % columns * k + j];
        int got = is_float ? (int)((float *)c)[i] : ((int32_t *)c)[i];
        if (got != expected)
            fail_msg("%s, %d columns, %s: row %d column %d is %d, not %d", is_float ? "float16" : "int8",
                     columns, swizzled ? "swizzled" : "plain", i / columns, i % columns, got, expected);
    }
    gpu_ok(cudaFree(a));
    gpu_ok(cudaFree(b));
    gpu_ok(cudaFree(c));
    return status == 0;
}

static void products_of_a_warpgroup(void **state)
{
    NEEDS_GPU();
    static const int columns[] = {32, 48, 64, 128, 192};
    for (int i = 0; i < 5; i++)
        for (int is_float = 0; is_float <= (columns[i] == 64); is_float++)
            for (int swizzled = 0; swizzled < 2; swizzled++)
                if (!product_of_a_warpgroup(is_float, columns[i], swizzled)) {
                    printf("no sm_90: skipped\n");
                    skip();
                }
}

/* Boxes that lie inside, and over each end: zeros come in, and nothing goes out. */
static void boxes_of_a_tensor(void **state)
{
    NEEDS_GPU();
    enum { ROWS = 40, BYTES = 272, SEEN = 2048 };
    static const int at[][2] = {{0, 0},    {128, 16}, {144, 3},  {256, 30},
                                {-128, 0}, {16, -10}, {-16, 35}, {272, 0}};
    static uint8_t in[ROWS * BYTES], out[ROWS * BYTES], seen[SEEN];
    uint8_t *device_in = gpu_poisoned(sizeof in, 0), *device_out = gpu_poisoned(sizeof out, 0),
            *device_seen = gpu_poisoned(sizeof seen, 0xee);
    for (unsigned i = 0; i < sizeof in; i++) in[i] = (uint8_t)(1 + dump_random(&seed) % 255);
    gpu_ok(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice));
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        int x = at[i][0], y = at[i][1];
        gpu_ok(cudaMemset(device_out, 0, sizeof out));
        int status = inlines_tensor(device_in, device_seen, device_out, ROWS, BYTES, x, y);
        if (status == 1) {
            printf("no tensor memory accelerator: skipped\n");
            skip();
        }
        if (status != 0) fail_msg("box at %d, %d: %s", x, y, cudaGetErrorString(cudaGetLastError()));
        gpu_ok(cudaMemcpy(out, device_out, sizeof out, cudaMemcpyDeviceToHost));
        gpu_ok(cudaMemcpy(seen, device_seen, sizeof seen, cudaMemcpyDeviceToHost));
        for (int row = 0; row < 16; row++)
            for (int byte = 0; byte < 128; byte++) {
                bool inside = y + row >= 0 && y + row < ROWS && x + byte >= 0 && x + byte < BYTES;
                assert_int_equal(seen[br_wgmma_128_place((unsigned)row, (unsigned)byte)],
                                 inside ? in[(y + row) * BYTES + x + byte] : 0);
            }
        for (int row = 0; row < ROWS; row++)
            for (int byte = 0; byte < BYTES; byte++) {
                bool inside = x >= 0 && y >= 0 && row >= y && row < y + 16 && byte >= x && byte < x + 128;
                assert_int_equal(out[row * BYTES + byte], inside ? in[row * BYTES + byte] : 0);
            }
    }
    br_cuda_free(gpu, device_in);
    br_cuda_free(gpu, device_out);
    br_cuda_free(gpu, device_seen);
}
#endif

int main(void)
{
    const struct CMUnitTest host[] = {
        cmocka_unit_test(selectors_exchange_bits),
        cmocka_unit_test(fragments_hold_all_once),
        cmocka_unit_test(descriptors),
    };
    int failed = cmocka_run_group_tests_name("on the CPU", host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest device[] = {
        cmocka_unit_test(int4_values),
        cmocka_unit_test(transposes),
        cmocka_unit_test(products_of_a_warp),
        cmocka_unit_test(loads_of_matrices),
        cmocka_unit_test(pivots),
        cmocka_unit_test(products_of_a_warpgroup),
        cmocka_unit_test(boxes_of_a_tensor),
    };
    failed += cmocka_run_group_tests_name("on the GPU", device, gpu_open, gpu_close);
#endif
    return failed;
}
