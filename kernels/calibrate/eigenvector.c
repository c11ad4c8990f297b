#include "kernels/calibrate/calibrate.h"

#include <complex.h>
#include <stdlib.h>
#include <string.h>

/* LAPACK, in OpenBLAS; lengths of texts come last, as Fortran passes them. */
void zheevr_(const char *jobz, const char *range, const char *uplo, const int *n, double _Complex *a,
             const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
             const double *abstol, int *m, double *w, double _Complex *z, const int *ldz, int *isuppz,
             double _Complex *work, const int *lwork, double *rwork, const int *lrwork, int *iwork,
             const int *liwork, int *info, size_t jobz_length, size_t range_length, size_t uplo_length);

bool br_leading_eigenvector(size_t n, double *a, double *vector, double *value)
{
    /* the least that LAPACK asks for: 2 n, 24 n, 10 n */
    int order = (int)n, m = 0, info = -1, lwork = 2 * order, lrwork = 24 * order, liwork = 10 * order;
    int support[2];
    double none = 0;
    double _Complex *work = malloc((size_t)lwork * sizeof *work);
    double *rwork = malloc((size_t)lrwork * sizeof *rwork), *w = malloc(n * sizeof *w);
    int *iwork = malloc((size_t)liwork * sizeof *iwork);
    double _Complex *z = malloc(n * sizeof *z), *matrix = (double _Complex *)(void *)a;
    if (work != NULL && rwork != NULL && w != NULL && iwork != NULL && z != NULL)
        zheevr_("V", "I", "L", &order, matrix, &order, &none, &none, &order, &order, &none, &m, w, z, &order,
                support, work, &lwork, rwork, &lrwork, iwork, &liwork, &info, 1, 1, 1);
    bool good = info == 0 && m == 1;
    if (good) {
        memcpy(vector, z, n * sizeof *z);
        *value = w[0];
    }
    free(work);
    free(rwork);
    free(w);
    free(iwork);
    free(z);
    return good;
}
