/* recover_files.c - filterbank files, and recordings of beams by way of such files. */
#include "buffers/regular_file.h"
#include "formats/sigproc/sigproc.h"
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

/* --- files --- */

/* Reads SIGPROC's header; false: it is corrupt, or lacks what is needed. */
static bool read_header(struct recover_file *f, double *tstart)
{
    struct sigproc_value v = {.key = ""};
    double nifs = 1;
    enum sigproc_kind kind = sigproc_read(f->file, &v);
    while (kind != SIGPROC_CORRUPT && (kind = sigproc_read(f->file, &v)) > SIGPROC_END) {
        if (strcmp(v.key, "nbits") == 0) f->nbits = (int)v.number;
        if (strcmp(v.key, "nchans") == 0) f->nchans = (int)v.number;
        if (strcmp(v.key, "nifs") == 0) nifs = v.number;
        if (strcmp(v.key, "ibeam") == 0) f->beam = (int)v.number - 1;
        if (strcmp(v.key, "fch1") == 0) f->fch1_mhz = v.number;
        if (strcmp(v.key, "foff") == 0) f->foff_mhz = v.number;
        if (strcmp(v.key, "tsamp") == 0) f->tsamp_s = v.number;
        if (strcmp(v.key, "tstart") == 0) *tstart = v.number;
    }
    return kind == SIGPROC_END && nifs == 1 && (f->nbits == 8 || f->nbits == 32) && f->nchans > 0 &&
           f->nchans < 1 << 24 && f->tsamp_s > 0 && f->foff_mhz != 0 && f->fch1_mhz > 0 &&
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
    struct sigproc_value v;
    FILE *file = br_fopen_regular(path, NULL, NULL);
    bool is = file != NULL && sigproc_read(file, &v) == SIGPROC_START;
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
    struct loaded l;
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
    if (load_text(&l, "recover", text, words, BR_LOG_ERROR, &error) == BR_OK) {
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
