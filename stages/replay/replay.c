/* replay - recorded files as a stream: the electric field, or any product that `record` wrote. */
#include "stages/replay/replay.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct replay {
    struct br_strings files; /* parameters */
    int64_t frame_samples, loop;
    bool realtime;
    const char *format, *coding;
    struct br_ints threads;
    double max_gap_s;

    bool vdif;
    struct dada_reader dada;
    struct vdif_reader vdif_reader;
    bool running;
    uint64_t started_ns, first; /* CLOCK_MONOTONIC when the first frame went out, and its first sample */
};

static const char *const formats[] = {"auto", "dada", "vdif", NULL};
static const char *const codings[] = {"int4x2", "chime", "vdif", NULL};
static const struct br_param params[] = {
    {.name = "files",
     .type = BR_P_STRINGS,
     .offset = offsetof(struct replay, files),
     .required = true,
     .min_count = 1,
     .max_count = 100000,
     .help = "files or patterns like field_*.dada; played in the order of their times"},
    {.name = "format",
     .type = BR_P_CHOICE,
     .offset = offsetof(struct replay, format),
     .def = "auto",
     .choices = formats,
     .help = "format of the files; auto looks at the first one"},
    {.name = "coding",
     .type = BR_P_CHOICE,
     .offset = offsetof(struct replay, coding),
     .choices = codings,
     .help = "coding of a byte of the electric field; default: what the file says, else int4x2"},
    {.name = "frame_samples",
     .type = BR_P_INT,
     .offset = offsetof(struct replay, frame_samples),
     .min = 0,
     .max = 1 << 30,
     .def = "0",
     .unit = "base samples",
     .help = "samples in a frame; 0: those of the recording, or what makes about 1 MiB"},
    {.name = "loop",
     .type = BR_P_INT,
     .offset = offsetof(struct replay, loop),
     .def = "1",
     .min = 0,
     .max = 1e9,
     .help = "how often the recording is played; 0: until interrupted"},
    {.name = "realtime",
     .type = BR_P_BOOL,
     .offset = offsetof(struct replay, realtime),
     .def = "false",
     .help = "hand frames on when their last sample would have been taken, rather than as fast as possible"},
    {.name = "threads",
     .type = BR_P_INTS,
     .offset = offsetof(struct replay, threads),
     .min = 0,
     .max = 1023,
     .help = "VDIF thread ids in the order [pol][dish], dish fastest; default: those found, ascending"},
    {.name = "max_gap_s",
     .type = BR_P_REAL,
     .offset = offsetof(struct replay, max_gap_s),
     .def = "60",
     .min = 0,
     .max = 1e9,
     .unit = "s",
     .help = "longest gap that is filled with missing samples; a longer one is taken for a corrupt time"},
    {0},
};
static const struct br_port outputs[] = {
    {"out", "E[time][freq][pol][dish], int4x2, or whatever stream the files were recorded from"}, {0}};

/* What the file is: its own words, or whether its start makes sense as VDIF. */
static int recognise(struct br_stage *stage, const char *path, bool *vdif)
{
    char start[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, start, sizeof start);
    if (fd >= 0) close(fd);
    *vdif = false;
    if (got <= 0 || dada_probe(start, (size_t)got))
        return BR_OK; /* the DADA reader says what is wrong with it */
    struct br_error error = {0};
    struct vdif_scan scan;
    if (vdif_scan_file(&scan, path, &error) != BR_OK)
        return br_stage_fail_at(
            stage, "files",
            "%s is no DADA file (it does not start with a header of KEY value lines), and as "
            "VDIF: %s",
            path, error.text);
    *vdif = true;
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    struct file_list files = {0};
    int status = files_expand(stage, &r->files, &files);
    for (size_t i = 0; i < files.count && status == BR_OK; i++)
        status = br_stage_reads_file(stage, "files", files.path[i]);
    if (status != BR_OK) return status;
    r->vdif = strcmp(r->format, "vdif") == 0;
    if (strcmp(r->format, "auto") == 0) status = recognise(stage, files.path[0], &r->vdif);
    if (status != BR_OK) return status;
    uint64_t frame = (uint64_t)r->frame_samples, passes = (uint64_t)r->loop;
    if (r->vdif && r->coding != NULL && strcmp(r->coding, "vdif") != 0)
        return br_stage_fail_at(stage, "coding", "%s; VDIF files have the coding vdif", r->coding);
    if (!r->vdif && r->threads.count > 0)
        return br_stage_fail_at(stage, "threads", "only VDIF files have threads; %s is none", files.path[0]);
    if (r->vdif)
        status =
            vdif_reader_configure(stage, &r->vdif_reader, &files, &r->threads, frame, passes, r->max_gap_s);
    else
        status = dada_reader_configure(stage, &r->dada, &files, r->coding, frame, passes, r->max_gap_s);
    if (status != BR_OK) return status;
    *br_stage_output(stage, 0) = r->vdif ? r->vdif_reader.stream : r->dada.stream;
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    return r->vdif ? vdif_reader_start(stage, &r->vdif_reader) : dada_reader_start(stage, &r->dada);
}

/* Waits until the frame's last sample would have been taken. True when the pipeline stops. */
static bool pace(struct br_stage *stage, struct replay *r, const struct br_frame *frame)
{
    if (!r->running) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        r->started_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        r->first = frame->first;
        r->running = true;
    }
    const struct br_rational *t = &(r->vdif ? &r->vdif_reader.stream : &r->dada.stream)->sample_ns;
    __uint128_t span =
        (__uint128_t)(frame->first + frame->samples - r->first) * (uint64_t)t->num / (uint64_t)t->den;
    return br_stage_sleep_until(stage, r->started_ns + (uint64_t)span);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct replay *r = self;
    struct br_frame *out = io->out[0];
    if (br_stage_stopping(stage)) return BR_FINISHED;
    int result =
        r->vdif ? vdif_reader_fill(stage, &r->vdif_reader, out) : dada_reader_fill(stage, &r->dada, out);
    if (result == BR_PRODUCED && r->realtime && pace(stage, r, out)) return BR_FINISHED;
    return result;
}

static int stop(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    if (r->vdif)
        vdif_reader_stop(stage, &r->vdif_reader);
    else
        dada_reader_stop(&r->dada);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "replay",
    .summary = "recorded files as a stream",
    .description = "Plays DADA and VDIF (complex 4-bit) recordings, as fast as the pipeline takes them or in "
                   "real time. What `record` wrote "
                   "comes back bit for bit, at any connection of a pipeline. Files of others hold "
                   "E[time][freq][pol][dish]; what their "
                   "headers lack comes from `stream:` and `telescope:`.\n\n"
                   "The files of one recording are joined in the order of their times (`OBS_OFFSET`, "
                   "`SAMPLE0`, or the time in each VDIF "
                   "frame). Gaps become missing samples. Data that comes twice is delivered once and counted "
                   "as lost, reason `duplicate`; "
                   "VDIF frames that come after their time was handed on, reason `late`; frames with a "
                   "senseless header, reason "
                   "`corrupt`. A file that ends in the middle of a sample is played up to its last whole "
                   "sample, with a warning.\n",
    .params = params,
    .outputs = outputs,
    .size = sizeof(struct replay),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
