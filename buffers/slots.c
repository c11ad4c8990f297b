/* slots.c - see slots.h. */
#include "buffers/slots.h"
#include "buffers/available.h"
#include "buffers/threads.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Rounds up to two cache lines of a GPU, so that data, side array and validity of slots never share a cache
 * line. */
static size_t line(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t data_bytes(const struct br_stream *stream)
{
    return line(br_stream_max_bytes(stream)) + line(br_array_bytes(&stream->side));
}

static size_t times(size_t bytes, unsigned count)
{
    size_t all;
    return __builtin_mul_overflow(bytes, (size_t)count, &all) ? SIZE_MAX : all;
}

size_t br_slots_bytes(const struct br_stream *stream, struct br_place place, unsigned count)
{
    size_t valid = line(br_stream_max_validity(stream));
    return times(place.space == BR_SPACE_CUDA ? valid : data_bytes(stream) + valid, count);
}

size_t br_slots_device_bytes(const struct br_stream *stream, struct br_place place, unsigned count)
{
    return place.space == BR_SPACE_CUDA ? times(data_bytes(stream), count) : 0;
}

static int no_memory(const char *queue, unsigned count, size_t bytes, const char *why, struct br_error *error)
{
    return br_fail(error, BR_E_NO_MEMORY,
                   "queue '%s': no memory for %u frames, %.1f MiB together: %s; use fewer or shorter frames",
                   queue, count, (double)bytes / 1048576, why);
}

/* Gives each frame its arrays, and makes all slots free. */
static void share_out(struct br_slots *slots, const struct br_stream *stream)
{
    uint8_t *valid = slots->memory, *data = slots->device != NULL ? slots->device : slots->memory;
    uint8_t **host = slots->device != NULL ? &valid : &data;
    for (unsigned i = 0; i < slots->count; i++) {
        struct br_frame *frame = &slots->slot[i].frame;
        frame->data = data;
        data += line(br_stream_max_bytes(stream));
        frame->side = stream->side.naxes > 0 ? data : NULL;
        data += line(br_array_bytes(&stream->side));
        frame->valid = *host;
        *host += line(br_stream_max_validity(stream));
        br_slots_give(slots, &slots->slot[i]);
    }
}

/* Memory that several threads touch; each takes the next TOUCHED_AT_ONCE bytes. */
enum { TOUCHERS = 16, TOUCHED_AT_ONCE = 32 << 20 };
struct touched {
    uint8_t *memory;
    size_t bytes, page;
    atomic_size_t next;
};

static void *touch(void *arg)
{
    struct touched *t = arg;
    for (size_t at; (at = atomic_fetch_add(&t->next, TOUCHED_AT_ONCE)) < t->bytes;)
        for (size_t i = at; i < t->bytes && i < at + TOUCHED_AT_ONCE; i += t->page)
            ((volatile uint8_t *)t->memory)[i] = 0;
    return NULL;
}

/* The kernel zeroes each page when it is first touched. One thread would need seconds for 14 GB. */
static void touch_all(void *memory, size_t bytes)
{
    struct touched t = {.memory = memory, .bytes = bytes, .page = (size_t)sysconf(_SC_PAGESIZE)};
    pthread_t thread[TOUCHERS];
    cpu_set_t cpus;
    size_t pieces = bytes / TOUCHED_AT_ONCE, n = 0;
    size_t most = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
    if (most > TOUCHERS) most = TOUCHERS;
    while (n + 1 < most && n < pieces && br_thread_start(&thread[n], touch, &t) == 0) n++;
    touch(&t);
    while (n > 0) pthread_join(thread[--n], NULL);
}

/* Locks the memory for a GPU, or allocates that of a device; nothing for frames in plain host memory. */
static int reserve_for_gpu(struct br_slots *slots, const struct br_stream *stream, struct br_error *error)
{
    int status = BR_OK;
    if (slots->place.space == BR_SPACE_PINNED) {
        status = br_gpu_pin(slots->memory, slots->bytes, error);
        slots->pinned = status == BR_OK;
    } else if (slots->place.space == BR_SPACE_CUDA) {
        status = br_gpu_alloc(&slots->device, slots->place.device,
                              br_slots_device_bytes(stream, slots->place, slots->count), error);
    }
    return status;
}

int br_slots_reserve(struct br_slots *slots, const char *queue, const struct br_stream *stream,
                     struct br_place place, unsigned count, struct br_error *error)
{
    memset(slots, 0, sizeof *slots);
    slots->place = place;
    char who[128], why[160];
    size_t bytes = br_slots_bytes(stream, place, count),
           free_bytes = br_memory_available("", who, sizeof who);
    if (bytes > free_bytes) {
        snprintf(why, sizeof why, "%s %.1f MiB more", who, (double)free_bytes / 1048576);
        return no_memory(queue, count, bytes, why, error);
    }
    slots->slot = calloc(count, sizeof *slots->slot);
    slots->idle = calloc(count, sizeof(struct br_slot *));
    void *memory = slots->slot != NULL && slots->idle != NULL
                       ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : MAP_FAILED;
    if (memory == MAP_FAILED) {
        int reason = errno;
        br_slots_free(slots);
        return no_memory(queue, count, bytes, strerror(reason), error);
    }
    slots->memory = memory;
    slots->bytes = bytes;
    slots->count = count;
#ifdef MADV_HUGEPAGE
    if (bytes >= (size_t)4 << 20)
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* only advice: fewer TLB misses */
#endif
    /* The child processes that read HDF5 files (formats/hdf5/hdf5_child.h) do not need frames. Without a copy
     * of the frames' page tables, fork is fast, and no thread here has to copy a page that it writes. */
    (void)madvise(memory, bytes, MADV_DONTFORK);
    touch_all(memory, bytes);
    int status = reserve_for_gpu(slots, stream, error);
    if (status != BR_OK) {
        br_error_context(error, "queue '%s': no memory for %u frames; use fewer or shorter frames", queue,
                         count);
        br_slots_free(slots);
        return status;
    }
    share_out(slots, stream);
    return BR_OK;
}

void br_slots_free(struct br_slots *slots)
{
    if (slots->pinned) br_gpu_unpin(slots->memory);
    br_gpu_free(slots->device, slots->place.device);
    if (slots->memory != NULL) munmap(slots->memory, slots->bytes);
    free(slots->slot);
    free(slots->idle);
    memset(slots, 0, sizeof *slots);
}

struct br_slot *br_slots_take(struct br_slots *slots)
{
    unsigned at = slots->place.space == BR_SPACE_HOST ? slots->head + slots->nidle - 1 : slots->head++;
    struct br_slot *slot = slots->idle[at % slots->count];
    slots->nidle--;
    slots->head %= slots->count;
    slot->order = slots->order++;
    slot->frame.first = slot->frame.samples = slot->frame.missing = 0;
    slot->frame.complete = true;
    return slot;
}
