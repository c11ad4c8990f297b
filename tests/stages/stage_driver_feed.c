/* stage_driver_feed.c - the feed of a GPU (stage_feed.h) for stages that a test drives. */
#include "runtime/stage_feed.h"
#include "stage_driver.h"

#include <stdlib.h>
#include <string.h>

/* A simulated GPU whose memory is host memory. A copy is made only when its buffer is needed again, or at the
 * end, so that a test fails if a buffer is overwritten too early. */
struct br_feed {
    struct br_stage *stage;
    uint8_t *memory;
    size_t bytes;
    unsigned count, given, nsent;
    struct {
        void *to;
        size_t skip, bytes;
    } sent[16];
};

void br_stage_feeds(struct br_stage *stage)
{
    stage->feeds = true;
}

int br_feed_open(struct br_stage *stage, size_t bytes, unsigned count, struct br_feed **feed)
{
    *feed = stage->feed = calloc(1, sizeof **feed);
    if (*feed == NULL || count > 16) abort();
    **feed = (struct br_feed){
        .stage = stage, .memory = aligned_alloc(4096, bytes * count), .bytes = bytes, .count = count};
    return BR_OK;
}

static void copy_sent(struct br_feed *feed, unsigned i)
{
    if (feed->sent[i].to == NULL) return;
    uint8_t *memory = feed->memory + i * feed->bytes;
    memcpy(feed->sent[i].to, memory + feed->sent[i].skip, feed->sent[i].bytes);
    memset(memory, 0xee, feed->bytes);
    feed->sent[i].to = NULL;
}

bool br_feed_ready(struct br_feed *feed)
{
    return feed->given - feed->nsent < feed->count;
}

void *br_feed_buffer(struct br_feed *feed)
{
    if (!br_feed_ready(feed)) abort();
    copy_sent(feed, feed->given % feed->count);
    return feed->memory + feed->given++ % feed->count * feed->bytes;
}

int br_feed_send(struct br_feed *feed, void *to, size_t skip, size_t bytes)
{
    unsigned i = feed->nsent++ % feed->count;
    if (skip + bytes > feed->bytes || feed->nsent > feed->given) abort();
    feed->sent[i].to = to;
    feed->sent[i].skip = skip;
    feed->sent[i].bytes = bytes;
    return BR_OK;
}

void br_feed_close(struct br_feed *feed)
{
    if (feed == NULL) return;
    feed->stage->feed = NULL;
    free(feed->memory);
    free(feed);
}

void driver_settle_feed(struct br_stage *stage)
{
    for (unsigned i = 0; stage->feed != NULL && i < stage->feed->count; i++) copy_sent(stage->feed, i);
}
