/* FRB stage 1 on a GPU: what may be called, and when: zones together, samples that are missing, streams that
 * begin anew, what is refused, and failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/common/refused.h"
#include "tests/kernels/frb_grid/grid_run.h"

static void without_a_device(void **state)
{
    (void)state;
    struct run r = make(1, 1, 1, 8, 8, 0, 1, 0, 0);
    struct br_frb_grid *plan = (struct br_frb_grid *)&r;
    struct br_why why;
    int status = br_frb_grid_create(&plan, BR_CUDA, &r.params, &why);
    assert_refused_without_device(status, plan, &why);
    finish(&r);
}

/* Zones of a stage, of different lengths and with different weights, in one call: the same bits as one after
 * the other. Blocks of the first have `length` samples. `cuda` is where BR_CUDA works, and `space` gives
 * memory there; on the CPU both are NULL. */
static void check_together(unsigned M, unsigned N, unsigned length, enum br_backend backend,
                           struct br_cuda *cuda, void *(*space)(size_t bytes, const void *from),
                           void (*fetch)(void *to, const void *from, size_t bytes))
{
    enum { ZONES = 3, BLOCKS = 5 };
    struct run zone[ZONES];
    struct br_frb_grid_call call[ZONES];
    uint16_t *out[2][ZONES], *got[2];
    uint8_t valid[2][ZONES][8 * BLOCKS];
    size_t taken[2][ZONES], blocks[2][ZONES];
    for (size_t z = 0; z < ZONES; z++) {
        zone[z] =
            make((4 * length + 1) << z, 4 >> z, 2, M, N, 64, length << z, z == 1 ? 2 : 0, z == 2 ? 30 : 0);
        zone[z].params.cuda = cuda;
        if (z != 1) place_in_order(&zone[z], N);
        if (z != 1) zone[z].row = zone[z].params.nchannels * 2 * 64;
    }
    for (int together = 0; together < 2; together++) {
        for (size_t z = 0; z < ZONES; z++) {
            struct run *r = &zone[z];
            struct br_why why = {""};
            size_t bytes = r->params.nchannels * BLOCKS * r->cells * sizeof(uint16_t);
            out[together][z] = space(bytes, NULL);
            memset(valid[together][z], 7, sizeof valid[together][z]);
            call[z] = (struct br_frb_grid_call){.e = space(r->T * r->row, r->e),
                                                .row = r->row,
                                                .e_valid = r->valid,
                                                .valid_row = r->valid_row,
                                                .nsteps = r->T,
                                                .max_blocks = z == 2 ? 2 : BLOCKS,
                                                .out = out[together][z],
                                                .out_stride = BLOCKS,
                                                .out_valid = valid[together][z],
                                                .valid_stride = BLOCKS};
            if (br_frb_grid_create(&call[z].plan, backend, &r->params, &why) != 0) fail_msg("%s", why.text);
        }
        for (size_t z = 0; z < ZONES && !together; z++) br_frb_grid_execute_all(&call[z], 1);
        if (together) br_frb_grid_execute_all(call, ZONES);
        for (size_t z = 0; z < ZONES; z++) {
            taken[together][z] = call[z].taken;
            blocks[together][z] = call[z].blocks;
            assert_int_equal(call[z].blocks, z == 2 ? 2 : 4);
            assert_int_equal(call[z].taken, z == 2 ? 8 * length : zone[z].T);
            br_frb_grid_destroy(call[z].plan);
        }
    }
    assert_memory_equal(taken[0], taken[1], sizeof taken[0]);
    assert_memory_equal(blocks[0], blocks[1], sizeof blocks[0]);
    assert_memory_equal(valid[0], valid[1], sizeof valid[0]);
    for (size_t z = 0; z < ZONES; z++) {
        size_t bytes = zone[z].params.nchannels * BLOCKS * zone[z].cells * sizeof(uint16_t);
        for (int i = 0; i < 2; i++) {
            got[i] = malloc(bytes);
            fetch(got[i], out[i][z], bytes);
        }
        assert_memory_equal(got[0], got[1], bytes);
        free(got[0]);
        free(got[1]);
        finish(&zone[z]);
    }
}

static void *kept[16];
static size_t nkept;

static void *host_space(size_t bytes, const void *from)
{
    void *memory = calloc(1, bytes);
    if (from) memcpy(memory, from, bytes);
    return kept[nkept++] = memory;
}

static void host_fetch(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void together_on_the_cpu(void **state)
{
    (void)state;
    check_together(12, 24, 3, BR_CPU, NULL, host_space, host_fetch);
    while (nkept > 0) free(kept[--nkept]);
}

#if BR_WITH_CUDA
#include "tests/kernels/frb_grid/grid_gpu.h"

static void *device_space(size_t bytes, const void *from)
{
    void *memory = gpu_poisoned(bytes, 0);
    if (from) gpu_ok(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    return kept[nkept++] = memory;
}

static void together(void **state)
{
    NEEDS_GPU();
    for (unsigned i = 0; i < 3; i++) {
        check_together(i ? 8 : 12, i ? 8 : 24, (unsigned[]){3, 4, 12}[i], BR_CUDA, gpu, device_space,
                       gpu_fetch);
        while (nkept > 0) br_cuda_free(gpu, kept[--nkept]);
    }
}

/* Samples that are said to be missing, the phase and the end of the stream are all the same thing: no
 * contribution. */
static void missing_is_missing(void **state)
{
    NEEDS_GPU();
    for (int i = 0; i < 6; i++) {
        unsigned downsample = i < 3 ? 10 : 700, phase = i < 3 ? 3 : 300;
        struct run r = make(i < 3 ? 24 : 900, 2, 2, 8, 8 + 4 * (unsigned)i, 50, downsample, 1, 0), s = r;
        size_t blocks = (phase + r.T + downsample - 1) / downsample;
        r.phase = phase;
        s.phase = 0;
        s.T = blocks * downsample;
        s.e = malloc(s.T * s.row);
        s.valid = calloc(s.T, s.valid_row);
        for (size_t k = 0; k < s.T * s.row; k++) s.e[k] = (uint8_t)dump_random(&seed);
        memcpy(s.e + phase * s.row, r.e, r.T * r.row);
        memset(s.valid + phase * s.valid_row, 255, r.T * s.valid_row);
        r.params.threshold = s.params.threshold = 0.1;
        struct image a = compute(&r, BR_CUDA, 0), b = compute(&s, BR_CUDA, 0), c = compute(&s, BR_CUDA, 40);
        assert_int_equal(a.blocks, blocks);
        assert_same(&r, &a, &b);
        assert_same(&r, &a, &c);
        release(&a);
        release(&b);
        release(&c);
        free(s.e);
        free(s.valid);
        finish(&r);
    }
}

/* A stream that begins anew forgets what was unfinished; so does a flush. */
static void begin_forgets(void **state)
{
    NEEDS_GPU();
    struct run r = make(7, 2, 2, 8, 8, 30, 5, 0, 0);
    struct br_frb_grid *plan;
    struct br_why why;
    size_t bytes = 2 * r.cells * sizeof(uint16_t), taken;
    uint16_t *first = malloc(bytes), *second = malloc(bytes), *out = gpu_poisoned(bytes, 0xee);
    uint8_t *e = gpu_poisoned(r.T * r.row, 0), valid[2];
    gpu_ok(cudaMemcpyAsync(e, r.e, r.T * r.row, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    r.params.cuda = gpu;
    r.params.threshold = 0;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), 0);
    for (int i = 0; i < 2; i++) {
        br_frb_grid_begin(plan, 1);
        assert_int_equal(br_frb_grid_execute(plan, e, r.row, NULL, 0, 7, 0, out, 1, valid, 1, &taken), 0);
        assert_int_equal(taken, 0);
        assert_int_equal(
            br_frb_grid_execute(plan, e + i * r.row, r.row, NULL, 0, 3, 1, out, 1, valid, 1, &taken), 0);
        if (i == 1) {
            br_frb_grid_begin(plan, 2);
            assert_int_equal(br_frb_grid_flush(plan, out, 1, valid, 1), 1);
            gpu_fetch(second, out, bytes);
            for (size_t k = 0; k < 2 * r.cells; k++) assert_int_equal(second[k], 0);
            assert_true(valid[0] == 0 && valid[1] == 0);
            br_frb_grid_begin(plan, 1);
            br_frb_grid_execute(plan, e, r.row, NULL, 0, 3, 1, out, 1, valid, 1, &taken);
        }
        assert_int_equal(br_frb_grid_flush(plan, out, 1, valid, 1), 1);
        gpu_fetch(i ? second : first, out, bytes);
    }
    assert_memory_equal(first, second, bytes);
    br_frb_grid_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, out);
    free(first);
    free(second);
    finish(&r);
}

static void refused(void **state)
{
    NEEDS_GPU();
    static const unsigned grid[][2] = {{8, 10}, {4, 8}, {8, 36}, {64, 64}, {7, 12}};
    struct br_frb_grid *plan;
    struct br_why why;
    for (int i = 0; i < 5; i++) {
        char text[20];
        struct run r = make(1, 1, 1, grid[i][0], grid[i][1], 2, 1, 0, 0);
        r.params.cuda = gpu;
        snprintf(text, sizeof text, "%u x %u", grid[i][0], grid[i][1]);
        int status = br_frb_grid_create(&plan, BR_CUDA, &r.params, &why);
        assert_refused(status, plan, &why, text);
        finish(&r);
    }
    struct run r = make(1, 1, 3, 8, 8, 2, 1, 0, 0);
    r.params.cuda = gpu;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), -1);
    assert_non_null(strstr(why.text, "3 polarisations"));
    finish(&r);
}

/* Validity larger than was announced: execute returns, and the failure can be read. */
static void failures(void **state)
{
    NEEDS_GPU();
    struct br_cuda *usual = gpu;
    struct br_why why;
    struct run r = make(10000, 1, 1, 8, 8, 1, 20000, 0, 10);
    assert_int_equal(br_cuda_create(&gpu, 0, NULL, 1, &why), 0);
    struct br_frb_grid *plan;
    size_t taken;
    r.params.cuda = gpu;
    assert_int_equal(br_frb_grid_create(&plan, BR_CUDA, &r.params, &why), 0);
    uint8_t *e = br_cuda_alloc(gpu, r.T * r.row, &why);
    br_frb_grid_execute(plan, e, r.row, r.valid, r.valid_row, r.T, 1, NULL, 1, NULL, 1, &taken);
    assert_int_equal(br_cuda_check(gpu, &why), -1);
    br_frb_grid_destroy(plan);
    br_cuda_free(gpu, e);
    br_cuda_destroy(gpu);
    gpu = usual;
    finish(&r);
}
#endif

int main(void)
{
    seed = 31;
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device),
                                      cmocka_unit_test(together_on_the_cpu)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {cmocka_unit_test(together), cmocka_unit_test(begin_forgets),
                                       cmocka_unit_test(refused), cmocka_unit_test(failures)};
    const struct CMUnitTest more[] = {cmocka_unit_test(missing_is_missing)};
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
#endif
    return failed;
}
