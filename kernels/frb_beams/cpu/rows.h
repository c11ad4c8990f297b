/* rows.h - a matrix product whose rows know nothing of each other. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_CPU_ROWS_H
#define BEAMRING_KERNELS_FRB_BEAMS_CPU_ROWS_H

#include <stddef.h>

/* c[rows][columns] = (add ? c : 0) + a[rows][depth] b[depth][columns], row-major, neighbouring rows
 * `a_row`, `b_row` and `c_row` floats apart; multiples of 8 `columns` are fastest. Every element is one chain
 * of multiply-adds over ascending depth: its bits depend on its row of a and its column of b, and not on how
 * many rows there are or which of them it is in. (Those of OpenBLAS's sgemm do: on Haswell and Zen rows 6
 * to 11 of every 12 are added up in another order than rows 0 to 5.) */
void br_frb_beams_rows(size_t rows, size_t columns, size_t depth, const float *a, size_t a_row,
                       const float *b, size_t b_row, int add, float *c, size_t c_row);

#endif
