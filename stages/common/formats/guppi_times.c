#include "stages/common/formats/guppi_times.h"

#include "stages/common/formats/text.h"

#include <stdlib.h>

/* SYNCTIME is a whole second that a computer's clock has seen. */
#define SYNC_NS INT64_C(1000000000)
/* It is the better value where STT_* agrees with it as well as rounded numbers do. */
#define EXACT_NS INT64_C(1000000)

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void guppi_steps_add(struct guppi_steps *s, uint64_t pktidx)
{
    uint64_t step = pktidx > s->last ? pktidx - s->last : s->last - pktidx;
    if (s->blocks++ > 0 && step > 0) {
        if (s->least == 0 || step < s->least) s->least = step;
        s->common = common_divisor(s->common, step);
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

int guppi_settle_epoch(struct guppi_header *h, const char *file, uint64_t first, uint64_t samples,
                       uint64_t packets, const int64_t *said, const char **from, struct br_error *error)
{
    char stt[TEXT_TIME], late[TEXT_TIME], sync[TEXT_TIME];
    uint64_t start = h->have_pktstart ? h->pktstart : first;
    __int128_t span =
        packets > 0 ? (__int128_t)start * samples * h->sample_ns.num / packets / h->sample_ns.den : 0;
    int64_t of_zero = h->epoch_ns, of_start = h->epoch_ns - (int64_t)span;
    *from = "by STT_IMJD, STT_SMJD and STT_OFFS, the time of PKTIDX 0";
    if (!h->have_epoch || start == 0 || packets == 0) return BR_OK;
    if (h->have_synctime) {
        int64_t zero = apart(of_zero, h->synctime_ns), begun = apart(of_start, h->synctime_ns);
        if (zero <= SYNC_NS || begun <= SYNC_NS) {
            *from = "by PKTIDX, counted from SYNCTIME, with which STT_* agrees";
            h->epoch_ns = zero < begun ? of_zero : of_start;
            if (apart(h->epoch_ns, h->synctime_ns) <= EXACT_NS) h->epoch_ns = h->synctime_ns;
            return BR_OK;
        }
    } else if (h->have_pktstart) {
        *from = "by STT_IMJD, STT_SMJD and STT_OFFS, the time of the packet PKTSTART";
        h->epoch_ns = of_start;
        return BR_OK;
    }
    if (said != NULL &&
        (apart(*said, of_zero) <= h->epoch_precision_ns || apart(*said, of_start) <= h->epoch_precision_ns)) {
        *from = "by `stream: epoch_ns`, one of the two meanings of STT_*";
        h->epoch_ns = *said;
        return BR_OK;
    }
    /* The first block is taken at STT_*, or that much later. */
    text_utc_format(stt, of_zero);
    text_utc_format(late, of_zero + (int64_t)span);
    return br_fail(
        error, BR_E_FORMAT,
        "%s: STT_IMJD, STT_SMJD and STT_OFFS say %s UTC, and the recording begins with packet %llu: some "
        "recorders "
        "write the time of packet 0, others that of the first block, and %s%s%s; that packet was sent at %s "
        "or at %s; say which: `stream: {epoch_ns: %lld}` or `stream: {epoch_ns: %lld}`, the time of packet 0",
        file, stt, (unsigned long long)start,
        h->have_synctime ? "SYNCTIME (" : "neither PKTSTART nor SYNCTIME decides it",
        h->have_synctime ? text_utc_format(sync, h->synctime_ns) : "",
        h->have_synctime ? ") agrees with neither" : "", stt, late, (long long)of_start, (long long)of_zero);
}
