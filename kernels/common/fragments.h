/* fragments.h - which element of a matrix is in which register, and where the tensor cores want it in
 * shared memory.
 *
 * For the instructions that device.cuh and wgmma.cuh wrap. A matrix a is M rows by K, b is K by N columns,
 * c M rows by N columns; `lane` counts in the warp (mma) or in the warpgroup (wgmma, 0 to 127); `reg`
 * counts the registers of one lane, `part` the int8 or float16 values of a register from the low end. */
#ifndef BEAMRING_KERNELS_COMMON_FRAGMENTS_H
#define BEAMRING_KERNELS_COMMON_FRAGMENTS_H

#include "kernels/common/layout.h"

/* Row in the upper, column (or k) in the lower 16 bits. */
struct br_cell {
    unsigned row, column;
};

static inline BR_HD struct br_cell br_cell(unsigned row, unsigned column)
{
    struct br_cell cell = {row, column};
    return cell;
}

/* ---- mma.sync, m16n8 ---- */

/* c, int32 or float32: c[4].
 *   register: r1 r0 <-> row3 column0   thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 column2 column1 */
static inline BR_HD struct br_cell br_mma_c(unsigned reg, unsigned lane)
{
    return br_cell((reg >> 1) * 8 + lane / 4, lane % 4 * 2 + reg % 2);
}

/* a of m16n8k32, int8: a[4]; column is k.
 *   simd: b1 b0 <-> column1 column0   register: r1 r0 <-> column4 row3
 *   thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 column3 column2 */
static inline BR_HD struct br_cell br_mma_s8_a(unsigned reg, unsigned part, unsigned lane)
{
    return br_cell(reg % 2 * 8 + lane / 4, reg / 2 * 16 + lane % 4 * 4 + part);
}

/* b of m16n8k32, int8: b[2]; row is k.
 *   simd: b1 b0 <-> row1 row0   register: r0 <-> row4
 *   thread: t4 t3 t2 t1 t0 <-> column2 column1 column0 row3 row2 */
static inline BR_HD struct br_cell br_mma_s8_b(unsigned reg, unsigned part, unsigned lane)
{
    return br_cell(reg * 16 + lane % 4 * 4 + part, lane / 4);
}

/* a of m16n8k16, float16: a[4]. m16n8k8 has its first two registers.
 *   simd: b0 <-> column0   register: r1 r0 <-> column3 row3
 *   thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 column2 column1 */
static inline BR_HD struct br_cell br_mma_f16_a(unsigned reg, unsigned part, unsigned lane)
{
    return br_cell(reg % 2 * 8 + lane / 4, reg / 2 * 8 + lane % 4 * 2 + part);
}

/* b of m16n8k16, float16: b[2]. m16n8k8 has its first register.
 *   simd: b0 <-> row0   register: r0 <-> row3
 *   thread: t4 t3 t2 t1 t0 <-> column2 column1 column0 row2 row1 */
static inline BR_HD struct br_cell br_mma_f16_b(unsigned reg, unsigned part, unsigned lane)
{
    return br_cell(reg * 8 + lane % 4 * 2 + part, lane / 4);
}

/* ---- wgmma, m64nN ---- */

/* c, int32 or float32: c[N / 2].
 *   register: r6 r5 r4 r3 r2 r1 r0 <-> column7 column6 column5 column4 column3 row3 column0
 *   thread:   t6 t5 t4 t3 t2 t1 t0 <-> row5 row4 row2 row1 row0 column2 column1
 * (N = 256; fewer r for fewer columns) */
static inline BR_HD struct br_cell br_wgmma_c(unsigned reg, unsigned lane)
{
    return br_cell(lane / 32 * 16 + reg / 2 % 2 * 8 + lane % 32 / 4, reg / 4 * 8 + lane % 4 * 2 + reg % 2);
}

/* a of m64nNk32 from registers, int8: a[4]; column is k.
 *   simd: b1 b0 <-> column1 column0   register: r1 r0 <-> column4 row3
 *   thread: t6 t5 t4 t3 t2 t1 t0 <-> row5 row4 row2 row1 row0 column3 column2 */
static inline BR_HD struct br_cell br_wgmma_s8_a(unsigned reg, unsigned part, unsigned lane)
{
    struct br_cell cell = br_mma_s8_a(reg, part, lane % 32);
    return br_cell(lane / 32 * 16 + cell.row, cell.column);
}

/* a of m64nNk16 from registers, float16: a[4].
 *   simd: b0 <-> column0   register: r1 r0 <-> column3 row3
 *   thread: t6 t5 t4 t3 t2 t1 t0 <-> row5 row4 row2 row1 row0 column2 column1 */
static inline BR_HD struct br_cell br_wgmma_f16_a(unsigned reg, unsigned part, unsigned lane)
{
    struct br_cell cell = br_mma_f16_a(reg, part, lane % 32);
    return br_cell(lane / 32 * 16 + cell.row, cell.column);
}

/* Operands in shared memory: K-major (k contiguous), in 8 rows by 16 bytes core matrices. */
enum br_wgmma_swizzle { BR_WGMMA_PLAIN, BR_WGMMA_128, BR_WGMMA_64, BR_WGMMA_32 };

/* The descriptor that wgmma takes for a matrix in shared memory.
 *   address  in shared memory, in bytes, multiple of 16; of the first element, in swizzled layouts inside a
 *            pattern that starts at a multiple of 1024, 512 or 256 bytes (a later k: the address + its bytes
 *            in the row, unswizzled)
 *   leading  bytes from one core matrix to the next along k (plain only; ignored in swizzled layouts)
 *   stride   bytes from 8 rows to the next 8 rows (columns of b are its rows) */
static inline BR_HD uint64_t br_wgmma_descriptor(unsigned address, unsigned leading, unsigned stride,
                                                 enum br_wgmma_swizzle swizzle)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)swizzle << 62;
}

/* Byte offset of byte `byte` of row `row` (a's row, b's column) of an operand without a swizzle: whole
 * core matrices of 128 bytes, those of one row of them `leading` bytes apart, of different rows `stride`. */
static inline BR_HD unsigned br_wgmma_plain_place(unsigned row, unsigned byte, unsigned leading,
                                                  unsigned stride)
{
    return row / 8 * stride + byte / 16 * leading + row % 8 * 16 + byte % 16;
}

/* The same for rows of 128 bytes in the 128-byte swizzle (descriptor: stride 1024): what the tensor memory
 * accelerator writes. */
static inline BR_HD unsigned br_wgmma_128_place(unsigned row, unsigned byte)
{
    return br_swizzle_128_bytes(row * 128 + byte);
}

/* ---- transposes ---- */

/* Byte selectors of __byte_perm for exchanging the register bit of two registers with bit `simd` (0 or 1)
 * of the byte's number: first the new low register's, then the new high one's. */
static inline BR_HD unsigned br_transpose_selector(unsigned simd, unsigned high)
{
    return simd == 0 ? (high ? 0x7351u : 0x6240u) : (high ? 0x7632u : 0x5410u);
}

/* Where value `part` of register `reg` (of two) comes from when the register bit and bit `simd` of the
 * value's number change places: register in .row, value in .column. */
static inline BR_HD struct br_cell br_transpose_source(unsigned simd, unsigned reg, unsigned part)
{
    return br_cell(br_bit(part, simd), (part & ~(1u << simd)) | reg << simd);
}

#endif
