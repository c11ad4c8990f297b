/* Gains, weights and beam directions from HDF5 files: what is read, and what is refused with which words. */
#include "formats/hdf5/hdf5_child.h"
#include "formats/tables/hdf5_tables.h"

#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/test_numbers_XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

static hid_t open_file(void)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

static void put(hid_t file, const char *name, hid_t stored, hid_t memory, int rank, const hsize_t *dims,
                const void *data)
{
    hid_t space = H5Screate_simple(rank, dims, NULL);
    hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(set >= 0 &&
                (data == NULL || H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0));
    H5Dclose(set);
    H5Sclose(space);
}

/* A file with one dataset. */
static void put_alone(const char *name, hid_t stored, hid_t memory, int rank, const hsize_t *dims,
                      const void *data)
{
    hid_t file = open_file();
    put(file, name, stored, memory, rank, dims, data);
    H5Fclose(file);
}

static hid_t pair(const char *re, const char *im, hid_t part)
{
    size_t size = H5Tget_size(part);
    hid_t type = H5Tcreate(H5T_COMPOUND, 2 * size);
    H5Tinsert(type, re, 0, part);
    H5Tinsert(type, im, size, part);
    return type;
}

static void has(const struct br_error *error, const char *words)
{
    if (strstr(error->text, words) == NULL || strstr(error->text, path) == NULL)
        fail_msg("'%s' or the file's name is not in '%s'", words, error->text);
}

static void test_gains(void **state)
{
    (void)state;
    float value[2 * 2 * 3 * 2];
    double wide[2 * 2 * 3 * 2];
    for (size_t i = 0; i < 24; i++) wide[i] = value[i] = (float)i - 7.25f;
    const hsize_t dims[3] = {2, 2, 3};
    hid_t narrow_type = pair("r", "i", H5T_NATIVE_FLOAT), wide_type = pair("r", "i", H5T_NATIVE_DOUBLE);
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        hid_t type = is_wide ? wide_type : narrow_type;
        put_alone("gain", type, type, 3, dims, is_wide ? (void *)wide : (void *)value);
        struct br_gains gains;
        assert_int_equal(br_gains_read(&gains, path, NULL), BR_OK);
        assert_int_equal(gains.nfreq, 2);
        assert_int_equal(gains.npol, 2);
        assert_int_equal(gains.ndishes, 3);
        assert_memory_equal(gains.value, value, sizeof value);
        free(gains.value);
    }
    H5Tclose(narrow_type);
    H5Tclose(wide_type);
}

static void gains_refused(const char *words)
{
    struct br_gains gains;
    struct br_error error = {0};
    assert_true(br_gains_read(&gains, path, &error) < 0);
    has(&error, words);
}

static void test_gains_refused(void **state)
{
    (void)state;
    float value[12] = {0};
    value[2 * 4 + 1] = NAN; /* freq 0, pol 1, dish 1 of [1][2][3] */
    const hsize_t dims[3] = {1, 2, 3}, flat[2] = {2, 3}, none[3] = {0, 2, 3};
    hid_t type = pair("r", "i", H5T_NATIVE_FLOAT), other = pair("a", "b", H5T_NATIVE_FLOAT);
    put_alone("gain", type, type, 3, dims, value);
    gains_refused("/gain[0][1][1]");
    put_alone("gains", type, type, 3, dims, value);
    gains_refused("no dataset /gain");
    put_alone("gain", type, type, 2, flat, NULL);
    gains_refused("2 axes");
    put_alone("gain", type, type, 3, none, NULL);
    gains_refused("empty");
    put_alone("gain", other, other, 3, dims, value);
    gains_refused("type");
    put_alone("gain", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 3, dims, value);
    gains_refused("complex64");
    H5Tclose(type);
    H5Tclose(other);
    FILE *text = fopen(path, "w");
    fputs("no HDF5 file", text);
    fclose(text);
    gains_refused("HDF5");
    struct br_gains gains;
    struct br_error error = {0};
    assert_int_equal(br_gains_read(&gains, "/nowhere/gains.h5", &error), BR_E_IO);
    assert_non_null(strstr(error.text, "/nowhere/gains.h5"));
}

enum { F = 2, P = 2, B = 3, D = 4 };

static void put_weights(size_t nf, const int8_t *a, size_t ns, const int32_t *s, hid_t weight_type,
                        hid_t shift_type)
{
    const hsize_t wd[5] = {nf, P, B, D, 2}, sd[3] = {ns, P, B};
    hid_t file = open_file();
    put(file, "weights", weight_type, H5T_NATIVE_INT8, 5, wd, a);
    put(file, "shift", shift_type, H5T_NATIVE_INT32, 3, sd, s);
    H5Fclose(file);
}

static void test_weights(void **state)
{
    (void)state;
    int8_t a[F * P * B * D * 2];
    int32_t s[F * P * B];
    for (size_t i = 0; i < sizeof a; i++) a[i] = (int8_t)((i * 53) % 255 - 127);
    for (size_t i = 0; i < F * P * B; i++) s[i] = (int32_t)(i * 5 % 31);
    struct br_weights w;
    for (size_t nf = 1; nf <= F; nf++)
        for (size_t ns = 1; ns <= F; ns++) {
            put_weights(nf, a, ns, s, H5T_STD_I8LE, ns == 1 ? H5T_STD_I16BE : H5T_STD_I32LE);
            assert_int_equal(br_weights_read(&w, path, NULL), BR_OK);
            assert_int_equal(w.nfreq, nf > ns ? nf : ns);
            assert_int_equal(w.npol, P);
            assert_int_equal(w.nbeams, B);
            assert_int_equal(w.ndishes, D);
            for (size_t f = 0; f < w.nfreq; f++) {
                assert_memory_equal(w.weight + f * P * B * D * 2, a + (nf == 1 ? 0 : f) * P * B * D * 2,
                                    P * B * D * 2);
                assert_memory_equal(w.shift + f * P * B, s + (ns == 1 ? 0 : f) * P * B, P * B * sizeof *s);
            }
            free(w.weight);
            free(w.shift);
        }
}

static void weights_refused(const char *words)
{
    struct br_weights w;
    struct br_error error = {0};
    assert_true(br_weights_read(&w, path, &error) < 0);
    has(&error, words);
    assert_null(w.weight);
}

static void test_weights_refused(void **state)
{
    (void)state;
    int8_t a[F * P * B * D * 2] = {0};
    int32_t s[3 * P * B] = {0};
    a[(((1 * P + 0) * B + 2) * D + 3) * 2 + 1] = -128;
    put_weights(F, a, 1, s, H5T_STD_I8LE, H5T_STD_I32LE);
    weights_refused("/weights[1][0][2][3][1]");
    memset(a, 0, sizeof a);
    s[(0 * P + 1) * B + 2] = 31;
    put_weights(F, a, 1, s, H5T_STD_I8LE, H5T_STD_I32LE);
    weights_refused("/shift[0][1][2]");
    s[(0 * P + 1) * B + 2] = -1;
    put_weights(F, a, 1, s, H5T_STD_I8LE, H5T_STD_I32LE);
    weights_refused("/shift[0][1][2]");
    memset(s, 0, sizeof s);
    put_weights(F, a, 3, s, H5T_STD_I8LE, H5T_STD_I32LE);
    weights_refused("/shift is [3]");
    put_weights(F, a, 1, s, H5T_STD_U8LE, H5T_STD_I32LE);
    weights_refused("int8");
    put_weights(F, a, 1, s, H5T_STD_I16LE, H5T_STD_I32LE);
    weights_refused("int8");
    const hsize_t wd[5] = {1, P, B, D, 2};
    put_alone("weights", H5T_STD_I8LE, H5T_NATIVE_INT8, 5, wd, a);
    weights_refused("no dataset /shift");
}

static void test_beams(void **state)
{
    (void)state;
    float xy[3][2] = {{0, 0.5f}, {-0.25f, 0.125f}, {1, 0}};
    const hsize_t dims[2] = {3, 2}, wrong[2] = {2, 3};
    put_alone("beams", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dims, xy);
    double *beams = NULL;
    size_t count = 0;
    struct br_error error = {0};
    assert_int_equal(br_beams_read(&beams, &count, path, NULL), BR_OK);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 6; i++) assert_true(beams[i] == (double)xy[i / 2][i % 2]);
    free(beams);

    xy[2][1] = INFINITY;
    put_alone("beams", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dims, xy);
    assert_int_equal(br_beams_read(&beams, &count, path, &error), BR_E_FORMAT);
    has(&error, "/beams[2][1]");
    put_alone("beams", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, wrong, xy);
    error = (struct br_error){0};
    assert_int_equal(br_beams_read(&beams, &count, path, &error), BR_E_FORMAT);
    has(&error, "expected 2");
}

static void put_reals(const char *name, size_t count, const double *values)
{
    put_alone(name, H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 1, (hsize_t[]){count}, values);
}

/* Gains of the channels themselves, of those before they were upchannelized, of others, of channels that
 * nobody names. */
static void test_channels(void **state)
{
    (void)state;
    double fine[6], width[6], coarse[2] = {400, 400.6}, off[2] = {400, 401.2}, other[3] = {1, 2, 3};
    for (size_t i = 0; i < 6; i++) {
        fine[i] = 399.8 + 0.2 * (double)i;
        width[i] = 0.2;
    }
    struct br_stream s = {
        .nchannels = 6, .freq_mhz = fine, .width_mhz = width, .nzones = 1, .zone = {{0, 6, 3, 3, 0}}};
    struct br_error error = {0};
    put_reals("freq_mhz", 6, fine);
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_OK);
    put_reals("freq_mhz", 2, coarse);
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_OK);
    put_reals("freq_mhz", 3, other); /* another shape: its reader says so */
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_OK);
    put_reals("freq_mhz", 1, other);
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_OK);
    put_reals("other", 6, fine); /* gains of which nobody knows */
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_OK);
    put_reals("freq_mhz", 2, off);
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_E_INVALID);
    has(&error, "number 1 is at 401.2 MHz there, and at 400.6 MHz here");
    error = (struct br_error){0};
    fine[5] += 0.1;
    put_reals("freq_mhz", 6, fine);
    fine[5] -= 0.1;
    assert_int_equal(br_gains_check_channels(path, &s, &error), BR_E_INVALID);
    has(&error, "number 5");
}

static void test_drifts(void **state)
{
    (void)state;
    double value[6] = {0, 1, -2.5, 1e-3, 4, 5};
    struct br_drifts drifts;
    struct br_error error = {0};
    put_alone("drift", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 2, (hsize_t[]){2, 3}, value);
    assert_int_equal(br_drifts_read(&drifts, path, &error), BR_OK);
    assert_true(drifts.npol == 2 && drifts.ndishes == 3);
    for (size_t i = 0; i < 6; i++)
        assert_true(fabs((double)drifts.value[i] - value[i]) <= 1e-7 * fabs(value[i]));
    free(drifts.value);
    value[4] = INFINITY;
    put_alone("drift", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 2, (hsize_t[]){2, 3}, value);
    assert_int_equal(br_drifts_read(&drifts, path, &error), BR_E_FORMAT);
    has(&error, "/drift[1][1] is not a finite number");
}

/* Who reads a table stays for the next one: a fork would hold up a pipeline that runs. */
static void test_the_reader_stays(void **state)
{
    (void)state;
    const double value[6] = {0};
    struct br_drifts drifts;
    struct br_error error = {0};
    hdf5_apart_end();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* there is no process */
    put_alone("drift", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 2, (hsize_t[]){2, 3}, value);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(br_drifts_read(&drifts, path, &error), BR_OK);
        free(drifts.value);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* there is one, and none has ended */
    }
    hdf5_apart_end();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gains),   cmocka_unit_test(test_gains_refused),
        cmocka_unit_test(test_weights), cmocka_unit_test(test_weights_refused),
        cmocka_unit_test(test_beams),   cmocka_unit_test(test_channels),
        cmocka_unit_test(test_drifts),  cmocka_unit_test(test_the_reader_stays),
    };
    return cmocka_run_group_tests(tests, make_path, drop_path);
}
