#include "stages/replay/prefetch.h"

#include "stages/replay/replay.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { PAGE = 4096 }; /* windows start at pages: the kernel copies fastest between equal places in a page */

struct window {
    uint8_t *bytes;
    uint64_t at;
    size_t used; /* 0: empty */
    int status;  /* of reading it */
    struct br_error error;
};

struct prefetch {
    size_t room, piece;
    struct window
        window[2]; /* the one in use is window[now]; the other belongs to the thread while `asked` */
    int now;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    bool asked, quit;
    bool pending; /* the other window is asked for, or there already */
    int fd;
    const char *path;
    uint64_t file_bytes;
};

static void read_window(struct prefetch *p, struct window *w, uint64_t at)
{
    uint64_t left = p->file_bytes - at;
    w->at = at;
    w->used = left < p->room ? (size_t)left : p->room;
    w->error = (struct br_error){0};
    w->status = files_pread(p->fd, p->path, w->bytes, w->used, at, &w->error);
}

static void *helper(void *arg)
{
    struct prefetch *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->asked && !p->quit) pthread_cond_wait(&p->begin, &p->lock);
        if (p->quit) break;
        struct window *w = &p->window[1 - p->now];
        pthread_mutex_unlock(&p->lock);
        read_window(p, w, w->at);
        pthread_mutex_lock(&p->lock);
        p->asked = false;
        pthread_cond_signal(&p->end);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct prefetch *prefetch_start(size_t room, size_t piece)
{
    struct prefetch *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->piece = piece;
    p->room = ((room > 4 * piece ? room : 4 * piece) / PAGE + 2) * PAGE;
    for (int i = 0; i < 2; i++) p->window[i].bytes = aligned_alloc(PAGE, p->room);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begin, NULL);
    pthread_cond_init(&p->end, NULL);
    if (p->window[0].bytes != NULL && p->window[1].bytes != NULL &&
        pthread_create(&p->thread, NULL, helper, p) == 0)
        return p;
    free(p->window[0].bytes);
    free(p->window[1].bytes);
    free(p);
    return NULL;
}

void prefetch_stop(struct prefetch *p)
{
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_signal(&p->begin);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->begin);
    pthread_cond_destroy(&p->end);
    pthread_mutex_destroy(&p->lock);
    free(p->window[0].bytes);
    free(p->window[1].bytes);
    free(p);
}

static void wait_for_helper(struct prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->asked) pthread_cond_wait(&p->end, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void prefetch_forget(struct prefetch *p)
{
    wait_for_helper(p);
    p->pending = false;
    p->window[0].used = p->window[1].used = 0;
}

/* Has the thread read the window behind the one in use; the two have a piece in common, so that any next
 * piece is whole in it. */
static void ask_for_next(struct prefetch *p)
{
    const struct window *w = &p->window[p->now];
    uint64_t end = w->at + w->used, at = (end - p->piece) / PAGE * PAGE;
    p->pending = end < p->file_bytes;
    if (!p->pending) return;
    pthread_mutex_lock(&p->lock);
    p->window[1 - p->now].at = at;
    p->asked = true;
    pthread_cond_signal(&p->begin);
    pthread_mutex_unlock(&p->lock);
}

static bool has(const struct window *w, uint64_t offset, size_t length)
{
    return w->used > 0 && offset >= w->at && offset + length <= w->at + w->used;
}

int prefetch_get(struct prefetch *p, int fd, const char *path, uint64_t file_bytes, uint64_t offset,
                 size_t length, const uint8_t **bytes, struct br_error *error)
{
    struct window *w = &p->window[p->now];
    if (!has(w, offset, length)) {
        wait_for_helper(p);
        w = &p->window[1 - p->now];
        bool next = p->pending && has(w, offset, length);
        p->fd = fd;
        p->path = path;
        p->file_bytes = file_bytes;
        p->now = 1 - p->now;
        if (!next) read_window(p, w, offset / PAGE * PAGE);
        if (w->status != BR_OK) {
            w->used = 0;
            p->pending = false;
            return br_fail(error, w->status, "%s", w->error.text);
        }
        ask_for_next(p);
    }
    *bytes = w->bytes + (offset - w->at);
    return BR_OK;
}
