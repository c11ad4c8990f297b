/* receive.c - `beamring receive`: a receiver for FRB senders, as a recorder and a test double. It writes what
 * it assembles as recordings, the sender's document beside them, and prints its counters as JSON at the end.
 */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "formats/chime_l0/l0_receiver.h"
#include "formats/common/fileio.h"
#include "formats/dada/recording.h"
#include "formats/frb_node/frb_receiver.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_KEPT = 8 };

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

/* Frames into files, a new one after each hole. */
struct recorder {
    const char *directory; /* NULL: nothing is written */
    struct br_stream stream;
    struct br_frame frame;
    int fd;
    char path[4200], *header;
    struct recording_file file;
    uint64_t end, used;
    bool failed;
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

static void record_failed(struct recorder *r, const char *what)
{
    if (!r->failed) fprintf(stderr, "beamring receive: cannot %s %s: %s\n", what, r->path, strerror(errno));
    r->failed = true;
}

static void write_header(struct recorder *r)
{
    struct dada_writer writer = {r->header, r->file.header_bytes, 0};
    r->file.samples = r->end - r->file.first;
    r->file.payload_bytes = r->used;
    r->file.name = strrchr(r->path, '/') + 1;
    recording_format(&writer, &r->stream, &r->file);
    if (!dada_finish(&writer, r->file.header_bytes) ||
        pwrite(r->fd, r->header, r->file.header_bytes, 0) != (ssize_t)r->file.header_bytes)
        record_failed(r, "write");
}

static void close_file(struct recorder *r)
{
    if (r->fd < 0) return;
    write_header(r);
    if (close(r->fd) != 0) record_failed(r, "complete");
    r->fd = -1;
    r->file.number++;
    r->file.obs_offset += r->used;
}

static void open_file(struct recorder *r, uint64_t first)
{
    close_file(r);
    if (r->file.number == 0) r->file.obs_first = first;
    r->file.first = r->end = first;
    r->used = 0;
    snprintf(r->path, sizeof r->path, "%s/received_%06" PRIu64 ".dada", r->directory, r->file.number);
    r->fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (r->fd < 0)
        record_failed(r, "create");
    else
        write_header(r);
}

static bool begin_recording(struct recorder *r)
{
    struct dada_writer writer = {0};
    size_t side = br_array_bytes(&r->stream.side);
    r->fd = -1;
    r->frame = (struct br_frame){.data = malloc(br_stream_max_bytes(&r->stream)),
                                 .valid = malloc(br_stream_max_validity(&r->stream)),
                                 .side = malloc(side)};
    r->file =
        (struct recording_file){.name = "received", .obs_id = "received", .header_bytes = DADA_MAX_HEADER};
    recording_format(&writer, &r->stream, &r->file);
    r->file.header_bytes = (writer.used + 4096 + DADA_BLOCK - 1) / DADA_BLOCK * DADA_BLOCK;
    r->header = malloc(r->file.header_bytes);
    return r->frame.data != NULL && r->frame.valid != NULL && r->frame.side != NULL && r->header != NULL &&
           r->file.header_bytes <= DADA_MAX_HEADER;
}

/* Levels say themselves what is missing, so that there is no file of gaps. */
static void record(struct recorder *r, const struct assembly *assembly, const struct assembly_block *block)
{
    if (r->directory == NULL || r->failed) return;
    if (r->frame.data == NULL && !begin_recording(r)) {
        fprintf(stderr,
                "beamring receive: no memory for a frame, or too many beams and channels for a header\n");
        r->failed = true;
        return;
    }
    r->frame.first = block->number * r->stream.frame_samples;
    r->frame.samples = r->stream.frame_samples;
    assembly_fill(assembly, block, &r->stream, &r->frame);
    if (r->fd < 0 || r->frame.first != r->end) open_file(r, r->frame.first);
    if (r->failed) return;
    size_t data = br_frame_bytes(&r->stream, &r->frame), side = br_array_bytes(&r->stream.side);
    off_t at = (off_t)(r->file.header_bytes + r->used);
    if (pwrite(r->fd, r->frame.data, data, at) != (ssize_t)data ||
        pwrite(r->fd, r->frame.side, side, at + (off_t)data) != (ssize_t)side) {
        record_failed(r, "write");
        return;
    }
    r->used += data + side;
    r->end = r->frame.first + r->frame.samples;
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

struct clock {
    uint64_t began, heard, pieces;
};

/* Whether it is time to end; *flush: to hand on what is there. */
static bool is_over(const struct options *o, struct clock *clock, const struct wire_counts *c, bool closed,
                    bool *flush)
{
    uint64_t now = br_clock_ns(), pieces = c->received + c->late + c->duplicate;
    if (pieces != clock->pieces) clock->heard = now;
    clock->pieces = pieces;
    double quiet = (double)(now - clock->heard) * 1e-9;
    bool over = interrupted || (o->seconds > 0 && (double)(now - clock->began) * 1e-9 > o->seconds) ||
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

static int receive_frb_node(const struct options *o, const struct net_address *at, struct recorder *recorder)
{
    static struct frb_receiver r;
    struct br_error error = {0};
    struct clock clock = {br_clock_ns(), br_clock_ns(), 0};
    bool over = false, flush, known = false;
    int status = BR_OK;
    r.senders = (unsigned)o->senders;
    r.window = (unsigned)o->window;
    r.handshake_s = o->handshake_s;
    r.max_bytes = (size_t)4 << 30;
    status = frb_receiver_listen(&r, at, &error);
    if (status == BR_OK)
        fprintf(stderr, "beamring receive: listening on port %u\n", net_port(r.server.listener));
    while (status == BR_OK) {
        struct assembly_block *block;
        over = is_over(o, &clock, &r.counts, r.counts.connections > 0 && r.open == 0, &flush);
        while (r.ready && (block = assembly_ready(&r.assembly, flush)) != NULL) {
            record(recorder, &r.assembly, block);
            assembly_done(&r.assembly, block);
            frb_receiver_retry(&r);
        }
        if (over || recorder->failed) break;
        status = frb_receiver_step(&r, 50, &error);
        if (r.complaint[0] != '\0') fprintf(stderr, "beamring receive: %s\n", r.complaint);
        r.complaint[0] = '\0';
        if (!r.ready || known) continue;
        known = true;
        save_document(o, &r.document);
        status = frb_node_stream(&r.document, &recorder->stream, keep, recorder, &error);
    }
    if (status != BR_OK) fprintf(stderr, "beamring receive: %s\n", error.text);
    print_counts(&r.counts);
    frb_receiver_free(&r);
    return status == BR_OK && !recorder->failed ? 0 : 1;
}

static int receive_chime_l0(const struct options *o, const struct net_address *at, struct recorder *recorder)
{
    static struct l0_receiver r;
    struct br_error error = {0};
    struct clock clock = {br_clock_ns(), br_clock_ns(), 0};
    bool over = false, flush;
    uint16_t *beams = keep(recorder, (size_t)o->beams * 2), *coarse = keep(recorder, (size_t)o->channels * 2);
    for (long i = 0; i < o->beams; i++) beams[i] = (uint16_t)(o->first_beam + i);
    for (long i = 0; i < o->channels; i++) coarse[i] = (uint16_t)(o->first_channel + i);
    r = (struct l0_receiver){.fd = -1,
                             .nupfreq = (unsigned)o->nupfreq,
                             .nsteps = (unsigned)o->steps,
                             .counts_per_sample = (unsigned)o->counts,
                             .frame0_ns = (uint64_t)o->epoch_ns,
                             .nbeams = (size_t)o->beams,
                             .ncoarse = (size_t)o->channels,
                             .beam_ids = beams,
                             .coarse_ids = coarse,
                             .window = (unsigned)o->window};
    int status = l0_receiver_prepare(&r, &error);
    if (status == BR_OK) status = l0_receiver_stream(&r, &recorder->stream, keep, recorder, &error);
    if (status == BR_OK && (r.fd = net_udp_receiver(at, 1 << 25, o->interface, &error)) < 0)
        status = error.status;
    if (status == BR_OK) fprintf(stderr, "beamring receive: listening on port %u\n", net_port(r.fd));
    while (status == BR_OK) {
        struct assembly_block *block;
        over = is_over(o, &clock, &r.counts, false, &flush);
        while ((block = assembly_ready(&r.assembly, flush)) != NULL) {
            record(recorder, &r.assembly, block);
            assembly_done(&r.assembly, block);
        }
        if (over || recorder->failed) break;
        status = l0_receiver_step(&r, 50, &error);
        if (r.notice[0] != '\0') fprintf(stderr, "beamring receive: %s\n", r.notice);
        r.notice[0] = '\0';
    }
    if (status != BR_OK) fprintf(stderr, "beamring receive: %s\n", error.text);
    if (r.complaint != NULL)
        fprintf(stderr, "beamring receive: the last malformed packet: %s\n", r.complaint);
    print_counts(&r.counts);
    l0_receiver_free(&r);
    return status == BR_OK && !recorder->failed ? 0 : 1;
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

static bool is_ours(const char *name)
{
    size_t digits = strncmp(name, "received_", 9) == 0 ? strspn(name + 9, "0123456789") : 0;
    return strcmp(name, "document.yaml") == 0 || (digits >= 6 && strcmp(name + 9 + digits, ".dada") == 0);
}

/* An earlier recording in the folder is kept, unless the user has said that it may go. */
static bool folder_is_free(const struct options *o)
{
    char path[4200];
    if (mkdir(o->directory, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "beamring receive: cannot make directory %s: %s\n", o->directory, strerror(errno));
        return false;
    }
    DIR *folder = opendir(o->directory);
    if (folder == NULL) {
        fprintf(stderr, "beamring receive: cannot open directory %s: %s\n", o->directory, strerror(errno));
        return false;
    }
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(folder)) != NULL;) {
        if (!is_ours(entry->d_name)) continue;
        snprintf(path, sizeof path, "%.3900s/%.255s", o->directory, entry->d_name);
        struct br_error error = {0};
        good = o->overwrite && br_output_check(path, &error) == BR_OK && unlink(path) == 0;
        if (!o->overwrite)
            fprintf(stderr,
                    "beamring receive: %s exists: an earlier recording would be lost; give another "
                    "--directory, or "
                    "--overwrite\n",
                    path);
        else if (!good && error.status != BR_OK)
            fprintf(stderr, "beamring receive: %s\n", error.text);
        else if (!good)
            fprintf(stderr, "beamring receive: cannot remove %s: %s\n", path, strerror(errno));
    }
    closedir(folder);
    return good;
}

int cmd_receive(int argc, char **argv)
{
    struct options o = {.hold_s = 2,
                        .handshake_s = 10,
                        .senders = 1,
                        .window = 16,
                        .nupfreq = 16,
                        .steps = 16,
                        .counts = 384};
    struct net_address at;
    struct br_error error = {0};
    struct recorder recorder = {.fd = -1};
    if (!read_options(argc, argv, &o)) return 2;
    bool udp = strcmp(o.format, "chime-l0") == 0;
    int status = net_resolve(&at, o.address, udp ? SOCK_DGRAM : SOCK_STREAM, &error);
    if (status != BR_OK) {
        fprintf(stderr, "beamring receive: %s\n", error.text);
        return status == BR_E_INVALID ? 2 : 1;
    }
    if (o.directory != NULL && !folder_is_free(&o)) return 2;
    recorder.directory = o.directory;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    status = udp ? receive_chime_l0(&o, &at, &recorder) : receive_frb_node(&o, &at, &recorder);
    close_file(&recorder);
    free(recorder.frame.data);
    free(recorder.frame.valid);
    free(recorder.frame.side);
    free(recorder.header);
    while (recorder.nkept > 0) free(recorder.kept[--recorder.nkept]);
    return recorder.failed ? 1 : status;
}
