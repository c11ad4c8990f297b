/* replay - recorded files as a stream: the electric field, or any product that `record` wrote. */
#include "stages/replay/replay.h"

#include "stages/common/formats/chime_hdf5.h"
#include "stages/common/formats/guppi.h"
#include "stages/common/formats/kotekan_raw.h"
#include "stages/replay/extents.h"
#include "stages/replay/kotekan_arrays.h"
#include "stages/replay/vdif_reader.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct replay {
    struct br_strings files; /* parameters */
    int64_t frame_samples, loop, readers;
    bool realtime;
    const char *format, *coding;
    struct br_ints threads;
    struct br_strings bands;
    double max_gap_s;

    enum { DADA, VDIF, CHIME, GUPPI, KOTEKAN, BANDS, ARRAYS } is;
    struct dada_reader dada;
    struct vdif_reader vdif;
    struct kotekan_arrays arrays;
    struct extents extents; /* all others */
    const struct br_stream *stream;
    bool running;
    uint64_t started_ns, first; /* CLOCK_MONOTONIC when the first frame went out, and its first sample */
};

static const char *const formats[] = {"auto", "dada", "vdif", "chime", "guppi", "kotekan", NULL};
static const char *const codings[] = {"int4x2", "chime", "vdif", NULL};
static const struct br_param params[] = {
    BR_PARAM("files", BR_P_STRINGS, struct replay, files,
             "files or patterns like field_*.dada; played in the order of their times", .required = true,
             .min_count = 1, .max_count = 100000),
    BR_PARAM("format", BR_P_CHOICE, struct replay, format, "format of the files; auto looks at the first one",
             .def = "auto", .choices = formats),
    BR_PARAM("coding", BR_P_CHOICE, struct replay, coding,
             "coding of a byte of the electric field; default: what the file says, else int4x2",
             .choices = codings),
    BR_PARAM("frame_samples", BR_P_INT, struct replay, frame_samples,
             "samples in a frame; 0: those of the recording, or what makes about 1 MiB (GUPPI RAW: 2 or 4; "
             "chunks of CHIME: up to 8)",
             .min = 0, .max = 1 << 30, .def = "0", .unit = "base samples"),
    BR_PARAM("loop", BR_P_INT, struct replay, loop, "how often the recording is played; 0: until interrupted",
             .def = "1", .min = 0, .max = 1e9),
    BR_PARAM("readers", BR_P_INT, struct replay, readers,
             "threads that read at the same time; 0: half of the processors, 2 to 8", .def = "0", .min = 0,
             .max = 64, .unit = "threads"),
    BR_PARAM("realtime", BR_P_BOOL, struct replay, realtime,
             "hand frames on when their last sample would have been taken, rather than as fast as possible",
             .def = "false"),
    BR_PARAM("threads", BR_P_INTS, struct replay, threads,
             "VDIF thread ids in the order [pol][dish], dish fastest, or [band][pol][dish] where threads are "
             "bands; default: those found, ascending",
             .min = 0, .max = 1023),
    BR_PARAM("bands", BR_P_STRINGS, struct replay, bands,
             "VDIF: a pattern like low_*.vdif for the files of each band, in the order of stream: freq_mhz; "
             "default: no file is a band of its own",
             .max_count = 1024),
    BR_PARAM("max_gap_s", BR_P_REAL, struct replay, max_gap_s,
             "longest gap that is filled with missing samples; a longer one is taken for a corrupt time",
             .def = "60", .min = 0, .max = 1e9, .unit = "s"),
    {0},
};
static const struct br_port outputs[] = {
    {"out", "E[time][freq][pol][dish], int4x2, or whatever stream the files were recorded from"}, {0}};

/* What the file is: its own words, or whether its start makes sense as VDIF. */
static int recognise(struct br_stage *stage, struct replay *r, const char *path)
{
    char start[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, start, sizeof start);
    if (fd >= 0) close(fd);
    for (int i = 1; formats[i] != NULL; i++)
        if (strcmp(r->format, formats[i]) == 0) r->is = (unsigned)i - 1;
    if (strcmp(r->format, "auto") != 0) return BR_OK;
    r->is = DADA;
    if (got <= 0 || dada_probe(start, (size_t)got))
        return BR_OK; /* the DADA reader says what is wrong with it */
    if (chime_probe(start, (size_t)got))
        r->is = CHIME;
    else if (guppi_probe(start, (size_t)got))
        r->is = GUPPI;
    else if (kotekan_raw_probe(start, (size_t)got))
        r->is = KOTEKAN;
    if (r->is != DADA) return BR_OK;
    struct br_error error = {0};
    if (vdif_probe_file(path, &error) != BR_OK)
        return br_stage_fail_at(
            stage, "files",
            "%s is no DADA file (it does not start with a header of KEY value lines), none of the "
            "formats with a mark of their own (CHIME's HDF5, GUPPI RAW, kotekan's raw frames), and as VDIF: "
            "%s",
            path, error.text);
    r->is = VDIF;
    return BR_OK;
}

static int configure_extents(struct br_stage *stage, struct replay *r, const struct file_list *files)
{
    static int (*const configure_as[])(struct br_stage *, struct extents *, const struct file_list *,
                                       const struct extents_wish *) = {[CHIME] = chime_configure,
                                                                       [GUPPI] = guppi_configure,
                                                                       [KOTEKAN] = kotekan_configure,
                                                                       [BANDS] = bands_configure};
    struct extents_wish wish = {r->coding, (uint64_t)r->frame_samples, (uint64_t)r->loop, r->max_gap_s,
                                (unsigned)r->readers};
    if (r->is == ARRAYS) return kotekan_arrays_configure(stage, &r->arrays, files, &wish);
    return configure_as[r->is](stage, &r->extents, files, &wish);
}

static int configure(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    struct file_list files = {0};
    int status = files_expand(stage, &r->files, &files);
    for (size_t i = 0; i < files.count && status == BR_OK; i++)
        status = br_stage_reads_file(stage, "files", files.path[i]);
    if (status == BR_OK) status = recognise(stage, r, files.path[0]);
    if (status != BR_OK) return status;
    if (r->is == KOTEKAN && kotekan_arrays_are(files.path[0])) r->is = ARRAYS;
    if (r->is == DADA && files.count > 1 && bands_are_several(stage, &files, r->coding)) r->is = BANDS;
    uint64_t frame = (uint64_t)r->frame_samples, passes = (uint64_t)r->loop;
    if (r->is == VDIF && r->coding != NULL && strcmp(r->coding, "vdif") != 0)
        return br_stage_fail_at(stage, "coding", "%s; VDIF files have the coding vdif", r->coding);
    if (r->is != VDIF && r->threads.count > 0)
        return br_stage_fail_at(stage, "threads", "only VDIF files have threads; %s is none", files.path[0]);
    if (r->is != VDIF && r->bands.count > 0)
        return br_stage_fail_at(stage, "bands", "only VDIF files need them; %s says its frequencies itself",
                                files.path[0]);
    r->stream = r->is == VDIF     ? &r->vdif.stream
                : r->is == DADA   ? &r->dada.stream
                : r->is == ARRAYS ? &r->arrays.stream
                                  : &r->extents.stream;
    if (r->is == VDIF)
        status = vdif_reader_configure(stage, &r->vdif, &files,
                                       &(struct vdif_wish){.threads = &r->threads,
                                                           .bands = &r->bands,
                                                           .frame_samples = frame,
                                                           .passes = passes,
                                                           .max_gap_s = r->max_gap_s,
                                                           .readers = (unsigned)r->readers});
    else if (r->is == DADA)
        status = dada_reader_configure(stage, &r->dada, &files, r->coding, frame, passes, r->max_gap_s,
                                       (unsigned)r->readers);
    else
        status = configure_extents(stage, r, &files);
    if (status == BR_OK) *br_stage_output(stage, 0) = *r->stream;
    return status;
}

static int start(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    if (r->is == VDIF) return vdif_reader_start(stage, &r->vdif);
    if (r->is == ARRAYS) return kotekan_arrays_start(stage, &r->arrays);
    return r->is == DADA ? dada_reader_start(stage, &r->dada) : extents_start(stage, &r->extents);
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
    const struct br_rational *t = &r->stream->sample_ns;
    __uint128_t span =
        (__uint128_t)(frame->first + frame->samples - r->first) * (uint64_t)t->num / (uint64_t)t->den;
    return br_stage_sleep_until(stage, r->started_ns + (uint64_t)span);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct replay *r = self;
    struct br_frame *out = io->out[0];
    if (br_stage_stopping(stage)) return BR_FINISHED;
    int result = r->is == VDIF     ? vdif_reader_fill(stage, &r->vdif, out)
                 : r->is == DADA   ? dada_reader_fill(stage, &r->dada, out)
                 : r->is == ARRAYS ? kotekan_arrays_fill(stage, &r->arrays, out)
                                   : extents_fill(stage, &r->extents, out);
    if (result == BR_PRODUCED && r->realtime && pace(stage, r, out)) return BR_FINISHED;
    return result;
}

static int stop(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    if (r->is == VDIF)
        vdif_reader_stop(stage, &r->vdif);
    else if (r->is == DADA)
        dada_reader_stop(&r->dada);
    else if (r->is == ARRAYS)
        kotekan_arrays_stop(&r->arrays);
    else
        extents_stop(&r->extents);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "replay",
    .summary = "recorded files as a stream",
    .description =
        "Plays recordings, as fast as the pipeline takes them or in real time. What `record` wrote comes "
        "back bit for bit, at any "
        "connection of a pipeline. Files of others hold E[time][freq][pol][dish] (kotekan's also beams); "
        "what their headers lack "
        "comes from `stream:` and "
        "`telescope:`.\n\n"
        "| format | what it is | what `stream:` must add |\n|---|---|---|\n"
        "| `dada` | PSRDADA, of `record` or of others (complex 4-bit, or 8-bit: the stream is int8x2) | what "
        "the header lacks |\n"
        "| `vdif` | VDIF, complex 4-bit; a thread is a polarisation of a dish, in one band of the "
        "frequencies | "
        "`freq_mhz`; `sample_ns` where the headers lack it; `bands` where files hold different channels |\n"
        "| `chime` | CHIME baseband: HDF5, a file for each frequency, bitshuffled (with or without LZ4) or "
        "not | |\n"
        "| `guppi` | GUPPI RAW, complex 8-bit: the stream is int8x2; with `NANTS`, antennas are dishes | |\n"
        "| `kotekan` | frames of kotekan's rawFileWrite, with chordMetadata: the electric field, "
        "upchannelized or not, voltages and "
        "intensities of beams, intensities on the grid | `sample_ns`, `epoch_ns`; "
        "`freq_mhz` unless channel number "
        "times channel width is right (for CHIME's coding: 800 MHz down) |\n\n"
        "The files of one recording are joined by their times and their frequencies: files that continue "
        "each other, files of different "
        "channels side by side, VDIF files of different threads likewise. Gaps become missing samples, and "
        "so do "
        "samples that a CHIME file never "
        "got. Data that comes twice is delivered once and counted as lost, reason `duplicate` (not the "
        "overlap of GUPPI blocks); "
        "VDIF frames that come after their time was handed on, reason `late` (headers are looked at up to 64 "
        "frames of each thread ahead, or 16 MiB); frames with a senseless "
        "header, reason "
        "`corrupt`. A file that ends in the middle of a sample is played up to its last whole "
        "sample (GUPPI: block), with a warning.\n",
    .params = params,
    .outputs = outputs,
    .size = sizeof(struct replay),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
