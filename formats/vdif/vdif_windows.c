/* vdif_windows.c - the windows of VDIF files that are in memory, and the headers in them. */
#include "buffers/regular_file.h"
#include "formats/common/fileio.h"
#include "formats/vdif/vdif_reader.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    PAGE = 4096, /* the kernel copies fastest between equal places in a page */
    WINDOW = 128 << 10,
    NEAR = 8,               /* frames whose headers are on their way to the processor */
    AHEAD = 64,             /* frames of each thread that are looked at before they are due, ... */
    AHEAD_BYTES = 16 << 20, /* ... fewer if they have more bytes than this, but some: */
    LEAST_AHEAD = 4
};

/* The bits of the first four words that all frames of a recording share (vdif_alike). Frames can be small, so
 * they are compared where they stand. */
static const uint32_t shared_bits[4] = {1u << 30, 63u << 24, 0x1fffffff, 1u << 31 | 31u << 26};

static void shared_words(const struct vdif_header *like, uint32_t words[4])
{
    words[0] = (uint32_t)like->legacy << 30;
    words[1] = like->epoch << 24;
    words[2] = (uint32_t)(like->frame_bytes / 8) | like->log2_channels << 24;
    words[3] = (uint32_t)like->complex_data << 31 | (like->bits - 1) << 26;
}

/* --- start and stop ------------------------------------------------------------------------------ */

static uint64_t windows_of(const struct vdif_file *f, uint32_t window_frames)
{
    return (f->frames + window_frames - 1) / window_frames;
}

static bool start_lane(struct vdif_reader *r, struct vdif_lane *lane)
{
    size_t frame = r->like.frame_bytes, all = frame * r->nbands * r->elements;
    uint64_t bytes = ((r->stream.frame_samples + r->spread - 1) / r->spread) * lane->elements * frame,
             most = bytes / 4 < WINDOW ? bytes / 4 : WINDOW;
    uint64_t ahead = AHEAD_BYTES / all < AHEAD ? AHEAD_BYTES / all : AHEAD;
    lane->ahead_room = (ahead > LEAST_AHEAD ? ahead : LEAST_AHEAD) * lane->elements;
    lane->window_frames = most > frame ? (uint32_t)(most / frame) : 1;
    lane->windows = 0;
    for (size_t i = 0; i < lane->nfiles; i++) {
        struct vdif_file *f = &r->file[lane->file[i]];
        f->window = lane->windows;
        lane->windows += windows_of(f, lane->window_frames);
    }
    size_t window = lane->window_frames * frame, room = (window + PAGE - 1) / PAGE * PAGE + PAGE;
    uint64_t need = bytes / window + 2, depth = 2 * need + lane->ahead_room * frame / window + 2;
    if (depth > lane->windows) depth = lane->windows > 0 ? lane->windows : 1;
    lane->need = (uint32_t)(need < depth ? need : depth);
    lane->depth = (uint32_t)depth;
    lane->memory = aligned_alloc(PAGE, lane->depth * room);
    lane->window = malloc(lane->depth * sizeof *lane->window);
    if (lane->memory == NULL || lane->window == NULL) return false;
    for (uint32_t i = 0; i < lane->depth; i++)
        lane->window[i] = (struct vdif_window){.number = UINT64_MAX, .room = lane->memory + i * room};
    return true;
}

int vdif_windows_start(struct caller *caller, struct vdif_reader *r)
{
    for (size_t i = 0; i < r->nlanes; i++) {
        r->lane[i].fd = -1;
        r->lane[i].memory = NULL;
        r->lane[i].window = NULL;
    }
    r->loads_room = 0;
    for (size_t i = 0; i < r->nlanes; i++) {
        if (!start_lane(r, &r->lane[i])) return caller_no_memory(caller, r->lane[i].depth * (size_t)WINDOW);
        r->loads_room += r->lane[i].depth;
    }
    r->load = malloc((r->loads_room > 0 ? r->loads_room : 1) * sizeof *r->load);
    if (r->load == NULL) return caller_no_memory(caller, r->loads_room * sizeof *r->load);
    shared_words(&r->like, r->shared);
    vdif_rewind(r);
    return BR_OK;
}

void vdif_windows_stop(struct vdif_reader *r)
{
    for (size_t i = 0; i < r->nlanes; i++) {
        struct vdif_lane *lane = &r->lane[i];
        if (lane->fd >= 0) close(lane->fd);
        free(lane->memory);
        free(lane->window);
        lane->fd = -1;
        lane->memory = NULL;
        lane->window = NULL;
    }
    free(r->load);
    r->load = NULL;
}

void vdif_rewind(struct vdif_reader *r)
{
    for (size_t i = 0; i < r->nlanes; i++) {
        struct vdif_lane *lane = &r->lane[i];
        lane->at = 0;
        lane->frame = 0;
        lane->here = 0;
        lane->in_window = 0;
        while (lane->at < lane->nfiles && r->file[lane->file[lane->at]].frames == 0) lane->at++;
        lane->asked = lane->ready = 0;
        lane->ahead = 0;
        lane->oldest = UINT64_MAX;
        lane->last_end = lane->begin;
    }
}

/* --- reading ------------------------------------------------------------------------------------- */

/* The file that has a window: files without any window never match. */
static struct vdif_file *file_of(const struct vdif_reader *r, const struct vdif_lane *lane, uint64_t window)
{
    size_t low = 0, high = lane->nfiles;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (r->file[lane->file[middle]].window <= window)
            low = middle;
        else
            high = middle;
    }
    return &r->file[lane->file[low]];
}

static int read_at(const struct vdif_reader *r, const struct vdif_lane *lane, const struct vdif_file *f,
                   uint8_t *bytes, size_t length, uint64_t offset, struct br_error *error)
{
    bool is_open = lane->fd >= 0 && &r->file[lane->fd_file] == f;
    int fd = is_open ? lane->fd : br_open_regular(f->path, 0, NULL, error);
    if (fd < 0) return BR_E_IO;
    int status = fileio_read_all(fd, f->path, bytes, length, offset, error);
    if (!is_open) close(fd);
    return status;
}

void vdif_load(struct vdif_reader *r, size_t load)
{
    struct vdif_lane *lane = &r->lane[r->load[load].lane];
    uint64_t number = r->load[load].window;
    struct vdif_window *w = &lane->window[number % lane->depth];
    const struct vdif_file *f = file_of(r, lane, number);
    uint64_t step = (uint64_t)lane->window_frames * r->like.frame_bytes, offset = (number - f->window) * step,
             left = f->bytes - offset;
    w->number = number;
    w->bytes = w->room + offset % PAGE;
    w->error = (struct br_error){0};
    w->status = read_at(r, lane, f, w->bytes, (size_t)(left < step ? left : step), offset, &w->error);
}

const uint8_t *vdif_payload(struct vdif_reader *r, const struct vdif_cell *cell, size_t from, size_t length,
                            uint8_t *room, struct br_error *error)
{
    const struct vdif_lane *lane = &r->lane[cell->lane];
    const struct vdif_window *w = &lane->window[cell->window % lane->depth];
    uint64_t at = (uint64_t)cell->frame * r->like.frame_bytes + r->like.header_bytes + from;
    if (w->number == cell->window && w->status == BR_OK) return w->bytes + at;
    const struct vdif_file *f = file_of(r, lane, cell->window);
    at += (cell->window - f->window) * lane->window_frames * r->like.frame_bytes;
    return read_at(r, lane, f, room, length, at, error) == BR_OK ? room : NULL;
}

/* Keeps the file open from which most windows will be read. Where that fails, reading says so. */
static void hold_open(struct vdif_reader *r, struct vdif_lane *lane, const struct vdif_file *f)
{
    size_t file = (size_t)(f - r->file);
    if (lane->fd >= 0 && lane->fd_file == file) return;
    if (lane->fd >= 0) close(lane->fd);
    lane->fd = br_open_regular(f->path, 0, NULL, NULL);
    lane->fd_file = file;
}

/* Lists windows of a lane: from where it stands on, as many as `frames` of the stream take and as do not push
 * out what is still needed. */
static void list_windows(struct vdif_reader *r, uint32_t index, uint64_t frames)
{
    struct vdif_lane *lane = &r->lane[index];
    if (lane->at == lane->nfiles) return;
    uint64_t here = lane->here, end = here + frames * lane->need;
    if (lane->oldest != UINT64_MAX && end > lane->oldest + lane->depth) end = lane->oldest + lane->depth;
    if (end > lane->windows) end = lane->windows;
    uint64_t from = lane->asked > here ? lane->asked : here;
    lane->ready = from;
    if (from < end) hold_open(r, lane, file_of(r, lane, from));
    for (uint64_t n = from; n < end; n++) {
        if (lane->window[n % lane->depth].number != n)
            r->load[r->nloads++] = (struct vdif_load){.lane = index, .window = n};
        lane->asked = n + 1;
    }
}

static void load_job(void *arg, size_t job, void *scratch)
{
    (void)scratch;
    vdif_load(arg, job);
}

void vdif_look_ahead(struct vdif_reader *r)
{
    for (uint32_t i = 0; i < r->nlanes; i++) r->lane[i].oldest = UINT64_MAX;
    for (size_t i = 0; i < r->nahead; i++) {
        struct vdif_lane *lane = &r->lane[r->ahead[i].lane];
        if (r->ahead[i].window < lane->oldest) lane->oldest = r->ahead[i].window;
    }
    r->nloads = 0;
    for (uint32_t i = 0; i < r->nlanes; i++) list_windows(r, i, 2);
    if (r->nloads == 0) return;
    pool_begin(r->pool, r->nloads, vdif_work, r);
    r->loading = true;
}

void vdif_settle(struct vdif_reader *r)
{
    if (r->loading) pool_end(r->pool);
    r->loading = false;
    r->nloads = 0;
}

/* The window has to be there now. */
static void load_now(struct vdif_reader *r, uint32_t index, uint64_t number)
{
    struct vdif_lane *lane = &r->lane[index];
    vdif_settle(r);
    lane->asked = number;
    list_windows(r, index, 1);
    if (r->nloads == 0 ||
        r->load[0].window !=
            number) { /* the frames kept for later need all the others, which are read again then */
        r->load[r->nloads++] = (struct vdif_load){.lane = index, .window = number};
        lane->asked = number + 1;
    }
    pool_run(r->pool, r->nloads, load_job, r);
    r->nloads = 0;
}

/* --- headers ------------------------------------------------------------------------------------- */

/* Moves on by a frame, or to the next file. */
static void advance(struct vdif_reader *r, struct vdif_lane *lane, const struct vdif_file *f)
{
    lane->frame++;
    if (++lane->in_window == lane->window_frames) {
        lane->in_window = 0;
        lane->here++;
    }
    while (lane->frame >= f->frames) {
        lane->frame = lane->in_window = 0;
        if (++lane->at == lane->nfiles) break;
        f = &r->file[lane->file[lane->at]];
        lane->here = f->window;
    }
}

static int lose(struct caller *caller, struct vdif_reader *r, enum caller_loss reason, uint32_t samples)
{
    vdif_count(caller, r, reason, samples);
    return VDIF_OTHER;
}

int vdif_next(struct caller *caller, struct vdif_reader *r, uint32_t index, struct vdif_seen *frame)
{
    struct vdif_lane *lane = &r->lane[index];
    if (lane->at == lane->nfiles) return VDIF_OVER;
    const struct vdif_file *f = &r->file[lane->file[lane->at]];
    struct vdif_window *w = lane->now;
    if (lane->in_window == 0) {
        w = &lane->window[lane->here % lane->depth];
        if (lane->here >= lane->ready) vdif_settle(r);
        if (w->number != lane->here) load_now(r, index, lane->here);
    }
    if (w->status != BR_OK) return caller_fail(caller, w->status, "%s", w->error.text);
    lane->now = w;
    const uint8_t *bytes = w->bytes + (size_t)lane->in_window * r->like.frame_bytes;
    if (lane->in_window + NEAR < lane->window_frames) __builtin_prefetch(bytes + NEAR * r->like.frame_bytes);
    uint32_t head[4], different = 0, samples = lane->frame + 1 < f->frames ? (uint32_t)r->spread : f->tail;
    for (unsigned i = 0; i < 4; i++) {
        head[i] = vdif_word(bytes, i);
        different |= (head[i] ^ r->shared[i]) & shared_bits[i];
    }
    *frame = (struct vdif_seen){.window = lane->here,
                                .frame = lane->in_window,
                                .samples = samples,
                                .lane = index,
                                .invalid = head[0] >> 31};
    uint32_t number = head[1] & 0xffffff;
    uint16_t element = r->element_of[head[3] >> 16 & 1023];
    uint64_t band = f->band * r->elements;
    advance(r, lane, f);
    if (different != 0 || number >= r->second_frames) {
        r->bad_frames++;
        return lose(caller, r, CALLER_CORRUPT, samples);
    }
    if (element == VDIF_UNKNOWN_THREAD) return VDIF_OTHER; /* not wanted */
    __int128_t slot = (__int128_t)((int64_t)(head[0] & 0x3fffffff) - r->second0) * r->second_frames +
                      (int64_t)number - r->number0;
    if (slot < 0) return lose(caller, r, CALLER_LATE, samples);
    __int128_t at = slot * (int64_t)r->spread + r->first;
    if (at > (__int128_t)lane->last_end + r->max_gap) {
        r->jumped++;
        return lose(caller, r, CALLER_CORRUPT, samples);
    }
    frame->slot = (uint64_t)slot;
    frame->element = (uint32_t)(band + element);
    if ((uint64_t)at + samples > lane->last_end) lane->last_end = (uint64_t)at + samples;
    return VDIF_FRAME;
}
