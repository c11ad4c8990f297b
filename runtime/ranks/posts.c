/* posts.c - short messages of a stage to the same stage of all other ranks. MPI carries them from rank to
 * rank, and where there is none a connection to each. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"

#include <stdlib.h>
#include <string.h>

#define LOST_NS UINT64_C(5000000000)

struct post *ranks_keep(struct br_ranks *ranks, unsigned from, unsigned channel, size_t bytes)
{
    struct post *post = malloc(sizeof *post + bytes), **at = &ranks->peer[from].post;
    if (post == NULL) return NULL;
    *post = (struct post){.message = {.data = post->data, .bytes = bytes, .channel = channel}};
    while (*at != NULL) at = &(*at)->next;
    return *at = post;
}

static bool post_by_mpi(struct br_ranks *ranks, unsigned to, unsigned channel, const void *data, size_t bytes)
{
    struct br_message *m = malloc(sizeof *m + bytes);
    if (m == NULL) return false;
    *m = (struct br_message){
        .data = m + 1, .bytes = bytes, .peer = to, .sends = true, .channel = channel | MPI_POST};
    memcpy(m->data, data, bytes);
    ranks->mpi->submit(m);
    return true;
}

int br_ranks_post(struct br_ranks *ranks, unsigned channel, const void *data, size_t bytes,
                  struct br_error *error)
{
    struct wire_head head = {WIRE_POST, ranks->rank, channel, 0, bytes};
    bool ok = true;
    pthread_mutex_lock(&ranks->mutex);
    /* Each rank begins with its neighbour, so that not all send to the same one at a time. */
    for (unsigned k = 1; k < ranks->count && ok; k++) {
        unsigned to = (ranks->rank + k) % ranks->count;
        ok = ranks->mpi != NULL ? post_by_mpi(ranks, to, channel, data, bytes)
                                : ranks_say(ranks, to, &head, data);
    }
    /* A connection that is lost has lost a rank, and rank 0 says so within a moment. */
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, LOST_NS);
    while (!ok && !ranks->failed && ranks_wait(ranks, &until)) continue;
    if (!ok && ranks->failed) ranks_say_why(ranks, error);
    pthread_mutex_unlock(&ranks->mutex);
    if (ok) return BR_OK;
    return br_fail(error, BR_E_IO, "another rank takes no messages, or there is no memory for one");
}

/* Where the oldest post of a channel is in the list of `from`: *the place is NULL when there is none. */
static struct post **find(struct br_ranks *ranks, unsigned channel, unsigned from)
{
    struct post **at = &ranks->peer[from].post;
    while (*at != NULL && (*at)->message.channel != channel) at = &(*at)->next;
    return at;
}

const void *br_ranks_next_post(struct br_ranks *ranks, unsigned channel, unsigned from, size_t *bytes)
{
    pthread_mutex_lock(&ranks->mutex);
    const struct post *post = *find(ranks, channel, from);
    pthread_mutex_unlock(&ranks->mutex);
    if (post == NULL || !br_message_done(&post->message)) return NULL;
    *bytes = post->message.bytes;
    return post->data;
}

void br_ranks_drop_post(struct br_ranks *ranks, unsigned channel, unsigned from)
{
    pthread_mutex_lock(&ranks->mutex);
    struct post **at = find(ranks, channel, from), *post = *at;
    if (post != NULL) *at = post->next;
    pthread_mutex_unlock(&ranks->mutex);
    free(post);
}
