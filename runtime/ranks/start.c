/* start.c - how a process becomes a rank: under MPI, by an address that all know, or on a connection. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"
#include "buffers/threads.h"
#include "runtime/base/beside.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How a rank is reached, as it tells the others. */
enum { ADDRESSES = 8, CONNECT_S = 30 };
struct meeting {
    unsigned char token[WIRE_TOKEN];
    uint32_t count; /* of addresses, the likeliest first */
    uint32_t address[ADDRESSES];
    uint16_t port; /* both in network byte order */
    uint16_t reserved;
    char host[256]; /* for messages */
};

static struct br_ranks *make(struct br_log *log)
{
    struct br_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) return NULL;
    pthread_mutex_init(&ranks->mutex, NULL);
    br_cond_init(&ranks->changed);
    ranks->log = log;
    ranks->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ranks->listening = -1;
    for (unsigned i = 0; i < STRANGERS; i++) ranks->stranger[i].wire.fd = -1;
    atomic_store(&ranks->stall_ns, UINT64_C(30000000000)); /* until the pipeline file says */
    return ranks;
}

void ranks_free(struct br_ranks *ranks)
{
    for (unsigned r = 0; ranks->peer != NULL && r < ranks->count; r++) {
        struct peer *peer = &ranks->peer[r];
        wire_close(&peer->wire);
        free(peer->part.data);
        for (struct post *post; (post = peer->post) != NULL; free(post)) peer->post = post->next;
    }
    for (unsigned i = 0; i < STRANGERS; i++) wire_close(&ranks->stranger[i].wire);
    if (ranks->listening >= 0) close(ranks->listening);
    if (ranks->poke >= 0) close(ranks->poke);
    free(ranks->gathered);
    free(ranks->peer);
    free(ranks->poll);
    free(ranks);
}

/* Before the listener has begun. */
static int give_up(struct br_ranks **ranks, int status)
{
    if ((*ranks)->mpi != NULL) (*ranks)->mpi->end(false);
    ranks_free(*ranks);
    *ranks = NULL;
    return status;
}

/* Makes room for the peers, once it is known how many they are. */
static int prepare(struct br_ranks *ranks, struct br_error *error)
{
    ranks->peer = calloc(ranks->count, sizeof *ranks->peer);
    ranks->poll = calloc(STRANGERS + 2 + ranks->count, sizeof *ranks->poll);
    for (unsigned r = 0; ranks->peer != NULL && r < ranks->count; r++)
        ranks->peer[r] = (struct peer){.wire.fd = -1, .came = r == ranks->rank, .heard_ns = br_clock_ns()};
    bool ok = ranks->peer != NULL && ranks->poll != NULL && ranks->poke >= 0;
    return ok ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for %u ranks", ranks->count);
}

static void set_variable(const char *name, unsigned value)
{
    char number[16];
    snprintf(number, sizeof number, "%u", value);
    setenv(name, number, 1);
}

/* Begins to listen to the others. */
static int begin(struct br_ranks *ranks, struct br_error *error)
{
    ranks->looked_ns = br_clock_ns();
    int failure = br_thread_start(&ranks->listener, ranks_listen, ranks);
    if (failure != 0) return br_fail(error, BR_E_NO_MEMORY, "no thread: %s", strerror(failure));
    set_variable("RANK", ranks->rank);
    set_variable("RANKS", ranks->count);
    set_variable("LOCAL_RANK", ranks->local);
    return BR_OK;
}

static int connect_to(uint32_t address, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {address}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct timeval limit = {.tv_sec = 3};
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

/* Connects to a rank at the first of its addresses that answers, and says who this is. */
static int reach(struct br_ranks *ranks, unsigned other, const struct meeting *meeting,
                 struct br_error *error)
{
    uint64_t end = br_clock_ns() + (uint64_t)CONNECT_S * 1000000000u;
    int fd = -1;
    while (fd < 0 && br_clock_ns() < end) {
        for (uint32_t i = 0; fd < 0 && i < meeting->count && i < ADDRESSES; i++)
            fd = connect_to(meeting->address[i], meeting->port);
        if (fd < 0 && br_ranks_failed(ranks, error)) return BR_E_IO;
        if (fd < 0) nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    if (fd < 0)
        return br_fail(
            error, BR_E_IO,
            "rank %u cannot connect to rank %u on '%.200s', port %u, within %d s; expected a network "
            "on which the ranks' machines reach each other",
            ranks->rank, other, meeting->host, ntohs(meeting->port), CONNECT_S);
    struct wire_head head = {WIRE_HELLO, ranks->rank, ranks->count, 0, WIRE_TOKEN};
    struct wire wire = {.fd = fd};
    /* Its first word says that it knows this rank. */
    if (!wire_send(&wire, &head, meeting->token) ||
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, CONNECT_S * 1000) <= 0) {
        wire_close(&wire);
        return br_fail(error, BR_E_IO, "rank %u has lost its connection to rank %u", ranks->rank, other);
    }
    pthread_mutex_lock(&ranks->mutex);
    ranks_connected(ranks, other, wire);
    pthread_mutex_unlock(&ranks->mutex);
    return BR_OK;
}

/* Becomes one of the ranks, of which rank 0 is at `meeting`. */
static int join(struct br_ranks *ranks, const struct meeting *meeting, struct br_error *error)
{
    int status = ranks->rank > 0 ? reach(ranks, 0, meeting, error) : BR_OK;
    return status == BR_OK ? begin(ranks, error) : status;
}

/* Lets others connect at an address and a port (0: any that is free), with the token of `meeting`, which
 * receives the port. */
static int let_in(struct br_ranks *ranks, uint32_t address, uint16_t port, struct meeting *meeting,
                  struct br_error *error)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {address}};
    socklen_t length = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, (struct sockaddr *)&a, length) == 0 && listen(fd, 128) == 0 &&
              getsockname(fd, (struct sockaddr *)&a, &length) == 0;
    if (!ok) {
        br_fail(error, BR_E_IO, "rank %u cannot listen for the other ranks at %s, port %u: %s", ranks->rank,
                inet_ntoa(a.sin_addr), ntohs(port), strerror(errno));
        if (fd >= 0) close(fd);
        return BR_E_IO;
    }
    meeting->port = a.sin_port;
    pthread_mutex_lock(&ranks->mutex);
    memcpy(ranks->token, meeting->token, WIRE_TOKEN);
    ranks->listening = fd;
    pthread_mutex_unlock(&ranks->mutex);
    eventfd_write(ranks->poke, 1);
    return BR_OK;
}

/* The addresses of this machine, without the loopback interface's. */
static void find_addresses(struct meeting *meeting)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i != NULL && meeting->count < ADDRESSES; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK) ||
            !(i->ifa_flags & IFF_UP))
            continue;
        meeting->address[meeting->count++] =
            ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr;
    }
    freeifaddrs(list);
}

/* Lets others connect, and says in `meeting` how. `alone`: all are on this machine. */
static int invite(struct br_ranks *ranks, bool alone, struct meeting *meeting, struct br_error *error)
{
    if (!alone) find_addresses(meeting);
    if (meeting->count == 0) meeting->address[meeting->count++] = htonl(INADDR_LOOPBACK);
    gethostname(meeting->host, sizeof meeting->host - 1);
    if (getrandom(meeting->token, WIRE_TOKEN, 0) != WIRE_TOKEN)
        return br_fail(error, BR_E_IO, "this machine has no random numbers: %s", strerror(errno));
    return let_in(ranks, htonl(alone ? INADDR_LOOPBACK : INADDR_ANY), 0, meeting, error);
}

static void mpi_happened(void *arg, const char *failure)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    ranks_happened(ranks);
    pthread_mutex_unlock(&ranks->mutex);
    if (failure != NULL) br_ranks_fail(ranks, 1, failure);
}

static struct br_message *mpi_expects(void *arg, unsigned from, unsigned channel, size_t bytes)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    struct post *post = ranks_keep(ranks, from, channel, bytes);
    pthread_mutex_unlock(&ranks->mutex);
    return post != NULL ? &post->message : NULL;
}

/* Loads the plugin and starts MPI, which says who this is. */
static int start_mpi(struct br_ranks *ranks, struct br_error *error)
{
    const struct mpi_host host = {ranks,         &ranks->rank, &ranks->count,
                                  &ranks->local, mpi_happened, mpi_expects};
    const char *why;
    /* Global: Open MPI's own plugins look for its symbols. */
    void *library = br_open_beside("runtime", "beamring_mpi.so", RTLD_NOW | RTLD_GLOBAL, &why);
    const struct mpi_plugin *mpi = library != NULL ? dlsym(library, "beamring_mpi") : NULL;
    if (mpi == NULL && why == NULL)
        return br_fail(error, BR_E_INVALID,
                       "--mpi: this beamring was built without MPI (there is no beamring_mpi.so); install "
                       "libopenmpi-dev and openmpi-bin and build it again");
    if (mpi == NULL)
        return br_fail(error, BR_E_INVALID,
                       "--mpi: MPI is not there: install openmpi-bin and libopenmpi3 (%.300s)", why);
    why = mpi->start(&host);
    if (why != NULL) return br_fail(error, BR_E_INVALID, "--mpi: %s", why);
    ranks->mpi = mpi;
    return BR_OK;
}

int br_ranks_start_mpi(struct br_ranks **result, struct br_log *log, struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    struct meeting meeting = {.count = 0};
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    int status = start_mpi(ranks, error);
    if (status != BR_OK) return give_up(result, status);
    status = prepare(ranks, error);
    if (status == BR_OK && ranks->rank == 0) {
        /* A job on one machine is reached through the loopback interface alone. */
        const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
        bool alone = ranks->count == 1 || (local != NULL && (unsigned)atoi(local) == ranks->count);
        status = invite(ranks, alone, &meeting, error);
    }
    if (!ranks->mpi->share(&meeting, sizeof meeting))
        status = br_fail(error, BR_E_IO, "--mpi: MPI_Bcast failed");
    if (status == BR_OK && meeting.port == 0)
        status = br_fail(error, BR_E_IO, "rank 0 cannot listen for the other ranks: see its message");
    if (status == BR_OK) status = join(ranks, &meeting, error);
    return status == BR_OK ? BR_OK : give_up(result, status);
}

static int number(const char *name, unsigned *value, struct br_error *error)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long n = text != NULL ? strtoul(text, &end, 10) : 0;
    if (end == text || *end != '\0' || n > 65536)
        return br_fail(error, BR_E_INVALID, "--join: the environment variable %s is '%s'; expected a number",
                       name, text != NULL ? text : "");
    *value = (unsigned)n;
    return BR_OK;
}

/* Collective: a connection to each other rank, for posts. The one of the higher number connects. */
static int meet_others(struct br_ranks *ranks, bool alone, struct br_error *error)
{
    struct meeting mine = {.count = 0}, theirs;
    struct br_ranks_part *part = NULL;
    int status = ranks->rank > 0 ? invite(ranks, alone, &mine, error) : BR_OK;
    if (status == BR_OK) status = br_ranks_gather(ranks, &mine, sizeof mine, &part, error);
    for (unsigned r = 1; status == BR_OK && r < ranks->rank; r++) {
        if (part[r].bytes != sizeof theirs)
            status =
                br_fail(error, BR_E_FORMAT, "rank %u is of another version; expected the same on all", r);
        if (status != BR_OK) break;
        memcpy(&theirs, part[r].data, sizeof theirs);
        status = reach(ranks, r, &theirs, error);
    }
    free(part);
    pthread_mutex_lock(&ranks->mutex);
    for (unsigned r = ranks->rank + 1; status == BR_OK && r < ranks->count; r++) {
        while (!ranks->peer[r].came && !ranks->failed) ranks_wait(ranks, NULL);
        if (!ranks->peer[r].came) status = ranks_say_why(ranks, error);
    }
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

/* RANK, RANKS and LOCAL_RANK. */
static int read_numbers(struct br_ranks *ranks, struct br_error *error)
{
    int status = number("RANK", &ranks->rank, error);
    if (status == BR_OK) status = number("RANKS", &ranks->count, error);
    ranks->local = ranks->rank;
    if (status == BR_OK && getenv("LOCAL_RANK") != NULL) status = number("LOCAL_RANK", &ranks->local, error);
    if (status == BR_OK && ranks->rank >= ranks->count)
        status = br_fail(error, BR_E_INVALID, "--join: RANK is %u and RANKS is %u; expected RANK below RANKS",
                         ranks->rank, ranks->count);
    return status;
}

/* `address` as what all know of rank 0. */
static int read_address(const char *address, struct meeting *meeting, struct br_error *error)
{
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    *meeting = (struct meeting){.count = 1};
    snprintf(meeting->host, sizeof meeting->host, "%.*s", colon != NULL ? (int)(colon - address) : 0,
             address);
    if (colon == NULL || getaddrinfo(meeting->host, colon + 1, &hints, &found) != 0)
        return br_fail(error, BR_E_INVALID, "--join: '%s' is not an address; expected HOST:PORT", address);
    const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)found->ai_addr;
    meeting->address[0] = a->sin_addr.s_addr;
    meeting->port = a->sin_port;
    freeaddrinfo(found);
    memcpy(meeting->token, "beamring --join ", WIRE_TOKEN);
    return BR_OK;
}

int br_ranks_start_join(struct br_ranks **result, const char *address, struct br_log *log,
                        struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    struct meeting meeting;
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    int status = read_numbers(ranks, error);
    if (status == BR_OK) status = read_address(address, &meeting, error);
    if (status == BR_OK) status = prepare(ranks, error);
    if (status == BR_OK && ranks->rank == 0)
        status = let_in(ranks, meeting.address[0], meeting.port, &meeting, error);
    if (status == BR_OK) status = join(ranks, &meeting, error);
    if (status != BR_OK) return give_up(result, status);
    status = meet_others(ranks, (ntohl(meeting.address[0]) >> 24) == IN_LOOPBACKNET, error);
    if (status == BR_OK) return BR_OK;
    br_ranks_fail(ranks, 1, error->text); /* the others wait for it */
    br_ranks_leave(ranks, 1);
    *result = NULL;
    return status;
}

int br_ranks_start_on(struct br_ranks **result, unsigned rank, unsigned count, const int *fd,
                      struct br_log *log, struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    ranks->rank = ranks->local = rank;
    ranks->count = count;
    int status = prepare(ranks, error);
    for (unsigned r = 0; status == BR_OK && r < (rank == 0 ? count : 1); r++)
        if (r != rank) ranks_connected(ranks, r, (struct wire){.fd = fd[r]});
    if (status == BR_OK) status = begin(ranks, error);
    return status == BR_OK ? BR_OK : give_up(result, status);
}
