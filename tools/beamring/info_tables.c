/* info_tables.c - what HDF5 files other than recordings hold: UVH5, gains, beams, weights, bad inputs.
 * The files are read in another process (hdf5_child.h), which sends lines "name TAB text". */
#include "buffers/regular_file.h"
#include "formats/chime/chime_hdf5.h"
#include "formats/common/text.h"
#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_types.h"
#include "tools/beamring/info.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NUMBERS = 1 << 24, NAME_ROOM = 32, TEXT_ROOM = 400 };

struct request {
    char path[PATH_MAX];
};

/* An open file in the child, and where its lines go. */
struct reading {
    hid_t file;
    struct hdf5_sink *to;
    bool sent;
};

static void say(struct reading *r, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct reading *r, const char *name, const char *format, ...)
{
    char text[TEXT_ROOM], line[TEXT_ROOM + NAME_ROOM + 8];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    int length = snprintf(line, sizeof line, "%s\t%s\n", name, text);
    r->sent = hdf5_send(r->to, line, (size_t)length);
}

/* The lengths of a dataset's axes. Returns their number, or -1: there is no such dataset in this file. */
static int shape_of(const struct reading *r, const char *name, hsize_t dims[8])
{
    bool outside;
    if (!hdf5_exists(r->file, name)) return -1;
    hid_t set = hdf5_dataset(r->file, name, &outside);
    if (set < 0) return -1;
    hid_t space = H5Dget_space(set);
    int rank = H5Sget_simple_extent_ndims(space);
    if (rank >= 0 && rank <= 8) H5Sget_simple_extent_dims(space, dims, NULL);
    H5Sclose(space);
    H5Dclose(set);
    return rank <= 8 ? rank : -1;
}

/* All numbers of a dataset; the caller frees them. NULL: there are none, or too many to look at. */
static double *numbers_of(const struct reading *r, const char *name, size_t *count)
{
    hsize_t dims[8];
    int rank = shape_of(r, name, dims);
    *count = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > MOST_NUMBERS / *count) return NULL;
        *count *= dims[i];
    }
    if (rank < 0) return NULL;
    hid_t set = hdf5_dataset(r->file, name, NULL);
    double *value = malloc(*count * sizeof *value);
    if (value != NULL && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0) {
        free(value);
        value = NULL;
    }
    H5Dclose(set);
    return value;
}

/* A text of fixed or of variable length, of a dataset or an attribute. */
static bool text_of(const struct reading *r, const char *name, bool attribute, char text[TEXT_ROOM])
{
    hid_t at = -1;
    text[0] = '\0';
    if (attribute ? H5Aexists(r->file, name) > 0 : hdf5_exists(r->file, name))
        at = attribute ? H5Aopen(r->file, name, H5P_DEFAULT) : hdf5_dataset(r->file, name, NULL);
    if (at < 0) return false;
    hid_t type = attribute ? H5Aget_type(at) : H5Dget_type(at);
    hid_t space = attribute ? H5Aget_space(at) : H5Dget_space(at);
    bool one = H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1, good = false;
    if (one && H5Tis_variable_str(type) > 0) {
        char *value = NULL;
        good = (attribute ? H5Aread(at, type, &value)
                          : H5Dread(at, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value)) >= 0;
        if (good && value != NULL) snprintf(text, TEXT_ROOM, "%s", value);
        if (value != NULL) H5free_memory(value);
    } else if (one && H5Tget_size(type) < 1 << 20) {
        char *value = calloc(1, H5Tget_size(type) + 1);
        good = value != NULL && (attribute ? H5Aread(at, type, value)
                                           : H5Dread(at, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value)) >= 0;
        if (good) snprintf(text, TEXT_ROOM, "%s", value);
        free(value);
    }
    H5Sclose(space);
    H5Tclose(type);
    if (attribute)
        H5Aclose(at);
    else
        H5Dclose(at);
    return good && text[0] != '\0';
}

static void say_text(struct reading *r, const char *name, const char *key, bool attribute)
{
    char text[TEXT_ROOM];
    if (text_of(r, key, attribute, text)) say(r, name, "%s", text);
}

static void say_channels(struct reading *r, const char *key, double per_mhz)
{
    size_t count;
    double *mhz = numbers_of(r, key, &count), low = INFINITY, high = -INFINITY;
    if (mhz == NULL) return;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, mhz[i] / per_mhz);
        high = fmax(high, mhz[i] / per_mhz);
    }
    say(r, "channels", "%zu, centres %.10g to %.10g MHz", count, low, high);
    free(mhz);
}

/* --- UVH5 --- */

static int64_t unix_ns(double jd)
{
    return llround((jd - 2440587.5) * 86400e3) * 1000000;
}

static void say_times(struct reading *r)
{
    size_t rows, count;
    char from[TEXT_TIME], to[TEXT_TIME];
    double *jd = numbers_of(r, "Header/time_array", &rows), low = INFINITY, high = -INFINITY;
    double *seconds = numbers_of(r, "Header/integration_time", &count);
    for (size_t i = 0; jd != NULL && i < rows; i++) {
        if (!(jd[i] > 2e6 && jd[i] < 4e6)) continue; /* no time of ours */
        low = fmin(low, jd[i]);
        high = fmax(high, jd[i]);
    }
    if (low <= high)
        say(r, "times", "%s to %s UTC", text_utc_format(from, unix_ns(low)),
            text_utc_format(to, unix_ns(high)));
    if (seconds != NULL) say(r, "integration", "%.9g s", seconds[0]);
    free(jd);
    free(seconds);
}

static void say_polarisations(struct reading *r)
{
    static const char *const names[] = {"yx", "xy", "yy", "xx", "lr", "rl", "ll",
                                        "rr", "?",  "I",  "Q",  "U",  "V"};
    size_t count;
    char text[TEXT_ROOM] = "";
    double *pol = numbers_of(r, "Header/polarization_array", &count);
    for (size_t i = 0; pol != NULL && i < count && i < 16; i++) {
        const char *name = pol[i] >= -8 && pol[i] <= 4 ? names[(int)pol[i] + 8] : "?";
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "", name);
    }
    if (pol != NULL) say(r, "polarisations", "%s", text);
    free(pol);
}

static void say_uvh5(struct reading *r)
{
    hsize_t dims[8] = {0};
    size_t count;
    int rank = shape_of(r, "Data/visdata", dims);
    say_text(r, "telescope", "Header/telescope_name", false);
    say_text(r, "instrument", "Header/instrument", false);
    static const char *const keys[][2] = {{"Header/Nants_data", "antennas"}, {"Header/Nbls", "baselines"},
                                          {"Header/Ntimes", "integrations"}, {"Header/latitude", "latitude"},
                                          {"Header/longitude", "longitude"}, {"Header/altitude", "altitude"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double *value = numbers_of(r, keys[i][0], &count);
        if (value != NULL) say(r, keys[i][1], "%.10g%s", value[0], i == 5 ? " m" : i > 2 ? " degrees" : "");
        free(value);
    }
    say_channels(r, "Header/freq_array", 1e6);
    say_polarisations(r);
    say_times(r);
    if (rank == 3)
        say(r, "data", "[%llu rows][%llu channels][%llu polarisations]", (unsigned long long)dims[0],
            (unsigned long long)dims[1], (unsigned long long)dims[2]);
    say_text(r, "x points to", "Header/x_orientation", false);
    say_text(r, "sideband", "Header/extra_keywords/sideband", false);
    say_text(r, "history", "Header/history", false);
}

/* --- tables of our stages --- */

static void say_gains(struct reading *r, const hsize_t *dims)
{
    static const char *const flags[] = {"good", "dead", "weak", "misfit", "no result"};
    size_t count, of[5] = {0};
    say(r, "gains", "complex [freq %llu][pol %llu][dish %llu]", (unsigned long long)dims[0],
        (unsigned long long)dims[1], (unsigned long long)dims[2]);
    say_channels(r, "freq_mhz", 1);
    double *flag = numbers_of(r, "flag", &count);
    for (size_t i = 0; flag != NULL && i < count; i++)
        if (flag[i] >= 0 && flag[i] <= 4) of[(int)flag[i]]++;
    for (int k = 0; flag != NULL && k < 5; k++)
        if (k == 0 || of[k] > 0) say(r, flags[k], "%zu of %zu", of[k], count);
    free(flag);
    static const char *const keys[] = {"sideband", "polarisations", "telescope", "source", "visibilities"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) say_text(r, keys[i], keys[i], true);
}

static void say_bad_inputs(struct reading *r, const hsize_t *dims)
{
    size_t count, bad = 0;
    char list[TEXT_ROOM] = "";
    double *value = numbers_of(r, "bad_inputs", &count);
    for (size_t i = 0; value != NULL && i < count; i++) {
        if (value[i] == 0) continue;
        bad++;
        if (strlen(list) < sizeof list - 80)
            snprintf(list + strlen(list), sizeof list - strlen(list), " [%zu][%zu]", i / (size_t)dims[1],
                     i % (size_t)dims[1]);
    }
    say(r, "bad inputs", "%zu of [pol %llu][dish %llu]%s%s", bad, (unsigned long long)dims[0],
        (unsigned long long)dims[1], bad > 0 ? ":" : "", list);
    free(value);
}

static void say_beams(struct reading *r)
{
    size_t count;
    double *xy = numbers_of(r, "beams", &count), low[2] = {INFINITY, INFINITY},
           high[2] = {-INFINITY, -INFINITY};
    for (size_t i = 0; xy != NULL && i < count; i++) {
        low[i % 2] = fmin(low[i % 2], xy[i]);
        high[i % 2] = fmax(high[i % 2], xy[i]);
    }
    if (xy != NULL)
        say(r, "beams", "%zu; direction cosines x %.6g to %.6g, y %.6g to %.6g", count / 2, low[0], high[0],
            low[1], high[1]);
    if (xy != NULL && hdf5_exists(r->file, "rates")) say(r, "rates", "the beams move");
    free(xy);
}

/* In the child. Nothing is sent of a file that is none of these. */
static int describe(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *request = arg;
    struct reading r = {.to = to, .sent = true};
    hsize_t dims[8] = {0}, shift[8] = {0};
    int status = hdf5_open(request->path, &r.file, error);
    if (status != BR_OK) return status;
    hdf5_know_lzf();
    bool uvh5 = shape_of(&r, "Data/visdata", dims) >= 0, any = uvh5;
    if (uvh5) {
        say(&r, "", "visibilities (UVH5)");
        say_uvh5(&r);
    }
    static const char *const tables[] = {"gain", "weights", "beams", "bad_inputs", "drift"};
    static const int ranks[] = {3, 5, 2, 2, 2};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (shape_of(&r, tables[i], dims) != ranks[i]) continue;
        if (!any) say(&r, "", "tables for stages (HDF5)");
        any = true;
        if (i == 0) say_gains(&r, dims);
        if (i == 1)
            say(&r, "weights", "int8 [freq %llu][pol %llu][beam %llu][dish %llu][2]%s",
                (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2],
                (unsigned long long)dims[3],
                shape_of(&r, "shift", shift) == 3 ? ", and their shifts" : "; /shift is missing");
        if (i == 2) say_beams(&r);
        if (i == 3) say_bad_inputs(&r, dims);
        if (i == 4)
            say(&r, "drifts", "[pol %llu][dish %llu], radians per second", (unsigned long long)dims[0],
                (unsigned long long)dims[1]);
    }
    H5Fclose(r.file);
    return r.sent ? BR_OK : br_fail(error, BR_E_IO, "%s: what is read of it does not arrive", request->path);
}

static bool is_hdf5(const char *path)
{
    char start[8];
    FILE *file = br_fopen_regular(path, NULL, NULL);
    bool is = file != NULL && fread(start, 1, sizeof start, file) == sizeof start &&
              chime_probe(start, sizeof start);
    if (file != NULL) fclose(file);
    return is;
}

int info_tables(const char *path)
{
    struct request request;
    struct br_error error = {0};
    void *text;
    size_t bytes;
    if (strlen(path) >= sizeof request.path || !is_hdf5(path)) return -1;
    memset(&request, 0, sizeof request);
    strcpy(request.path, path);
    if (hdf5_apart(describe, &request, sizeof request, path, &text, &bytes, &error) != BR_OK) {
        fprintf(stderr, "beamring info: %s\n", error.text);
        return 1;
    }
    const char *line = text, *stop = line + bytes;
    while (bytes > 0 && line < stop) {
        const char *tab = memchr(line, '\t', (size_t)(stop - line));
        const char *end = tab != NULL ? memchr(tab, '\n', (size_t)(stop - tab)) : NULL;
        if (end == NULL) break;
        char name[NAME_ROOM];
        snprintf(name, sizeof name, "%.*s", (int)(tab - line), line);
        if (name[0] == '\0')
            printf("%s: %.*s\n", path, (int)(end - tab - 1), tab + 1);
        else
            info_line(name, "%.*s", (int)(end - tab - 1), tab + 1);
        line = end + 1;
    }
    free(text);
    return bytes > 0 ? 0 : -1;
}
