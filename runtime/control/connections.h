/* connections.h - the connections of the control interface: how many there are, and which of them are dead.
 *
 * A client that sends its request and at once says that nothing more will come is answered, but the library,
 * which hears of each change of a socket once, may miss the end and keep the connection until its time is up
 * (libmicrohttpd 0.9.75). Many such clients would leave no room for others. So idle connections are looked at
 * now and then, and those whose other side has ended are ended here, too. */
#ifndef BEAMRING_RUNTIME_CONTROL_CONNECTIONS_H
#define BEAMRING_RUNTIME_CONTROL_CONNECTIONS_H

#include <stdbool.h>

struct connection {
    int fd;
    bool busy;  /* a request is being answered */
    bool ended; /* the other side had ended at the last look */
    bool known; /* has sent a request that was not refused: it has the token, where there is one */
    bool gone;  /* was ended here, and the library is yet to hear of it */
    struct connection *next;
};

struct connections {
    struct connection *first;
    unsigned count;
};

/* NULL without memory. */
struct connection *connections_add(struct connections *connections, int fd);
void connections_remove(struct connections *connections, struct connection *connection);

/* Where more than `most` are open, ends the oldest one that is not known; where all are, the oldest one that
 * waits for nothing. So that strangers, idle or slow, shut nobody out. */
void connections_make_room(struct connections *connections, unsigned most);

/* Ends those that were idle and ended at the last look, too. */
void connections_sweep(struct connections *connections);

#endif
