#include "buffers/slots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Data, side array and validity of a slot each begin on a cache line, so that neighbours never share one. */
static size_t line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t slot_bytes(const struct br_stream *stream)
{
    return line(br_stream_max_bytes(stream)) + line(br_array_bytes(&stream->side)) + line(br_stream_max_validity(stream));
}

size_t br_slots_bytes(const struct br_stream *stream, unsigned count)
{
    size_t bytes;
    return __builtin_mul_overflow(slot_bytes(stream), (size_t)count, &bytes) ? SIZE_MAX : bytes;
}

/* Memory that can still be had, in bytes; SIZE_MAX when the system does not say. Touching more than that would not fail: it
 * would get some program killed. */
static size_t available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) return SIZE_MAX;
    unsigned long long kib = 0, total = 0;
    bool found = false;
    char text[128];
    while (fgets(text, sizeof text, file) != NULL) {
        if (sscanf(text, "MemAvailable: %llu kB", &kib) == 1) {
            total += kib;
            found = true;
        } else if (sscanf(text, "SwapFree: %llu kB", &kib) == 1) {
            total += kib;
        }
    }
    fclose(file);
    return found ? (size_t)total * 1024 : SIZE_MAX;
}

static int no_memory(const char *queue, unsigned count, size_t bytes, const char *why, struct br_error *error)
{
    return br_fail(error, BR_E_NO_MEMORY,
                   "queue '%s': no memory for %u frames, %.1f MiB together: %s; use fewer or shorter frames", queue, count,
                   (double)bytes / 1048576, why);
}

int br_slots_reserve(struct br_slots *slots, const char *queue, const struct br_stream *stream, unsigned count,
                     struct br_error *error)
{
    memset(slots, 0, sizeof *slots);
    size_t bytes = br_slots_bytes(stream, count), free_bytes = available();
    if (bytes > free_bytes) {
        char why[80];
        snprintf(why, sizeof why, "the machine has %.1f MiB left", (double)free_bytes / 1048576);
        return no_memory(queue, count, bytes, why, error);
    }
    slots->slot = calloc(count, sizeof *slots->slot);
    slots->idle = calloc(count, sizeof(struct br_slot *));
    void *memory = slots->slot != NULL && slots->idle != NULL
                       ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : MAP_FAILED;
    if (memory == MAP_FAILED) {
        int why = errno;
        br_slots_free(slots);
        return no_memory(queue, count, bytes, strerror(why), error);
    }
    slots->memory = memory;
    slots->bytes = bytes;
    slots->count = count;
#ifdef MADV_HUGEPAGE
    if (bytes >= (size_t)4 << 20) (void)madvise(memory, bytes, MADV_HUGEPAGE); /* only advice: fewer TLB misses */
#endif
    long page = sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += (size_t)page) ((volatile uint8_t *)memory)[i] = 0;
    uint8_t *at = memory;
    for (unsigned i = 0; i < count; i++) {
        struct br_frame *frame = &slots->slot[i].frame;
        frame->data = at;
        at += line(br_stream_max_bytes(stream));
        frame->side = stream->side.naxes > 0 ? at : NULL;
        at += line(br_array_bytes(&stream->side));
        frame->valid = at;
        at += line(br_stream_max_validity(stream));
        br_slots_give(slots, &slots->slot[i]);
    }
    return BR_OK;
}

void br_slots_free(struct br_slots *slots)
{
    if (slots->memory != NULL) munmap(slots->memory, slots->bytes);
    free(slots->slot);
    free(slots->idle);
    memset(slots, 0, sizeof *slots);
}

struct br_slot *br_slots_take(struct br_slots *slots)
{
    struct br_slot *slot = slots->idle[--slots->nidle];
    slot->order = slots->order++;
    slot->frame.first = slot->frame.samples = slot->frame.missing = 0;
    slot->frame.complete = true;
    return slot;
}
