/* sources_writer.c - which packets are missing in a stream of packets, as text: no samples, only what
 * capture's receipts say. Base samples are those of every recording of the run. */
#include "formats/packets/layout.h"
#include "formats/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char title[] =
    "# first count source [stream]: base samples without packets of a source (of this "
    "stream, or of all); source 'all': nothing came; `# samples`: from which to which the list reaches\n";

/* The streams that a source lacks since a sample; `lacks` has a flag for each stream. */
struct sources_out {
    uint64_t *since; /* [nsources] */
    bool *lacks;     /* [nsources][nstreams] */
    bool *now;       /* [nstreams] of the block that is looked at */
    uint64_t next;   /* the sample behind the last frame */
    FILE *file;
};

static int refuses(struct file_writer *f)
{
    if (f->stream->packets != NULL) return BR_OK;
    return writer_refuse(f, "format",
                         "its input does not hold packets; expected the output of `capture`, or of `replay` "
                         "of packets, ahead of `unpack`");
}

static int open_all(struct file_writer *f)
{
    const struct packet_layout *l = f->stream->packets;
    struct sources_out *out = f->state;
    out->since = calloc(l->nsources, sizeof *out->since);
    out->lacks = calloc(l->nsources * l->nstreams, sizeof *out->lacks);
    out->now = calloc(l->nstreams, sizeof *out->now);
    if (out->since == NULL || out->lacks == NULL || out->now == NULL)
        return writer_no_memory(f, l->nsources * l->nstreams);
    out->file = writer_stream(f, 0);
    if (out->file == NULL) return f->error.status;
    return fputs(title, out->file) >= 0 ? BR_OK : writer_failed(f, "write", f->path, errno);
}

/* Writes what source s has lacked up to sample `end`. */
static void end_run(const struct packet_layout *l, const struct file_writer *f, size_t s, uint64_t end)
{
    const struct sources_out *out = f->state;
    const bool *lacks = out->lacks + s * l->nstreams;
    size_t count = 0;
    for (size_t k = 0; k < l->nstreams; k++) count += lacks[k];
    if (end == out->since[s]) return;
    if (count == l->nstreams)
        fprintf(out->file, "%" PRIu64 " %" PRIu64 " %" PRId64 "\n", out->since[s], end - out->since[s],
                l->source_id[s]);
    for (size_t k = 0; k < l->nstreams && count < l->nstreams; k++)
        if (lacks[k])
            fprintf(out->file, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 "\n", out->since[s],
                    end - out->since[s], l->source_id[s], l->stream_id[k]);
}

/* The file ends with the runs that have not ended, and how far it reaches. A later frame writes over it, so
 * that a node that is killed leaves a list that is complete up to its last frame. */
static int write_tail(const struct packet_layout *l, struct file_writer *f)
{
    struct sources_out *out = f->state;
    long at = ftell(out->file);
    for (size_t s = 0; s < l->nsources; s++) end_run(l, f, s, out->next);
    fprintf(out->file, "# samples %" PRIu64 " to %" PRIu64 "\n", f->first, out->next);
    bool good = at >= 0 && fflush(out->file) == 0 && ftruncate(fileno(out->file), ftell(out->file)) == 0 &&
                fseek(out->file, at, SEEK_SET) == 0;
    return good ? BR_OK : writer_failed(f, "write", f->path, errno);
}

/* All sources' runs end; what follows begins at `next`. */
static void end_all(const struct packet_layout *l, struct file_writer *f, uint64_t end, uint64_t next)
{
    struct sources_out *out = f->state;
    for (size_t s = 0; s < l->nsources; s++) {
        end_run(l, f, s, end);
        memset(out->lacks + s * l->nstreams, 0, l->nstreams * sizeof *out->lacks);
        out->since[s] = next;
    }
}

/* One block of packets: of each source and stream one, or its receipt bit is not set. */
static void take_block(const struct packet_layout *l, struct file_writer *f, const uint8_t *receipt,
                       uint64_t first)
{
    struct sources_out *out = f->state;
    for (size_t s = 0; s < l->nsources; s++) {
        bool *lacks = out->lacks + s * l->nstreams;
        for (size_t k = 0; k < l->nstreams; k++) {
            size_t slot = s * l->nstreams + k;
            out->now[k] = !l->absent[s] && (receipt[slot / 8] >> slot % 8 & 1) == 0;
        }
        if (memcmp(out->now, lacks, l->nstreams * sizeof *lacks) == 0) continue;
        end_run(l, f, s, first);
        memcpy(lacks, out->now, l->nstreams * sizeof *lacks);
        out->since[s] = first;
    }
}

static int put(struct file_writer *f, const struct br_frame *frame)
{
    const struct packet_layout *l = f->stream->packets;
    struct sources_out *out = f->state;
    if (f->frames == 1) { /* the first one */
        end_all(l, f, 0, frame->first);
    } else if (frame->first > out->next) {
        end_all(l, f, out->next, frame->first);
        fprintf(out->file, "%" PRIu64 " %" PRIu64 " all\n", out->next, frame->first - out->next);
    }
    for (size_t b = 0; b < frame->samples / l->packet_samples; b++)
        take_block(l, f, (const uint8_t *)frame->side + b * l->receipt_bytes,
                   frame->first + b * l->packet_samples);
    out->next = frame->first + frame->samples;
    return write_tail(l, f);
}

static int close_all(struct file_writer *f)
{
    struct sources_out *out = f->state;
    int failed = 0;
    if (out->file != NULL) failed = fclose(out->file);
    out->file = NULL;
    free(out->since);
    free(out->lacks);
    free(out->now);
    return failed == 0 ? BR_OK : writer_failed(f, "complete", f->path, errno);
}

const struct writer_format sources_files =
    WRITER_FORMAT("sources", "sources", sources_out, .arrays = true, .only_receipts = true,
                  .says_sideband = true, .refuses = refuses, .open = open_all, .close = close_all);
