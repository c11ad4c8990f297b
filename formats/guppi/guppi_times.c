#include "formats/guppi/guppi_times.h"

#include "buffers/numbers.h"
#include "formats/common/text.h"

/* SYNCTIME is a whole second that a computer's clock has seen. */
#define SYNC_NS INT64_C(1000000000)
/* It is the better value where STT_* agrees with it as well as rounded numbers do. */
#define EXACT_NS INT64_C(1000000)

void guppi_steps_add(struct guppi_steps *s, uint64_t pktidx)
{
    uint64_t step = pktidx > s->last ? pktidx - s->last : s->last - pktidx;
    if (s->blocks++ > 0 && step > 0) {
        if (s->least == 0 || step < s->least) s->least = step;
        s->common = br_common_divisor(s->common, step);
    }
    s->last = pktidx;
}

uint64_t guppi_steps_packets(const struct guppi_steps *s)
{
    return s->least == s->common ? s->common : 0;
}

static int64_t apart(int64_t a, int64_t b)
{
    return a < b ? b - a : a - b;
}

/* Nanoseconds from packet 0 to packet `number`; -1 beyond what times can be. */
static int64_t span_to(const struct guppi_header *h, uint64_t number, uint64_t samples, uint64_t packets)
{
    __int128_t at = (__int128_t)number * samples / packets;
    if (at > INT64_MAX) return -1;
    __int128_t span = at * h->sample_ns.num / h->sample_ns.den;
    return span < INT64_MAX / 4 ? (int64_t)span : -1;
}

/* The span to the packet that STT_* is the time of, when packets are counted from SYNCTIME; -1: to none. */
static int64_t span_by_sync(const struct guppi_header *h, const int64_t *span, size_t n)
{
    int64_t best = -1, least = SYNC_NS;
    for (size_t i = 0; i < n; i++) {
        int64_t off = apart(h->epoch_ns - span[i], h->synctime_ns);
        if (span[i] < 0 || off > least) continue;
        least = off;
        best = span[i];
    }
    return best;
}

int guppi_settle_epoch(struct guppi_header *h, const char *file, uint64_t first, uint64_t samples,
                       uint64_t packets, const int64_t *said, const char **from, struct br_error *error)
{
    char stt[TEXT_TIME], late[TEXT_TIME], sync[TEXT_TIME];
    uint64_t start = h->have_pktstart ? h->pktstart : first;
    *from = "by STT_IMJD, STT_SMJD and STT_OFFS, the time of PKTIDX 0";
    if (!h->have_epoch || !h->have_pktidx || (start == 0 && first == 0)) return BR_OK;
    if (packets == 0)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: PKTSTART %llu cannot be placed in time: the headers have neither PIPERBLK nor a PKTSIZE "
            "that divides a block",
            file, (unsigned long long)start);
    const int64_t spans[] = {0, span_to(h, start, samples, packets), span_to(h, first, samples, packets)};
    int64_t span = h->have_synctime ? span_by_sync(h, spans, sizeof spans / sizeof *spans) : -1;
    if (span >= 0) {
        *from = "by PKTIDX, counted from SYNCTIME, with which STT_* agrees";
        h->epoch_ns -= span;
        if (apart(h->epoch_ns, h->synctime_ns) <= EXACT_NS) h->epoch_ns = h->synctime_ns;
        return BR_OK;
    }
    if (!h->have_synctime && h->have_pktstart && spans[1] >= 0) {
        if (start > 0) *from = "by STT_IMJD, STT_SMJD and STT_OFFS, the time of the packet PKTSTART";
        h->epoch_ns -= spans[1];
        return BR_OK;
    }
    int64_t of_zero = h->epoch_ns, of_start = of_zero - (spans[1] > 0 ? spans[1] : spans[2]);
    if (said != NULL &&
        (apart(*said, of_zero) <= h->epoch_precision_ns || apart(*said, of_start) <= h->epoch_precision_ns)) {
        *from = "by `stream: epoch_ns`, one of the two meanings of STT_*";
        h->epoch_ns = *said;
        return BR_OK;
    }
    /* The first block was taken at STT_*, or that much later. */
    text_utc_format(stt, of_zero);
    text_utc_format(late, of_zero + (of_zero - of_start));
    return br_fail(
        error, BR_E_FORMAT,
        "%s: STT_IMJD, STT_SMJD and STT_OFFS say %s UTC, and the recording begins with packet %llu: some "
        "recorders "
        "write the time of packet 0, others that of the first block, and %s%s%s; that packet was sent at %s "
        "or at "
        "%s; say which: `stream: {epoch_ns: %lld}` or `stream: {epoch_ns: %lld}`, the time of packet 0",
        file, stt, (unsigned long long)(start > 0 ? start : first),
        h->have_synctime ? "SYNCTIME (" : "neither PKTSTART nor SYNCTIME decides it",
        h->have_synctime ? text_utc_format(sync, h->synctime_ns) : "",
        h->have_synctime ? ") agrees with neither" : "", stt, late, (long long)of_start, (long long)of_zero);
}
