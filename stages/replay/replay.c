/* replay - recorded files as a stream: the electric field, or any product that `record` wrote. */
#include "stages/replay/replay.h"

#include "formats/common/text.h"
#include "formats/pcap/pcap_reader.h"
#include "formats/vdif/vdif_reader.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/finite.h"
#include "stages/common/stage/pace.h"
#include "stages/replay_description.h"

struct replay {
    struct br_strings files; /* parameters */
    int64_t frame_samples, loop, readers;
    bool realtime, direct;
    const char *format, *coding;
    struct br_ints threads;
    struct br_strings bands;
    double max_gap_s;
    const char *part;
    const char *packet, *values, *real, *start_utc;
    struct br_ints sources, streams;

    struct replay_caller caller;
    struct reading reading;
    bool said; /* when the first sample was taken */
    struct finite finite;
    struct pace pace;
};

static const char *const codings[] = {"int4x2", "chime", "vdif", NULL};
static const struct br_param params[] = {
    PARAM(STRINGS, struct replay, files,
          "files or patterns like field_*.dada; played in the order of their times", .required = true,
          .min_count = 1, .max_count = 100000),
    PARAM(CHOICE, struct replay, format, "format of the files; auto looks at the first one", .def = "auto",
          .choices = format_names),
    PARAM(CHOICE, struct replay, coding,
          "coding of a byte of the electric field if the file does not state it (default int4x2), as "
          "`stream: coding`",
          .choices = codings),
    PARAM(INT, struct replay, frame_samples,
          "samples in a frame; 0: as in the recording, or about 1 MiB (GUPPI RAW: 2 or 4; chunks of CHIME: "
          "up to 8)",
          .min = 0, .max = 1 << 30, .def = "0", .unit = "base samples"),
    PARAM(INT, struct replay, loop, "how often the recording is played; 0: until interrupted", .def = "1",
          .min = 0, .max = 1e9),
    PARAM(INT, struct replay, readers,
          "how many of the pipeline's threads read; 0: half of them, 2 to 8; all with `direct`; up to 16 if "
          "frames go straight to a GPU",
          .def = "0", .min = 0, .max = 64, .unit = "threads"),
    PARAM(BOOL, struct replay, direct,
          "DADA: bypass the page cache (O_DIRECT), for files larger than memory; has no effect where the "
          "file system cannot",
          .def = "false"),
    PARAM(BOOL, struct replay, realtime,
          "publish frames when their last sample would have been taken, not as fast as possible",
          .def = "false"),
    PARAM(INTS, struct replay, threads,
          "VDIF thread ids in the order [pol][dish], dish fastest, or [band][pol][dish] where threads are "
          "bands; default: those found, ascending",
          .min = 0, .max = 1023),
    PARAM(STRINGS, struct replay, bands,
          "VDIF: a pattern like low_*.vdif for the files of each band, in the order of stream: freq_mhz; "
          "default: no file is a band of its own",
          .max_count = 1024),
    PARAM(STRING, struct replay, part,
          "for ranks that share one list of files, \"${RANK}/${RANKS}\": the R-th of N contiguous shares of "
          "the bands, in the order in which they are joined; where all files have the same band, of its "
          "channels; default: all"),
    PARAM(REAL, struct replay, max_gap_s,
          "longest gap that is filled with missing samples; a longer one counts as a corrupt time",
          .def = "60", .min = 0, .max = 1e9, .unit = "s"),
    PARAM(STRING, struct replay, packet,
          "pcap: the packets: a description by name (chord-crs, ...) or its path"),
    PARAM(INTS, struct replay, sources,
          "pcap: ids of the senders in the order of the inputs; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1),
    PARAM(INTS, struct replay, streams, "pcap: ids of the streams; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1),
    PARAM(CHOICE, struct replay, values, "pcap: coding of a nibble; overrides the description",
          .choices = packet_values),
    PARAM(CHOICE, struct replay, real, "pcap: which nibble is the real part; overrides the description",
          .choices = packet_real),
    PARAM(STRING, struct replay, start_utc,
          "pcap: when the first packets were sent, 2026-11-23-12:00:00, to a quarter of the time after which "
          "their counter starts again; default: the times of the file say it"),
    {0},
};
static const struct br_port outputs[] = {{"out", "E[time][freq][pol][dish], int4x2, or the stream that was "
                                                 "recorded; pcap: packets as received, for `unpack`"},
                                         {0}};

/* Parameters that only one format has. */
static int check_parameters(struct br_stage *stage, const struct replay *r, const char *path)
{
    bool vdif = r->reading.format == &format_vdif, pcap = r->reading.format == &format_pcap;
    if (!pcap && r->packet != NULL)
        return br_stage_fail_at(stage, "packet", "only captured packets have it; %s holds none", path);
    if (!pcap && r->start_utc != NULL)
        return br_stage_fail_at(stage, "start_utc", "only captured packets have it; %s says its times itself",
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
    struct vdif_options vdif = {{r->threads.count, r->threads.value}, {r->bands.count, r->bands.value}};
    struct pcap_options pcap = {r->packet,
                                r->start_utc,
                                {.sources = {r->sources.count, r->sources.value},
                                 .streams = {r->streams.count, r->streams.value},
                                 .values = r->values,
                                 .real = r->real}};
    struct read_options options = {.coding = r->coding,
                                   .frame_samples = (uint64_t)r->frame_samples,
                                   .passes = (uint64_t)r->loop,
                                   .max_gap_s = r->max_gap_s,
                                   .readers = (unsigned)r->readers,
                                   .direct = r->direct,
                                   .vdif = &vdif,
                                   .pcap = &pcap};
    replay_caller(&r->caller, stage);
    int status = part_parse(&r->caller.caller, r->part, &options.part);
    if (status == BR_OK) status = files_expand(stage, &r->files, &files);
    for (size_t i = 0; i < files.count && status == BR_OK; i++)
        status = br_stage_reads_file(stage, "files", files.path[i]);
    if (status == BR_OK) status = format_open(&r->caller.caller, r->format, &files, &options, &r->reading);
    if (status == BR_OK) status = check_parameters(stage, r, files.path[0]);
    if (status != BR_OK) return status;
    const struct description *d = &r->reading.description;
    *br_stage_output(stage, 0) = *d->stream;
    if (d->depth > 0) br_stage_suggest_depth(stage, 0, d->depth);
    if (d->feed_bytes > 0) br_stage_feeds(stage);
    finite_configure(stage);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    const struct description *d = &r->reading.description;
    struct caller *caller = &r->caller.caller;
    caller->gpu = d->feed_bytes > 0 && br_stage_device(stage) >= 0;
    int status = caller->gpu ? br_feed_open(stage, d->feed_bytes, d->feed_buffers, &r->caller.feed) : BR_OK;
    return status == BR_OK ? r->reading.reader->start(caller, r->reading.self) : status;
}

/* The stream's first words: when its first sample was taken. */
static void say_when(struct br_stage *stage, struct replay *r, const struct br_frame *frame)
{
    char text[TEXT_TIME];
    const struct description *d = &r->reading.description;
    r->said = true;
    br_stage_note(stage, "the first sample, %llu, was taken at %s UTC, %s", (unsigned long long)frame->first,
                  text_utc_format(text, br_stream_time_ns(d->stream, frame->first)), d->time_from);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct replay *r = self;
    struct br_frame *out = io->out[0];
    if (br_stage_stopping(stage)) return BR_FINISHED;
    int status = r->reading.reader->fill(&r->caller.caller, r->reading.self, out);
    if (status < 0) return status;
    if (status == READER_FINISHED) return BR_FINISHED;
    if (!r->said) say_when(stage, r, out);
    finite_take(stage, &r->finite, out);
    return r->realtime && pace_wait(&r->pace, stage, out) ? BR_FINISHED : BR_PRODUCED;
}

static void memory(struct br_stage *stage, void *self, struct br_memory *memory)
{
    const struct description *d = &((struct replay *)self)->reading.description;
    if (br_stage_device(stage) >= 0) memory->locked = d->feed_bytes * d->feed_buffers;
}

static int stop(struct br_stage *stage, void *self)
{
    struct replay *r = self;
    (void)stage;
    r->reading.reader->stop(&r->caller.caller, r->reading.self);
    br_feed_close(r->caller.feed);
    r->caller.feed = NULL;
    return BR_OK;
}

STAGE_EXPORT(replay, struct replay, "recorded files as a stream", .outputs = outputs, .memory = memory);
