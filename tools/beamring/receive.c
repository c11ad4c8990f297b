/* receive.c - `beamring receive`: a receiver for FRB senders, as a recorder and a test double. It writes what
 * it assembles as recordings, the sender's document beside them, and prints its counters as JSON at the end.
 *
 * This is not a pipeline of `receive` and `record`, because what an FRB node sends is known only when its
 * document has come; it uses the receivers and the writer of these stages. */
#include "formats/chime_l0/receive.h"
#include "buffers/clock.h"
#include "formats/common/fileio.h"
#include "formats/frb_node/receive.h"
#include "formats/writer.h"
#include "stages/common/stage/earlier.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEPT = 16, LOOK_MS = 50 };

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

struct options {
    const char *format, *address, *directory, *interface;
    double seconds, idle_s, hold_s, handshake_s;
    bool until_closed, overwrite;
    long senders, window, first_beam, beams, first_channel, channels, nupfreq, steps, counts;
    long long epoch_ns;
};

/* The incoming stream, and its files. */
struct recorder {
    struct br_stream stream;
    struct br_frame frame;
    struct file_writer writer; /* with a directory */
    bool known;                /* the stream is, and there is memory for its frames */
    void *kept[MOST_KEPT];
    unsigned nkept;
};

/* Memory of the stream's description, which lives as long as the recorder. */
static void *keep(void *owner, size_t bytes)
{
    struct recorder *r = owner;
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL || r->nkept == MOST_KEPT) {
        fprintf(stderr, "beamring receive: no memory\n");
        exit(1);
    }
    return r->kept[r->nkept++] = memory;
}

/* The stream is described: memory for its frames, and the writer. */
static int begin_recording(const struct options *o, struct recorder *r, struct br_error *error)
{
    const struct br_stream *s = &r->stream;
    r->frame = (struct br_frame){.data = keep(r, br_stream_max_bytes(s)),
                                 .valid = keep(r, br_stream_max_validity(s)),
                                 .side = keep(r, br_array_bytes(&s->side))};
    r->known = true;
    if (o->directory == NULL) return BR_OK;
    r->writer = (struct file_writer){.format = &dada_files,
                                     .stream = s,
                                     .state = keep(r, dada_files.size),
                                     .directory = o->directory,
                                     .prefix = "received",
                                     .overwrite = o->overwrite};
    int status = writer_open(&r->writer);
    return status == BR_OK ? BR_OK : br_fail(error, status, "%s", r->writer.error.text);
}

static void print_counts(const struct wire_counts *c)
{
    printf("{\"received\": %" PRIu64 ", \"late\": %" PRIu64 ", \"duplicate\": %" PRIu64
           ", \"missing\": %" PRIu64 ", \"malformed\": %" PRIu64 ", \"connections\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"broken\": %" PRIu64 ", \"silent\": %" PRIu64
           ", \"blocks\": %" PRIu64 "}\n",
           c->received, c->late, c->duplicate, c->missing, c->malformed, c->connections, c->refused,
           c->broken, c->silent, c->blocks);
}

/* Whether it is time to end; *flush: to hand on what is there. */
static bool is_over(const struct options *o, uint64_t began, const struct receiver *r, bool closed,
                    bool *flush)
{
    double quiet = (double)r->quiet_ns * 1e-9;
    bool over = interrupted || (o->seconds > 0 && (double)(br_clock_ns() - began) * 1e-9 > o->seconds) ||
                (o->idle_s > 0 && quiet > o->idle_s) || (o->until_closed && closed);
    *flush = over || quiet > o->hold_s;
    return over;
}

static void save_document(const struct options *o, const struct frb_node_document *document)
{
    char path[4200], *yaml = NULL;
    size_t length;
    struct br_error error = {0};
    if (o->directory == NULL) return;
    if (frb_node_write(document, &yaml, &length, &error) != BR_OK) {
        fprintf(stderr, "beamring receive: document.yaml is not written: %s\n", error.text);
        return;
    }
    snprintf(path, sizeof path, "%s/document.yaml", o->directory);
    if (fileio_keep(path, yaml, length - 1, o->overwrite, &error) != BR_OK)
        fprintf(stderr, "beamring receive: %s\n", error.text);
    free(yaml);
}

/* Receives until it is time to end. `frb` is the same receiver, where its senders say what comes. */
static int receive(const struct options *o, struct receiver *r, struct frb_receiver *frb,
                   struct recorder *recorder, struct br_error *error)
{
    const struct receiver_format *format = r->format;
    uint64_t began = br_clock_ns();
    int status = BR_OK;
    for (bool over = false, flush; status == BR_OK && !over;) {
        bool closed = format->connected != NULL && r->counts.connections > 0 && format->connected(r) == 0;
        over = is_over(o, began, r, closed, &flush);
        while (recorder->known && status == BR_OK &&
               format->fill(r, &recorder->stream, flush, &recorder->frame)) {
            if (o->directory == NULL) continue;
            status = writer_put(&recorder->writer, &recorder->frame);
            if (status != BR_OK) br_fail(error, status, "%s", recorder->writer.error.text);
        }
        if (over || status != BR_OK) break;
        status = receiver_step(r, LOOK_MS, error);
        if (r->complaint[0] != '\0') fprintf(stderr, "beamring receive: %s\n", r->complaint);
        r->complaint[0] = '\0';
        if (status != BR_OK || recorder->known || !frb->ready) continue;
        save_document(o, &frb->document);
        status = frb_node_stream(&frb->document, &recorder->stream, keep, recorder, error);
        if (status == BR_OK) status = begin_recording(o, recorder, error);
    }
    return status;
}

/* Describes what is to come, where the options say it. */
static int expect_chime_l0(const struct options *o, struct l0_receiver *r, struct recorder *recorder,
                           struct br_error *error)
{
    uint16_t *beams = keep(recorder, (size_t)o->beams * 2), *coarse = keep(recorder, (size_t)o->channels * 2);
    for (long i = 0; i < o->beams; i++) beams[i] = (uint16_t)(o->first_beam + i);
    for (long i = 0; i < o->channels; i++) coarse[i] = (uint16_t)(o->first_channel + i);
    r->nupfreq = (unsigned)o->nupfreq;
    r->nsteps = (unsigned)o->steps;
    r->counts_per_sample = (unsigned)o->counts;
    r->frame0_ns = (uint64_t)o->epoch_ns;
    r->nbeams = (size_t)o->beams;
    r->ncoarse = (size_t)o->channels;
    r->beam_ids = beams;
    r->coarse_ids = coarse;
    r->buffer_bytes = 1 << 25;
    r->interface = o->interface;
    int status = l0_receiver_prepare(r, error);
    if (status == BR_OK) status = l0_receiver_stream(r, &recorder->stream, keep, recorder, error);
    return status == BR_OK ? begin_recording(o, recorder, error) : status;
}

static bool take_number(const char *name, const char *text, double least, double most, double *value)
{
    char *end;
    double v = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL || *text == '\0' || *end != '\0' || !(v >= least && v <= most)) {
        fprintf(stderr, "beamring receive: %s: '%s'; expected a number from %g to %g\n", name,
                text != NULL ? text : "", least, most);
        return false;
    }
    *value = v;
    return true;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    const struct {
        const char *name;
        long *whole;
        double *real, least, most;
    } numbers[] = {
        {"--seconds", NULL, &o->seconds, 0, 1e9},
        {"--idle", NULL, &o->idle_s, 0, 1e9},
        {"--hold", NULL, &o->hold_s, 0.01, 1e9},
        {"--handshake", NULL, &o->handshake_s, 0.01, 1e9},
        {"--senders", &o->senders, NULL, 1, FRB_CONNECTIONS},
        {"--window", &o->window, NULL, 2, 4096},
        {"--first-beam", &o->first_beam, NULL, 0, 65535},
        {"--beams", &o->beams, NULL, 1, 65536},
        {"--first-channel", &o->first_channel, NULL, 0, 1023},
        {"--channels", &o->channels, NULL, 1, 1024},
        {"--nupfreq", &o->nupfreq, NULL, 1, 64},
        {"--steps", &o->steps, NULL, 1, 1024},
        {"--counts", &o->counts, NULL, 1, 65535},
    };
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !known; k++) {
            double value;
            if (strcmp(argv[i], numbers[k].name) != 0) continue;
            known = true;
            if (!take_number(argv[i], argv[i + 1], numbers[k].least, numbers[k].most, &value)) return false;
            if (numbers[k].whole != NULL)
                *numbers[k].whole = (long)value;
            else
                *numbers[k].real = value;
            i++;
        }
        if (known) continue;
        bool text = strcmp(argv[i], "--directory") == 0 || strcmp(argv[i], "--interface") == 0 ||
                    strcmp(argv[i], "--epoch-ns") == 0;
        if (text && i + 1 == argc) {
            fprintf(stderr, "beamring receive: %s expects a value\n", argv[i]);
            return false;
        }
        if (strcmp(argv[i], "--directory") == 0)
            o->directory = argv[++i];
        else if (strcmp(argv[i], "--interface") == 0)
            o->interface = argv[++i];
        else if (strcmp(argv[i], "--epoch-ns") == 0)
            o->epoch_ns = atoll(argv[++i]);
        else if (strcmp(argv[i], "--until-closed") == 0)
            o->until_closed = true;
        else if (strcmp(argv[i], "--overwrite") == 0)
            o->overwrite = true;
        else if (argv[i][0] != '-' && o->format == NULL)
            o->format = argv[i];
        else if (argv[i][0] != '-' && o->address == NULL)
            o->address = argv[i];
        else {
            if (argv[i][0] == '-') return unknown_option("receive", argv[i]) == 0;
            fprintf(stderr, "beamring receive: unexpected '%s'\n", argv[i]);
            return false;
        }
    }
    if (o->format == NULL || o->address == NULL ||
        (strcmp(o->format, "frb-node") != 0 && strcmp(o->format, "chime-l0") != 0)) {
        fputs(
            "beamring receive: expected frb-node or chime-l0, and the address to listen on, such as *:5000\n",
            stderr);
        return false;
    }
    if (strcmp(o->format, "chime-l0") == 0 &&
        (o->beams == 0 || o->channels == 0 || o->first_beam + o->beams > 65536 ||
         o->first_channel + o->channels > 1024 || (o->steps & (o->steps - 1)) != 0)) {
        fputs("beamring receive: chime-l0 needs --beams, --channels and --epoch-ns (ids up to 65535 and "
              "1023; --steps a power of two)\n",
              stderr);
        return false;
    }
    return true;
}

/* received_NNNNNN.dada and what stands beside it, and the document. */
static bool is_ours(const char *name, const char *prefix)
{
    const char *rest = earlier_rest(name, prefix);
    return strcmp(name, "document.yaml") == 0 || strcmp(name, "received_beams.csv") == 0 ||
           (rest != NULL && (strcmp(rest, ".dada") == 0 || strcmp(rest, ".dada.gaps") == 0));
}

/* An earlier recording in the folder is kept, unless the user has said that it may go. */
static bool folder_is_free(const struct options *o)
{
    char path[4200];
    struct br_error error = {0};
    snprintf(path, sizeof path, "%s", o->directory);
    if (fileio_make_directory(path) != 0) {
        fprintf(stderr, "beamring receive: cannot make directory %s: %s\n", o->directory, strerror(errno));
        return false;
    }
    if (o->overwrite) {
        if (earlier_remove(o->directory, "received", is_ours, &error) == BR_OK) return true;
        fprintf(stderr, "beamring receive: %s\n", error.text);
        return false;
    }
    earlier_files(o->directory, "received", is_ours, path, sizeof path);
    if (path[0] == '\0') return true;
    fprintf(stderr,
            "beamring receive: %s exists: an earlier recording would be lost; give another --directory, or "
            "--overwrite\n",
            path);
    return false;
}

int cmd_receive(int argc, char **argv)
{
    static struct frb_receiver frb = {.base = {.format = &frb_node_receiver}, .max_bytes = (size_t)4 << 30};
    static struct l0_receiver l0 = {.base = {.format = &chime_l0_receiver}, .fd = -1};
    struct options o = {.hold_s = 2,
                        .handshake_s = 10,
                        .senders = 1,
                        .window = 16,
                        .nupfreq = 16,
                        .steps = 16,
                        .counts = 384};
    struct net_address at;
    struct br_error error = {0};
    struct recorder recorder = {0};
    if (!read_options(argc, argv, &o)) return 2;
    bool udp = strcmp(o.format, "chime-l0") == 0;
    struct receiver *r = udp ? &l0.base : &frb.base;
    int status = net_resolve(&at, o.address, udp ? SOCK_DGRAM : SOCK_STREAM, &error);
    if (status != BR_OK) {
        fprintf(stderr, "beamring receive: %s\n", error.text);
        return status == BR_E_INVALID ? 2 : 1;
    }
    if (o.directory != NULL && !folder_is_free(&o)) return 2;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    r->window = (unsigned)o.window;
    r->handshake_s = o.handshake_s;
    frb.senders = (unsigned)o.senders;
    if (udp) status = expect_chime_l0(&o, &l0, &recorder, &error);
    if (status == BR_OK) status = r->format->listen(r, &at, &error);
    if (status == BR_OK) {
        fprintf(stderr, "beamring receive: listening on port %u\n", r->port);
        status = receive(&o, r, &frb, &recorder, &error);
    }
    if (recorder.known && o.directory != NULL && writer_close(&recorder.writer) != BR_OK)
        status = br_fail(&error, recorder.writer.error.status, "%s", recorder.writer.error.text);
    if (status != BR_OK) fprintf(stderr, "beamring receive: %s\n", error.text);
    print_counts(&r->counts);
    r->format->free(r);
    while (recorder.nkept > 0) free(recorder.kept[--recorder.nkept]);
    return status == BR_OK ? 0 : 1;
}
