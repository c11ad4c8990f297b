/* epoch.c - see epoch.h. */
#include "stages/capture/epoch.h"
#include "buffers/clock.h"
#include "buffers/threads.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWER_BYTES = 4096, TIMEOUT_MS = 3000, PERIOD_S = 5 };

struct answer {
    size_t length;
    char text[ANSWER_BYTES];
};

struct epoch_watch {
    char *url;
    pthread_t id;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop, asks, hurry; /* asks: now; hurry: it shall, and not wait any longer */
    _Atomic int64_t latest;
    _Atomic uint64_t failures, attempts; /* that have ended */
};

static size_t append(char *bytes, size_t size, size_t n, void *to)
{
    struct answer *a = to;
    if (n * size > sizeof a->text - a->length) return 0; /* curl ends the transfer */
    memcpy(a->text + a->length, bytes, n * size);
    a->length += n * size;
    return n * size;
}

static int parse(const char *url, const struct answer *a, int64_t *epoch_ns, struct br_error *error)
{
    json_error_t why;
    json_t *root = json_loadb(a->text, a->length, 0, &why);
    const json_t *value = json_object_get(root, "frame0_nano"), *refusal = json_object_get(root, "error");
    int status = BR_OK;
    if (json_is_integer(value) && json_integer_value(value) > 0)
        *epoch_ns = json_integer_value(value);
    else
        status = br_fail(
            error, BR_E_FORMAT, "%s answers without frame0_nano%s%.200s; expected {\"frame0_nano\": ...}",
            url, refusal != NULL ? ": " : "", json_is_string(refusal) ? json_string_value(refusal) : "");
    json_decref(root);
    return status;
}

int epoch_ask(const char *url, int64_t *epoch_ns, struct br_error *error)
{
    struct answer *answer = calloc(1, sizeof *answer);
    CURL *curl = curl_easy_init();
    char why[CURL_ERROR_SIZE] = "";
    if (curl == NULL || answer == NULL) {
        curl_easy_cleanup(curl);
        free(answer);
        return br_fail(error, BR_E_NO_MEMORY, "no memory to ask %s", url);
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    CURLcode code = curl_easy_perform(curl);
    int status = code == CURLE_OK ? parse(url, answer, epoch_ns, error)
                                  : br_fail(error, BR_E_IO, "cannot get the time of sample 0 from %s: %s",
                                            url, why[0] != '\0' ? why : curl_easy_strerror(code));
    curl_easy_cleanup(curl);
    free(answer);
    return status;
}

static void *run(void *arg)
{
    struct epoch_watch *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        struct timespec until = br_clock_in(CLOCK_MONOTONIC, PERIOD_S * UINT64_C(1000000000));
        while (!w->stop && !w->hurry)
            if (pthread_cond_timedwait(&w->wake, &w->mutex, &until) != 0) break;
        if (w->stop) break;
        w->hurry = false;
        w->asks = true;
        pthread_mutex_unlock(&w->mutex);
        int64_t now = 0;
        if (epoch_ask(w->url, &now, NULL) == BR_OK)
            atomic_store(&w->latest, now);
        else
            atomic_fetch_add(&w->failures, 1);
        pthread_mutex_lock(&w->mutex);
        w->asks = false;
        atomic_fetch_add(&w->attempts, 1);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

uint64_t epoch_watch_hurry(struct epoch_watch *w)
{
    pthread_mutex_lock(&w->mutex);
    w->hurry = true;
    uint64_t enough = atomic_load(&w->attempts) + (w->asks ? 2 : 1);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    return enough;
}

bool epoch_watch_asked(const struct epoch_watch *w, uint64_t enough)
{
    return atomic_load(&w->attempts) >= enough;
}

int epoch_watch_start(struct epoch_watch **watch, const char *url, int64_t epoch_ns, struct br_error *error)
{
    struct epoch_watch *w = calloc(1, sizeof *w);
    *watch = NULL;
    if (w == NULL || (w->url = strdup(url)) == NULL) {
        free(w);
        return br_fail(error, BR_E_NO_MEMORY, "no memory to ask %s", url);
    }
    atomic_init(&w->latest, epoch_ns);
    pthread_mutex_init(&w->mutex, NULL);
    br_cond_init(&w->wake);
    int status = br_thread_start(&w->id, run, w);
    if (status != 0) {
        free(w->url);
        free(w);
        return br_fail(error, BR_E_NO_MEMORY, "no thread to ask %s: %s", url, strerror(status));
    }
    *watch = w;
    return BR_OK;
}

int64_t epoch_watch_latest(const struct epoch_watch *w, uint64_t *failures)
{
    *failures = atomic_load(&w->failures);
    return atomic_load(&w->latest);
}

void epoch_watch_stop(struct epoch_watch *w)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->id, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w->url);
    free(w);
}
