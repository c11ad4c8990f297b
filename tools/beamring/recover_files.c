/* recover_files.c - filterbank files, and filters for bursts whose place in them is known. */
#include "buffers/regular_file.h"
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/option_words.h"
#include "tools/beamring/recover.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AROUND = 1024, /* steps on either side from which the noise is measured */
    LEAST_AROUND = 64,
    FREQUENCIES = 64, /* of a channel, at most, over which a burst is smeared */
    GRID = 2,         /* places on either side at which errors are looked for */
    ZOOMS = 6
};
#define FAINT 5. /* less has no place of its own */

/* --- files --- */

static bool read_text(FILE *file, char text[81])
{
    int32_t n;
    if (fread(&n, sizeof n, 1, file) != 1 || n < 1 || n > 80 || fread(text, 1, (size_t)n, file) != (size_t)n)
        return false;
    text[n] = '\0';
    return true;
}

/* Reads SIGPROC's header; false: it is none, or lacks what is needed. */
static bool read_header(struct recover_file *f, double *tstart)
{
    static const char *const integers[] = {"machine_id",    "telescope_id", "data_type", "barycentric",
                                           "pulsarcentric", "nbits",        "nsamples",  "nchans",
                                           "nifs",          "nbeams",       "ibeam",     NULL};
    static const char *const texts[] = {"rawdatafile", "source_name", NULL};
    char key[81], text[81];
    int nifs = 1;
    bool good = read_text(f->file, key) && strcmp(key, "HEADER_START") == 0;
    while (good && (good = read_text(f->file, key)) && strcmp(key, "HEADER_END") != 0) {
        double real = 0;
        int32_t integer = 0;
        bool whole = false, word = false;
        for (int i = 0; integers[i] != NULL; i++) whole = whole || strcmp(key, integers[i]) == 0;
        for (int i = 0; texts[i] != NULL; i++) word = word || strcmp(key, texts[i]) == 0;
        if (word)
            good = read_text(f->file, text);
        else if (whole)
            good = fread(&integer, sizeof integer, 1, f->file) == 1;
        else
            good = fread(&real, sizeof real, 1, f->file) == 1;
        if (strcmp(key, "nbits") == 0) f->nbits = integer;
        if (strcmp(key, "nchans") == 0) f->nchans = integer;
        if (strcmp(key, "nifs") == 0) nifs = integer;
        if (strcmp(key, "ibeam") == 0) f->beam = integer - 1;
        if (strcmp(key, "fch1") == 0) f->fch1_mhz = real;
        if (strcmp(key, "foff") == 0) f->foff_mhz = real;
        if (strcmp(key, "tsamp") == 0) f->tsamp_s = real;
        if (strcmp(key, "tstart") == 0) *tstart = real;
    }
    return good && nifs == 1 && (f->nbits == 8 || f->nbits == 32) && f->nchans > 0 && f->nchans < 1 << 24 &&
           f->tsamp_s > 0 && f->foff_mhz != 0 && f->fch1_mhz > 0 &&
           f->fch1_mhz + f->foff_mhz * (f->nchans - 1) > 0;
}

/* PREFIXnnnn_bandN_partN.fil -> PREFIX_bandN_partN.gaps */
static void gaps_path(const char *path, char *to, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path,
               *tail = name + strlen(name);
    const char *part = strstr(name, "_band") != NULL ? strstr(name, "_band") : strstr(name, "_part");
    if (part == NULL) part = strlen(name) > 4 ? tail - 4 : tail;
    const char *digits = part;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    const char *end = strlen(part) > 4 ? tail - 4 : part;
    snprintf(to, size, "%.*s%.*s.gaps", (int)(digits - path), path, (int)(end - part), part);
}

static int open_file(struct recover *r, const char *path, bool late)
{
    struct br_error error = {0};
    struct recover_file *f = &r->file[r->nfiles];
    char beside[4400];
    double tstart = 0;
    *f = (struct recover_file){.path = strdup(path), .late = late};
    f->file = br_fopen_regular(path, NULL, &error);
    if (f->file == NULL) {
        fprintf(stderr, "beamring recover: %s\n", error.text);
        return 1;
    }
    r->nfiles++;
    if (!read_header(f, &tstart)) {
        fprintf(stderr,
                "beamring recover: %s: its header is not that of a filterbank file of 8 or 32 bits and one "
                "polarisation\n",
                path);
        return 1;
    }
    f->offset = (size_t)ftell(f->file);
    fseek(f->file, 0, SEEK_END);
    f->samples = ((size_t)ftell(f->file) - f->offset) / ((size_t)f->nchans * (size_t)f->nbits / 8);
    f->start_s = (tstart - 40587) * 86400 - (double)r->epoch_ns * 1e-9;
    if (late) f->beam += r->first_beam;
    gaps_path(path, beside, sizeof beside);
    if (gaps_read(&f->gaps, beside, (size_t)f->nchans, &error) == BR_OK) return 0;
    fprintf(stderr, "beamring recover: %s\n", error.text);
    return 1;
}

static bool is_filterbank(const char *path)
{
    char start[16] = "";
    FILE *file = br_fopen_regular(path, NULL, NULL);
    bool is = file != NULL && fread(start, 1, sizeof start, file) == sizeof start &&
              memcmp(start + 4, "HEADER_START", 12) == 0;
    if (file != NULL) fclose(file);
    return is;
}

/* Whether a recording has levels with scales, whose intensities are wanted. */
static bool has_scales(const char *path)
{
    char start[4096] = "";
    FILE *file = br_fopen_regular(path, NULL, NULL);
    size_t length = file != NULL ? fread(start, 1, sizeof start - 1, file) : 0;
    start[length] = '\0';
    if (file != NULL) fclose(file);
    return strstr(start, "\nAUX_DTYPE") != NULL;
}

/* Makes filterbank files of recordings, by a pipeline. */
static int convert(const char *directory, int count, char **paths)
{
    char *text = NULL;
    size_t length;
    struct loaded l = {0};
    struct br_error error = {0};
    int status = 1;
    bool scales = false;
    FILE *out = open_memstream(&text, &length), *words = option_words_open(stderr);
    if (out == NULL || words == NULL) return 1;
    fprintf(out, "device: cpu\npipeline:\n  - stage: replay\n    out: beams\n    files: [");
    for (int i = 0; i < count; i++) {
        if (is_filterbank(paths[i])) continue;
        scales = scales || has_scales(paths[i]);
        fputc('\'', out);
        for (const char *c = paths[i]; *c != '\0'; c++) fprintf(out, *c == '\'' ? "''" : "%c", *c);
        fputs("', ", out);
    }
    fprintf(out, "]\n  - {stage: filterbank, in: beams, directory: '%s'%s}\n", directory,
            scales ? ", values: intensity" : "");
    fclose(out);
    br_log_init(&l.log, words, BR_LOG_ERROR);
    if (br_config_parse(&l.config, "recover", text, length, 0, NULL, &error) != BR_OK ||
        br_pipeline_build(&l.graph, l.config, &l.log, NULL, false, &error) != BR_OK ||
        br_config_errors(l.config) > 0) {
        if (l.config != NULL && br_config_errors(l.config) > 0)
            br_config_print_errors(l.config, words);
        else
            fprintf(words, "beamring recover: %s\n", error.text);
    } else {
        FILE *nothing = fopen("/dev/null", "w");
        status = br_pipeline_run(l.graph, &(struct br_run_options){.out = nothing});
        if (nothing != NULL) fclose(nothing);
    }
    unload_pipeline(&l);
    fclose(words);
    free(text);
    return status;
}

static int open_directory(struct recover *r)
{
    DIR *directory = opendir(r->directory);
    int status = directory == NULL;
    for (struct dirent *e; directory != NULL && status == 0 && (e = readdir(directory)) != NULL;) {
        char path[4400];
        if (strlen(e->d_name) < 4 || strcmp(e->d_name + strlen(e->d_name) - 4, ".fil") != 0) continue;
        struct recover_file *more = realloc(r->file, (r->nfiles + 1) * sizeof *more);
        if (more == NULL) status = 1;
        if (more != NULL) r->file = more;
        snprintf(path, sizeof path, "%s/%s", r->directory, e->d_name);
        if (status == 0) status = open_file(r, path, true);
    }
    if (directory != NULL) closedir(directory);
    return status;
}

int recover_open(struct recover *r, int count, char **paths)
{
    static char template[4200];
    const char *where = getenv("TMPDIR");
    int recordings = 0, status = 0;
    r->file = calloc((size_t)count, sizeof *r->file);
    if (r->file == NULL) return 1;
    for (int i = 0; i < count && status == 0; i++)
        if (is_filterbank(paths[i]))
            status = open_file(r, paths[i], false);
        else
            recordings++;
    if (recordings == 0 || status != 0) return status;
    snprintf(template, sizeof template, "%.4000s/beamring-recover-XXXXXX", where != NULL ? where : "/tmp");
    r->directory = mkdtemp(template);
    if (r->directory == NULL) {
        fprintf(stderr, "beamring recover: cannot make a directory %s: %s\n", template, strerror(errno));
        return 1;
    }
    status = convert(r->directory, count, paths);
    return status == 0 ? open_directory(r) : status;
}

void recover_close(struct recover *r)
{
    for (size_t i = 0; i < r->nfiles; i++) {
        fclose(r->file[i].file);
        gaps_free(&r->file[i].gaps);
        free(r->file[i].path);
    }
    free(r->file);
    DIR *directory = r->directory != NULL ? opendir(r->directory) : NULL;
    for (struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;)
        if (e->d_name[0] != '.') unlinkat(dirfd(directory), e->d_name, 0);
    if (directory != NULL) closedir(directory);
    if (r->directory != NULL) rmdir(r->directory);
}

/* --- what a file has around an event --- */

struct window {
    const struct recover_file *file;
    long first, steps;
    float *value; /* [steps][chan] in units of the noise; NAN: missing, or another event's */
};

static double mhz(const struct recover_file *f, int c)
{
    return f->fch1_mhz + f->foff_mhz * c;
}

/* When the event arrives in a file, s after its first sample. */
static double arrival(const struct recover_file *f, const struct recover_event *e, double f_mhz)
{
    return e->time_s + (f->late ? e->delay_s : 0) - f->start_s +
           burst_delay_s(e->burst.dm, f_mhz, e->burst.ref_mhz);
}

/* The steps [*from, *to) of a channel that an event touches, `widths` of it on either side. */
static void touched(const struct recover_file *f, const struct recover_event *e, int c, double widths,
                    double *from, double *to)
{
    double half = fabs(f->foff_mhz) / 2, high = mhz(f, c) + half, low = fmax(mhz(f, c) - half, 1e-3);
    *from = floor((arrival(f, e, high) - widths * e->burst.width_s) / f->tsamp_s) - 1;
    *to = ceil((arrival(f, e, low) + widths * e->burst.width_s + 9 * burst_scattering_s(&e->burst, low)) /
               f->tsamp_s) +
          1;
}

static void cut(const struct window *w, double from, double to, int c)
{
    long begin = from > (double)w->first ? (long)from - w->first : 0,
         end = to < (double)(w->first + w->steps) ? (long)to - w->first : w->steps;
    for (long k = begin; k < end; k++) w->value[k * w->file->nchans + c] = NAN;
}

static bool read_window(struct window *w)
{
    const struct recover_file *f = w->file;
    size_t row = (size_t)f->nchans * (size_t)f->nbits / 8, count = (size_t)(w->steps * f->nchans);
    uint8_t *bytes = malloc(row * (size_t)w->steps);
    w->value = malloc(count * sizeof *w->value);
    bool good = bytes != NULL && w->value != NULL &&
                fseek(f->file, (long)(f->offset + (size_t)w->first * row), SEEK_SET) == 0 &&
                fread(bytes, row, (size_t)w->steps, f->file) == (size_t)w->steps;
    if (good && f->nbits == 32) memcpy(w->value, bytes, count * sizeof *w->value);
    for (size_t i = 0; good && f->nbits == 8 && i < count; i++) w->value[i] = bytes[i];
    free(bytes);
    if (!good) fprintf(stderr, "beamring recover: cannot read %s\n", f->path);
    for (size_t i = 0; good && i < f->gaps.count; i++) {
        const struct gap *g = &f->gaps.gap[i];
        bool all = g->nchannels == 0;
        for (uint32_t c = 0; g->weight == 0 && c < (all ? (uint32_t)f->nchans : g->nchannels); c++)
            cut(w, (double)g->first, (double)(g->first + g->count), (int)(all ? c : g->channel + c));
    }
    return good;
}

/* Puts the channels into units of their noise, without the burst's own steps. False: there are too few. */
static bool normalize(struct window *w, const struct recover_event *e)
{
    const struct recover_file *f = w->file;
    for (int c = 0; c < f->nchans; c++) {
        double from, to, n = 0, sum = 0, squares = 0;
        touched(f, e, c, 3, &from, &to);
        for (long k = 0; k < w->steps; k++) {
            double v = (double)w->value[k * f->nchans + c], at = (double)(k + w->first);
            if (isnan(v) || (at >= from && at < to)) continue;
            n++;
            sum += v;
            squares += v * v;
        }
        double mean = sum / n, rms = sqrt((squares - n * mean * mean) / (n - 1));
        bool good = n >= LEAST_AROUND && rms > 0;
        for (long k = 0; k < w->steps; k++) {
            float *v = &w->value[k * f->nchans + c];
            *v = good ? (float)(((double)*v - mean) / rms) : NAN;
        }
    }
    return true;
}

/* The steps of a file around the event; steps 0: it has none. False: it cannot be read. */
static bool take_window(const struct recover *r, const struct recover_event *e, const struct recover_file *f,
                        struct window *w)
{
    double from, to, first, last;
    touched(f, e, f->foff_mhz < 0 ? 0 : f->nchans - 1, 3, &from, &last);
    touched(f, e, f->foff_mhz < 0 ? f->nchans - 1 : 0, 3, &first, &to);
    from = fmax(from - AROUND, 0);
    to = fmin(to + AROUND, (double)f->samples);
    *w = (struct window){.file = f};
    if (!(from < to)) return true;
    w->first = (long)from;
    w->steps = (long)(to - from);
    if (!read_window(w)) return false;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct recover_event *other = &r->event[i];
        if (other == e || strcmp(other->state, "refused") == 0) continue;
        for (int c = 0; c < f->nchans; c++) {
            touched(f, other, c, 3, &from, &to);
            cut(w, from, to, c);
        }
    }
    return normalize(w, e);
}

/* --- the filter --- */

/* The share of the fluence in step k of a channel, by dm and time off as they are. */
static double share(const struct recover_file *f, const struct recover_event *e, int c, double k, double dm,
                    double late)
{
    struct recover_event moved = *e;
    moved.burst.dm = dm;
    double smear = burst_delay_s(dm, mhz(f, c) - fabs(f->foff_mhz) / 2, mhz(f, c) + fabs(f->foff_mhz) / 2),
           sum = 0;
    int n = (int)fmin(fmax(ceil(4 * smear / fmin(e->burst.width_s, f->tsamp_s)), 1), FREQUENCIES);
    for (int i = 0; i < n; i++) {
        double at = mhz(f, c) + f->foff_mhz * ((i + 0.5) / n - 0.5),
               t = k * f->tsamp_s - arrival(f, &moved, at) - late;
        sum += burst_arrived(&e->burst, at, t + f->tsamp_s) - burst_arrived(&e->burst, at, t);
    }
    return sum / n;
}

/* S/N of the filter, and in *cover the squared share of it that lies within the files. */
static double filter(const struct window *w, size_t n, const struct recover_event *e, double dm, double late,
                     double *cover)
{
    double sum = 0, squares = 0, all = 0;
    struct recover_event moved = *e;
    moved.burst.dm = dm;
    moved.time_s += late;
    for (size_t i = 0; i < n; i++) {
        const struct recover_file *f = w[i].file;
        for (int c = 0; c < f->nchans; c++) {
            double from, to, weight = pow(mhz(f, c) / e->burst.ref_mhz, e->index);
            touched(f, &moved, c, 1.5, &from, &to);
            for (double k = from; k < to; k++) {
                double s = weight * share(f, e, c, k, dm, late), at = k - (double)w[i].first;
                bool inside = at >= 0 && at < (double)w[i].steps;
                if (!inside || k < 0 || k >= (double)f->samples) {
                    all += s * s;
                    continue;
                }
                double v = (double)w[i].value[(long)at * f->nchans + c];
                if (isnan(v)) continue;
                all += s * s;
                sum += s * v;
                squares += s * s;
            }
        }
    }
    *cover = all > 0 ? squares / all : 0;
    return squares > 0 ? sum / sqrt(squares) : 0;
}

/* Where the filter finds most: around the ledger's values, then more and more closely. */
static void find_errors(const struct window *w, size_t n, const struct recover_event *e,
                        struct recovered *found)
{
    double high = 0, low = INFINITY, tsamp = 0, cover;
    for (size_t i = 0; i < n; i++) {
        const struct recover_file *f = w[i].file;
        double a = mhz(f, 0), b = mhz(f, f->nchans - 1);
        high = fmax(high, fmax(a, b));
        low = fmin(low, fmin(a, b));
        tsamp = fmax(tsamp, f->tsamp_s);
    }
    double step_s = fmax(e->burst.width_s, tsamp) / 2,
           step_dm = high > low ? step_s / burst_delay_s(1, low, high) : 0;
    double best = -INFINITY, dm = e->burst.dm, late = 0;
    for (int zoom = 0; zoom < ZOOMS; zoom++, step_s /= 2, step_dm /= 2) {
        double centre_dm = dm, centre = late;
        for (int i = -GRID; i <= GRID; i++)
            for (int k = -GRID; k <= GRID; k++) {
                double try_dm = fmax(centre_dm + i * step_dm, 0), try = centre + k * step_s,
                       snr = filter(w, n, e, try_dm, try, &cover);
                if (snr > best) best = snr, dm = try_dm, late = try;
            }
    }
    found->dm_error = dm - e->burst.dm;
    found->time_error_s = late;
}

bool recover_measure(const struct recover *r, const struct recover_event *e, long beam, double *cover,
                     struct recovered *found)
{
    size_t n = 0;
    struct window *w = calloc(r->nfiles + 1, sizeof *w);
    bool good = w != NULL;
    *cover = 0;
    for (size_t i = 0; good && i < r->nfiles; i++) {
        if (r->file[i].beam != beam) continue;
        good = take_window(r, e, &r->file[i], &w[n]);
        n += w[n].steps > 0 || !good;
    }
    if (good && n > 0) {
        found->snr = filter(w, n, e, e->burst.dm, 0, cover);
        if (*cover >= 0.5 && e->snr != NULL && found->snr > FAINT) find_errors(w, n, e, found);
    }
    for (size_t i = 0; w != NULL && i < n; i++) free(w[i].value);
    free(w);
    return good;
}
