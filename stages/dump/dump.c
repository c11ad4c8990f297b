/* dump - writes what has passed, on request: the voltages of an event, channel by channel along its sweep. */
#include "stages/dump/dump.h"
#include "formats/common/fileio.h"
#include "formats/common/order.h"
#include "stages/common/sky/towards.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/names.h"
#include "stages/dump_description.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const formats[] = {"dada", "chime", NULL};
static const struct br_param params[] = {
    PARAM(PATH, struct dump_stage, directory,
          "folder for the files, or for the folders that requests name; it is created if it does not exist",
          .def = "."),
    PARAM(STRING, struct dump_stage, prefix, "start of the file names: PREFIX_EVENT_CHANNEL.dada or .h5",
          .def = "baseband"),
    PARAM(CHOICE, struct dump_stage, format,
          "format if a request does not name one; chime takes only the electric field in int4x2",
          .def = "dada", .choices = formats),
    PARAM(INT, struct dump_stage, max_dumps, "dumps at the same time; more are refused", .def = "64",
          .min = 1, .max = 4096),
    PARAM(REAL, struct dump_stage, max_wait_s, "how far ahead of the stream a dump may be asked for",
          .def = "3600", .min = 0, .max = 1e9, .unit = "s"),
    PARAM(INT, struct dump_stage, writers, "threads that write, each one file at a time", .def = "2",
          .min = 1, .max = DUMP_WRITERS, .unit = "threads"),
    PARAM(REAL, struct dump_stage, disk_timeout_s, "a dump fails if it waits longer than this for the disk",
          .def = "60", .min = 0.1, .max = 1e6, .unit = "s"),
    {0},
};
static const struct br_port inputs[] = {{"in", "any stream whose axes begin with time,freq, with a history"},
                                        {0}};

/* The parts of a channel's time step. */
static int measure(struct br_stage *stage, struct dump_stage *s, const struct br_stream *in)
{
    const struct br_array *a = &in->array;
    char text[256];
    bool good = a->naxes >= 2 && strcmp(a->axis[0].name, "time") == 0 && strcmp(a->axis[1].name, "freq") == 0;
    size_t bits = br_dtype_bits(a->dtype);
    for (unsigned i = 2; i < a->naxes; i++) bits *= a->axis[i].length;
    if (!good || in->side.naxes > 0 || in->packets != NULL || br_stream_is_zoned(in) || bits % 8 != 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is %s%s; expected an array whose axes begin with time,freq, such as "
                             "the electric field",
                             br_array_format(a, text, sizeof text),
                             br_stream_is_zoned(in) ? " in zones of different steps"
                             : in->packets != NULL  ? " of packets"
                                                    : "");
    s->cell = bits / 8;
    if (strcmp(a->axis[a->naxes - 1].name, "dish") == 0 && br_dtype_bits(a->dtype) % 8 == 0) {
        s->ndish = a->axis[a->naxes - 1].length;
        s->element = br_dtype_bits(a->dtype) / 8;
        s->npol = s->cell / s->element / s->ndish;
    }
    return BR_OK;
}

/* Numbers of channels by their frequency: CHIME's, or multiples of the channels' width; else as they lie. */
static void number_pieces(struct br_stage *stage, struct dump_stage *s, const struct br_stream *in)
{
    static const double top = 800, step = -0.390625;
    double coarse = 1e3 / br_stream_sample_s(in) * 1e-9; /* MHz: the width of a channel of the F-engine */
    int64_t *sorted = br_stage_alloc(stage, s->npieces * sizeof *sorted);
    for (int way = 0; way < 2; way++) {
        bool good = in->zone[0].factor == 1;
        for (size_t i = 0; i < s->npieces && good; i++) {
            double f = in->freq_mhz[s->piece[i].channel];
            double number = way == 0 ? (f - top) / step : f / coarse, whole = nearbyint(number);
            good = fabs(number - whole) < 1e-6 && whole >= 0 && whole < 1 << 20;
            if (way == 0) good = good && fabs(coarse / step + 1) < 1e-6;
            s->number[i] = (int64_t)whole;
        }
        memcpy(sorted, s->number, s->npieces * sizeof *sorted);
        if (good) qsort(sorted, s->npieces, sizeof *sorted, order_int64);
        for (size_t i = 1; i < s->npieces && good; i++) good = sorted[i] != sorted[i - 1];
        if (good) return;
    }
    for (size_t i = 0; i < s->npieces; i++) s->number[i] = (int64_t)i;
}

static int configure(struct br_stage *stage, void *self)
{
    struct dump_stage *s = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    if (s->prefix[0] == '\0' || strchr(s->prefix, '/') != NULL || strlen(s->prefix) > 100)
        return br_stage_fail_at(stage, "prefix", "'%s'; expected the start of a file name, without '/'",
                                s->prefix);
    if (strlen(s->directory) > 600) return br_stage_fail_at(stage, "directory", "the name is too long");
    int status = names_plain(stage, "directory", s->directory);
    if (status == BR_OK) status = names_plain(stage, "prefix", s->prefix);
    if (status == BR_OK) status = measure(stage, s, in);
    if (status != BR_OK) return status;
    struct br_error why = {0};
    if (writer_takes(writer_format_of(s->format), in, &why) != BR_OK)
        return br_stage_fail_at(stage, "format", "%s", why.text);
    s->piece = br_stage_alloc(stage, in->nchannels * sizeof *s->piece);
    for (unsigned z = 0; z < in->nzones; z++) /* fine channels of one coarse channel stay together */
        for (size_t c = 0; c < in->zone[z].nchannels; c += in->zone[z].factor) {
            s->piece[s->npieces] = (struct piece){
                .index = s->npieces, .channel = in->zone[z].first_channel + c, .count = in->zone[z].factor};
            s->npieces++;
        }
    s->number = br_stage_alloc(stage, s->npieces * sizeof *s->number);
    number_pieces(stage, s, in);
    return br_stage_site(stage, "directory", in->telescope, &s->site);
}

static void memory(struct br_stage *stage, void *self, struct br_memory *memory)
{
    (void)stage;
    memory->host = writer_bytes(self);
}

static int start(struct br_stage *stage, void *self)
{
    struct dump_stage *s = self;
    char directory[DUMP_DIRECTORY];
    snprintf(directory, sizeof directory, "%s", s->directory);
    if (fileio_make_directory(directory) != 0 || access(s->directory, W_OK | X_OK) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot write into directory %s: %s", s->directory,
                             strerror(errno));
    return writer_start(stage, s);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct dump_stage *s = self;
    if (io->in[0] == NULL) {
        br_stage_waits_for(stage, "the disk");
        writer_drain(s->writer);
        br_stage_waits_for(stage, NULL);
        return BR_FINISHED;
    }
    writer_wake(s->writer);
    double hangs = writer_hangs(s->writer);
    if (hangs > 5) {
        char text[200];
        snprintf(text, sizeof text, "the disk of %.120s has not answered for %.0f s: dumps wait",
                 s->directory, hangs);
        br_stage_trouble(stage, text);
    } else {
        br_stage_trouble(stage, NULL);
    }
    return BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    writer_stop(stage, self);
    return BR_OK;
}

STAGE_EXPORT(dump, struct dump_stage,
             "what has passed, on request: the voltages of an event along its dispersion sweep",
             .inputs = inputs, .flags = BR_STAGE_HISTORY, .memory = memory, .request = dump_request);
