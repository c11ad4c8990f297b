/* Regions, accesses and what must hold of them. */
#include "tools/layouts/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum { NOTHING = -2, SHOWN = 4, BANKS = 32, WORD = 4 };

struct layouts_region {
    struct layouts_region *next;
    struct layouts *report;
    struct layouts_pass *passes;
    enum layouts_space space;
    size_t elements, element_bytes;
    int64_t *holds;   /* [elements] */
    uint8_t *padding; /* [elements] */
    char name[64];
};

struct layouts_pass {
    struct layouts_pass *next;
    struct layouts_region *region;
    enum layouts_direction direction;
    unsigned wavefronts, grain; /* allowed; 0: the fewest, whole lines */
    char reason[160];
    unsigned failures;
    uint64_t accesses;
    unsigned most_wavefronts, fewest_wavefronts, broken; /* the worst seen; pieces of less than a line seen */
    uint32_t *touched;                                   /* [elements] */
    bool ended;
    char what[128];
};

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "beamring-layouts: out of memory\n");
        exit(1);
    }
    return memory;
}

/* Only the first few of a pass are shown. */
static void fail(struct layouts *report, bool shown, const char *where, const char *format, va_list arguments)
{
    int used = snprintf(report->last, sizeof report->last, "%s", where);
    vsnprintf(report->last + used, sizeof report->last - (size_t)used, format, arguments);
    report->failures++;
    if (report->out && shown) fprintf(report->out, "FAILED  %s: %s\n", report->variant, report->last);
}

static void fail_pass(struct layouts_pass *pass, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fail_pass(struct layouts_pass *pass, const char *format, ...)
{
    char where[256];
    snprintf(where, sizeof where, "%s, %s: ", pass->region->name, pass->what);
    va_list arguments;
    va_start(arguments, format);
    fail(pass->region->report, pass->failures++ < SHOWN, where, format, arguments);
    va_end(arguments);
}

bool layouts_expect(struct layouts *report, bool holds, const char *format, ...)
{
    if (holds) return true;
    va_list arguments;
    va_start(arguments, format);
    fail(report, true, "", format, arguments);
    va_end(arguments);
    return false;
}

/* ---- variants and regions ---- */

static void release(struct layouts *report)
{
    while (report->regions) {
        struct layouts_region *region = report->regions;
        report->regions = region->next;
        while (region->passes) {
            struct layouts_pass *pass = region->passes;
            region->passes = pass->next;
            if (!pass->ended) fail_pass(pass, "was begun and not ended");
            free(pass->touched);
            free(pass);
        }
        free(region->holds);
        free(region->padding);
        free(region);
    }
}

void layouts_variant(struct layouts *report, const char *format, ...)
{
    release(report);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->variant, sizeof report->variant, format, arguments);
    va_end(arguments);
    report->variants++;
    if (report->out && report->verbose) fprintf(report->out, "%s\n", report->variant);
}

bool layouts_finish(struct layouts *report)
{
    release(report);
    return report->failures == 0;
}

struct layouts_region *layouts_region(struct layouts *report, enum layouts_space space, const char *name,
                                      size_t elements, size_t element_bytes)
{
    struct layouts_region *region = zeroed(1, sizeof *region);
    *region = (struct layouts_region){.next = report->regions,
                                      .report = report,
                                      .space = space,
                                      .elements = elements,
                                      .element_bytes = element_bytes,
                                      .holds = zeroed(elements, sizeof *region->holds),
                                      .padding = zeroed(elements, 1)};
    snprintf(region->name, sizeof region->name, "%s", name);
    report->regions = region;
    layouts_clear(region);
    return region;
}

void layouts_padding(struct layouts_region *region, size_t first, size_t count)
{
    for (size_t i = first; i < first + count && i < region->elements; i++) region->padding[i] = 1;
}

void layouts_fill(struct layouts_region *region)
{
    for (size_t i = 0; i < region->elements; i++) region->holds[i] = (int64_t)i;
}

void layouts_clear(struct layouts_region *region)
{
    for (size_t i = 0; i < region->elements; i++) region->holds[i] = NOTHING;
}

/* ---- passes ---- */

struct layouts_pass *layouts_begin(struct layouts_region *region, enum layouts_direction direction,
                                   const char *format, ...)
{
    struct layouts_pass *pass = zeroed(1, sizeof *pass);
    *pass = (struct layouts_pass){.next = region->passes,
                                  .region = region,
                                  .direction = direction,
                                  .touched = zeroed(region->elements, sizeof *pass->touched)};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(pass->what, sizeof pass->what, format, arguments);
    va_end(arguments);
    region->passes = pass;
    return pass;
}

static void allow(struct layouts_pass *pass, const char *reason)
{
    snprintf(pass->reason, sizeof pass->reason, "%s", reason);
    pass->region->report->exceptions++;
}

void layouts_allow_wavefronts(struct layouts_pass *pass, unsigned wavefronts, const char *reason)
{
    pass->wavefronts = wavefronts;
    allow(pass, reason);
}

void layouts_allow_pieces(struct layouts_pass *pass, unsigned grain, const char *reason)
{
    pass->grain = grain;
    allow(pass, reason);
}

/* ---- shared memory ---- */

static unsigned lanes_at_once(unsigned bytes)
{
    return bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
}

static bool is_active(const struct layouts_access *access, unsigned lane)
{
    return access->active >> lane & 1;
}

/* Each bank delivers one word at a time: as many wavefronts as the most wanted bank has different words. */
static unsigned wavefronts_of(const struct layouts_access *access, unsigned first, unsigned lanes)
{
    int64_t words[BANKS][LAYOUTS_LANES];
    unsigned count[BANKS] = {0}, most = 0;
    for (unsigned lane = first; lane < first + lanes; lane++) {
        if (!is_active(access, lane)) continue;
        int64_t last = (access->at[lane] + access->bytes - 1) / WORD;
        for (int64_t word = access->at[lane] / WORD; word <= last; word++) {
            unsigned bank = (unsigned)(word % BANKS + BANKS) % BANKS, i = 0;
            while (i < count[bank] && words[bank][i] != word) i++;
            if (i == count[bank]) words[bank][count[bank]++] = word;
            if (count[bank] > most) most = count[bank];
        }
    }
    return most;
}

unsigned layouts_wavefronts(const struct layouts_access *access)
{
    unsigned lanes = lanes_at_once(access->bytes), sum = 0;
    for (unsigned first = 0; first < LAYOUTS_LANES; first += lanes)
        sum += wavefronts_of(access, first, lanes);
    return sum;
}

unsigned layouts_fewest_wavefronts(const struct layouts_access *access)
{
    unsigned lanes = lanes_at_once(access->bytes), fewest = 0;
    uint32_t together = lanes == 32 ? UINT32_MAX : (UINT32_C(1) << lanes) - 1;
    for (unsigned first = 0; first < LAYOUTS_LANES; first += lanes)
        fewest += (access->active & together << first) != 0;
    return fewest;
}

static void check_wavefronts(struct layouts_pass *pass, const struct layouts_access *access)
{
    unsigned wavefronts = layouts_wavefronts(access), fewest = layouts_fewest_wavefronts(access);
    unsigned allowed = pass->wavefronts > fewest ? pass->wavefronts : fewest;
    if (wavefronts > pass->most_wavefronts) {
        pass->most_wavefronts = wavefronts;
        pass->fewest_wavefronts = fewest;
    }
    if (wavefronts > allowed)
        fail_pass(pass,
                  "access %" PRIu64 " (%u bytes, lane 0 at %" PRId64 ", lane 1 at %" PRId64
                  ") takes %u wavefronts, %u allowed: bank conflicts",
                  pass->accesses, access->bytes, access->at[0], access->at[1], wavefronts, allowed);
}

/* ---- global memory ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Every piece of `grain` bytes (aligned) that the warp touches is touched wholly. */
static bool whole_pieces(const struct layouts_access *access, unsigned grain)
{
    int64_t at[LAYOUTS_LANES];
    unsigned count = 0;
    for (unsigned lane = 0; lane < LAYOUTS_LANES; lane++)
        if (is_active(access, lane)) at[count++] = access->at[lane];
    qsort(at, count, sizeof *at, ascending);
    /* Runs of bytes without a gap must begin and end at multiples of the grain. */
    for (unsigned i = 0; i < count;) {
        int64_t begin = at[i], end = begin + access->bytes;
        while (++i < count && at[i] <= end) end = at[i] + access->bytes;
        if (begin % grain || end % grain) return false;
    }
    return true;
}

static void check_lines(struct layouts_pass *pass, const struct layouts_access *access)
{
    if (whole_pieces(access, LAYOUTS_LINE)) return;
    pass->broken++;
    unsigned grain = pass->grain ? pass->grain : LAYOUTS_LINE;
    if (!whole_pieces(access, grain))
        fail_pass(pass,
                  "access %" PRIu64 " (%u bytes, lane 0 at %" PRId64 ", lane 1 at %" PRId64
                  ") does not touch whole pieces of %u bytes",
                  pass->accesses, access->bytes, access->at[0], access->at[1], grain);
}

/* ---- any access ---- */

static bool check_places(struct layouts_pass *pass, const struct layouts_access *access)
{
    int64_t end = (int64_t)(pass->region->elements * pass->region->element_bytes);
    for (unsigned lane = 0; lane < LAYOUTS_LANES; lane++) {
        if (!is_active(access, lane)) continue;
        int64_t at = access->at[lane];
        if (at < 0 || at + access->bytes > end) {
            fail_pass(pass,
                      "access %" PRIu64 ", lane %u: bytes %" PRId64 " to %" PRId64
                      " are out of bounds, there are %" PRId64,
                      pass->accesses, lane, at, at + access->bytes - 1, end);
            return false;
        }
        if (at % access->bytes || at % (int64_t)pass->region->element_bytes) {
            fail_pass(pass, "access %" PRIu64 ", lane %u: offset %" PRId64 " is not a multiple of %s",
                      pass->accesses, lane, at, at % access->bytes ? "the access' width" : "the element");
            return false;
        }
    }
    return true;
}

static void touch(struct layouts_pass *pass, const struct layouts_access *access)
{
    struct layouts_region *region = pass->region;
    unsigned each = access->bytes / (unsigned)region->element_bytes;
    for (unsigned lane = 0; lane < LAYOUTS_LANES; lane++) {
        if (!is_active(access, lane)) continue;
        size_t first = (size_t)access->at[lane] / region->element_bytes;
        for (unsigned i = 0; i < each; i++) {
            int64_t item = access->items ? access->item[lane][i] : LAYOUTS_ANY;
            pass->touched[first + i]++;
            if (pass->direction == LAYOUTS_WRITE)
                region->holds[first + i] = item;
            else if (access->items && item != LAYOUTS_ANY && item != region->holds[first + i])
                fail_pass(pass,
                          "access %" PRIu64 ", lane %u reads element %zu for item %" PRId64
                          ", which holds %s %" PRId64,
                          pass->accesses, lane, first + i, item,
                          region->holds[first + i] < 0 ? "nothing known:" : "item", region->holds[first + i]);
        }
    }
}

void layouts_access(struct layouts_pass *pass, const struct layouts_access *access)
{
    bool width = access->bytes == 1 || access->bytes == 2 || access->bytes == 4 || access->bytes == 8 ||
                 access->bytes == 16;
    if (!width || access->bytes % pass->region->element_bytes)
        fail_pass(pass, "access %" PRIu64 ": %u bytes is not a width, or not a multiple of the element's %zu",
                  pass->accesses, access->bytes, pass->region->element_bytes);
    else if (access->active && check_places(pass, access)) {
        if (pass->region->space == LAYOUTS_SHARED)
            check_wavefronts(pass, access);
        else
            check_lines(pass, access);
        touch(pass, access);
    }
    pass->accesses++;
}

static void print_pass(const struct layouts_pass *pass)
{
    struct layouts *report = pass->region->report;
    if (!report->out || (!report->verbose && !pass->reason[0])) return;
    fprintf(report->out, "%s  %s, %s: %" PRIu64 " accesses", report->verbose ? "" : report->variant,
            pass->region->name, pass->what, pass->accesses);
    if (pass->region->space == LAYOUTS_SHARED)
        fprintf(report->out, ", at most %u wavefronts (fewest %u)", pass->most_wavefronts,
                pass->fewest_wavefronts);
    else if (pass->broken)
        fprintf(report->out, ", %u not of whole cache lines", pass->broken);
    if (pass->reason[0]) fprintf(report->out, "; allowed: %s", pass->reason);
    fprintf(report->out, "\n");
}

void layouts_end(struct layouts_pass *pass, unsigned least, unsigned most)
{
    struct layouts_region *region = pass->region;
    for (size_t i = 0; i < region->elements; i++) {
        if (pass->touched[i] > most)
            fail_pass(pass, "element %zu is touched %u times, at most %u expected", i, pass->touched[i],
                      most);
        else if (pass->touched[i] < least && !region->padding[i])
            fail_pass(pass, "element %zu is touched %u times, at least %u expected", i, pass->touched[i],
                      least);
    }
    if (pass->accesses == 0) fail_pass(pass, "has no access");
    pass->ended = true;
    region->report->passes++;
    region->report->accesses += pass->accesses;
    print_pass(pass);
}
