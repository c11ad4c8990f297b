#include "formats/vdif/vdif.h"
#include "buffers/regular_file.h"
#include "formats/common/fileio.h"
#include "formats/common/order.h"
#include "formats/common/sample_clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAME = 32 << 20, MAX_LOG2_CHANNELS = 20, FAR_S = 60 };

static unsigned field(uint32_t value, unsigned low, unsigned width)
{
    return value >> low & ((1u << width) - 1);
}

void vdif_decode(struct vdif_header *header, const void *bytes)
{
    uint32_t w[5];
    for (unsigned i = 0; i < 5; i++) w[i] = vdif_word(bytes, i);
    *header = (struct vdif_header){
        .invalid = w[0] >> 31,
        .legacy = field(w[0], 30, 1),
        .seconds = field(w[0], 0, 30),
        .number = field(w[1], 0, 24),
        .epoch = field(w[1], 24, 6),
        .frame_bytes = (size_t)field(w[2], 0, 24) * 8,
        .log2_channels = field(w[2], 24, 5),
        .version = field(w[2], 29, 3),
        .station = field(w[3], 0, 16),
        .thread = field(w[3], 16, 10),
        .bits = field(w[3], 26, 5) + 1,
        .complex_data = w[3] >> 31,
    };
    header->header_bytes = header->legacy ? 16 : VDIF_HEADER;
    if (header->legacy) return;
    header->edv = w[4] >> 24;
    if (header->edv == 1 || header->edv == 3) /* EDV 1 and 3: rate in kHz, or in MHz when bit 23 is set */
        header->rate_hz = (uint64_t)field(w[4], 0, 23) * (field(w[4], 23, 1) ? 1000000 : 1000);
}

bool vdif_alike(const struct vdif_header *a, const struct vdif_header *b)
{
    return a->frame_bytes == b->frame_bytes && a->header_bytes == b->header_bytes &&
           a->log2_channels == b->log2_channels && a->bits == b->bits && a->complex_data == b->complex_data &&
           a->epoch == b->epoch;
}

int vdif_check(const struct vdif_header *h, const char *file, uint64_t offset, uint64_t room,
               struct br_error *error)
{
    unsigned long long at = offset;
    char kind[32];
    snprintf(kind, sizeof kind, "%s %u-bit", h->complex_data ? "complex" : "real", h->bits);
    /* The file may be none of VDIF: no number that is made of its bytes is told until the frame fits. */
    if (h->frame_bytes <= h->header_bytes || h->frame_bytes > MAX_FRAME)
        return br_fail(error, BR_E_FORMAT,
                       "%s: no VDIF frame is at byte %llu: expected one that has more than its header's %zu "
                       "bytes, at most %d",
                       file, at, h->header_bytes, MAX_FRAME);
    if (h->header_bytes + vdif_row_bytes(h) > room)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the VDIF frame at byte %llu is longer than the %llu bytes that are left in the "
                       "file: it is truncated, or the file is not VDIF",
                       file, at, (unsigned long long)room);
    if (!h->complex_data || (h->bits != 4 && h->bits != 8))
        return br_fail(
            error, BR_E_FORMAT,
            "%s: the VDIF frame at byte %llu has %s samples; only complex 4-bit and 8-bit ones can "
            "be replayed",
            file, at, h->frame_bytes > room ? "other" : kind);
    if (h->log2_channels > MAX_LOG2_CHANNELS)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the VDIF frame at byte %llu has too many channels; expected at most 2^%d", file,
                       at, MAX_LOG2_CHANNELS);
    if ((h->frame_bytes - h->header_bytes) % vdif_row_bytes(h) != 0)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the data of the VDIF frame at byte %llu are not a multiple of its channels of "
                       "%u + %u bits",
                       file, at, h->bits, h->bits);
    return BR_OK;
}

int64_t vdif_unix_seconds(const struct vdif_header *header)
{
    /* VDIF counts every second since its epoch, Unix time leaves leap seconds out. */
    struct tm first = {
        .tm_year = 100 + (int)header->epoch / 2, .tm_mon = header->epoch % 2 ? 6 : 0, .tm_mday = 1};
    return sample_clock_without_leaps((int64_t)timegm(&first), header->seconds);
}

size_t vdif_row_bytes(const struct vdif_header *header)
{
    return (size_t)(header->bits / 4) << header->log2_channels;
}

size_t vdif_samples(const struct vdif_header *header)
{
    return (header->frame_bytes - header->header_bytes) / vdif_row_bytes(header);
}

/* When the recording begins, and which threads it has. A time more than a minute before all others, and in
 * only one or two in a hundred, is corrupt: else a single wrong time would put all that is right behind a
 * gap. So is a thread of hardly a frame, for which all others would wait. */
static void settle(struct vdif_scan *scan, size_t n)
{
    bool ordered = true;
    for (size_t i = 1; i < n; i++) ordered = ordered && scan->time[i - 1] <= scan->time[i];
    if (!ordered) qsort(scan->time, n, sizeof *scan->time, order_int64);
    size_t few = n >= 3 ? 1 + n / 64 : 0, from = 0;
    for (size_t i = 1; i < n && i <= few; i++)
        if ((scan->time[i] >> 24) - (scan->time[i - 1] >> 24) > FAR_S) from = i;
    scan->earliest = scan->first;
    scan->earliest.seconds = (uint32_t)(scan->time[from] >> 24);
    scan->earliest.number = (uint32_t)(scan->time[from] & 0xffffff);
    uint16_t most = 0;
    for (unsigned i = 0; i < VDIF_MAX_THREADS; i++) most = scan->count[i] > most ? scan->count[i] : most;
    for (unsigned i = 0; i < VDIF_MAX_THREADS; i++)
        if (scan->count[i] > most / 16) scan->thread[scan->nthreads++] = (uint16_t)i;
}

static int scan_frames(struct vdif_scan *scan, unsigned most, const char *file, uint64_t file_bytes,
                       vdif_read *read, void *source, struct br_error *error)
{
    memset(scan, 0, sizeof *scan);
    if (file_bytes == 0)
        return br_fail(error, BR_E_FORMAT, "%s is empty (0 bytes); expected VDIF frames", file);
    uint64_t offset = 0;
    size_t n = 0;
    for (unsigned i = 0; i < most && offset < file_bytes; i++) {
        uint8_t bytes[VDIF_HEADER] = {0};
        int64_t got = read(source, offset, bytes, sizeof bytes);
        if (got < 0) return br_fail(error, BR_E_IO, "cannot read %s: %s", file, strerror(errno));
        if (got < VDIF_HEADER && i == 0)
            return br_fail(error, BR_E_FORMAT, "%s has %llu bytes, too few for a VDIF frame", file,
                           (unsigned long long)file_bytes);
        if (got < VDIF_HEADER) break;
        struct vdif_header header;
        vdif_decode(&header, bytes);
        if (i == 0) {
            int status = vdif_check(&header, file, offset, file_bytes, error);
            if (status != BR_OK) return status;
            scan->first = header;
        } else if (!vdif_alike(&header, &scan->first)) {
            if (i == 1)
                return br_fail(error, BR_E_FORMAT,
                               "%s: what follows the first VDIF frame, at byte %llu, is unlike it: the "
                               "file is not VDIF, or its first header is corrupt",
                               file, (unsigned long long)offset);
            break; /* the reader counts it as corrupt */
        }
        if (header.number > scan->max_number) scan->max_number = header.number;
        scan->time[n++] = (uint64_t)header.seconds << 24 | header.number;
        scan->count[header.thread]++;
        offset += header.frame_bytes;
    }
    settle(scan, n);
    scan->frames = (file_bytes + scan->first.frame_bytes - 1) / scan->first.frame_bytes;
    scan->truncated_bytes = file_bytes % scan->first.frame_bytes;
    return BR_OK;
}

int vdif_scan(struct vdif_scan *scan, const char *file, uint64_t file_bytes, vdif_read *read, void *source,
              struct br_error *error)
{
    return scan_frames(scan, VDIF_SCAN_FRAMES, file, file_bytes, read, source, error);
}

/* A file whose frames are small is read in larger pieces than its headers are. */
enum { SCAN_ROOM = 64 << 10, SMALL_FRAME = 4 << 10 };

struct scan_source {
    int fd;
    uint64_t begin; /* of what is in memory */
    size_t have;
    uint8_t bytes[SCAN_ROOM];
};

static int64_t read_file(void *source, uint64_t offset, void *buffer, size_t length)
{
    struct scan_source *s = source;
    if (offset < s->begin || offset + length > s->begin + s->have) {
        bool near = s->have > 0 && offset >= s->begin && offset - s->begin < s->have + SMALL_FRAME;
        size_t want = near ? sizeof s->bytes : length;
        s->begin = offset;
        s->have = 0;
        ssize_t got = fileio_read(s->fd, s->bytes, want, offset);
        if (got < 0) return -1;
        s->have = (size_t)got;
    }
    size_t at = (size_t)(offset - s->begin), here = s->have - at < length ? s->have - at : length;
    memcpy(buffer, s->bytes + at, here);
    return (int64_t)here;
}

static int scan_file(struct vdif_scan *scan, unsigned most, const char *path, struct br_error *error)
{
    uint64_t bytes;
    struct scan_source source = {.fd = br_open_regular(path, 0, &bytes, error)};
    if (source.fd < 0) return BR_E_IO;
    int status = scan_frames(scan, most, path, bytes, read_file, &source, error);
    close(source.fd);
    return status;
}

int vdif_scan_file(struct vdif_scan *scan, const char *path, struct br_error *error)
{
    return scan_file(scan, VDIF_SCAN_FRAMES, path, error);
}

int vdif_probe_file(const char *path, struct br_error *error)
{
    struct vdif_scan scan;
    return scan_file(&scan, 2, path, error);
}
