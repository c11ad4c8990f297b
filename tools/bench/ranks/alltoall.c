/* alltoall.c - for tools/bench/exchange.py: a bare MPI_Alltoall of BYTES bytes from each rank to each,
 * TIMES times; rank 0 prints how long one takes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, n;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    int bytes = argc > 2 ? atoi(argv[1]) : 0, times = argc > 2 ? atoi(argv[2]) : 0;
    char *from = malloc((size_t)bytes * (size_t)n + 1), *to = malloc((size_t)bytes * (size_t)n + 1);
    if (bytes <= 0 || times <= 0 || from == NULL || to == NULL) {
        fprintf(stderr, "alltoall BYTES TIMES\n");
        return 2;
    }
    memset(from, rank, (size_t)bytes * (size_t)n);
    memset(to, rank, (size_t)bytes * (size_t)n);
    double begin = 0;
    for (int i = -5; i < times; i++) {
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%.3f us\n", (MPI_Wtime() - begin) * 1e6 / times);
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
