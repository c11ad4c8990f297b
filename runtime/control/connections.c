/* connections.c - see connections.h. */
#include "runtime/control/connections.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

struct connection *connections_add(struct connections *connections, int fd)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) return NULL;
    connection->fd = fd;
    connection->next = connections->first;
    connections->first = connection;
    connections->count++;
    return connection;
}

void connections_remove(struct connections *connections, struct connection *connection)
{
    struct connection **place = &connections->first;
    while (*place != NULL && *place != connection) place = &(*place)->next;
    if (*place == NULL) return;
    *place = connection->next;
    connections->count--;
    free(connection);
}

void connections_make_room(struct connections *connections, unsigned most)
{
    struct connection *oldest = NULL; /* the list begins with the newest one */
    unsigned open = 0;
    for (struct connection *c = connections->first; c != NULL; c = c->next) {
        if (c->gone) continue;
        open++;
        if (c == connections->first) continue; /* it has come just now */
        if (!c->known || (!c->busy && (oldest == NULL || oldest->known))) oldest = c;
    }
    if (open <= most || oldest == NULL) return;
    oldest->gone = true;
    shutdown(oldest->fd, SHUT_RDWR);
}

void connections_sweep(struct connections *connections)
{
    for (struct connection *c = connections->first; c != NULL; c = c->next) {
        struct pollfd look = {.fd = c->fd, .events = POLLRDHUP};
        bool ended =
            !c->busy && poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        /* The library hears of this one, and closes. */
        if (ended && c->ended) shutdown(c->fd, SHUT_RDWR);
        c->ended = ended;
    }
}
