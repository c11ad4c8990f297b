/* moving.c - see moving.h. A plan goes round: the thread makes it, br_moving_take exchanges its weights with
 * those that held, and the thread destroys it with these before it makes the next one. */
#include "stages/common/sky/moving.h"
#include "kernels/common/cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct br_moving {
    struct br_weights_rule rule;
    struct br_baseband_params params; /* of the thread's plans */
    void *stream;                     /* on which weights are used; NULL on the CPU */
    struct br_beam *beams;            /* [nbeams], of the thread */
    int8_t *weight;                   /* likewise, as br_beam_weights_of makes them */
    int32_t *shift;

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_thread, wanted, made, quit; /* wanted: work for the thread; made: `plan` is of `interval` */
    uint64_t interval;
    struct br_baseband *plan; /* made, or used up: NULL where it could not be made */
    struct br_cuda *cuda;     /* of the thread's plans; NULL on the CPU */
    struct br_why why;
};

/* --- threads that share the making of one set of weights: a few for each, since sets are seldom --- */

enum { HELPERS = 8 };

struct shared {
    atomic_size_t next;
    atomic_uint workers;
    size_t jobs;
    br_parallel_work *work;
    void *arg;
};

/* Half of the pipeline's threads: the others have frames. */
static unsigned helpers(unsigned threads)
{
    return threads / 2 < 1 ? 1 : threads / 2 < HELPERS ? threads / 2 : HELPERS;
}

static void *help(void *arg)
{
    struct shared *s = arg;
    unsigned worker = atomic_fetch_add(&s->workers, 1);
    for (size_t job; (job = atomic_fetch_add(&s->next, 1)) < s->jobs;) s->work(s->arg, job, worker);
    return NULL;
}

static void share(void *context, size_t jobs, br_parallel_work *work, void *arg)
{
    const struct br_moving *m = context;
    struct shared s = {.jobs = jobs, .work = work, .arg = arg};
    pthread_t thread[HELPERS];
    unsigned n = 0;
    while (n + 1 < m->params.making.threads && n + 1 < jobs &&
           pthread_create(&thread[n], NULL, help, &s) == 0)
        n++;
    help(&s);
    while (n > 0) pthread_join(thread[--n], NULL);
}

/* --- the weights --- */

/* Enqueued work may still use the plan's weights, which are the previous ones. */
static void wait_for_use(struct br_moving *m)
{
    if (m->plan != NULL && m->cuda != NULL) br_cuda_wait(m->stream);
}

/* Without the mutex: nobody else looks at the plan while it is wanted. */
static int make(struct br_moving *m, uint64_t interval)
{
    const struct br_weights_rule *rule = &m->rule;
    br_motion_at(&rule->motion, interval, m->beams);
    br_beam_weights_of(rule, &m->params.making, m->beams, m->weight, m->shift);
    wait_for_use(m);
    br_baseband_destroy(m->plan);
    m->plan = NULL;
    return br_baseband_create(&m->plan, m->cuda != NULL ? BR_CUDA : BR_CPU, &m->params, &m->why);
}

static void *run(void *arg)
{
    struct br_moving *m = arg;
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        while (!m->wanted && !m->quit) pthread_cond_wait(&m->changed, &m->mutex);
        if (m->quit) break;
        uint64_t interval = m->interval;
        pthread_mutex_unlock(&m->mutex);
        make(m, interval);
        pthread_mutex_lock(&m->mutex);
        m->wanted = false;
        m->made = true;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

struct br_moving *br_moving_create(const struct br_weights_rule *rule, const struct br_baseband_params *like,
                                   const struct br_cuda *used, struct br_why *why)
{
    size_t rows = rule->nchannels * rule->npol * rule->motion.nbeams;
    struct br_moving *m = calloc(1, sizeof *m);
    if (m == NULL) {
        br_because(why, "no memory for beams that move");
        return NULL;
    }
    m->rule = *rule;
    m->params = *like;
    m->params.weight_channels = rule->nchannels;
    m->params.parallel = (struct br_parallel){0};
    m->params.making = (struct br_parallel){helpers(like->parallel.threads), m, share};
    m->params.cuda = NULL;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    if (used != NULL) {
        m->stream = br_cuda_stream(used);
        if (br_cuda_create_aside(&m->cuda, used, why) != 0) {
            br_moving_destroy(m);
            return NULL;
        }
        m->params.cuda = m->cuda;
    }
    m->beams = malloc(rule->motion.nbeams * sizeof *m->beams);
    m->weight = malloc(rows * rule->ndishes * 2);
    m->shift = malloc(rows * sizeof *m->shift);
    m->params.weights = m->weight;
    m->params.shift = m->shift;
    if (m->beams != NULL && m->weight != NULL && m->shift != NULL)
        m->has_thread = pthread_create(&m->thread, NULL, run, m) == 0;
    if (m->has_thread) return m;
    br_because(why, "no memory, or no thread, for the weights of beams that move");
    br_moving_destroy(m);
    return NULL;
}

void br_moving_destroy(struct br_moving *m)
{
    if (m == NULL) return;
    if (m->has_thread) {
        pthread_mutex_lock(&m->mutex);
        m->quit = true;
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->mutex);
        pthread_join(m->thread, NULL);
    }
    wait_for_use(m);
    br_baseband_destroy(m->plan);
    br_cuda_destroy(m->cuda);
    free(m->beams);
    free(m->weight);
    free(m->shift);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* Under the mutex: the thread is at work on it, or has made it. */
static void ask(struct br_moving *m, uint64_t interval)
{
    m->interval = interval;
    m->made = false;
    m->wanted = true;
    pthread_cond_broadcast(&m->changed);
}

int br_moving_take(struct br_moving *m, struct br_baseband *plan, uint64_t interval, struct br_beam *beams,
                   struct br_why *why)
{
    pthread_mutex_lock(&m->mutex);
    while (m->wanted) pthread_cond_wait(&m->changed, &m->mutex);
    if (!m->made || m->interval != interval) { /* the first ones, or behind a loss */
        ask(m, interval);
        while (m->wanted) pthread_cond_wait(&m->changed, &m->mutex);
    }
    int status =
        m->plan != NULL ? br_baseband_may_exchange(plan, m->plan, why) : br_because(why, "%s", m->why.text);
    if (status == 0) {
        br_baseband_exchange(plan, m->plan);
        memcpy(beams, m->beams, m->rule.motion.nbeams * sizeof *beams);
        ask(m, interval + 1);
    }
    pthread_mutex_unlock(&m->mutex);
    return status;
}
