/* info.c - `beamring info FILE...`: what a recording, a filterbank file or a packet description holds. */
#include "tools/beamring/info.h"
#include "buffers/regular_file.h"
#include "formats/chime/chime_hdf5.h"
#include "formats/common/gaps.h"
#include "formats/common/text.h"
#include "formats/dada/recording.h"
#include "formats/guppi/guppi.h"
#include "formats/kotekan/kotekan_raw.h"
#include "formats/tables/beam_table.h"
#include "formats/vdif/vdif.h"
#include "stages/common/stage/made_with.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"
#include "tools/beamring/plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool all_beams; /* --beams */

/* Everything that one description needs, freed together. */
struct pool {
    struct piece {
        struct piece *next;
    } * pieces;
};

static void *pool_alloc(void *owner, size_t bytes)
{
    struct pool *pool = owner;
    struct piece *piece = calloc(1, sizeof *piece + 8 + bytes);
    if (piece == NULL) {
        fputs("beamring info: not enough memory\n", stderr);
        exit(1);
    }
    piece->next = pool->pieces;
    pool->pieces = piece;
    return (char *)piece + sizeof *piece + 8;
}

static void pool_free(struct pool *pool)
{
    while (pool->pieces != NULL) {
        struct piece *next = pool->pieces->next;
        free(pool->pieces);
        pool->pieces = next;
    }
}

void info_line(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  %-12s ", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

void info_time(const char *name, int64_t ns)
{
    char utc[TEXT_TIME], mjd[TEXT_TIME];
    text_mjd_format(mjd, ns);
    info_line(name, "%s UTC (MJD %.*s)", text_utc_format(utc, ns), 15, mjd);
}

/* --- DADA ---------------------------------------------------------------------------------------- */

void info_sideband(enum br_sideband sideband)
{
    if (sideband == BR_SIDEBAND_UNKNOWN)
        info_line("sideband", "not in the file: give `stream: {sideband: upper}` or `lower`");
    else
        info_line("sideband", "%s", br_sideband_name(sideband));
}

static void print_frequencies(const struct br_stream *s)
{
    double low = s->freq_mhz[0], high = low;
    for (size_t i = 0; i < s->nchannels; i++) {
        low = s->freq_mhz[i] < low ? s->freq_mhz[i] : low;
        high = s->freq_mhz[i] > high ? s->freq_mhz[i] : high;
    }
    info_line("channels", "%zu, centres %.10g to %.10g MHz, the first %.10g MHz and %.6g kHz wide",
              s->nchannels, low, high, s->freq_mhz[0], 1e3 * s->width_mhz[0]);
    info_sideband(s->sideband);
    for (unsigned i = 0; i < s->nzones && (s->nzones > 1 || s->zone[0].factor > 1); i++)
        info_line(i == 0 ? "zones" : "", "channels %zu to %zu: upchannelized by %u, %u base samples a step",
                  s->zone[i].first_channel, s->zone[i].first_channel + s->zone[i].nchannels - 1,
                  s->zone[i].factor, s->zone[i].downsample);
}

/* How many of the file's samples a gap covers: the last step may reach beyond them. */
static uint64_t covered(const struct gap *gap, uint64_t first, uint64_t samples)
{
    uint64_t begin = gap->first > first ? gap->first : first, end = gap->first + gap->count;
    if (end > first + samples) end = first + samples;
    return end > begin ? end - begin : 0;
}

/* Sums up the sidecar. */
static int print_gaps(const struct recording *r, const char *path, uint64_t samples)
{
    struct gaps gaps;
    struct br_error error = {0};
    size_t length = strlen(path) + 6;
    char *name = malloc(length);
    if (name == NULL) return 1;
    snprintf(name, length, "%s.gaps", path);
    int status = gaps_read(&gaps, name, r->stream.nchannels, &error);
    free(name);
    if (status != BR_OK) {
        fprintf(stderr, "beamring info: %s\n", error.text);
        return 1;
    }
    double missing = 0, partly = 0;
    for (size_t i = 0; i < gaps.count; i++) {
        double cells = (double)covered(&gaps.gap[i], r->first, samples) * gaps.gap[i].nchannels;
        *(gaps.gap[i].weight == 0 ? &missing : &partly) += cells;
    }
    double all = (double)samples * (double)r->stream.nchannels;
    if (gaps.count == 0)
        info_line("missing", "nothing");
    else
        info_line("missing", "%.4g %% missing, %.4g %% partly valid (lines of .gaps: %zu)",
                  100 * missing / all, 100 * partly / all, gaps.count);
    gaps_free(&gaps);
    return 0;
}

bool info_updates(const char *label, const char *text)
{
    struct made_with_one one;
    while (*text != '\0' && strcmp(text, "...") != 0) {
        text = made_with_next(text, &one);
        if (text == NULL) return false;
        info_line(label, "%s from sample %" PRIu64 " on: %s, digest %s", one.stage, one.sample, one.id,
                  one.digest);
        label = "";
    }
    if (*text != '\0') info_line(label, "... and more");
    return true;
}

/* Those that began within the file: its sidecar. */
static void print_later_updates(const char *path)
{
    char name[4096], line[1024];
    const char *label = "then";
    snprintf(name, sizeof name, "%s.updates", path);
    FILE *file = br_fopen_regular(name, NULL, NULL);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (!info_updates(label, line)) info_line(label, "%s", line);
        label = "";
    }
    if (file != NULL) fclose(file);
}

static void info_truncated(uint64_t payload, uint64_t left, uint64_t announced)
{
    char rest[80] = "";
    if (left > 0) snprintf(rest, sizeof rest, "; the last %" PRIu64 " are no whole sample", left);
    if (payload < announced)
        info_line("truncated", "%" PRIu64 " of %" PRIu64 " announced bytes are there%s", payload, announced,
                  rest);
    else
        info_line("truncated", "%" PRIu64 " bytes%s", payload, rest);
}

/* Where beams are: the first ones, or all of them. */
static void print_beams(const struct br_stream *s)
{
    enum { FEW = 16 };
    if (s->nbeams == 0) return;
    if (s->beams_x > 0)
        info_line("beams", "%zu, a grid of %zu x %zu: number = ix x %zu + iy", s->nbeams, s->beams_x,
                  s->beams_y, s->beams_y);
    else
        info_line("beams", "%zu, directions %s", s->nbeams, s->beams != NULL ? "as listed" : "unknown");
    if (s->beams == NULL) return;
    struct br_stream some = *s;
    if (!all_beams && s->nbeams > FEW) some.nbeams = FEW;
    info_line("", "number  x  y  azimuth  zenith angle (degrees)");
    beam_table_print(stdout, &some, "  ");
    if (some.nbeams < s->nbeams) info_line("", "...; all of them: beamring info --beams FILE");
}

static int print_recording(const struct recording *r, const char *path, uint64_t file_bytes)
{
    const struct br_stream *s = &r->stream;
    char text[160];
    uint64_t payload, behind, left = 0;
    struct br_error error = {0};
    if (recording_payload(r, path, file_bytes, &payload, &behind, &error) != BR_OK)
        return fprintf(stderr, "beamring info: %s\n", error.text), 1;
    uint64_t samples = recording_samples(r, payload, &left);
    if (r->own) {
        info_line("array", "%s, %s", br_array_format(&s->array, text, sizeof text),
                  r->flat ? "sample after sample" : "frame after frame");
        info_line("frames", "%" PRIu64 " base samples", s->frame_samples);
    } else {
        char order[40], coding[80] = "";
        if (s->array.dtype == BR_INT4X2)
            snprintf(coding, sizeof coding, ", coding %s unless the pipeline says otherwise",
                     coding_name(r->coding));
        info_line("array", "%s of time, %zu freq, %zu pol, %zu dish, in the order %s%s",
                  br_dtype_name(s->array.dtype), s->nchannels, br_array_length(&s->array, "pol"),
                  br_array_length(&s->array, "dish"), axis_order_format(&r->order, order, sizeof order),
                  coding);
    }
    if (s->side.naxes > 0)
        info_line("next to them", "%s in each frame", br_array_format(&s->side, text, sizeof text));
    print_frequencies(s);
    print_beams(s);
    if (s->scale < 1 || s->scale > 1) info_line("scale", "%g x stored value", s->scale);
    double sample_us = 1e-3 * (double)s->sample_ns.num / (double)s->sample_ns.den;
    if (s->sample_ns.den == 1)
        info_line("base sample", "%.10g us", sample_us);
    else
        info_line("base sample", "%.10g us (%" PRId64 "/%" PRId64 " ns)", sample_us, s->sample_ns.num,
                  s->sample_ns.den);
    info_line("samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s", r->first, r->first + samples,
              samples, (double)samples * br_stream_sample_s(s));
    info_time("start", br_stream_time_ns(s, r->first));
    info_line("size", "%" PRIu64 " bytes of data", payload);
    if (behind > 0)
        info_line("behind them", "%" PRIu64 " bytes more than FILE_SIZE announces; they are left out",
                  behind);
    if (left > 0 || samples < r->samples || payload < r->announced)
        info_truncated(payload, left, r->announced);
    return samples > 0 ? print_gaps(r, path, samples) : 0;
}

static int info_dada(const char *path)
{
    struct dada_header header;
    struct recording recording;
    struct pool pool = {0};
    struct br_error error = {0};
    uint64_t file_bytes;
    if (dada_read(&header, path, &file_bytes, &error) != BR_OK) {
        fprintf(stderr, "beamring info: %s\n", error.text);
        return 1;
    }
    const char *names[] = {"SOURCE", "TELESCOPE", "INSTRUMENT", "OBS_ID", "FILE_NUMBER"};
    printf("%s: DADA\n", path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = dada_get(&header, names[i]);
        if (value != NULL && strcmp(value, "unset") != 0) info_line(names[i], "%s", value);
    }
    int status = recording_describe(&recording, &header, NULL, NULL, NULL,
                                    (struct recording_memory){pool_alloc, &pool}, &error);
    struct br_telescope site;
    double degrees[2];
    if (status == BR_OK && dada_get_reals(&header, "SITE_DEG", 2, degrees, &error) > 0) {
        site = (struct br_telescope){.latitude_deg = degrees[0], .longitude_deg = degrees[1]};
        recording.stream.telescope = &site;
    }
    if (status == BR_OK) {
        status = print_recording(&recording, path, file_bytes);
        const char *updates = dada_get(&header, "UPDATES");
        if (updates != NULL && !info_updates("updates", updates)) info_line("updates", "%s", updates);
        print_later_updates(path);
    } else {
        for (size_t i = 0; i < header.count; i++) info_line(header.entry[i].key, "%s", header.entry[i].value);
        fprintf(stderr, "beamring info: %s\n", error.text);
        /* what a pipeline can supply is no fault of the file */
        status = status == BR_E_INVALID ? 0 : 1;
    }
    pool_free(&pool);
    dada_free(&header);
    return status;
}

/* --- VDIF ---------------------------------------------------------------------------------------- */

static int info_vdif(const char *path, const struct vdif_scan *scan)
{
    const struct vdif_header *h = &scan->first;
    printf("%s: VDIF%s\n", path, h->legacy ? ", legacy headers" : "");
    info_line("samples", "complex %u-bit, %zu channels, %zu samples in a frame of %zu bytes", h->bits,
              (size_t)1 << h->log2_channels, vdif_samples(h), h->frame_bytes);
    char threads[120];
    size_t used = 0;
    for (size_t i = 0; i < scan->nthreads && used + 12 < sizeof threads; i++)
        used +=
            (size_t)snprintf(threads + used, sizeof threads - used, i > 0 ? " %u" : "%u", scan->thread[i]);
    info_line("threads", "%zu: %s%s", scan->nthreads, threads, used + 12 >= sizeof threads ? " ..." : "");
    info_line("station", "%u, extended data version %u", h->station, h->edv);
    if (h->rate_hz > 0)
        info_line("sample rate", "%" PRIu64 " Hz", h->rate_hz);
    else
        info_line("sample rate",
                  "not in the file: give `stream: {sample_ns: ...}`; the largest frame number seen is %u",
                  scan->max_number);
    info_line("frequencies", "not in the file: give `stream: {freq_mhz: ...}`");
    info_sideband(BR_SIDEBAND_UNKNOWN);
    info_time("second", vdif_unix_seconds(&scan->earliest) * 1000000000);
    info_line("first frame", "number %u of that second", scan->earliest.number);
    info_line("frames", "%" PRIu64, scan->frames);
    if (scan->truncated_bytes > 0)
        info_line("truncated", "the last frame has %" PRIu64 " of %zu bytes", scan->truncated_bytes,
                  h->frame_bytes);
    return 0;
}

/* --- SIGPROC filterbank -------------------------------------------------------------------------- */

/* A length and as many characters; false at the end of the file or when the length makes no sense. */
static bool read_text(FILE *file, char text[81])
{
    int32_t n;
    if (fread(&n, sizeof n, 1, file) != 1 || n < 1 || n > 80 || fread(text, 1, (size_t)n, file) != (size_t)n)
        return false;
    text[n] = '\0';
    return true;
}

static int info_filterbank(const char *path, FILE *file)
{
    static const char *const integers[] = {"machine_id",    "telescope_id", "data_type", "barycentric",
                                           "pulsarcentric", "nbits",        "nsamples",  "nchans",
                                           "nifs",          "nbeams",       "ibeam",     NULL};
    static const char *const reals[] = {"src_raj", "src_dej", "az_start", "za_start", "tstart", "tsamp",
                                        "fch1",    "foff",    "refdm",    "period",   NULL};
    char key[81], text[81];
    double nchans = 0, nbits = 0, nifs = 1, tsamp = 0;
    bool good = read_text(file, key) && strcmp(key, "HEADER_START") == 0, ended = false;
    if (good) printf("%s: SIGPROC filterbank\n", path);
    while (good && !ended) {
        good = read_text(file, key);
        ended = good && strcmp(key, "HEADER_END") == 0;
        if (!good || ended) break;
        double real = 0;
        int32_t integer = 0;
        bool is_integer = false, is_real = false;
        for (int i = 0; integers[i] != NULL; i++) is_integer = is_integer || strcmp(key, integers[i]) == 0;
        for (int i = 0; reals[i] != NULL; i++) is_real = is_real || strcmp(key, reals[i]) == 0;
        if (is_integer) {
            good = fread(&integer, sizeof integer, 1, file) == 1;
            real = integer;
            info_line(key, "%d", integer);
        } else if (is_real) {
            good = fread(&real, sizeof real, 1, file) == 1;
            info_line(key, "%.15g", real);
        } else {
            good = read_text(file, text);
            info_line(key, "%s", text);
        }
        if (strcmp(key, "nchans") == 0) nchans = real;
        if (strcmp(key, "nbits") == 0) nbits = real;
        if (strcmp(key, "nifs") == 0) nifs = real;
        if (strcmp(key, "tsamp") == 0) tsamp = real;
    }
    long start = ftell(file);
    if (!good || start < 0 || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "beamring info: %s: the filterbank header is corrupt after '%s'\n", path, key);
        return 1;
    }
    double bits = nchans * nbits * nifs;
    if (bits > 0) {
        double samples = 8 * (double)(ftell(file) - start) / bits;
        info_line("samples", "%.0f, %.6g s", samples, samples * tsamp);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------- */

static int info_file(const char *path)
{
    char start[DADA_BLOCK];
    size_t length = strlen(path);
    if (length > 5 && (strcmp(path + length - 5, ".yaml") == 0 || strcmp(path + length - 4, ".yml") == 0))
        return info_packets(path);
    struct br_error error = {0};
    FILE *file = br_fopen_regular(path, NULL, &error);
    if (file == NULL) return fprintf(stderr, "beamring info: %s\n", error.text), 1;
    size_t got = fread(start, 1, sizeof start, file);
    int status = -1;
    if (got >= 16 && memcmp(start + 4, "HEADER_START", 12) == 0) {
        rewind(file);
        status = info_filterbank(path, file);
    }
    fclose(file);
    if (status >= 0) return status;
    if (got == 0 || dada_probe(start, got)) return info_dada(path);
    if (chime_probe(start, got) && (status = info_tables(path)) >= 0) return status;
    if (chime_probe(start, got)) return info_chime(path);
    if (guppi_probe(start, got)) return info_guppi(path);
    if (kotekan_raw_probe(start, got)) return info_kotekan(path);
    struct vdif_scan *scan = malloc(sizeof *scan);
    if (scan == NULL) return 1;
    if (vdif_scan_file(scan, path, &error) == BR_OK) {
        status = info_vdif(path, scan);
    } else {
        fprintf(stderr,
                "beamring info: %s is none of DADA, CHIME baseband (HDF5), GUPPI RAW, kotekan raw and "
                "filterbank, and as VDIF: %s\n",
                path, error.text);
        status = 1;
    }
    free(scan);
    return status;
}

int cmd_info(int argc, char **argv)
{
    int at = 1;
    bool json = false;
    all_beams = false;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        if (strcmp(argv[at], "--beams") == 0)
            all_beams = true;
        else if (strcmp(argv[at], "--json") == 0)
            json = true;
        else
            return unknown_option("info", argv[at]);
    }
    if (argc <= at) {
        fputs("usage: beamring info [--beams] [--json] FILE...\nSays what DADA, VDIF, CHIME baseband (HDF5), "
              "GUPPI "
              "RAW, kotekan "
              "raw and filterbank files hold, and what a packet description (.yaml) means.\n",
              stderr);
        return 2;
    }
    char *said = NULL;
    size_t length = 0;
    FILE *out = json ? open_memstream(&said, &length) : NULL;
    FILE *const plain[2] = {plain_open(out != NULL ? out : stdout), plain_open(stderr)}, *const before[2] = {
                                                                                             stdout, stderr};
    int status = 0;
    if (plain[0] != NULL && plain[1] != NULL) stdout = plain[0], stderr = plain[1];
    for (int i = at; i < argc; i++)
        if (info_file(argv[i]) != 0) status = 1;
    stdout = before[0], stderr = before[1];
    for (int i = 0; i < 2; i++)
        if (plain[i] != NULL) fclose(plain[i]);
    if (out == NULL) return status;
    fclose(out);
    int failed = json_print(json_of_info(said));
    free(said);
    return failed != 0 ? failed : status;
}
