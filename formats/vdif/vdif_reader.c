/* vdif_reader.c - what VDIF files hold: their order, threads, bands, times and frequencies. */
#include "formats/vdif/vdif_reader.h"

#include "formats/common/hints.h"
#include "formats/pieces/reading.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NS_PER_S 1000000000

/* A file as it was found. */
struct found {
    const char *path;
    uint64_t bytes;
    struct vdif_header earliest;
    struct vdif_threads threads;
};

static bool has(const struct vdif_threads *threads, size_t i)
{
    return (threads->bit[i / 64] >> i % 64 & 1) != 0;
}

static bool have_common(const struct vdif_threads *a, const struct vdif_threads *b)
{
    for (size_t i = 0; i < VDIF_MAX_THREADS / 64; i++)
        if ((a->bit[i] & b->bit[i]) != 0) return true;
    return false;
}

static int by_time(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    const struct vdif_header *s = &x->earliest, *t = &y->earliest;
    if (s->seconds != t->seconds) return s->seconds < t->seconds ? -1 : 1;
    if (s->number != t->number) return s->number < t->number ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Looks at the start of every file. */
static int scan_files(struct caller *caller, struct vdif_reader *r, const struct file_list *files,
                      struct found *found)
{
    struct vdif_scan *scan = caller_alloc(caller, sizeof *scan);
    for (size_t i = 0; i < files->count; i++) {
        struct br_error error = {0};
        struct stat info;
        const char *path = files->path[i];
        if (vdif_scan_file(scan, path, &error) != BR_OK) return caller_refuse(caller, "%s", error.text);
        if (i == 0) r->like = scan->first;
        if (!vdif_alike(&r->like, &scan->first))
            return caller_refuse(
                caller,
                "the frames of %s differ from those of %s in size, channels or reference epoch; "
                "expected files of one recording",
                path, files->path[0]);
        if (scan->truncated_bytes > 0)
            caller_warn(
                caller,
                "%s is truncated: its last frame has %llu of %zu bytes; its whole samples are replayed", path,
                (unsigned long long)scan->truncated_bytes, scan->first.frame_bytes);
        if (stat(path, &info) != 0) return caller_refuse(caller, "%s: it is gone", path);
        found[i] = (struct found){.path = path, .bytes = (uint64_t)info.st_size, .earliest = scan->earliest};
        for (size_t t = 0; t < scan->nthreads; t++)
            found[i].threads.bit[scan->thread[t] / 64] |= UINT64_C(1) << scan->thread[t] % 64;
    }
    qsort(found, files->count, sizeof *found, by_time);
    return BR_OK;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Which band each file holds, and how many there are: as the user's patterns say, else threads do. */
static int find_bands(struct caller *caller, struct vdif_reader *r, const struct vdif_options *vdif)
{
    const struct br_stream_hints *hints = caller->hints;
    size_t n = (size_t)1 << r->like.log2_channels;
    if (hints->nfreq == 0)
        return caller_refuse(caller,
                             "%s: VDIF does not say the frequencies of its %zu channels; give "
                             "`stream: {freq_mhz: ...}`",
                             r->file[0].path, n);
    r->nchannels = n;
    r->pols = hints->nfreq == 1 && n > 1 && hints->npol == n && vdif->bands.count == 0 ? n : 1; /* as MWA's */
    if (r->pols > 1) return r->nbands = 1, BR_OK;
    r->nbands = vdif->bands.count > 0 ? vdif->bands.count : hints->nfreq / n;
    if (hints->nfreq % n != 0 || r->nbands != hints->nfreq / n)
        return caller_refuse(
            caller,
            "%s has %zu channels%s, but `stream: freq_mhz` lists %zu: the recording's shape "
            "contradicts it%s",
            r->file[0].path, n, vdif->bands.count > 1 ? " in each of the bands" : "", hints->nfreq,
            hints->nfreq == 1 ? "; if its channels are polarisations: `stream: {npol: ...}`" : "");
    if (r->nbands > UINT16_MAX)
        return caller_refuse(caller, "%s: %zu bands; expected at most %d", r->file[0].path, r->nbands,
                             UINT16_MAX);
    bool *used = caller_alloc(caller, (vdif->bands.count + 1) * sizeof *used);
    for (size_t i = 0; i < r->nfiles && vdif->bands.count > 0; i++) {
        const char *path = r->file[i].path;
        size_t band = 0;
        while (band < vdif->bands.count && fnmatch(vdif->bands.value[band], path, 0) != 0 &&
               fnmatch(vdif->bands.value[band], name_of(path), 0) != 0)
            band++;
        if (band == vdif->bands.count)
            return caller_fail_at(caller, "bands",
                                  "%s matches none of the patterns; expected one for each file", path);
        r->file[i].band = (uint16_t)band;
        used[band] = true;
    }
    for (size_t i = 0; i < vdif->bands.count; i++)
        if (!used[i])
            return caller_fail_at(
                caller, "bands",
                "no file of `files` is of the band '%s': a file is of the first one that matches",
                vdif->bands.value[i]);
    return BR_OK;
}

/* Which place on the axes each thread has: [pol][dish], or [band][pol][dish] where files have no bands. */
static int map_threads(struct caller *caller, struct vdif_reader *r, const struct read_options *options,
                       const struct vdif_threads *all, size_t *npol, size_t *ndishes)
{
    const struct br_stream_hints *hints = caller->hints;
    const struct br_telescope *telescope = caller->telescope;
    const struct vdif_options *vdif = options->vdif;
    const char *param = vdif->threads.count > 0 ? "threads" : "files";
    size_t found = 0;
    r->element_of = caller_alloc(caller, VDIF_MAX_THREADS * sizeof *r->element_of);
    for (size_t i = 0; i < VDIF_MAX_THREADS; i++) r->element_of[i] = VDIF_UNKNOWN_THREAD;
    for (size_t i = 0; i < vdif->threads.count; i++) {
        int64_t id = vdif->threads.value[i];
        if (r->element_of[id] != VDIF_UNKNOWN_THREAD)
            return caller_fail_at(caller, "threads", "thread %lld is listed twice", (long long)id);
        r->element_of[id] = (uint16_t)found++;
    }
    for (size_t i = 0; vdif->threads.count == 0 && i < VDIF_MAX_THREADS; i++)
        if (has(all, i)) r->element_of[i] = (uint16_t)found++;
    size_t bands = vdif->bands.count > 0 ? 1 : r->nbands, n = found / bands;
    if (n == 0 || found % bands != 0)
        return caller_fail_at(caller, param,
                              "%s has %zu threads of %zu channels; `stream: freq_mhz` lists %zu bands of as "
                              "many: expected as many threads for each",
                              r->file[0].path, found, r->nchannels, bands);
    if (r->pols > 1) n *= r->pols;
    *npol = hints->npol > 0                                    ? hints->npol
            : telescope != NULL && n % telescope->ndishes == 0 ? n / telescope->ndishes
            : n % 2 == 0                                       ? 2
                                                               : 1;
    *ndishes = n / *npol;
    r->elements = n / r->pols;
    if (n % *npol != 0 || (telescope != NULL && *ndishes != telescope->ndishes)) {
        char dishes[48] = "", of_band[48] = "";
        if (telescope != NULL)
            snprintf(dishes, sizeof dishes, " x %u dishes of the telescope", telescope->ndishes);
        if (bands > 1) snprintf(of_band, sizeof of_band, " for each of %zu bands", bands);
        return caller_fail_at(caller, param,
                              "%s has %zu threads%s; expected %zu polarisations%s: "
                              "the recording's shape contradicts it (see stream: npol, and threads)",
                              r->file[0].path, n, of_band, *npol, dishes);
    }
    return BR_OK;
}

/* Sample time, epoch, and which base sample the first frame is. */
static int set_times(struct caller *caller, struct vdif_reader *r, const struct vdif_header *earliest)
{
    const struct br_stream_hints *hints = caller->hints;
    struct br_stream *s = &r->stream;
    const char *file = r->file[0].path;
    struct br_error error = {0};
    if (r->like.rate_hz > 0) {
        char text[64];
        snprintf(text, sizeof text, "%d/%llu", NS_PER_S, (unsigned long long)r->like.rate_hz);
        if (br_rational_parse(text, &s->sample_ns, &error) != BR_OK ||
            hints_sample(hints, file, "its sample rate", &s->sample_ns, 0, &error) != BR_OK)
            return caller_refuse(caller, "%s", error.text);
    } else if (hints->sample_ns.num > 0) {
        s->sample_ns = hints->sample_ns;
    } else {
        return caller_refuse(
            caller, "%s: its VDIF headers do not say the sample time; give `stream: {sample_ns: ...}`", file);
    }
    __int128_t ns_den = (__int128_t)NS_PER_S * s->sample_ns.den;
    r->spread = vdif_samples(&r->like);
    r->rate = (uint64_t)(ns_den / s->sample_ns.num);
    if (ns_den % s->sample_ns.num != 0 || r->rate == 0 || r->rate % r->spread != 0)
        return caller_refuse(
            caller,
            "%s: a sample time of %.10g ns does not make a whole number of frames of %zu "
            "samples in a second, which VDIF demands; give the right one: `stream: {sample_ns: ...}`",
            file, (double)s->sample_ns.num / (double)s->sample_ns.den, r->spread);
    uint64_t in_second = (uint64_t)earliest->number * r->spread;
    if (in_second >= r->rate)
        return caller_refuse(caller,
                             "%s: frame number %u of %zu samples does not fit into a second of %llu samples; "
                             "see `stream: {sample_ns: ...}`",
                             file, earliest->number, r->spread, (unsigned long long)r->rate);
    r->second0 = earliest->seconds;
    r->number0 = earliest->number;
    r->second_frames = (int64_t)(r->rate / r->spread);
    int64_t second_ns = vdif_unix_seconds(earliest) * NS_PER_S;
    r->sample_of_second0 = 0;
    s->epoch_ns = second_ns;
    if (hints->have_sample0) {
        r->sample_of_second0 = (int64_t)hints->sample0 - (int64_t)in_second;
        s->epoch_ns =
            second_ns - (int64_t)((__int128_t)r->sample_of_second0 * s->sample_ns.num / s->sample_ns.den);
        if (hints_epoch(hints, file, "the time of its first frame with `stream: sample0`", &s->epoch_ns, 1,
                        &error) != BR_OK)
            return caller_refuse(caller, "%s", error.text);
    } else if (hints->have_epoch) {
        __int128_t scaled = (__int128_t)(second_ns - hints->epoch_ns) * s->sample_ns.den;
        if (scaled % s->sample_ns.num != 0 || scaled / s->sample_ns.num + (__int128_t)in_second < 0 ||
            scaled / s->sample_ns.num > (__int128_t)1 << 61)
            return caller_refuse(
                caller,
                "%s starts %.9f s after `stream: epoch_ns`; expected a whole number of samples, not "
                "below 0",
                file, (double)(second_ns - hints->epoch_ns) * 1e-9);
        r->sample_of_second0 = (int64_t)(scaled / s->sample_ns.num);
        s->epoch_ns = hints->epoch_ns;
    }
    r->first = (uint64_t)(r->sample_of_second0 + (int64_t)in_second);
    return BR_OK;
}

static void set_frequencies(struct caller *caller, struct vdif_reader *r)
{
    const struct br_stream_hints *hints = caller->hints;
    struct br_stream *s = &r->stream;
    size_t n = hints->nfreq;
    double *width = caller_alloc(caller, n * sizeof *width);
    double critical = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    for (size_t i = 0; i < n; i++) width[i] = hints->width_mhz > 0 ? hints->width_mhz : critical;
    s->nchannels = n;
    s->freq_mhz = hints->freq_mhz;
    s->width_mhz = width;
}

/* --- a part -------------------------------------------------------------------------------------- */

/* Leaves the bands [begin, end): their threads, and the files that have some of these. */
static void take_bands(struct vdif_reader *r, struct found *found, bool of_files, size_t begin, size_t end)
{
    struct vdif_threads wanted = {0};
    size_t kept = 0;
    for (size_t i = 0; i < VDIF_MAX_THREADS && !of_files; i++) {
        size_t band = r->element_of[i] / r->elements;
        if (r->element_of[i] == VDIF_UNKNOWN_THREAD) continue;
        bool mine = band >= begin && band < end;
        r->element_of[i] = mine ? (uint16_t)(r->element_of[i] - begin * r->elements) : VDIF_UNKNOWN_THREAD;
        if (mine) wanted.bit[i / 64] |= UINT64_C(1) << i % 64;
    }
    for (size_t i = 0; i < r->nfiles; i++) {
        bool mine = of_files ? r->file[i].band >= begin && r->file[i].band < end
                             : have_common(&wanted, &found[i].threads);
        if (!mine) continue;
        r->file[kept] = r->file[i];
        r->file[kept].band = of_files ? (uint16_t)(r->file[i].band - begin) : 0;
        found[kept++] = found[i];
    }
    /* threads that `threads:` lists and no file has at its start may still come */
    if (kept > 0) r->nfiles = kept;
    r->nbands = end - begin;
    r->stream.nchannels = r->nbands * r->nchannels;
    r->stream.freq_mhz += begin * r->nchannels;
    r->stream.width_mhz += begin * r->nchannels;
}

static int take_part(struct caller *caller, struct vdif_reader *r, const struct read_options *options,
                     struct found *found)
{
    struct share mine = {0};
    r->kept = r->nchannels;
    if (options->part.count == 1) return BR_OK;
    int status =
        part_divide(caller, &options->part, r->file[0].path, r->nbands, r->nchannels / r->pols, &mine);
    if (status != BR_OK) return status;
    if (mine.of_channels) {
        r->skipped = mine.begin;
        r->kept = mine.end - mine.begin;
        r->stream.nchannels = r->kept;
        r->stream.freq_mhz += mine.begin;
        r->stream.width_mhz += mine.begin;
        return BR_OK;
    }
    /* A pass ends with the part's own last frame. */
    if (r->passes != 1)
        return caller_fail_at(caller, "loop",
                              "bands of VDIF may end at different times, so ranks would lose step; expected "
                              "loop: 1 with `part`");
    take_bands(r, found, options->vdif->bands.count > 0, mine.begin, mine.end);
    return BR_OK;
}

/* --- lanes --------------------------------------------------------------------------------------- */

struct lane_plan {
    uint16_t band;
    bool gone; /* joined with another one */
    struct vdif_threads threads;
};

/* Files of one band that share threads follow each other: file.lane. Returns the number of plans, some of
 * which are gone. */
static size_t plan_lanes(struct vdif_reader *r, const struct found *found, struct lane_plan *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < r->nfiles; i++) {
        size_t mine = n;
        for (size_t k = 0; k < n; k++) {
            if (plan[k].gone || plan[k].band != r->file[i].band ||
                !have_common(&plan[k].threads, &found[i].threads))
                continue;
            if (mine == n) {
                mine = k;
                continue;
            }
            plan[k].gone = true; /* this file joins the two */
            for (size_t w = 0; w < VDIF_MAX_THREADS / 64; w++)
                plan[mine].threads.bit[w] |= plan[k].threads.bit[w];
            for (size_t f = 0; f < i; f++)
                if (r->file[f].lane == k) r->file[f].lane = (uint32_t)mine;
        }
        if (mine == n) plan[n++] = (struct lane_plan){.band = r->file[i].band};
        for (size_t w = 0; w < VDIF_MAX_THREADS / 64; w++)
            plan[mine].threads.bit[w] |= found[i].threads.bit[w];
        r->file[i].lane = (uint32_t)mine;
    }
    return n;
}

/* Base sample, of the recording's own counter, of a frame that makes sense. */
static uint64_t sample_of(const struct vdif_reader *r, const struct vdif_header *h)
{
    __int128_t at = (__int128_t)((int64_t)h->seconds - r->second0) * (int64_t)r->rate +
                    (int64_t)(h->number * r->spread) + r->sample_of_second0;
    return at > (__int128_t)r->first ? (uint64_t)at : r->first;
}

static int make_lanes(struct caller *caller, struct vdif_reader *r, const struct found *found,
                      struct lane_plan *plan)
{
    size_t n = plan_lanes(r, found, plan);
    r->lane = caller_alloc(caller, n * sizeof *r->lane);
    for (size_t k = 0; k < n; k++) {
        if (plan[k].gone) continue;
        struct vdif_lane *lane = &r->lane[r->nlanes];
        for (size_t i = 0; i < r->nfiles; i++) lane->nfiles += r->file[i].lane == k;
        lane->file = caller_alloc(caller, lane->nfiles * sizeof *lane->file);
        size_t used = 0;
        for (size_t i = 0; i < r->nfiles; i++)
            if (r->file[i].lane == k) lane->file[used++] = i;
        lane->begin = sample_of(r, &found[lane->file[0]].earliest);
        for (size_t i = 0; i < VDIF_MAX_THREADS; i++)
            lane->elements += has(&plan[k].threads, i) && r->element_of[i] != VDIF_UNKNOWN_THREAD;
        if (lane->elements == 0) lane->elements = 1; /* a thread may come later */
        if (lane->begin - r->first > r->max_gap)
            return caller_refuse(
                caller,
                "%s starts %.6g s after the first of the files; expected a gap of at most max_gap_s = "
                "%g s: replay them separately, or raise max_gap_s",
                r->file[lane->file[0]].path, (double)(lane->begin - r->first) / (double)r->rate,
                (double)r->max_gap / (double)r->rate);
        r->nlanes++;
    }
    return BR_OK;
}

static int describe_all(struct caller *caller, struct vdif_reader *r, const struct file_list *files,
                        const struct read_options *options, struct found *found, struct lane_plan *plan)
{
    struct vdif_threads all = {0};
    size_t npol = 0, ndishes = 0;
    int status = scan_files(caller, r, files, found);
    if (status != BR_OK) return status;
    r->unit = r->like.bits / 4;
    r->nfiles = files->count;
    r->file = caller_alloc(caller, r->nfiles * sizeof *r->file);
    for (size_t i = 0; i < r->nfiles; i++) {
        uint64_t rest = found[i].bytes % r->like.frame_bytes, frames = found[i].bytes / r->like.frame_bytes;
        size_t least = r->like.header_bytes + vdif_row_bytes(&r->like);
        r->file[i] = (struct vdif_file){.path = found[i].path,
                                        .bytes = found[i].bytes,
                                        .frames = frames + (rest >= least && rest >= VDIF_HEADER),
                                        .tail = (uint32_t)vdif_samples(&r->like)};
        if (r->file[i].frames > frames)
            r->file[i].tail = (uint32_t)((rest - r->like.header_bytes) / vdif_row_bytes(&r->like));
        for (size_t w = 0; w < VDIF_MAX_THREADS / 64; w++) all.bit[w] |= found[i].threads.bit[w];
    }
    status = find_bands(caller, r, options->vdif);
    if (status == BR_OK) status = map_threads(caller, r, options, &all, &npol, &ndishes);
    if (status == BR_OK) status = set_times(caller, r, &found[0].earliest);
    if (status != BR_OK) return status;
    set_frequencies(caller, r);
    size_t all_channels = r->stream.nchannels;
    status = take_part(caller, r, options, found);
    if (status != BR_OK) return status;
    r->max_gap = (uint64_t)(options->max_gap_s * (double)r->rate);
    status = make_lanes(caller, r, found, plan);
    if (status != BR_OK) return status;
    struct br_stream *s = &r->stream;
    s->frame_samples =
        options->frame_samples > 0
            ? options->frame_samples
            : reading_frame_samples(part_most_channels(&options->part, all_channels) * r->elements * r->unit);
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, s->nchannels, 1, 1, 0};
    s->scale = 1;
    s->telescope = caller->telescope;
    size_t lengths[4] = {(size_t)s->frame_samples, s->nchannels, npol, ndishes};
    struct br_error error = {0};
    if (br_array_init(&s->array, r->unit == 2 ? BR_INT8X2 : BR_INT4X2, "time,freq,pol,dish", lengths,
                      &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    return BR_OK;
}

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct vdif_reader *r = self;
    const char *coding = options->coding != NULL ? options->coding : caller->hints->coding;
    if (coding != NULL && strcmp(coding, "vdif") != 0)
        return caller_fail_at(caller, "coding", "%s; VDIF files have the coding vdif", coding);
    description->stream = &r->stream;
    description->time_from = "by the seconds in its frames' headers";
    struct found *found = calloc(files->count, sizeof *found);
    struct lane_plan *plan = calloc(files->count, sizeof *plan);
    r->passes = options->passes;
    r->threads = options->readers;
    int status = found != NULL && plan != NULL ? describe_all(caller, r, files, options, found, plan)
                                               : caller_no_memory(caller, files->count * sizeof *found);
    free(found);
    free(plan);
    return status;
}

static const struct reader reader = {.size = sizeof(struct vdif_reader),
                                     .takes = READER_PARTS,
                                     .describe = describe,
                                     .start = vdif_reader_start,
                                     .fill = vdif_reader_fill,
                                     .stop = vdif_reader_stop};
const struct format format_vdif = {
    .name = "vdif", .probe_file = vdif_probe_file, .info = vdif_info, .reader = &reader};
