/* vdif_frames.c - frames of the stream from VDIF frames: which of them go where, and the bytes. */
#include "formats/chime/planes.h"
#include "formats/common/coding.h"
#include "formats/dada/recording.h"
#include "formats/pieces/reading.h"
#include "formats/vdif/vdif_reader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 128 << 10 }; /* of the frame */
/* What two's complement differs by from offset binary, of 4 + 4 and of 8 + 8 bits. */
enum { OFFSET_BINARY = 0x88, OFFSET_BINARY_8 = 0x80 };

int vdif_reader_start(struct caller *caller, void *self)
{
    struct vdif_reader *r = self;
    size_t row = r->stream.nchannels * r->pols * r->elements * r->unit, all = r->nbands * r->elements,
           thread_row = r->nchannels * r->elements * r->unit;
    size_t slots = (size_t)((r->stream.frame_samples - 1) / r->spread + 2), room = 0;
    r->cursor = r->first;
    r->pass = r->shift = 0;
    r->far = reading_is_far(row * (size_t)r->stream.frame_samples);
    r->rows = PIECE / row > 0 ? PIECE / row : 1;
    int status = vdif_windows_start(caller, r);
    if (status != BR_OK) return status;
    for (size_t i = 0; i < r->nlanes; i++) room += r->lane[i].ahead_room;
    r->nahead = 0;
    r->ahead = malloc(room * sizeof *r->ahead);
    r->cell = malloc(slots * all * sizeof *r->cell);
    r->pool = pool_start(caller, pool_threads(caller, r->threads),
                         (size_t)r->rows * (row > thread_row ? row : thread_row));
    if (r->ahead == NULL || r->cell == NULL || r->pool == NULL)
        return caller_no_memory(caller, room * sizeof *r->ahead + slots * all * sizeof *r->cell);
    return BR_OK;
}

void vdif_count(struct caller *caller, struct vdif_reader *r, enum caller_loss reason, uint64_t samples)
{
    uint64_t all = r->nbands * r->elements;
    r->lost[reason] += samples; /* of one thread: the balance counts samples of all */
    uint64_t whole = r->lost[reason] / all;
    if (whole > 0) caller_lost(caller, reason, whole);
    r->lost[reason] %= all;
}

void vdif_reader_stop(struct caller *caller, void *self)
{
    struct vdif_reader *r = self;
    if (r->bad_frames > 0)
        caller_warn(caller, "%llu VDIF frames had corrupt headers and were left out",
                    (unsigned long long)r->bad_frames);
    if (r->jumped > 0)
        caller_warn(caller, "%llu VDIF frames were more than max_gap_s ahead of the others and were left out",
                    (unsigned long long)r->jumped);
    pool_stop(r->pool);
    vdif_windows_stop(r);
    free(r->ahead);
    free(r->cell);
    r->pool = NULL;
    r->ahead = NULL;
    r->cell = NULL;
}

/* --- placing ------------------------------------------------------------------------------------- */

static uint64_t slot_begin(const struct vdif_reader *r, uint64_t slot)
{
    return r->first + r->shift + slot * r->spread;
}

static void failed(struct vdif_reader *r, const struct br_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (r->failed == 0) r->error = *error;
    r->failed = error->status;
    pthread_mutex_unlock(&lock);
}

/* One band of samples [from, to) of a slot. Where an element lacks samples, all of the band does. */
static int place_band(struct vdif_reader *r, uint64_t begin, uint64_t from, uint64_t to, size_t band,
                      const struct vdif_cell *cell, uint8_t *room, struct br_error *error)
{
    const uint8_t *in[VDIF_MAX_THREADS];
    size_t elements = r->elements, unit = r->unit, thread_row = r->nchannels * unit, kept = r->kept,
           bytes = kept * elements * unit, row = r->nbands * bytes, step = elements * unit;
    uint8_t flip = unit == 2 ? OFFSET_BINARY_8 : OFFSET_BINARY;
    uint8_t *out = (uint8_t *)r->out->data + (size_t)(from - r->out->first) * row + band * bytes;
    uint64_t good = UINT32_MAX;
    for (size_t e = 0; e < elements; e++) {
        uint64_t samples = cell[e].invalid ? 0 : cell[e].samples;
        if (samples < good) good = samples;
    }
    uint64_t stop = begin + good < to ? begin + good : to;
    size_t n = stop > from ? (size_t)(stop - from) : 0, length = n * thread_row;
    for (size_t e = 0; e < elements && n > 0; e++) {
        in[e] =
            vdif_payload(r, &cell[e], (size_t)(from - begin) * thread_row, length, room + e * length, error);
        if (in[e] == NULL) return error->status;
    }
    if (r->nbands == 1 && kept == r->nchannels) {
        if (n > 0) planes_to_rows(in, elements, unit, n * r->nchannels, flip, out, step, unit, r->far);
    } else {
        for (size_t e = 0; e < elements && n > 0; e++) in[e] += r->skipped * unit;
        for (size_t t = 0; t < n; t++) {
            planes_to_rows(in, elements, unit, kept, flip, out + t * row, step, unit, r->far);
            for (size_t e = 0; e < elements; e++) in[e] += thread_row;
        }
    }
    for (size_t t = n; t < (size_t)(to - from); t++) {
        memset(out + t * row, 0, bytes);
        memset(r->out->valid + ((size_t)(from - r->out->first) + t) * r->stream.nchannels +
                   band * kept / r->pols,
               BR_MISSING, kept / r->pols);
    }
    return BR_OK;
}

static void place(struct vdif_reader *r, size_t piece, uint8_t *room)
{
    uint64_t from = r->begin + piece * r->rows, to = from + r->rows < r->end ? from + r->rows : r->end;
    struct br_error error = {0};
    int status = BR_OK;
    for (uint64_t slot = (from - slot_begin(r, 0)) / r->spread; status == BR_OK && slot_begin(r, slot) < to;
         slot++) {
        uint64_t begin = slot_begin(r, slot), end = begin + r->spread;
        const struct vdif_cell *cell = r->cell + (size_t)(slot - r->slot) * r->nbands * r->elements;
        for (size_t band = 0; band < r->nbands && status == BR_OK; band++)
            status = place_band(r, begin, begin > from ? begin : from, end < to ? end : to, band,
                                cell + band * r->elements, room, &error);
    }
    if (status != BR_OK) failed(r, &error);
    coding_settle();
}

void vdif_work(void *reader, size_t job, void *scratch)
{
    struct vdif_reader *r = reader;
    if (job < r->nloads)
        vdif_load(r, job);
    else
        place(r, job - r->nloads, scratch);
}

/* --- planning ------------------------------------------------------------------------------------ */

/* Gives a frame its cell, as far as it lies in [begin, end). Of two for the same one the first counts, unless
 * the other one is longer: a file may end in the middle of it. */
static void put_cell(struct caller *caller, struct vdif_reader *r, const struct vdif_seen *frame)
{
    uint64_t begin = slot_begin(r, frame->slot), from = begin > r->begin ? begin : r->begin,
             to = begin + frame->samples < r->end ? begin + frame->samples : r->end;
    if (from >= to) return;
    struct vdif_cell *cell =
        &r->cell[(size_t)(frame->slot - r->slot) * r->nbands * r->elements + frame->element];
    if (cell->samples > 0) {
        uint64_t had = begin + cell->samples, again = to < had ? to : had;
        if (again > from) vdif_count(caller, r, CALLER_DUPLICATE, again - from);
        if (frame->samples <= cell->samples) return;
    }
    *cell = (struct vdif_cell){.window = frame->window,
                               .samples = frame->samples,
                               .frame = frame->frame & INT32_MAX,
                               .invalid = frame->invalid,
                               .lane = frame->lane};
    struct vdif_lane *lane = &r->lane[frame->lane];
    if (frame->window < lane->oldest) lane->oldest = frame->window;
}

/* What was seen ahead: it goes to its cells, and stays if it reaches beyond them. */
static void put_ahead(struct caller *caller, struct vdif_reader *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->nlanes; i++) {
        r->lane[i].ahead = 0;
        r->lane[i].oldest = UINT64_MAX;
    }
    for (size_t i = 0; i < r->nahead; i++) {
        struct vdif_seen frame = r->ahead[i];
        put_cell(caller, r, &frame);
        if (slot_begin(r, frame.slot) + frame.samples <= r->end) continue;
        r->ahead[kept++] = frame;
        r->lane[frame.lane].ahead++;
    }
    r->nahead = kept;
}

/* Looks at frames of a lane until enough of them are ahead. */
static int scan_lane(struct caller *caller, struct vdif_reader *r, uint32_t index)
{
    struct vdif_lane *lane = &r->lane[index];
    while (lane->ahead < lane->ahead_room && !caller_stopping(caller)) {
        struct vdif_seen frame;
        int next = vdif_next(caller, r, index, &frame);
        if (next < 0) return next;
        if (next == VDIF_OVER) break;
        if (next == VDIF_OTHER) continue;
        uint64_t begin = slot_begin(r, frame.slot), end = begin + frame.samples;
        if (begin < r->begin) vdif_count(caller, r, CALLER_LATE, (end < r->begin ? end : r->begin) - begin);
        put_cell(caller, r, &frame);
        if (end <= r->end) continue;
        r->ahead[r->nahead++] = frame;
        lane->ahead++;
    }
    return BR_OK;
}

/* True when every element has all samples of [begin, end). */
static bool is_whole(const struct vdif_reader *r)
{
    const struct vdif_cell *cell = r->cell;
    for (uint64_t slot = r->slot; slot_begin(r, slot) < r->end; slot++)
        for (size_t e = 0; e < r->nbands * r->elements; e++, cell++)
            if (cell->invalid || (cell->samples < r->spread && slot_begin(r, slot) + cell->samples < r->end))
                return false;
    return true;
}

/* Samples of one pass from the cursor on, as far as it and the frame go. True: the pass is over. */
static int fill_from_pass(struct caller *caller, struct vdif_reader *r, uint64_t frame_end, bool *over)
{
    uint64_t origin = slot_begin(r, 0), last = origin;
    size_t all = r->nbands * r->elements;
    r->begin = r->cursor;
    r->end = frame_end;
    r->slot = (r->begin - origin) / r->spread;
    memset(r->cell, 0, (size_t)((r->end - 1 - origin) / r->spread - r->slot + 1) * all * sizeof *r->cell);
    put_ahead(caller, r);
    *over = true;
    for (uint32_t i = 0; i < r->nlanes; i++) {
        int status = scan_lane(caller, r, i);
        if (status != BR_OK) return status;
        const struct vdif_lane *lane = &r->lane[i];
        *over = *over && lane->at == lane->nfiles;
        if (lane->last_end + r->shift > last) last = lane->last_end + r->shift;
    }
    *over = *over && last <= r->end;
    if (*over) r->end = last > r->begin ? last : r->begin;
    if (!is_whole(r)) br_frame_open_validity(&r->stream, r->out);
    r->nplaces = (size_t)((r->end - r->begin + r->rows - 1) / r->rows);
    if (r->loading) {
        pool_add(r->pool, r->nplaces);
        vdif_settle(r);
    } else {
        pool_run(r->pool, r->nplaces, vdif_work, r);
    }
    if (r->failed != 0) return caller_fail(caller, r->failed, "%s", r->error.text);
    r->cursor = r->end;
    return BR_OK;
}

int vdif_reader_fill(struct caller *caller, void *self, struct br_frame *out)
{
    struct vdif_reader *r = self;
    uint64_t a = r->cursor, b = recording_frame_end(&r->stream, a);
    out->first = a;
    out->samples = b - a;
    out->complete = true;
    out->missing = 0;
    r->out = out;
    r->failed = 0;
    while (r->cursor < b && (r->passes == 0 || r->pass < r->passes)) {
        bool over = false;
        uint64_t origin = slot_begin(r, 0);
        int status = fill_from_pass(caller, r, b, &over);
        if (status != BR_OK) return status;
        if (!over) continue;
        if (r->cursor == origin) break; /* nothing of it can be played */
        r->pass++;
        r->shift = r->cursor - r->first;
        r->nahead = 0;
        vdif_rewind(r);
    }
    if (r->cursor == a) return READER_FINISHED;
    out->samples = r->cursor - a;
    if (r->cursor == b && (r->passes == 0 || r->pass < r->passes)) vdif_look_ahead(r);
    if (!out->complete) br_frame_close_validity(&r->stream, out);
    return READER_FRAME;
}
