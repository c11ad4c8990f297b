/* server.h - HTTP inside the event loop: limits, the token, and a table of what there is.
 *
 * One rule: no request can end the process or cost a sample. Everything happens in the loop's thread; a
 * request has bounds on its size and time, and all of them together on memory. Slow work is
 * done elsewhere, and answered later (request_defer). */
#ifndef BEAMRING_RUNTIME_CONTROL_SERVER_H
#define BEAMRING_RUNTIME_CONTROL_SERVER_H

#include "runtime/control/facts.h"
#include "runtime/graph/settings.h"

#include <ev.h>
#include <jansson.h>

struct MHD_Connection;
struct server;

/* Bounds. */
enum {
    SERVER_CONNECTIONS = 512,
    SERVER_ROOM = 32, /* of these are kept free: an idle stranger goes when another one comes */
    /* Of a connection, for its request's headers. libmicrohttpd maps more than 32 KiB, and unmaps it with the
     * connection; less would come from the heap, and stay with it page by page. */
    SERVER_MEMORY = 36 * 1024,
    SERVER_BODY = 64 * 1024, /* of a request */
    SERVER_TIMEOUT_S = 10    /* without progress */
};

struct deferred; /* a request that is answered later */

struct control_request {
    struct server *server;
    struct deferred *later;
    struct MHD_Connection *connection;
    const char *path;
    const char *below; /* what stands behind a route's path that ends with '/'; "" */
    const char *body;  /* terminated; "" */
    size_t length;
};

struct control_answer {
    unsigned code;
    const char *type;            /* content type; constant */
    char *body;                  /* from malloc; the server frees it */
    void (*release)(void *body); /* frees it in place of free(); NULL: free() does */
    size_t length;
    bool later; /* server_answer will be called: the rest is not looked at */
};

struct control_route {
    const char *method, *path, *help; /* method NULL ends the table; a path /.../ is that of all below it */
    void (*answer)(void *arg, const struct control_request *request, struct control_answer *answer);
    unsigned fresh_ms; /* an answer to a request without a query is given to others for so long */
};

enum { SERVER_MAX_ROUTES = 32 };

struct server_options {
    struct ev_loop *ev;
    const char *listen, *token_file; /* token_file may be NULL */
    const struct control_route *routes;
    void *arg; /* of the routes */
    struct br_log *log;
};

/* Listens. Errors: BR_E_INVALID (address, token), BR_E_IO (the address is in use, ...), BR_E_NO_MEMORY. */
int server_create(struct server **server, const struct server_options *options, struct br_error *error);
void server_destroy(struct server *server);

/* The address that it listens on: "127.0.0.1:8081", with the port that was found for port 0. */
const char *server_address(const struct server *server);
void server_counts(const struct server *server, struct http_counts *counts);

/* --- for routes --- */

/* The value of ?key=value, or NULL. */
const char *request_query(const struct control_request *request, const char *key);

/* The connection waits until server_answer is called for what this returns, once, in the loop's thread and
 * not by a route: in the mean time others are served. The route sets `later`. */
struct deferred *request_defer(const struct control_request *request);
void request_undefer(const struct control_request *request); /* it is answered now after all */
void server_answer(struct server *server, struct deferred *deferred, const struct control_answer *answer);

/* A request header, or NULL. */
const char *request_header(const struct control_request *request, const char *name);

/* The document, which it takes, as JSON; real numbers have that many digits. The code stays as it is. No body
 * where there is no document or no memory. */
void answer_document(struct control_answer *answer, json_t *document, unsigned digits);

/* Requests may quote anything; what is said of them is plain text. */
void answer_clean(char *text);

/* {"error": text} */
void answer_error(struct control_answer *answer, unsigned code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
