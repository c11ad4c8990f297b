/* start.c - how a process becomes a rank: under MPI, by an address that all know, or on a connection. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"
#include "runtime/base/variables.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Where rank 0 listens; what it tells the others. */
enum { ADDRESSES = 8, CONNECT_S = 30 };
struct meeting {
    unsigned char token[WIRE_TOKEN];
    uint32_t count; /* of addresses, the likeliest first */
    uint32_t address[ADDRESSES];
    uint16_t port; /* both in network byte order */
    uint16_t reserved;
    char host[256]; /* of rank 0: who has the same name connects through the loopback interface */
};

static struct br_ranks *make(struct br_log *log)
{
    struct br_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) return NULL;
    pthread_mutex_init(&ranks->mutex, NULL);
    ranks->log = log;
    ranks->poke = -1;
    ranks->count = 1;
    return ranks;
}

static int give_up(struct br_ranks **ranks, int status)
{
    if (*ranks == NULL) return status;
    hub_destroy((*ranks)->hub, 0);
    engine_destroy((*ranks)->engine, false);
    ranks_free(*ranks);
    *ranks = NULL;
    return status;
}

/* A listening socket at `address` (network byte order), port 0 for any; -1 with errno. */
static int listen_at(uint32_t address, uint16_t port, uint16_t *bound)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {address}};
    socklen_t length = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 128) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &length) == 0) {
        *bound = a.sin_port;
        return fd;
    }
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
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

/* Connects to a rank's hub at the first of its addresses that answers, and says who this is. */
static int reach(const struct br_ranks *ranks, unsigned other, const struct meeting *meeting,
                 struct wire *wire, struct br_error *error)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    bool same = strncmp(host, meeting->host, sizeof host) == 0;
    uint64_t end = br_clock_ns() + (uint64_t)CONNECT_S * 1000000000u;
    int fd = -1;
    while (fd < 0 && br_clock_ns() < end) {
        if (same) fd = connect_to(htonl(INADDR_LOOPBACK), meeting->port);
        for (uint32_t i = 0; fd < 0 && i < meeting->count && i < ADDRESSES; i++)
            fd = connect_to(meeting->address[i], meeting->port);
        if (fd < 0) nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    if (fd < 0)
        return br_fail(
            error, BR_E_IO,
            "rank %u cannot connect to rank %u on '%.200s', port %u, within %d s; expected a network "
            "on which the ranks' machines reach each other",
            ranks->rank, other, meeting->host, ntohs(meeting->port), CONNECT_S);
    struct wire_head head = {
        .type = WIRE_HELLO, .from = ranks->rank, .channel = ranks->count, .length = WIRE_TOKEN};
    *wire = (struct wire){.fd = fd};
    /* Its first word says that it knows this rank. */
    if (wire_send(wire, &head, meeting->token) &&
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, CONNECT_S * 1000) > 0)
        return BR_OK;
    wire_close(wire);
    return br_fail(error, BR_E_IO, "rank %u has lost its connection to rank %u", ranks->rank, other);
}

static int join(struct br_ranks *ranks, const struct meeting *meeting, struct br_error *error)
{
    struct wire wire;
    int status = reach(ranks, 0, meeting, &wire, error);
    return status == BR_OK ? ranks_begin(ranks, &wire, error) : status;
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

/* Makes this rank's hub, on a port that is free, and says in `meeting` how to reach it. `alone`: from this
 * machine only. */
static int invite(struct br_ranks *ranks, struct meeting *meeting, bool alone, struct br_error *error)
{
    uint16_t port = 0;
    find_addresses(meeting);
    gethostname(meeting->host, sizeof meeting->host - 1);
    bool random = getrandom(meeting->token, WIRE_TOKEN, 0) == WIRE_TOKEN;
    int listening = random ? listen_at(htonl(alone ? INADDR_LOOPBACK : INADDR_ANY), 0, &port) : -1;
    if (listening < 0)
        return br_fail(error, BR_E_IO, "rank %u cannot listen for the other ranks: %s", ranks->rank,
                       strerror(errno));
    int status = hub_listen(&ranks->hub, ranks->count, listening, meeting->token,
                            (struct hub_posts){ranks_take_post, ranks, ranks->rank > 0}, error);
    if (status == BR_OK) meeting->port = port;
    return status;
}

int br_ranks_start_mpi(struct br_ranks **result, struct br_log *log, struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    struct engine_self self = {0};
    struct meeting meeting = {.count = 0};
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    int status = engine_create(&ranks->engine, &self, ranks_happened, ranks_expect, ranks, error);
    if (status != BR_OK) return give_up(result, status);
    ranks->rank = self.rank;
    ranks->count = self.ranks;
    ranks->local = self.local;
    if (ranks->rank == 0) {
        /* A job on one machine is reached through the loopback interface alone. */
        const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
        bool alone = ranks->count == 1 || (local != NULL && (unsigned)atoi(local) == ranks->count);
        status = invite(ranks, &meeting, alone, error);
    }
    struct br_error ignored; /* the first one counts */
    int shared = engine_share(ranks->engine, &meeting, sizeof meeting, status == BR_OK ? error : &ignored);
    if (status == BR_OK) status = shared;
    if (status == BR_OK && meeting.port == 0)
        status = br_fail(error, BR_E_IO, "rank 0 cannot listen for the other ranks: see its message");
    if (status == BR_OK) status = join(ranks, &meeting, error);
    return status == BR_OK ? BR_OK : give_up(result, status);
}

static int number(const char *name, unsigned *value, struct br_error *error)
{
    const char *text = br_ranks_variable(name);
    char *end = NULL;
    unsigned long n = getenv(name) != NULL ? strtoul(text, &end, 10) : 0;
    if (end == NULL || end == text || *end != '\0' || n > 65536)
        return br_fail(error, BR_E_INVALID, "--join: the environment variable %s is '%s'; expected a number",
                       name, getenv(name) != NULL ? text : "");
    *value = (unsigned)n;
    return BR_OK;
}

/* Collective: a connection to the hub of each other rank, which takes posts. */
static int meet_others(struct br_ranks *ranks, bool alone, struct br_error *error)
{
    struct meeting mine = {.count = 0}, theirs;
    unsigned char *all = NULL;
    const unsigned char *part;
    size_t length, at = 0, bytes;
    int status = ranks->rank > 0 ? invite(ranks, &mine, alone, error) : BR_OK;
    if (status == BR_OK) status = br_ranks_gather(ranks, &mine, sizeof mine, &all, &length, error);
    for (unsigned r = 0; status == BR_OK && r < ranks->count; r++) {
        struct wire wire;
        status = br_ranks_part(all, length, &at, &part, &bytes, error);
        if (status == BR_OK && bytes != sizeof theirs)
            status =
                br_fail(error, BR_E_FORMAT, "rank %u is of another version; expected the same on all", r);
        if (status != BR_OK || r == 0) continue;
        memcpy(&theirs, part, sizeof theirs);
        wire = (struct wire){.fd = -1};
        if (r != ranks->rank) status = reach(ranks, r, &theirs, &wire, error);
        if (status != BR_OK) break;
        pthread_mutex_lock(&ranks->mutex);
        ranks->wire[r] = wire;
        ranks->hubs = r + 1;
        pthread_mutex_unlock(&ranks->mutex);
    }
    free(all);
    eventfd_write(ranks->poke, 1);
    return status;
}

int br_ranks_start_join(struct br_ranks **result, const char *address, struct br_log *log,
                        struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    struct meeting meeting = {.count = 1};
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    snprintf(meeting.host, sizeof meeting.host, "%.*s", colon != NULL ? (int)(colon - address) : 0, address);
    int status = number("RANK", &ranks->rank, error);
    if (status == BR_OK) status = number("RANKS", &ranks->count, error);
    if (status == BR_OK && getenv("LOCAL_RANK") != NULL) status = number("LOCAL_RANK", &ranks->local, error);
    if (status == BR_OK && getenv("LOCAL_RANK") == NULL) ranks->local = ranks->rank;
    if (status == BR_OK && ranks->rank >= ranks->count)
        status = br_fail(error, BR_E_INVALID, "--join: RANK is %u and RANKS is %u; expected RANK below RANKS",
                         ranks->rank, ranks->count);
    if (status == BR_OK && (colon == NULL || getaddrinfo(meeting.host, colon + 1, &hints, &found) != 0))
        status = br_fail(error, BR_E_INVALID, "--join: '%s' is not an address; expected HOST:PORT", address);
    if (status != BR_OK) return give_up(result, status);
    const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)found->ai_addr;
    meeting.address[0] = a->sin_addr.s_addr;
    meeting.port = a->sin_port;
    freeaddrinfo(found);
    memcpy(meeting.token, "beamring --join ", WIRE_TOKEN);
    if (ranks->rank == 0) {
        uint16_t bound;
        int listening = listen_at(meeting.address[0], meeting.port, &bound);
        if (listening < 0)
            status = br_fail(error, BR_E_IO, "--join: cannot listen at %s: %s", address, strerror(errno));
        else
            status = hub_listen(&ranks->hub, ranks->count, listening, meeting.token,
                                (struct hub_posts){ranks_take_post, ranks, false}, error);
    }
    if (status == BR_OK) status = join(ranks, &meeting, error);
    if (status != BR_OK) return give_up(result, status);
    status = meet_others(ranks, (ntohl(meeting.address[0]) >> 24) == IN_LOOPBACKNET, error);
    if (status == BR_OK) return BR_OK;
    br_ranks_fail(ranks, 1, error->text); /* the others wait for it */
    br_ranks_leave(ranks, 1);
    *result = NULL;
    return status;
}

int br_ranks_start_on(struct br_ranks **result, unsigned rank, unsigned count, int fd, struct br_log *log,
                      struct br_error *error)
{
    struct br_ranks *ranks = *result = make(log);
    if (ranks == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the ranks");
    ranks->rank = ranks->local = rank;
    ranks->count = count;
    int status = ranks_begin(ranks, &(struct wire){.fd = fd}, error);
    return status == BR_OK ? BR_OK : give_up(result, status);
}
