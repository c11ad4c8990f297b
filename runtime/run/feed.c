/* feed.c - locked memory through which a source on a GPU writes its frames; see stage.h, FEEDING A GPU. */
#include "buffers/gpu.h"
#include "buffers/gpu_wait.h"
#include "runtime/run/state.h"
#include "runtime/stage_feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct br_feed {
    struct br_stage *stage;
    size_t bytes; /* of a buffer, and from one to the next */
    unsigned count;
    uint64_t given, nsent; /* buffers, from the beginning on */
    uint8_t *memory;       /* [count][bytes] */
    br_gpu_event *taken;   /* [count] the copy from the buffer has been made */
    bool *sent;            /* [count] ... has been enqueued: the event says when */
    bool locked;
    struct br_gpu_waits waits;
};

void br_stage_feeds(struct br_stage *stage)
{
    stage->feeds = true;
}

static int reserve(struct br_feed *feed, struct br_error *error)
{
    void *memory =
        mmap(NULL, feed->bytes * feed->count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu bytes: %s", feed->bytes * feed->count,
                       strerror(errno));
    feed->memory = memory;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, feed->bytes * feed->count, MADV_HUGEPAGE); /* only advice: fewer TLB misses */
#endif
#ifdef MADV_DONTFORK
    /* A fork would copy locked pages, and hold up all that run meanwhile. */
    (void)madvise(memory, feed->bytes * feed->count, MADV_DONTFORK);
#endif
    memset(memory, 0, feed->bytes * feed->count);
    int status = br_gpu_pin(memory, feed->bytes * feed->count, error);
    feed->locked = status == BR_OK;
    for (unsigned i = 0; i < feed->count && status == BR_OK; i++)
        status = br_gpu_event_create(&feed->taken[i], feed->stage->device, false, error);
    return status;
}

int br_feed_open(struct br_stage *stage, size_t bytes, unsigned count, struct br_feed **feed)
{
    struct br_error error = {0};
    *feed = calloc(1, sizeof **feed);
    if (*feed == NULL) return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory");
    **feed = (struct br_feed){.stage = stage, .bytes = bytes, .count = count};
    (*feed)->taken = calloc(count, sizeof *(*feed)->taken);
    (*feed)->sent = calloc(count, sizeof *(*feed)->sent);
    int status = BR_E_NO_MEMORY;
    if ((*feed)->taken != NULL && (*feed)->sent != NULL) status = reserve(*feed, &error);
    if (status == BR_OK) return BR_OK;
    br_feed_close(*feed);
    *feed = NULL;
    return br_stage_fail(stage, status, "%s", error.text[0] != '\0' ? error.text : "no memory");
}

void br_feed_close(struct br_feed *feed)
{
    if (feed == NULL) return;
    if (feed->stage->state->gpu.handle != NULL) (void)br_gpu_stream_wait(&feed->stage->state->gpu, NULL);
    for (unsigned i = 0; feed->taken != NULL && i < feed->count; i++) br_gpu_event_destroy(feed->taken[i]);
    if (feed->locked) br_gpu_unpin(feed->memory);
    if (feed->memory != NULL) munmap(feed->memory, feed->bytes * feed->count);
    free(feed->taken);
    free(feed->sent);
    free(feed);
}

/* Whether the next buffer is free; negative after a failure of the GPU. */
static int is_free(struct br_feed *feed, struct br_error *error)
{
    unsigned i = (unsigned)(feed->given % feed->count);
    if (feed->given - feed->nsent == feed->count) return 0;
    return feed->sent[i] ? br_gpu_event_query(feed->taken[i], error) : 1;
}

bool br_feed_ready(struct br_feed *feed)
{
    struct br_error error = {0};
    return is_free(feed, &error) != 0; /* a failure shows in br_feed_buffer */
}

void *br_feed_buffer(struct br_feed *feed)
{
    struct br_error error = {0};
    unsigned i = (unsigned)(feed->given % feed->count);
    int status = is_free(feed, &error);
    if (status == 0 && feed->sent[i]) {
        br_stage_waits_for(feed->stage, "copies to the GPU");
        status = br_gpu_event_wait(feed->taken[i], &feed->waits, &error) == BR_OK ? 1 : BR_E_DEVICE;
        br_stage_waits_for(feed->stage, NULL);
    }
    if (status <= 0) {
        br_stage_fail(feed->stage, BR_E_DEVICE, "%s", status < 0 ? error.text : "all buffers are given away");
        return NULL;
    }
    feed->sent[i] = false;
    feed->given++;
    return feed->memory + i * feed->bytes;
}

int br_feed_send(struct br_feed *feed, void *to, size_t skip, size_t bytes)
{
    struct br_error error = {0};
    unsigned i = (unsigned)(feed->nsent % feed->count);
    int status =
        br_gpu_copy(to, feed->memory + i * feed->bytes + skip, bytes, &feed->stage->state->gpu, &error);
    if (status == BR_OK) status = br_gpu_event_record(feed->taken[i], &feed->stage->state->gpu, &error);
    if (status != BR_OK) return br_stage_fail(feed->stage, status, "%s", error.text);
    feed->sent[i] = true;
    feed->nsent++;
    return BR_OK;
}
