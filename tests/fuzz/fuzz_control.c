/* fuzz_control.c - any bytes sent to the control interface of a node without a pipeline: no crash, no hang,
 * no leak, and no pipeline that comes from nowhere. */
#include "runtime/control/parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct br_log fuzzed_log;
static struct br_node_options options = {.file = "/nowhere/node.yaml", .log = &fuzzed_log};
static struct node fuzzed_node = {.options = &options, .state = NODE_STOPPED};
static struct sockaddr_in address = {.sin_family = AF_INET};

static void start(void)
{
    struct br_error error = {0};
    FILE *nowhere = fopen("/dev/null", "w");
    br_log_init(&fuzzed_log, nowhere, BR_LOG_ERROR);
    if (br_log_keep(&fuzzed_log, 16) != BR_OK) abort();
    fuzzed_node.ev = ev_default_loop(EVFLAG_AUTO);
    struct server_options server = {.ev = fuzzed_node.ev,
                                    .listen = "127.0.0.1:0",
                                    .routes = node_routes,
                                    .arg = &fuzzed_node,
                                    .log = &fuzzed_log};
    if (server_create(&fuzzed_node.server, &server, &error) != BR_OK) abort();
    const char *port = strrchr(server_address(fuzzed_node.server), ':');
    address.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

/* Lets the server work until it has closed the connection, or has had nothing to say for QUIET rounds: it
 * waits for more of a request. */
enum { QUIET = 20 };

static void converse(int fd)
{
    char answer[4096];
    for (int quiet = 0; quiet < QUIET; quiet++) {
        ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
        if (n > 0) quiet = 0;
        ev_run(fuzzed_node.ev, EVRUN_NOWAIT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fuzzed_node.server == NULL) start();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) abort();
    /* A request that exceeds the socket's buffer is cut: the server may close before it has read all. */
    (void)!send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    converse(fd);
    close(fd);
    struct http_counts counts;
    for (int i = 0; i < 1000; i++) {
        server_counts(fuzzed_node.server, &counts);
        if (counts.connections == 0) break;
        ev_run(fuzzed_node.ev, EVRUN_NOWAIT);
    }
    if (counts.connections > 8) abort(); /* connections that are gone are kept */
    if (fuzzed_node.state != NODE_STOPPED || fuzzed_node.next.graph != NULL) abort();
    return 0;
}
