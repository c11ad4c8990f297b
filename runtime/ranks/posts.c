/* posts.c - short messages of a stage to the same stage of all other ranks. MPI carries them from rank to
 * rank; without it each goes to the receiver's hub. */
#include "runtime/ranks/mpi_plugin.h"
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOST_NS UINT64_C(5000000000)

/* A post on its way to all others, by MPI. */
struct sent {
    struct sent *next;
    struct br_message to[]; /* [ranks - 1], and behind them the data */
};

struct post *ranks_keep(struct br_ranks *ranks, unsigned from, unsigned channel, size_t bytes)
{
    struct post *post = malloc(sizeof *post + bytes), **at = &ranks->post[from];
    if (post == NULL) return NULL;
    *post = (struct post){.message = {.data = post->data, .bytes = bytes, .channel = channel}};
    while (*at != NULL) at = &(*at)->next;
    return *at = post;
}

struct br_message *ranks_expect(void *arg, unsigned from, unsigned channel, size_t bytes)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    struct post *post = ranks_keep(ranks, from, channel, bytes);
    pthread_mutex_unlock(&ranks->mutex);
    return post != NULL ? &post->message : NULL;
}

/* Frees the oldest posts, as far as all others have them. */
static void forget(struct br_ranks *ranks)
{
    for (struct sent *oldest; (oldest = ranks->sent) != NULL;) {
        for (unsigned i = 0; i + 1 < ranks->count; i++)
            if (!br_message_done(&oldest->to[i])) return;
        ranks->sent = oldest->next;
        free(oldest);
    }
}

static int post_by_mpi(struct br_ranks *ranks, unsigned channel, const void *data, size_t bytes)
{
    unsigned others = ranks->count - 1;
    struct sent *post = malloc(sizeof *post + others * sizeof *post->to + bytes), **last = &ranks->sent;
    if (post == NULL) return BR_E_NO_MEMORY;
    post->next = NULL;
    memcpy(&post->to[others], data, bytes);
    /* Each rank begins with its neighbour, so that not all send to the same one at a time. */
    for (unsigned k = 0; k < others; k++)
        post->to[k] = (struct br_message){.data = &post->to[others],
                                          .bytes = bytes,
                                          .sends = true,
                                          .peer = (ranks->rank + 1 + k) % ranks->count,
                                          .channel = channel | MPI_PLUGIN_POST};
    forget(ranks);
    while (*last != NULL) last = &(*last)->next;
    *last = post;
    for (unsigned k = 0; k < others; k++) engine_submit(ranks->engine, &post->to[k]);
    return BR_OK;
}

/* A connection that is lost has lost a rank, and rank 0 says so within a moment. */
static int post_to_hubs(struct br_ranks *ranks, unsigned channel, const void *data, size_t bytes)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, LOST_NS);
    bool ok = true;
    for (unsigned k = 1; k < ranks->count && ok; k++)
        ok = ranks_say(ranks, (ranks->rank + k) % ranks->count, WIRE_POST, channel, data, bytes);
    for (int result = 0; !ok && !ranks->failed && result != ETIMEDOUT;)
        result = pthread_cond_timedwait(&ranks->changed, &ranks->mutex, &until);
    return ok ? BR_OK : BR_E_IO;
}

int br_ranks_post(struct br_ranks *ranks, unsigned channel, const void *data, size_t bytes)
{
    if (ranks->count == 1) return BR_OK;
    pthread_mutex_lock(&ranks->mutex);
    int status = ranks->engine != NULL ? post_by_mpi(ranks, channel, data, bytes)
                                       : post_to_hubs(ranks, channel, data, bytes);
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

const void *br_ranks_next_post(struct br_ranks *ranks, unsigned channel, unsigned from, size_t *bytes)
{
    pthread_mutex_lock(&ranks->mutex);
    const struct post *post = ranks->post[from];
    while (post != NULL && post->message.channel != channel) post = post->next;
    pthread_mutex_unlock(&ranks->mutex);
    if (post == NULL || !br_message_done(&post->message)) return NULL;
    *bytes = post->message.bytes;
    return post->data;
}

void br_ranks_drop_post(struct br_ranks *ranks, unsigned channel, unsigned from)
{
    pthread_mutex_lock(&ranks->mutex);
    struct post **at = &ranks->post[from], *post;
    while (*at != NULL && (*at)->message.channel != channel) at = &(*at)->next;
    post = *at;
    if (post != NULL) *at = post->next;
    pthread_mutex_unlock(&ranks->mutex);
    free(post);
}

void ranks_free_posts(struct br_ranks *ranks)
{
    for (unsigned r = 0; ranks->post != NULL && r < ranks->count; r++)
        for (struct post *post; (post = ranks->post[r]) != NULL; free(post)) ranks->post[r] = post->next;
    free(ranks->post);
    for (struct sent *sent; (sent = ranks->sent) != NULL; free(sent)) ranks->sent = sent->next;
}
