/* inject_gpu.h - the same on a GPU. */
#ifndef BEAMRING_TESTS_KERNELS_INJECT_GPU_H
#define BEAMRING_TESTS_KERNELS_INJECT_GPU_H

#include "kernels/common/cuda.h"
#include "tests/kernels/inject/inject_run.h"

/* Adds all to e [total][line][dish] on the device. A piece that goes on where a call ended says so. */
static inline void inject_run_gpu(const struct inject_run *r, const struct br_inject *plan, uint8_t *e,
                                  void *sums)
{
    enum { MOST = 64 };
    struct br_inject_noise *noise = malloc(r->c->channels * sizeof *noise);
    struct br_inject_piece piece[MOST];
    size_t room = br_inject_room(plan), need = r->c->dishes * sizeof *r->input + 8;
    uint8_t *pack = malloc(room);
    for (size_t k = 0; k < r->c->frames; k++) {
        struct br_inject_frame frame = {e + k * r->c->samples * r->row, r->c->samples};
        size_t count = 0, at = 0, begin, end;
        for (size_t c = 0; c < r->c->channels; c++) count += inject_noise_of(r, k, c, sums, &noise[count]);
        if (count > 0) br_inject_cuda_measure(plan, &frame, noise, count);
        count = 0;
        for (size_t line = 0; line < r->lines; line++) {
            size_t first = inject_begin(line / r->c->npol);
            if (!inject_overlap(r, k, first, first + r->c->length, &begin, &end)) continue;
            for (size_t from = begin, to; from < end; from = to) {
                to = from + r->c->cut < end ? from + r->c->cut : end;
                /* a frame that is cut has its pieces in calls of two and three */
                bool full = at + (to - from) * 2 * sizeof(float) + need > room || count == MOST ||
                            (r->c->cut < r->c->samples && count == 2 + to % 2);
                if (full) {
                    br_inject_cuda_add(plan, &frame, pack, at, piece, count);
                    count = at = 0;
                }
                at = inject_piece_of(r, k, line, from, to, sums, pack, at, &piece[count]);
                piece[count].continues = count == 0 && from > begin;
                count++;
            }
        }
        if (count > 0) br_inject_cuda_add(plan, &frame, pack, at, piece, count);
    }
    free(pack);
    free(noise);
}

#endif
