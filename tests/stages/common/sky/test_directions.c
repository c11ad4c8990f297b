/* Beam directions from a grid, a list and a file, and what is refused. */
#include "stages/common/sky/directions.h"

#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const double degree = 3.14159265358979323846 / 180;

static void test_grid(void **state)
{
    (void)state;
    const int64_t size[] = {3, 4};
    const double spacing[] = {0.5, 0.25}, center[] = {10, -20};
    struct br_beams_param p = {.grid = {2, size}, .spacing_deg = {2, spacing}, .center = {2, center}};
    struct br_directions d;
    assert_int_equal(br_directions_make(&d, &p, NULL), BR_OK);
    assert_int_equal(d.nbeams, 12);
    assert_int_equal(d.nx, 3);
    assert_int_equal(d.ny, 4);
    const double x[] = {9.5, 10, 10.5}, y[] = {-20.375, -20.125, -19.875, -19.625};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 4; j++) {
            assert_true(fabs(d.beams[4 * i + j].x - sin(x[i] * degree)) < 1e-15);
            assert_true(fabs(d.beams[4 * i + j].y - sin(y[j] * degree)) < 1e-15);
        }
    free(d.beams);

    /* One spacing serves both axes, and the centre is the zenith unless given; an odd grid has a beam there.
     */
    const int64_t odd[] = {3, 1};
    p = (struct br_beams_param){.grid = {2, odd}, .spacing_deg = {1, spacing}};
    assert_int_equal(br_directions_make(&d, &p, NULL), BR_OK);
    assert_true(d.beams[1].x == 0 && d.beams[1].y == 0);
    assert_true(fabs(d.beams[2].x - sin(0.5 * degree)) < 1e-15);
    free(d.beams);
}

static void test_list(void **state)
{
    (void)state;
    const double xy[] = {0, 0, 0.6, -0.8, -0.1, 0.2};
    struct br_beams_param p = {.directions = {6, xy}};
    struct br_directions d;
    assert_int_equal(br_directions_make(&d, &p, NULL), BR_OK);
    assert_int_equal(d.nbeams, 3);
    assert_int_equal(d.nx, 0);
    assert_true(d.beams[1].x == 0.6 && d.beams[1].y == -0.8 && d.beams[2].y == 0.2);
    free(d.beams);
}

static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/test_directions_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const double xy[2][2] = {{0.01, -0.02}, {0.5, 0.25}};
    hsize_t dims[2] = {2, 2};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
          space = H5Screate_simple(2, dims, NULL);
    hid_t set = H5Dcreate2(file, "beams", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, xy) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(file);
    struct br_beams_param p = {.file = path};
    struct br_directions d;
    assert_int_equal(br_directions_make(&d, &p, NULL), BR_OK);
    assert_int_equal(d.nbeams, 2);
    assert_true(d.beams[0].y == -0.02 && d.beams[1].x == 0.5);
    free(d.beams);
    unlink(path);
}

static void refused(struct br_beams_param p, const char *words)
{
    struct br_directions d;
    struct br_error error = {0};
    assert_true(br_directions_make(&d, &p, &error) < 0);
    if (strstr(error.text, words) == NULL) fail_msg("'%s' is not in '%s'", words, error.text);
    assert_null(d.beams);
}

static void test_refused(void **state)
{
    (void)state;
    const int64_t size[] = {3, 4}, huge[] = {65536, 65536};
    const double spacing[] = {0.5}, wide[] = {61}, xy[] = {0.1, 0.2, 0.3}, beyond[] = {0.1, 0.2, 0.8, 0.8};
    refused((struct br_beams_param){0}, "none of grid");
    refused((struct br_beams_param){.grid = {2, size}, .spacing_deg = {1, spacing}, .directions = {2, xy}},
            "more than one");
    refused((struct br_beams_param){.grid = {2, size}}, "spacing_deg");
    refused((struct br_beams_param){.grid = {2, huge}, .spacing_deg = {1, spacing}}, "65536");
    refused((struct br_beams_param){.grid = {2, size}, .spacing_deg = {1, wide}}, "90");
    refused((struct br_beams_param){.directions = {2, xy}, .spacing_deg = {1, spacing}}, "spacing_deg");
    refused((struct br_beams_param){.directions = {3, xy}}, "3 numbers");
    refused((struct br_beams_param){.directions = {4, beyond}}, "beam 1");
    refused((struct br_beams_param){.file = "/nowhere/beams.h5"}, "/nowhere/beams.h5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid), cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_file), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
