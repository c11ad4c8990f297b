/* replay - recorded files as a stream: the electric field, or any product that `record` wrote. */
#include "stages/replay/replay.h"

#include "buffers/clock.h"
#include "buffers/regular_file.h"
#include "formats/chime/chime_hdf5.h"
#include "formats/common/hints.h"
#include "formats/common/text.h"
#include "formats/guppi/guppi.h"
#include "formats/kotekan/kotekan_raw.h"
#include "stages/common/stage/finite.h"
#include "stages/replay/extents.h"
#include "stages/replay/kotekan_arrays.h"
#include "stages/replay/pcap_reader.h"
#include "stages/replay/vdif_reader.h"
#include "stages/replay_description.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct replay {
    struct br_strings files; /* parameters */
    int64_t frame_samples, loop, readers;
    bool realtime, direct;
    const char *format, *coding;
    struct br_ints threads;
    struct br_strings bands;
    double max_gap_s;
    const char *part_text;
    struct part part; /* of it */
    const char *packet, *values, *real, *start_utc;
    struct br_ints sources, streams;

    const struct replay_reader *reader;
    union {
        struct br_stream stream; /* what each of them begins with */
        struct dada_reader dada;
        struct vdif_reader vdif;
        struct kotekan_arrays arrays;
        struct extents extents;
        struct pcap_reader pcap;
    } state;
    const char *time_from; /* what the time of the first sample is by */
    bool said;             /* when it was taken */
    struct finite finite;
    bool running;
    uint64_t started_ns, first; /* CLOCK_MONOTONIC when the first frame went out, and its first sample */
};

static const char *const format_names[] = {"auto", "dada", "vdif", "chime", "guppi", "kotekan", "pcap", NULL};
static const char *const codings[] = {"int4x2", "chime", "vdif", NULL};
static const struct br_param params[] = {
    BR_PARAM("files", BR_P_STRINGS, struct replay, files,
             "files or patterns like field_*.dada; played in the order of their times", .required = true,
             .min_count = 1, .max_count = 100000),
    BR_PARAM("format", BR_P_CHOICE, struct replay, format, "format of the files; auto looks at the first one",
             .def = "auto", .choices = format_names),
    BR_PARAM(
        "coding", BR_P_CHOICE, struct replay, coding,
        "coding of a byte of the electric field where the file does not say it (else int4x2), as `stream: "
        "coding`",
        .choices = codings),
    BR_PARAM("frame_samples", BR_P_INT, struct replay, frame_samples,
             "samples in a frame; 0: those of the recording, or what makes about 1 MiB (GUPPI RAW: 2 or 4; "
             "chunks of CHIME: up to 8)",
             .min = 0, .max = 1 << 30, .def = "0", .unit = "base samples"),
    BR_PARAM("loop", BR_P_INT, struct replay, loop, "how often the recording is played; 0: until interrupted",
             .def = "1", .min = 0, .max = 1e9),
    BR_PARAM("readers", BR_P_INT, struct replay, readers,
             "of the pipeline's threads those that read at the same time; 0: half of them, 2 to 8; all with "
             "`direct`, and where frames go straight to a GPU",
             .def = "0", .min = 0, .max = 64, .unit = "threads"),
    BR_PARAM("direct", BR_P_BOOL, struct replay, direct,
             "DADA: read past the system's page cache (O_DIRECT), for files that are larger than memory; "
             "where the file system cannot, as without",
             .def = "false"),
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
    BR_PARAM(
        "part", BR_P_STRING, struct replay, part_text,
        "for ranks that share one list of files, \"${RANK}/${RANKS}\": the R-th of N contiguous shares of "
        "the bands, in the order in which they are joined; where all files have the same band, of its "
        "channels; default: all"),
    BR_PARAM("max_gap_s", BR_P_REAL, struct replay, max_gap_s,
             "longest gap that is filled with missing samples; a longer one is taken for a corrupt time",
             .def = "60", .min = 0, .max = 1e9, .unit = "s"),
    BR_PARAM("packet", BR_P_STRING, struct replay, packet,
             "pcap: what the packets are, a description by name (chord-crs, ...) or its path"),
    BR_PARAM("sources", BR_P_INTS, struct replay, sources,
             "pcap: ids of the senders in the order of the inputs; default: the description's", .min = 0,
             .max = PACKET_MAX_IDS - 1),
    BR_PARAM("streams", BR_P_INTS, struct replay, streams,
             "pcap: ids of the streams; default: the description's", .min = 0, .max = PACKET_MAX_IDS - 1),
    BR_PARAM("values", BR_P_CHOICE, struct replay, values,
             "pcap: coding of a nibble, over what the description says", .choices = packet_values),
    BR_PARAM("real", BR_P_CHOICE, struct replay, real,
             "pcap: which nibble is the real part, over what the description says", .choices = packet_real),
    BR_PARAM(
        "start_utc", BR_P_STRING, struct replay, start_utc,
        "pcap: when the first packets were sent, 2026-11-23-12:00:00, to a quarter of the time after which "
        "their counter starts again; default: the times of the file say it"),
    {0},
};
static const struct br_port outputs[] = {
    {"out",
     "E[time][freq][pol][dish], int4x2, or whatever stream the files were recorded from; pcap: packets as "
     "they came, for `unpack`"},
    {0}};

/* Of files of different channels, of another order of axes, or in parts, there is another reader. */
static const struct replay_reader *choose_dada(struct br_stage *stage, const struct replay *r,
                                               const struct file_list *files)
{
    return bands_are_needed(stage, files, r->coding, r->part.count > 1) ? &replay_bands : &replay_dada;
}

static const struct replay_reader *choose_kotekan(struct br_stage *stage, const struct replay *r,
                                                  const struct file_list *files)
{
    (void)stage, (void)r;
    return kotekan_arrays_are(files->path[0]) ? &replay_arrays : &replay_kotekan;
}

/* The formats, in the order in which a file is tried; VDIF, which has no mark, comes last. */
static const struct format {
    const char *name;
    const char *sideband; /* where a file of it says which one it holds; NULL: nowhere */
    bool (*probe)(const void *start, size_t length); /* of a file's first bytes; NULL: it has no mark */
    const struct replay_reader *reader;
    const struct replay_reader *(*choose)(
        struct br_stage *stage, const struct replay *r,
        const struct file_list *files); /* instead, where there are several */
} formats[] = {
    {"dada", "SIDEBAND (or the sign of BW)", dada_probe, NULL, choose_dada},
    {"chime", "its sideband attribute (else CHIME's second Nyquist zone)", chime_probe, &replay_chime, NULL},
    {"guppi", "the sign of OBSBW", guppi_probe, &replay_guppi, NULL},
    {"kotekan", NULL, kotekan_raw_probe, NULL, choose_kotekan},
    {"pcap", "the packets' description", pcap_probe, &replay_pcap, NULL},
    {"vdif", NULL, NULL, &replay_vdif, NULL}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* What the first file is: its own words, or whether its start makes sense as VDIF. NULL: it has been said
 * that it is none of all. */
static const struct format *recognise(struct br_stage *stage, const char *path)
{
    char start[4096];
    int fd = br_open_regular(path, 0, NULL, NULL);
    ssize_t got = fd < 0 ? -1 : read(fd, start, sizeof start);
    if (fd >= 0) close(fd);
    if (got <= 0) return &formats[0]; /* the DADA reader says what is wrong with it */
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].probe != NULL && formats[i].probe(start, (size_t)got)) return &formats[i];
    if (got >= 16 && memcmp(start + 4, "HEADER_START", 12) == 0) {
        br_stage_fail_at(
            stage, "files",
            "%s is a SIGPROC filterbank file: beams that have been made; replay reads recordings, and "
            "beams where `record` wrote them",
            path);
        return NULL;
    }
    struct br_error error = {0};
    if (vdif_probe_file(path, &error) == BR_OK) return &formats[FORMATS - 1];
    br_stage_fail_at(
        stage, "files",
        "%s is no DADA file (it does not start with a header of KEY value lines), none of the "
        "formats with a mark of their own (CHIME's HDF5, GUPPI RAW, kotekan's raw frames), and as "
        "VDIF: %s",
        path, error.text);
    return NULL;
}

/* What is no electric field is not divided: beams of other frequencies, say, are made elsewhere. */
static int check_part(struct br_stage *stage, const struct replay *r, const char *path)
{
    bool whole = r->reader == &replay_dada || r->reader == &replay_arrays || r->reader == &replay_pcap;
    if (r->part.count == 1 || !whole) return BR_OK;
    return br_stage_fail_at(
        stage, "part",
        "%s: %s; only recordings of E[time][freq][pol][dish] are divided by frequency. Name "
        "each rank's files instead, with ${RANK}",
        r->part_text, path);
}

/* Parameters that only VDIF files have, or that they cannot have. */
static int check_parameters(struct br_stage *stage, const struct replay *r, const char *path)
{
    bool vdif = r->reader == &replay_vdif;
    if (r->reader != &replay_pcap && r->packet != NULL)
        return br_stage_fail_at(stage, "packet", "only captured packets have it; %s holds none", path);
    if (r->reader != &replay_pcap && r->start_utc != NULL)
        return br_stage_fail_at(stage, "start_utc", "only captured packets have it; %s says its times itself",
                                path);
    if (r->reader == &replay_pcap && r->loop != 1)
        return br_stage_fail_at(stage, "loop", "captured packets are played once");
    const char *coding = r->coding != NULL ? r->coding : br_stage_hints(stage)->coding;
    if (vdif && coding != NULL && strcmp(coding, "vdif") != 0)
        return br_stage_fail_at(stage, "coding", "%s; VDIF files have the coding vdif", coding);
    bool dada = r->reader == &replay_dada || r->reader == &replay_bands;
    if (!dada && br_stage_hints(stage)->order != NULL)
        return br_stage_fail_at(
            stage, "files",
            "%s says itself how its axes lie; only DADA files of others do not: take `order` out "
            "of `stream:`",
            path);
    if (r->direct && r->reader != &replay_dada)
        return br_stage_fail_at(stage, "direct",
                                "only DADA files that all have the same channels, in the stream's order, and "
                                "of which no `part` is taken, are read so; %s is read through the page cache",
                                path);
    if (!vdif && r->threads.count > 0)
        return br_stage_fail_at(stage, "threads", "only VDIF files have threads; %s is none", path);
    if (!vdif && r->bands.count > 0)
        return br_stage_fail_at(stage, "bands", "only VDIF files need them; %s says its frequencies itself",
                                path);
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    struct file_list files = {0};
    int status = part_parse(stage, r->part_text, &r->part);
    if (status == BR_OK) status = files_expand(stage, &r->files, &files);
    for (size_t i = 0; i < files.count && status == BR_OK; i++)
        status = br_stage_reads_file(stage, "files", files.path[i]);
    if (status != BR_OK) return status;
    const struct format *format = NULL;
    for (size_t i = 0; i < FORMATS; i++)
        if (strcmp(r->format, formats[i].name) == 0) format = &formats[i];
    if (format == NULL) format = recognise(stage, files.path[0]);
    if (format == NULL) return BR_E_INVALID;
    r->reader = format->choose != NULL ? format->choose(stage, r, &files) : format->reader;
    status = check_parameters(stage, r, files.path[0]);
    if (status != BR_OK) return status;
    struct replay_options options = {.coding = r->coding,
                                     .threads = &r->threads,
                                     .bands = &r->bands,
                                     .frame_samples = (uint64_t)r->frame_samples,
                                     .passes = (uint64_t)r->loop,
                                     .max_gap_s = r->max_gap_s,
                                     .part = r->part,
                                     .readers = (unsigned)r->readers,
                                     .direct = r->direct,
                                     .packet = r->packet,
                                     .values = r->values,
                                     .real = r->real,
                                     .sources = &r->sources,
                                     .streams = &r->streams,
                                     .start_utc = r->start_utc,
                                     .time_from = &r->time_from};
    r->time_from = "by the header";
    status = r->reader->configure(stage, &r->state, &files, &options);
    if (status == BR_OK) status = check_part(stage, r, files.path[0]);
    if (status != BR_OK) return status;
    struct br_error error = {0};
    if (hints_sideband(br_stage_hints(stage), files.path[0], format->sideband, &r->state.stream.sideband,
                       &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    char doubt[256];
    if (r->reader != &replay_pcap && hints_doubt(&r->state.stream, doubt, sizeof doubt) != NULL)
        br_stage_warn(stage, "%s: %s", files.path[0], doubt);
    *br_stage_output(stage, 0) = r->state.stream;
    finite_configure(stage);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    return r->reader->start(stage, &r->state);
}

/* The stream's first words: when its first sample was taken. */
static void say_when(struct br_stage *stage, struct replay *r, const struct br_frame *frame)
{
    char text[TEXT_TIME];
    r->said = true;
    br_stage_note(stage, "the first sample, %llu, was taken at %s UTC, %s", (unsigned long long)frame->first,
                  text_utc_format(text, br_stream_time_ns(&r->state.stream, frame->first)), r->time_from);
}

/* Waits until the frame's last sample would have been taken. True when the pipeline stops. */
static bool pace(struct br_stage *stage, struct replay *r, const struct br_frame *frame)
{
    if (!r->running) {
        r->started_ns = br_clock_ns();
        r->first = frame->first;
        r->running = true;
    }
    const struct br_rational *t = &r->state.stream.sample_ns;
    __uint128_t span =
        (__uint128_t)(frame->first + frame->samples - r->first) * (uint64_t)t->num / (uint64_t)t->den;
    return br_stage_sleep_until(stage, r->started_ns + (uint64_t)span);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct replay *r = self;
    struct br_frame *out = io->out[0];
    if (br_stage_stopping(stage)) return BR_FINISHED;
    int result = r->reader->fill(stage, &r->state, out);
    if (result > 0 && (result & BR_PRODUCED) != 0) {
        if (!r->said) say_when(stage, r, out);
        finite_take(stage, &r->finite, out);
    }
    if (result == BR_PRODUCED && r->realtime && pace(stage, r, out)) return BR_FINISHED;
    return result;
}

static void memory(struct br_stage *stage, void *self, struct br_memory *memory)
{
    const struct replay *r = self;
    if (r->reader == &replay_dada && br_stage_device(stage) >= 0)
        memory->locked = dada_feed_bytes(&r->state.dada);
}

static int stop(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    r->reader->stop(stage, &r->state);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "replay",
    .summary = "recorded files as a stream",
    .description = description,
    .params = params,
    .outputs = outputs,
    .size = sizeof(struct replay),
    .configure = configure,
    .memory = memory,
    .start = start,
    .process = process,
    .stop = stop,
};
