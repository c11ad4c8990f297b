/* faults.c - see faults.h. */
#include "stages/packetize/faults.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/random.h"

enum { USE_FIRST = 1, USE_SECOND, USE_BITS };

#define P(key, text) BR_PARAM(#key, BR_P_REAL, struct fault_params, key, text, .def = "0", .min = 0, .max = 1)
const struct br_param fault_params[] = {
    PARAM(INT, struct fault_params, seed, "seed of the faults", .def = "1", .min = 0, .max = 1LL << 53),
    P(loss, "fraction of the packets that is lost"),
    PARAM(INT, struct fault_params, burst, "how many packets are lost in a row", .def = "1", .min = 1,
          .max = 1 << 20, .unit = "packets"),
    P(duplicate, "fraction of the packets that arrives twice"),
    P(foreign, "packets of another protocol, per packet"),
    P(malformed, "fraction of the packets that is truncated"),
    P(flip, "fraction of the packets in which one bit of the header flips"),
    PARAM(INT, struct fault_params, reorder, "size of the groups of packets that are shuffled", .def = "0",
          .min = 0, .max = 4096, .unit = "packets"),
    PARAM(INTS, struct fault_params, silent_sources, "ids of sources that send nothing"),
    PARAM(INTS, struct fault_params, silent_streams, "ids of streams that no source sends"),
    PARAM(REAL, struct fault_params, silent_from_s, "start of the silence", .def = "0", .min = 0, .max = 1e9,
          .unit = "s"),
    PARAM(REAL, struct fault_params, silent_to_s, "end of the silence", .def = "1e9", .min = 0, .max = 1e9,
          .unit = "s"),
    PARAM(REAL, struct fault_params, reset_s, "when the counters begin again at 0; default: never", .min = 0,
          .max = 1e9, .unit = "s"),
    {0},
};

static bool holds(struct br_ints ids, int64_t id)
{
    for (size_t i = 0; i < ids.count; i++)
        if (ids.value[i] == id) return true;
    return false;
}

static bool happens(uint32_t bits, double probability)
{
    return (double)bits < probability * 4294967296.0;
}

struct fault_draw faults_draw(struct faults *f, int64_t source, int64_t stream, double at_s)
{
    const struct fault_params *p = f->params;
    struct fault_draw draw = {0};
    if (p == NULL) return draw;
    uint32_t first[4], second[4];
    random_block((uint64_t)p->seed, f->packets, 0, USE_FIRST, first);
    random_block((uint64_t)p->seed, f->packets, 0, USE_SECOND, second);
    random_block((uint64_t)p->seed, f->packets, 0, USE_BITS, draw.bits);
    f->packets++;
    if (f->burst_left > 0) {
        f->burst_left--;
        draw.lost = true;
    } else if (happens(first[0], p->loss / (double)p->burst)) {
        f->burst_left = (uint64_t)p->burst - 1;
        draw.lost = true;
    }
    if ((holds(p->silent_sources, source) || holds(p->silent_streams, stream)) && at_s >= p->silent_from_s &&
        at_s < p->silent_to_s)
        draw.lost = true;
    draw.duplicate = !draw.lost && happens(first[1], p->duplicate);
    draw.foreign = happens(first[2], p->foreign);
    draw.malformed = happens(first[3], p->malformed);
    draw.flipped = !draw.lost && happens(second[0], p->flip);
    return draw;
}

uint64_t faults_below(const struct faults *f, uint64_t counter, uint32_t what, uint64_t n)
{
    uint32_t bits[4];
    random_block((uint64_t)f->params->seed, counter, 1, what, bits);
    return ((uint64_t)bits[0] << 32 | bits[1]) % n;
}
