/* VDIF recordings: frames of single threads, in roughly the order of their times, into
 * E[time][freq][pol][dish].
 *
 * Frames are read ahead of their turn up to a bound, so that threads that lag behind and frames that changed
 * places still find their time; what comes later than that is late. A sample is valid when every thread has
 * it. */
#include "stages/common/shape.h"
#include "stages/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DUPLICATE, LATE, CORRUPT };
enum {
    AHEAD_PER_THREAD = 64,
    WINDOW = 256 << 10,
    PAGE = 4096 /* the kernel copies fastest between equal places in a page */
};
enum { SEEN_VALID = 1, SEEN_INVALID = 2 };
#define NS_PER_S 1000000000

/* --- configure ----------------------------------------------------------------------------------- */

/* Looks at the start of every file: sorts them by time, and collects the threads. */
static int scan_files(struct br_stage *stage, struct vdif_reader *r, const struct file_list *files,
                      struct vdif_header *earliest, bool *has_thread, bool find_threads)
{
    struct vdif_header *starts = br_stage_alloc(stage, files->count * sizeof *starts);
    r->files.count = files->count;
    r->files.path = br_stage_alloc(stage, files->count * sizeof *r->files.path);
    struct vdif_scan *scan = br_stage_alloc(stage, sizeof *scan);
    for (size_t i = 0; i < files->count; i++) {
        struct br_error error = {0};
        if (vdif_scan_file(scan, files->path[i], &error) != BR_OK)
            return br_stage_fail_at(stage, "files", "%s", error.text);
        if (i == 0) r->like = scan->first;
        if (!vdif_alike(&r->like, &scan->first))
            return br_stage_fail_at(
                stage, "files",
                "the frames of %s differ from those of %s in size, channels or reference epoch; "
                "expected files of one recording",
                files->path[i], files->path[0]);
        if (scan->truncated_bytes > 0)
            br_stage_warn(
                stage,
                "%s is truncated: its last frame has %llu of %zu bytes; its whole samples are replayed",
                files->path[i], (unsigned long long)scan->truncated_bytes, scan->first.frame_bytes);
        for (size_t t = 0; find_threads && t < scan->nthreads; t++) has_thread[scan->thread[t]] = true;
        size_t at = i;
        const struct vdif_header *e = &scan->earliest;
        for (; at > 0 && (e->seconds < starts[at - 1].seconds ||
                          (e->seconds == starts[at - 1].seconds && e->number < starts[at - 1].number));
             at--) {
            starts[at] = starts[at - 1];
            r->files.path[at] = r->files.path[at - 1];
        }
        starts[at] = *e;
        r->files.path[at] = files->path[i];
    }
    *earliest = starts[0];
    return BR_OK;
}

/* Which place on the [pol][dish] axes each thread has. */
static int map_threads(struct br_stage *stage, struct vdif_reader *r, const struct br_ints *threads,
                       const bool *has_thread, size_t *npol, size_t *ndishes)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    r->element_of = br_stage_alloc(stage, VDIF_MAX_THREADS * sizeof *r->element_of);
    for (size_t i = 0; i < VDIF_MAX_THREADS; i++) r->element_of[i] = VDIF_UNKNOWN_THREAD;
    r->elements = 0;
    for (size_t i = 0; i < threads->count; i++) {
        int64_t id = threads->value[i];
        if (r->element_of[id] != VDIF_UNKNOWN_THREAD)
            return br_stage_fail_at(stage, "threads", "thread %lld is listed twice", (long long)id);
        r->element_of[id] = (uint16_t)r->elements++;
    }
    for (size_t i = 0; threads->count == 0 && i < VDIF_MAX_THREADS; i++)
        if (has_thread[i]) r->element_of[i] = (uint16_t)r->elements++;
    size_t n = r->elements;
    *npol = hints->npol > 0                                    ? hints->npol
            : telescope != NULL && n % telescope->ndishes == 0 ? n / telescope->ndishes
            : n % 2 == 0                                       ? 2
                                                               : 1;
    *ndishes = n / *npol;
    if (n % *npol != 0 || (telescope != NULL && *ndishes != telescope->ndishes)) {
        char dishes[48] = "";
        if (telescope != NULL)
            snprintf(dishes, sizeof dishes, " x %u dishes of the telescope", telescope->ndishes);
        return br_stage_fail_at(stage, threads->count > 0 ? "threads" : "files",
                                "%s has %zu threads; expected %zu polarisations%s: "
                                "the recording's shape contradicts it (see stream: npol, and threads)",
                                r->files.path[0], n, *npol, dishes);
    }
    return BR_OK;
}

/* Sample time, epoch, and which base sample the first frame is. */
static int set_times(struct br_stage *stage, struct vdif_reader *r, const struct vdif_header *earliest)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    struct br_stream *s = &r->stream;
    const char *file = r->files.path[0];
    if (hints->sample_ns.num > 0) {
        s->sample_ns = hints->sample_ns;
    } else if (r->like.rate_hz > 0) {
        char text[64];
        struct br_error error = {0};
        snprintf(text, sizeof text, "%d/%llu", NS_PER_S, (unsigned long long)r->like.rate_hz);
        if (br_rational_parse(text, &s->sample_ns, &error) != BR_OK)
            return br_stage_fail_at(stage, "files", "%s", error.text);
    } else {
        return br_stage_fail_at(
            stage, "files",
            "%s: its VDIF headers do not say the sample time; give `stream: {sample_ns: ...}`", file);
    }
    __int128_t ns_den = (__int128_t)NS_PER_S * s->sample_ns.den;
    r->frame_spread = vdif_samples(&r->like);
    r->rate = (uint64_t)(ns_den / s->sample_ns.num);
    if (ns_den % s->sample_ns.num != 0 || r->rate == 0 || r->rate % r->frame_spread != 0)
        return br_stage_fail_at(
            stage, "files",
            "%s: a sample time of %.10g ns does not make a whole number of frames of %zu "
            "samples in a second, which VDIF demands; give the right one: `stream: {sample_ns: ...}`",
            file, (double)s->sample_ns.num / (double)s->sample_ns.den, r->frame_spread);
    uint64_t in_second = (uint64_t)earliest->number * r->frame_spread;
    if (in_second >= r->rate)
        return br_stage_fail_at(
            stage, "files",
            "%s: frame number %u of %zu samples does not fit into a second of %llu samples; "
            "see `stream: {sample_ns: ...}`",
            file, earliest->number, r->frame_spread, (unsigned long long)r->rate);
    r->second0 = earliest->seconds;
    int64_t second_ns = vdif_unix_seconds(earliest) * NS_PER_S;
    r->sample_of_second0 = 0;
    s->epoch_ns = second_ns;
    if (hints->have_sample0) {
        r->sample_of_second0 = (int64_t)hints->sample0 - (int64_t)in_second;
        s->epoch_ns =
            second_ns - (int64_t)((__int128_t)r->sample_of_second0 * s->sample_ns.num / s->sample_ns.den);
        if (hints->have_epoch) s->epoch_ns = hints->epoch_ns;
    } else if (hints->have_epoch) {
        __int128_t scaled = (__int128_t)(second_ns - hints->epoch_ns) * s->sample_ns.den;
        if (scaled % s->sample_ns.num != 0 || scaled / s->sample_ns.num + (__int128_t)in_second < 0 ||
            scaled / s->sample_ns.num > (__int128_t)1 << 61)
            return br_stage_fail_at(
                stage, "files",
                "%s starts %.9f s after `stream: epoch_ns`; expected a whole number of samples, not "
                "below 0",
                file, (double)(second_ns - hints->epoch_ns) * 1e-9);
        r->sample_of_second0 = (int64_t)(scaled / s->sample_ns.num);
        s->epoch_ns = hints->epoch_ns;
    }
    r->first = (uint64_t)(r->sample_of_second0 + (int64_t)in_second);
    return BR_OK;
}

static int set_frequencies(struct br_stage *stage, struct vdif_reader *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    struct br_stream *s = &r->stream;
    size_t n = (size_t)1 << r->like.log2_channels;
    if (hints->nfreq == 0)
        return br_stage_fail_at(stage, "files",
                                "%s: VDIF does not say the frequencies of its %zu channels; give "
                                "`stream: {freq_mhz: ...}`",
                                r->files.path[0], n);
    if (hints->nfreq != n)
        return br_stage_fail_at(
            stage, "files",
            "%s has %zu channels, but `stream: freq_mhz` lists %zu: the recording's shape "
            "contradicts it",
            r->files.path[0], n, hints->nfreq);
    double *width = br_stage_alloc(stage, n * sizeof *width);
    double critical = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    for (size_t i = 0; i < n; i++) width[i] = hints->width_mhz > 0 ? hints->width_mhz : critical;
    s->nchannels = r->nchannels = n;
    s->freq_mhz = hints->freq_mhz;
    s->width_mhz = width;
    return BR_OK;
}

int vdif_reader_configure(struct br_stage *stage, struct vdif_reader *r, const struct file_list *files,
                          const struct br_ints *threads, uint64_t frame_samples, uint64_t passes,
                          double max_gap_s)
{
    struct vdif_header earliest = {0};
    bool *has_thread = br_stage_alloc(stage, VDIF_MAX_THREADS * sizeof *has_thread);
    size_t npol = 0, ndishes = 0;
    r->fd = -1;
    r->passes = passes;
    int status = scan_files(stage, r, files, &earliest, has_thread, threads->count == 0);
    if (status == BR_OK) status = map_threads(stage, r, threads, has_thread, &npol, &ndishes);
    if (status == BR_OK) status = set_times(stage, r, &earliest);
    if (status == BR_OK) status = set_frequencies(stage, r);
    if (status != BR_OK) return status;
    struct br_stream *s = &r->stream;
    s->frame_samples = frame_samples > 0 ? frame_samples : files_frame_samples(r->nchannels * r->elements);
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, r->nchannels, 1, 1, 0};
    s->scale = 1;
    s->telescope = br_stage_telescope(stage);
    r->max_gap = (uint64_t)(max_gap_s * (double)r->rate);
    size_t lengths[4] = {(size_t)s->frame_samples, r->nchannels, npol, ndishes};
    struct br_error error = {0};
    if (br_array_init(&s->array, BR_INT4X2, "time,freq,pol,dish", lengths, &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    return BR_OK;
}

/* --- reading ------------------------------------------------------------------------------------- */

int vdif_reader_start(struct br_stage *stage, struct vdif_reader *r)
{
    r->fd = -1;
    r->cursor = r->last_end = r->pass_end = r->first;
    r->ahead_room = AHEAD_PER_THREAD * r->elements;
    size_t seen = (size_t)r->stream.frame_samples * r->elements;
    r->ahead = malloc(r->ahead_room * sizeof *r->ahead);
    r->prefetch = prefetch_start(WINDOW, r->like.frame_bytes);
    r->seen = malloc(seen);
    if (r->ahead == NULL || r->prefetch == NULL || r->seen == NULL)
        return br_no_memory(stage, r->ahead_room * sizeof *r->ahead + 2 * WINDOW + seen);
    return BR_OK;
}

static void count(struct br_stage *stage, struct vdif_reader *r, int reason, uint64_t samples)
{
    static const char *const names[] = {"duplicate", "late", "corrupt"};
    r->lost[reason] += samples; /* of one thread: the balance counts samples of all */
    uint64_t whole = r->lost[reason] / r->elements;
    if (whole > 0) br_stage_count_lost(stage, names[reason], whole);
    r->lost[reason] %= r->elements;
}

void vdif_reader_stop(struct br_stage *stage, struct vdif_reader *r)
{
    if (r->bad_frames > 0)
        br_stage_warn(stage, "%llu VDIF frames had corrupt headers and were left out",
                      (unsigned long long)r->bad_frames);
    if (r->jumped > 0)
        br_stage_warn(stage,
                      "%llu VDIF frames were more than max_gap_s ahead of the others and were left out",
                      (unsigned long long)r->jumped);
    prefetch_stop(r->prefetch); /* it reads from the file */
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    free(r->ahead);
    free(r->seen);
    r->ahead = NULL;
    r->prefetch = NULL;
    r->seen = NULL;
}

/* Opens a file of the list, unless it is the open one. */
static int open_file(struct br_stage *stage, struct vdif_reader *r, size_t file)
{
    if (r->fd >= 0 && r->fd_file == file) return BR_OK;
    prefetch_forget(r->prefetch);
    if (r->fd >= 0) close(r->fd);
    struct stat info;
    r->fd = open(r->files.path[file], O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &info) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot open %s: %s", r->files.path[file], strerror(errno));
    r->fd_file = file;
    r->file_bytes = (uint64_t)info.st_size;
    return BR_OK;
}

/* `length` bytes of the open file. */
static int fetch(struct br_stage *stage, struct vdif_reader *r, uint64_t offset, size_t length,
                 const uint8_t **bytes)
{
    struct br_error error = {0};
    int status = prefetch_get(r->prefetch, r->fd, r->files.path[r->fd_file], r->file_bytes, offset, length,
                              bytes, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* Ends the current file, and with the last one the pass. */
static void next_file(struct vdif_reader *r)
{
    r->offset = 0;
    if (++r->file < r->files.count) return;
    r->file = 0;
    r->pass++;
    r->at_end = (r->passes != 0 && r->pass >= r->passes) || r->last_end == r->first;
    if (r->pass == 1) r->pass_end = r->last_end;
    r->shift = r->pass * (r->pass_end - r->first);
}

/* The next VDIF frame that makes sense. 1: here it is; 0: there is none any more, or none in this stretch of
 * the file (the caller comes back); negative: a failure. */
static int next_frame(struct br_stage *stage, struct vdif_reader *r, struct ahead *frame)
{
    const uint8_t *bytes;
    int status = open_file(stage, r, r->file);
    if (status != BR_OK) return status;
    uint64_t left = r->file_bytes - r->offset;
    size_t least = r->like.header_bytes + r->nchannels, header_bytes = VDIF_HEADER;
    if (left < least || left < header_bytes) {
        next_file(r);
        return 0;
    }
    status = fetch(stage, r, r->offset, header_bytes, &bytes);
    if (status != BR_OK) return status;
    struct vdif_header h;
    vdif_decode(&h, bytes);
    *frame = (struct ahead){
        .file = r->file, .offset = r->offset, .samples = (uint32_t)r->frame_spread, .invalid = h.invalid};
    if (left < r->like.frame_bytes) frame->samples = (uint32_t)((left - r->like.header_bytes) / r->nchannels);
    r->offset += left < r->like.frame_bytes ? left : r->like.frame_bytes;

    int64_t second = (int64_t)h.seconds - r->second0;
    uint64_t in_second = (uint64_t)h.number * r->frame_spread;
    __int128_t at = (__int128_t)second * (int64_t)r->rate + (int64_t)in_second + r->sample_of_second0;
    if (!vdif_alike(&h, &r->like) || in_second >= r->rate) {
        r->bad_frames++;
        count(stage, r, CORRUPT, frame->samples);
        return 0;
    }
    frame->element = r->element_of[h.thread];
    if (frame->element == VDIF_UNKNOWN_THREAD) return 0; /* not wanted */
    if (at < (__int128_t)r->first) {
        count(stage, r, LATE, frame->samples);
        return 0;
    }
    __int128_t limit =
        (__int128_t)(r->last_end - r->shift > r->first ? r->last_end - r->shift : r->first) + r->max_gap;
    if (at > limit) {
        r->jumped++;
        count(stage, r, CORRUPT, frame->samples);
        return 0;
    }
    frame->first = (uint64_t)at + r->shift;
    uint64_t end = frame->first + frame->samples;
    if (end > r->last_end) r->last_end = end;
    return 1;
}

/* --- placing ------------------------------------------------------------------------------------- */

/* Writes what lies in the output frame [a, b) of a VDIF frame. */
static int place(struct br_stage *stage, struct vdif_reader *r, struct br_frame *out,
                 const struct ahead *frame, uint64_t a, uint64_t b)
{
    const uint8_t *bytes;
    uint64_t from = frame->first > a ? frame->first : a, end = frame->first + frame->samples,
             to = end < b ? end : b;
    int status = open_file(stage, r, frame->file);
    size_t length = r->like.header_bytes + (size_t)frame->samples * r->nchannels;
    if (status == BR_OK) status = fetch(stage, r, frame->offset, length, &bytes);
    if (status != BR_OK) return status;
    const uint8_t *payload = bytes + r->like.header_bytes + (size_t)(from - frame->first) * r->nchannels;
    uint8_t *seen = r->seen + (size_t)r->stream.frame_samples * frame->element;
    uint64_t repeated = 0;
    for (uint64_t k = from; k < to;) {
        /* a run of samples that this thread does not have yet */
        uint64_t end_of_run = k;
        if (seen[k - a] == 0 && memcmp(seen + (k - a), seen + (k - a) + 1, (size_t)(to - k) - 1) == 0)
            end_of_run = to;
        while (end_of_run < to && seen[end_of_run - a] == 0) end_of_run++;
        if (end_of_run > k) {
            size_t n = (size_t)(end_of_run - k);
            memset(seen + (k - a), frame->invalid ? SEEN_INVALID : SEEN_VALID, n);
            vdif_unpack_element(payload + (size_t)(k - from) * r->nchannels, n, r->nchannels,
                                (uint8_t *)out->data + (size_t)(k - a) * r->nchannels * r->elements,
                                r->elements, frame->element);
        }
        for (k = end_of_run; k < to && seen[k - a] != 0; k++) repeated++;
    }
    if (repeated > 0) count(stage, r, DUPLICATE, repeated);
    return BR_OK;
}

/* Places what was read ahead; keeps what reaches beyond the output frame. */
static int place_ahead(struct br_stage *stage, struct vdif_reader *r, struct br_frame *out, uint64_t a,
                       uint64_t b)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->nahead; i++) {
        struct ahead frame = r->ahead[i];
        if (frame.first < b) {
            int status = place(stage, r, out, &frame, a, b);
            if (status != BR_OK) return status;
        }
        if (frame.first + frame.samples > b) r->ahead[kept++] = frame;
    }
    r->nahead = kept;
    return BR_OK;
}

/* Samples that some thread lacks are missing: their validity, and zeros for their data. */
static void close_frame(struct vdif_reader *r, struct br_frame *out)
{
    size_t row = r->nchannels * r->elements, samples = (size_t)out->samples;
    out->complete = true;
    out->missing = 0;
    for (size_t e = 0; e < r->elements; e++) {
        const uint8_t *seen = r->seen + (size_t)r->stream.frame_samples * e;
        if (samples == 0 || (seen[0] == SEEN_VALID && memcmp(seen, seen + 1, samples - 1) == 0)) continue;
        br_frame_open_validity(&r->stream, out);
        for (size_t k = 0; k < samples; k++) {
            if (seen[k] == SEEN_VALID) continue;
            memset(out->valid + k * r->nchannels, BR_MISSING, r->nchannels);
            memset((uint8_t *)out->data + k * row, 0, row);
        }
    }
    if (!out->complete) br_frame_close_validity(&r->stream, out);
}

int vdif_reader_fill(struct br_stage *stage, struct vdif_reader *r, struct br_frame *out)
{
    uint64_t a = r->cursor, b = recording_frame_end(&r->stream, a);
    for (size_t e = 0; e < r->elements; e++)
        memset(r->seen + (size_t)r->stream.frame_samples * e, 0, (size_t)(b - a));
    int status = place_ahead(stage, r, out, a, b);
    while (status >= 0 && !r->at_end && r->nahead < r->ahead_room && !br_stage_stopping(stage)) {
        struct ahead frame = {0};
        status = next_frame(stage, r, &frame);
        if (status <= 0) continue;
        uint64_t end = frame.first + frame.samples;
        if (frame.first < a) count(stage, r, LATE, (end < a ? end : a) - frame.first);
        if (end > a && frame.first < b) status = place(stage, r, out, &frame, a, b);
        if (end > b) r->ahead[r->nahead++] = frame;
    }
    if (status < 0) return status;
    uint64_t stop = r->at_end && r->last_end < b ? r->last_end : b;
    if (stop <= a) return BR_FINISHED;
    out->first = a;
    out->samples = stop - a;
    close_frame(r, out);
    r->cursor = stop;
    return BR_PRODUCED;
}
