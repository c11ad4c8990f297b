/* queue.c - setting queues up, and what can be asked of them. */
#include "buffers/ring.h"

#include <stdlib.h>
#include <string.h>

/* --- setting up
 * ----------------------------------------------------------------------------------------------------------- */

static int make_locks(struct br_queue *queue)
{
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->space, &cond);
    pthread_cond_init(&queue->data, &cond);
    pthread_condattr_destroy(&cond);
    if (queue->parent != NULL) {
        queue->chain = queue->root->chain;
        return BR_OK;
    }
    queue->chain = calloc(1, sizeof *queue->chain);
    if (queue->chain == NULL) return BR_E_NO_MEMORY;
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP); /* it is held for tens of nanoseconds */
#endif
    pthread_mutex_init(&queue->chain->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
    return BR_OK;
}

static int check_alias(const char *name, const struct br_stream *stream, struct br_place place,
                       const struct br_reader *parent, struct br_error *error)
{
    const struct br_queue *of = parent->queue;
    const struct br_stream *memory = &of->root->stream;
    if (place.space != of->place.space || (place.space == BR_SPACE_CUDA && place.device != of->place.device))
        return br_fail(error, BR_E_INVALID, "queue '%s' cannot share the memory of '%s', which is elsewhere",
                       name, of->name);
    if (of->nreaders != 1)
        return br_fail(error, BR_E_INVALID,
                       "queue '%s' cannot share the memory of '%s', which has %u readers; expected one", name,
                       of->name, of->nreaders);
    if (parent->alias != NULL)
        return br_fail(error, BR_E_INVALID, "queue '%s' cannot share the memory of '%s': '%s' does already",
                       name, of->name, parent->alias->name);
    if (of->root->sealed)
        return br_fail(error, BR_E_INVALID, "queue '%s' shares the memory of '%s', which is sealed already",
                       name, of->name);
    if (br_stream_max_bytes(stream) > br_stream_max_bytes(memory) ||
        br_stream_max_validity(stream) > br_stream_max_validity(memory) ||
        br_array_bytes(&stream->side) > br_array_bytes(&memory->side))
        return br_fail(error, BR_E_INVALID,
                       "the frames of queue '%s' are larger than those of '%s', whose memory they share",
                       name, of->root->name);
    return BR_OK;
}

int br_queue_create(struct br_queue **queue, const char *name, const struct br_stream *stream, unsigned depth,
                    struct br_place place, struct br_reader *parent_reader, struct br_error *error)
{
    *queue = NULL;
    if (place.space != BR_SPACE_HOST && place.space != BR_SPACE_PINNED && place.space != BR_SPACE_CUDA)
        return br_fail(error, BR_E_INVALID, "queue '%s': %d is no memory space", name, (int)place.space);
    if (parent_reader == NULL && (depth < 1 || depth > 1u << 20))
        return br_fail(error, BR_E_INVALID, "queue '%s' is %u frames deep; expected 1 to %u", name, depth,
                       1u << 20);
    int status = parent_reader != NULL ? check_alias(name, stream, place, parent_reader, error) : BR_OK;
    if (status != BR_OK) return status;
    struct br_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory", name);
    q->parent = parent_reader;
    q->place = place;
    q->root = parent_reader != NULL ? parent_reader->queue->root : q;
    q->depth = q->root == q ? depth : q->root->depth;
    q->stream = *stream;
    if (make_locks(q) != BR_OK || (q->name = strdup(name)) == NULL) {
        br_queue_destroy(q);
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory", name);
    }
    if (parent_reader != NULL) parent_reader->alias = q;
    *queue = q;
    return BR_OK;
}

int br_queue_add_reader(struct br_queue *queue, const char *name, enum br_policy policy,
                        struct br_reader **reader, struct br_error *error)
{
    *reader = NULL;
    if (policy != BR_POLICY_BLOCK && policy != BR_POLICY_DROP)
        return br_fail(error, BR_E_INVALID, "queue '%s': %d is no policy for '%s'", queue->name, (int)policy,
                       name);
    if (queue->sealed || (policy == BR_POLICY_DROP && queue->root->sealed))
        return br_fail(error, BR_E_INVALID, "queue '%s' is sealed: '%s' cannot read it", queue->name, name);
    if (downstream(queue) != NULL)
        return br_fail(error, BR_E_INVALID,
                       "queue '%s' is handed on in place by '%s': '%s' cannot read it too", queue->name,
                       queue->readers->name, name);
    struct br_reader *r = calloc(1, sizeof *r);
    if (r == NULL || (r->name = strdup(name)) == NULL) {
        free(r);
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory for reader '%s'", queue->name, name);
    }
    r->queue = queue;
    r->counters.policy = policy;
    struct br_reader **end = &queue->readers;
    while (*end != NULL) end = &(*end)->sibling;
    *end = r;
    queue->nreaders++;
    queue->nattached++;
    if (policy == BR_POLICY_BLOCK)
        queue->nblocking++;
    else
        queue->ndropping++;
    *reader = r;
    return BR_OK;
}

/* Slots beyond the depth: one for each dropping reader at and behind a queue, and room for an alias behind
 * one. */
static unsigned spare_slots(const struct br_queue *queue)
{
    unsigned n = 0;
    for (const struct br_reader *r = queue->readers; r != NULL; r = r->sibling) {
        bool drops = r->counters.policy == BR_POLICY_DROP;
        n += drops;
        if (r->alias != NULL) n += spare_slots(r->alias) + (drops ? r->alias->depth : 0);
    }
    return n;
}

void br_queue_set_stream(struct br_queue *queue, const struct br_gpu_stream *stream)
{
    queue->gpu = stream;
}

void br_reader_set_stream(struct br_reader *reader, const struct br_gpu_stream *stream)
{
    reader->gpu = stream;
}

int br_queue_seal(struct br_queue *queue, struct br_error *error)
{
    if (queue->sealed) return BR_OK;
    unsigned count = queue->root->depth + spare_slots(queue->root);
    queue->limited = queue->parent == NULL || queue->parent->counters.policy == BR_POLICY_DROP;
    if (queue->parent == NULL) {
        int status =
            br_slots_reserve(&queue->chain->slots, queue->name, &queue->stream, queue->place, count, error);
        if (status != BR_OK) return status;
    }
    size_t length = 1;
    while (length < count) length *= 2;
    queue->ring = calloc(length, sizeof *queue->ring);
    if (queue->ring == NULL) {
        if (queue->parent == NULL) br_slots_free(&queue->chain->slots);
        return br_fail(error, BR_E_NO_MEMORY, "queue '%s': no memory for %zu entries", queue->name, length);
    }
    queue->mask = length - 1;
    int status = br_order_create(queue, count, error);
    queue->sealed = status == BR_OK;
    return status;
}

void br_queue_destroy(struct br_queue *queue)
{
    if (queue == NULL) return;
    br_order_destroy(queue);
    while (queue->readers != NULL) {
        struct br_reader *r = queue->readers;
        queue->readers = r->sibling;
        free(r->name);
        free(r);
    }
    pthread_cond_destroy(&queue->space);
    pthread_cond_destroy(&queue->data);
    if (queue->parent != NULL) {
        if (queue->parent->alias == queue) queue->parent->alias = NULL;
    } else if (queue->chain != NULL) {
        br_slots_free(&queue->chain->slots);
        pthread_mutex_destroy(&queue->chain->lock);
        free(queue->chain);
    }
    free(queue->ring);
    free(queue->name);
    free(queue);
}

size_t br_queue_bytes(const struct br_queue *queue)
{
    return queue->parent == NULL
               ? br_slots_bytes(&queue->stream, queue->place, queue->depth + spare_slots(queue))
               : 0;
}

size_t br_queue_device_bytes(const struct br_queue *queue)
{
    return queue->parent == NULL
               ? br_slots_device_bytes(&queue->stream, queue->place, queue->depth + spare_slots(queue))
               : 0;
}

const struct br_stream *br_queue_stream(const struct br_queue *queue)
{
    return &queue->stream;
}

const char *br_queue_name(const struct br_queue *queue)
{
    return queue->name;
}

void br_queue_error(const struct br_queue *queue, struct br_error *error)
{
    lock(queue);
    *error = queue->failure;
    unlock(queue);
}

const struct br_queue *br_reader_queue(const struct br_reader *reader)
{
    return reader->queue;
}

const char *br_reader_name(const struct br_reader *reader)
{
    return reader->name;
}

/* --- counters
 * ------------------------------------------------------------------------------------------------------------- */

void br_queue_get_counters(const struct br_queue *queue, struct br_queue_counters *counters)
{
    lock(queue);
    *counters = queue->counters;
    counters->depth = queue->depth;
    counters->fill = br_queue_fill(queue);
    counters->ended = queue->ended;
    if (queue->wait_since != 0) counters->wait_ns += now_ns() - queue->wait_since;
    unlock(queue);
}

void br_reader_get_counters(const struct br_reader *reader, struct br_reader_counters *counters)
{
    lock(reader->queue);
    *counters = reader->counters;
    if (reader->wait_since != 0) counters->wait_ns += now_ns() - reader->wait_since;
    unlock(reader->queue);
}
