/* mpi_plugin.c - see mpi_plugin.h. */
#include "runtime/ranks/mpi_plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static MPI_Comm comm, posts; /* posts come unasked for: apart from what somebody waits for */
static MPI_Message found;
static MPI_Request *request;
static void **token_of;
static int *done_at;
static int active, capacity;

static bool say(int code, const char *call, char *why, size_t size)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(why, size, "%s: %s", call, text);
    return false;
}

static bool init(unsigned *rank, unsigned *ranks, unsigned *local, char *why, size_t size)
{
    int level, r, n, l;
    MPI_Comm host;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS) return say(code, "MPI_Init_thread", why, size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_dup(comm, &posts);
    MPI_Comm_set_errhandler(posts, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &r);
    MPI_Comm_size(comm, &n);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, r, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &l);
    MPI_Comm_free(&host);
    *rank = (unsigned)r;
    *ranks = (unsigned)n;
    *local = (unsigned)l;
    return true;
}

static bool share(void *data, size_t bytes)
{
    return MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, comm) == MPI_SUCCESS;
}

static bool grow(void)
{
    int more = 2 * capacity + 64;
    MPI_Request *r = realloc(request, (size_t)more * sizeof *r);
    if (r != NULL) request = r;
    void **t = realloc(token_of, (size_t)more * sizeof *t);
    if (t != NULL) token_of = t;
    int *d = realloc(done_at, (size_t)more * sizeof *d);
    if (d != NULL) done_at = d;
    if (r == NULL || t == NULL || d == NULL) return false;
    capacity = more;
    return true;
}

static bool has_room(char *why, size_t size)
{
    if (active < capacity || grow()) return true;
    snprintf(why, size, "no memory for %d messages", active);
    return false;
}

/* Synchronous sends of data: one that is done has been received, so that nobody runs ahead of who is slow. */
static bool begin(bool sends, void *data, size_t bytes, unsigned peer, unsigned channel, void *token,
                  char *why, size_t size)
{
    const char *call = !sends ? "MPI_Irecv" : channel & MPI_PLUGIN_POST ? "MPI_Isend" : "MPI_Issend";
    int n = (int)bytes, to = (int)peer, tag = (int)(channel & ~MPI_PLUGIN_POST), code;
    if (!has_room(why, size)) return false;
    MPI_Request *r = &request[active];
    if (!sends)
        code = MPI_Irecv(data, n, MPI_BYTE, to, tag, comm, r);
    else if (channel & MPI_PLUGIN_POST)
        code = MPI_Isend(data, n, MPI_BYTE, to, tag, posts, r);
    else
        code = MPI_Issend(data, n, MPI_BYTE, to, tag, comm, r);
    if (code != MPI_SUCCESS) return say(code, call, why, size);
    token_of[active++] = token;
    return true;
}

static int look(unsigned *peer, unsigned *channel, size_t *bytes, char *why, size_t size)
{
    MPI_Status status;
    int there = 0, n = 0;
    int code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, posts, &there, &found, &status);
    if (code != MPI_SUCCESS) {
        say(code, "MPI_Improbe", why, size);
        return -1;
    }
    if (!there) return 0;
    MPI_Get_count(&status, MPI_BYTE, &n);
    *peer = (unsigned)status.MPI_SOURCE;
    *channel = (unsigned)status.MPI_TAG;
    *bytes = (size_t)n;
    return 1;
}

static bool fetch(void *data, size_t bytes, void *token, char *why, size_t size)
{
    if (!has_room(why, size)) return false;
    int code = MPI_Imrecv(data, (int)bytes, MPI_BYTE, &found, &request[active]);
    if (code != MPI_SUCCESS) return say(code, "MPI_Imrecv", why, size);
    token_of[active++] = token;
    return true;
}

static int done(void (*each)(void *token), int *left, char *why, size_t size)
{
    int n = 0, kept = 0;
    *left = active;
    if (active == 0) return 0;
    int code = MPI_Testsome(active, request, &n, done_at, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
        say(code, "MPI_Testsome", why, size);
        return -1;
    }
    if (n == MPI_UNDEFINED || n == 0) return 0;
    for (int i = 0; i < n; i++) each(token_of[done_at[i]]);
    for (int i = 0; i < active; i++) {
        if (request[i] == MPI_REQUEST_NULL) continue;
        request[kept] = request[i];
        token_of[kept++] = token_of[i];
    }
    *left = active = kept;
    return n;
}

static void finalize(void)
{
    MPI_Finalize();
}

__attribute__((visibility("default")))
const struct mpi_plugin beamring_mpi = {init, share, begin, look, fetch, done, finalize};
