/* sources_writer.c - which packets are missing in a stream of packets, as text: no samples, only what
 * capture's receipts say. Base samples are those of every recording of the run. */
#include "buffers/output.h"
#include "formats/packets/layout.h"
#include "stages/common/stage/shape.h"
#include "stages/record/external.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char title[] =
    "# first count source [stream]: base samples without packets of a source (of this "
    "stream, or of all); source 'all': nothing came\n";

/* What a source lacks since a sample; `lacks` has a flag for each stream. */
struct sources_out {
    uint64_t *since; /* [nsources] */
    bool *lacks;     /* [nsources][nstreams] */
    bool *now;       /* [nstreams] of the block that is looked at */
    uint64_t next;   /* the sample behind the last frame */
};

static int configure(struct br_stage *stage, struct external *f)
{
    const struct packet_layout *l = br_stage_input(stage, 0)->packets;
    if (l == NULL)
        return br_stage_fail_at(stage, "format",
                                "its input is not packets as they came; expected that of `capture`, or of "
                                "`replay` of packets, in front of `unpack`");
    struct sources_out *out = f->sources = br_stage_alloc(stage, sizeof *out);
    out->since = br_stage_alloc(stage, l->nsources * sizeof *out->since);
    out->lacks = br_stage_alloc(stage, l->nsources * l->nstreams * sizeof *out->lacks);
    out->now = br_stage_alloc(stage, l->nstreams * sizeof *out->now);
    return BR_OK;
}

static int start(struct br_stage *stage, struct external *f)
{
    int status = external_name(stage, f, 0);
    if (status != BR_OK) return status;
    struct br_error error = {0};
    f->file = br_output_stream(f->path, f->overwrite, &error);
    if (f->file == NULL) return br_stage_fail(stage, error.status, "%s", error.text);
    return fputs(title, f->file) >= 0 ? BR_OK : external_failed(stage, f, "write");
}

/* Writes what source s has lacked up to sample `end`. */
static void end_run(const struct packet_layout *l, const struct external *f, size_t s, uint64_t end)
{
    const struct sources_out *out = f->sources;
    const bool *lacks = out->lacks + s * l->nstreams;
    size_t count = 0;
    for (size_t k = 0; k < l->nstreams; k++) count += lacks[k];
    if (end == out->since[s]) return;
    if (count == l->nstreams)
        fprintf(f->file, "%" PRIu64 " %" PRIu64 " %" PRId64 "\n", out->since[s], end - out->since[s],
                l->source_id[s]);
    for (size_t k = 0; k < l->nstreams && count < l->nstreams; k++)
        if (lacks[k])
            fprintf(f->file, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 "\n", out->since[s],
                    end - out->since[s], l->source_id[s], l->stream_id[k]);
}

/* All sources' runs end; what follows begins at `next`. */
static void end_all(const struct packet_layout *l, struct external *f, uint64_t end, uint64_t next)
{
    struct sources_out *out = f->sources;
    for (size_t s = 0; s < l->nsources; s++) {
        end_run(l, f, s, end);
        memset(out->lacks + s * l->nstreams, 0, l->nstreams * sizeof *out->lacks);
        out->since[s] = next;
    }
}

/* One block of packets: of each source and stream one, or its receipt bit is not set. */
static void take_block(const struct packet_layout *l, struct external *f, const uint8_t *receipt,
                       uint64_t first)
{
    struct sources_out *out = f->sources;
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

static int write_frame(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    const struct packet_layout *l = br_stage_input(stage, 0)->packets;
    struct sources_out *out = f->sources;
    if (f->frames == 1) { /* the first one */
        end_all(l, f, 0, frame->first);
    } else if (frame->first > out->next) {
        end_all(l, f, out->next, frame->first);
        fprintf(f->file, "%" PRIu64 " %" PRIu64 " all\n", out->next, frame->first - out->next);
    }
    for (size_t b = 0; b < frame->samples / l->packet_samples; b++)
        take_block(l, f, (const uint8_t *)frame->side + b * l->receipt_bytes,
                   frame->first + b * l->packet_samples);
    out->next = frame->first + frame->samples;
    return fflush(f->file) == 0 ? BR_OK : external_failed(stage, f, "write");
}

static int stop(struct br_stage *stage, struct external *f)
{
    if (f->file == NULL) return BR_OK;
    if (f->frames > 0) end_all(br_stage_input(stage, 0)->packets, f, f->sources->next, f->sources->next);
    int failed = fclose(f->file);
    f->file = NULL;
    return failed == 0 ? BR_OK : external_failed(stage, f, "complete");
}

const struct external_format external_sources = {.name = "sources",
                                                 .suffix = "sources",
                                                 .arrays = true,
                                                 .only_receipts = true,
                                                 .says_sideband = true,
                                                 .configure = configure,
                                                 .start = start,
                                                 .write = write_frame,
                                                 .stop = stop};
