/* Layouts that kernels share (kernels/common): the tensor cores' register assignments as the comments give
 * them, operands in shared memory. */
#include "kernels/common/fragments.h"
#include "tools/layouts/check.h"

void layouts_common(struct layouts *report);

/* ---- register assignments ---- */

typedef struct br_cell fragment(unsigned reg, unsigned part, unsigned lane);

/* Context: which fragment. Physical: register, lane; or value, register, lane. Logical: row, column. */
static void sums(const void *context, const unsigned *in, unsigned *out)
{
    struct br_cell cell = *(const int *)context ? br_wgmma_c(in[0], in[1]) : br_mma_c(in[0], in[1]);
    out[0] = cell.row;
    out[1] = cell.column;
}

static void operand(const void *context, const unsigned *in, unsigned *out)
{
    struct br_cell cell = (*(fragment *const *)context)(in[1], in[0], in[2]);
    out[0] = cell.row;
    out[1] = cell.column;
}

/* One register of b. */
static void single(const void *context, const unsigned *in, unsigned *out)
{
    struct br_cell cell = (*(fragment *const *)context)(0, in[0], in[1]);
    out[0] = cell.row;
    out[1] = cell.column;
}

/* ldmatrix: four 8 x 8 matrices, m; lane 8 m + i gave the address of row i. */
static void loaded(const void *context, const unsigned *in, unsigned *out)
{
    (void)context;
    out[0] = in[1];
    out[1] = in[2] / 4;
    out[2] = in[2] % 4 * 2 + in[0];
}

static void assignments(struct layouts *report)
{
    static const char functions[] = "kernels/common/fragments.h", inlines[] = "kernels/common/device.cuh";
    static const int warp = 0, warpgroup = 1;
    static fragment *const s8_a = br_mma_s8_a, *const s8_b = br_mma_s8_b, *const f16_a = br_mma_f16_a,
                           *const f16_b = br_mma_f16_b, *const wide_s8_a = br_wgmma_s8_a,
                           *const wide_f16_a = br_wgmma_f16_a;
    layouts_variant(report, "register assignments");
    layouts_comment(report, functions, "c, int32 or float32: c[4].\n", "r t", "row column", sums, &warp);
    layouts_comment(report, functions, "m16n8k32, int8: a[4]; column is k.\n", "b r t", "row column", operand,
                    &s8_a);
    layouts_comment(report, functions, "m16n8k32, int8: b[2]; row is k.\n", "b r t", "row column", operand,
                    &s8_b);
    layouts_comment(report, functions, "m16n8k8 has its first two registers.\n", "b r t", "row column",
                    operand, &f16_a);
    layouts_comment(report, functions, "m16n8k8 has its first register.\n", "b r t", "row column", operand,
                    &f16_b);
    layouts_comment(report, functions, "c, int32 or float32: c[N / 2].\n", "r t", "row column", sums,
                    &warpgroup);
    layouts_comment(report, functions, "from registers, int8: a[4]; column is k.\n", "b r t", "row column",
                    operand, &wide_s8_a);
    layouts_comment(report, functions, "from registers, float16: a[4].\n", "b r t", "row column", operand,
                    &wide_f16_a);

    layouts_comment(report, inlines, "modulo 2^32).\n *   a[4]", "b r t", "row k", operand, &s8_a);
    layouts_comment(report, inlines, "row2 row1 row0 k3 k2\n *   b[2]", "b r t", "k col", operand, &s8_b);
    layouts_comment(report, inlines, "c[4]", "r t", "row col", sums, &warp);
    layouts_comment(report, inlines, "float16 with float32 sums.\n *   a[4]", "b r t", "row k", operand,
                    &f16_a);
    layouts_comment(report, inlines, "row2 row1 row0 k2 k1\n *   b[2]", "b r t", "k col", operand, &f16_b);
    layouts_comment(report, inlines, "8 by 8 columns.\n *   a[2]", "b r t", "row k", operand, &f16_a);
    layouts_comment(report, inlines, "b     simd", "b t", "k col", single, &f16_b);
    layouts_comment(report, inlines, "to[4]  of 16 bits", "b r t", "m row k", loaded, NULL);
}

/* ---- operands in shared memory ---- */

/* 64 rows of so many bytes, written along rows in pieces of 16 bytes, read as the tensor cores do: 8 rows
 * of 16 bytes. */
static void rows(struct layouts *report, unsigned bytes, unsigned (*place)(unsigned offset))
{
    enum { ROWS = 64 };
    layouts_variant(report, "rows of %u bytes, swizzled", bytes);
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "operand", ROWS * bytes, 1);
    struct layouts_pass *write = layouts_begin(region, LAYOUTS_WRITE, "along rows");
    for (unsigned first = 0; first < ROWS * bytes; first += 32 * 16) {
        struct layouts_access access = {.bytes = 16};
        for (unsigned lane = 0; lane < 32; lane++)
            layouts_lane_items(&access, lane, place(first + lane * 16), first + lane * 16);
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);
    struct layouts_pass *read = layouts_begin(region, LAYOUTS_READ, "core matrices");
    for (unsigned row = 0; row < ROWS; row += 8)
        for (unsigned byte = 0; byte < bytes; byte += 16) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 8; lane++) {
                unsigned offset = (row + lane) * bytes + byte;
                layouts_lane_items(&access, lane, place(offset), offset);
            }
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
}

/* The same plainly: whole core matrices one after the other. */
static void core_matrices(struct layouts *report)
{
    enum { ROWS = 64, BYTES = 128 };
    layouts_variant(report, "whole core matrices");
    struct layouts_region *region = layouts_region(report, LAYOUTS_SHARED, "operand", ROWS * BYTES, 1);
    struct layouts_pass *pass = layouts_begin(region, LAYOUTS_WRITE, "core matrices");
    for (unsigned row = 0; row < ROWS; row += 8)
        for (unsigned byte = 0; byte < BYTES; byte += 16) {
            struct layouts_access access = {.bytes = 16};
            for (unsigned lane = 0; lane < 8; lane++)
                layouts_lane(&access, lane, br_wgmma_plain_place(row + lane, byte, 128, 128 * BYTES / 16));
            layouts_access(pass, &access);
        }
    layouts_end(pass, 1, 1);
}

void layouts_common(struct layouts *report)
{
    assignments(report);
    rows(report, 128, br_swizzle_128_bytes);
    rows(report, 64, br_swizzle_64_bytes);
    rows(report, 32, br_swizzle_32_bytes);
    core_matrices(report);
}
