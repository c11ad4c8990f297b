/* order.c - ordering work on GPU streams by events, so that no host waits where a stream can. See queue.h,
 * EVENTS. */
#include "buffers/clock.h"
#include "buffers/ring.h"

#include <stdlib.h>

/* Keeps the first failure of the queue, in words; returns the status. */
static int keep(struct br_queue *queue, int status, const struct br_error *error)
{
    if (status == BR_OK || status == BR_E_STOPPED) return status;
    lock(queue);
    if (queue->failure.status == BR_OK)
        br_fail(&queue->failure, BR_E_DEVICE, "queue '%s': %s", queue->name, error->text);
    unlock(queue);
    return BR_E_DEVICE;
}

/* The host sleeps until the event has happened; the time counts as waiting, of the reader or (NULL) of the
 * producer. */
static int wait_for(struct br_queue *queue, struct br_reader *reader, br_gpu_event event,
                    struct br_error *error)
{
    uint64_t begin = br_clock_ns();
    int status = br_gpu_event_wait(event, reader != NULL ? &reader->gpu_waits : &queue->gpu_waits, error);
    lock(queue);
    *(reader != NULL ? &reader->counters.wait_ns : &queue->counters.wait_ns) += br_clock_ns() - begin;
    if (reader != NULL)
        br_reader_show(reader);
    else
        br_queue_show(queue);
    unlock(queue);
    return status;
}

int br_order_producer(struct br_queue *queue, const struct br_slot *slot)
{
    struct br_error error = {0};
    unsigned i = br_slot_index(&queue->slots, slot);
    int status = BR_OK;
    for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        if (r->gpu == NULL || !r->pending[i] || status != BR_OK) continue;
        /* Work on the producer's own stream is in order by itself. */
        if (queue->gpu == NULL)
            status = wait_for(queue, NULL, r->released[i], &error);
        else if (queue->gpu->handle != r->gpu->handle)
            status = br_gpu_event_order(r->released[i], queue->gpu, &error);
        r->pending[i] = false;
    }
    return keep(queue, status, &error);
}

int br_order_ready(struct br_queue *queue, const struct br_slot *slot)
{
    struct br_error error = {0};
    if (queue->gpu == NULL) return BR_OK;
    unsigned i = br_slot_index(&queue->slots, slot);
    queue->ready_newest[i] = (queue->ready_newest[i] + 1) % BR_READY_TRAIL;
    size_t at = (size_t)i * BR_READY_TRAIL + queue->ready_newest[i];
    int status = keep(queue, br_gpu_event_record(queue->ready[at], queue->gpu, &error), &error);
    if (status == BR_OK) atomic_store(&queue->ready_first[at], slot->frame.first);
    return status;
}

int br_order_reader(struct br_reader *reader, const struct br_slot *slot)
{
    struct br_error error = {0};
    struct br_queue *queue = reader->queue;
    if (queue->gpu == NULL) return BR_OK;
    unsigned i = br_slot_index(&queue->slots, slot);
    br_gpu_event ready = queue->ready[(size_t)i * BR_READY_TRAIL + queue->ready_newest[i]];
    int status = reader->gpu != NULL ? br_gpu_event_order(ready, reader->gpu, &error)
                                     : wait_for(queue, reader, ready, &error);
    return keep(queue, status, &error);
}

int br_order_released(struct br_reader *reader, const struct br_slot *slot)
{
    struct br_error error = {0};
    struct br_queue *queue = reader->queue;
    if (reader->gpu == NULL) return BR_OK;
    unsigned i = br_slot_index(&queue->slots, slot);
    int status = br_gpu_event_record(reader->released[i], reader->gpu, &error);
    if (status == BR_OK && reader->counters.policy == BR_POLICY_DROP)
        status = wait_for(queue, reader, reader->released[i], &error);
    else
        reader->pending[i] = status == BR_OK;
    return keep(queue, status, &error);
}

static int create_events(br_gpu_event **events, unsigned count, int device, struct br_error *error)
{
    *events = calloc(count, sizeof **events);
    if (*events == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %u events", count);
    int status = BR_OK;
    for (unsigned i = 0; i < count && status == BR_OK; i++)
        status = br_gpu_event_create(&(*events)[i], device, false, error);
    return status;
}

static int create_ready(struct br_queue *queue, unsigned count, struct br_error *error)
{
    queue->ready_first = malloc(count * sizeof *queue->ready_first);
    queue->ready_newest = calloc(queue->nevents, sizeof *queue->ready_newest);
    if (queue->ready_first == NULL || queue->ready_newest == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %u events", count);
    for (unsigned i = 0; i < count; i++) atomic_init(&queue->ready_first[i], UINT64_MAX);
    return create_events(&queue->ready, count, queue->gpu->device, error);
}

int br_order_create(struct br_queue *queue, unsigned count, struct br_error *error)
{
    queue->nevents = count;
    int status = queue->gpu != NULL ? create_ready(queue, count * BR_READY_TRAIL, error) : BR_OK;
    for (struct br_reader *r = queue->readers; r != NULL && status == BR_OK; r = r->sibling) {
        if (r->gpu == NULL) continue;
        status = create_events(&r->released, count, r->gpu->device, error);
        r->pending = calloc(count, sizeof *r->pending);
        if (status == BR_OK && r->pending == NULL)
            status = br_fail(error, BR_E_NO_MEMORY, "no memory for %u events", count);
    }
    if (status != BR_OK) br_error_context(error, "queue '%s'", queue->name);
    return status;
}

static void destroy_events(br_gpu_event *events, unsigned count)
{
    for (unsigned i = 0; events != NULL && i < count; i++) br_gpu_event_destroy(events[i]);
    free(events);
}

void br_order_destroy(struct br_queue *queue)
{
    destroy_events(queue->ready, queue->nevents * BR_READY_TRAIL);
    free(queue->ready_first);
    free(queue->ready_newest);
    queue->ready = NULL;
    queue->ready_first = NULL;
    queue->ready_newest = NULL;
    for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        destroy_events(r->released, queue->nevents);
        free(r->pending);
        r->released = NULL;
        r->pending = NULL;
    }
}
