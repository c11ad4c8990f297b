/* server.c - see server.h. */
#include "runtime/control/server.h"

#include "buffers/clock.h"
#include "runtime/control/access.h"
#include "runtime/control/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SWEEP_S 0.1

/* An answer that is given again. Metrics have two formats, so two each. */
struct kept {
    struct MHD_Response *response;
    uint64_t until_ns;
};

struct server {
    struct server_options options;
    struct MHD_Daemon *daemon;
    ev_io readable;
    ev_timer due, sweep;
    char address[80];
    struct access access;
    struct connections connections;
    struct deferred *waiting;
    struct kept kept[SERVER_MAX_ROUTES][2];
    struct http_counts counts;
};

/* A request while its body comes, and until it is answered. */
struct deferred {
    const struct control_route *route;
    char *body;
    size_t length;
    struct MHD_Connection *connection;
    struct control_answer answer; /* that came later */
    bool answered;
    struct deferred *next; /* of those that wait for an answer */
};

/* --- answers --- */

static void count(struct server *server, unsigned code)
{
    struct http_counts *c = &server->counts;
    unsigned i = 0;
    while (i + 1 < HTTP_CODES && c->code[i] != 0 && c->code[i] != code) i++;
    if (i + 1 == HTTP_CODES) return;
    c->code[i] = code;
    c->answers[i]++;
}

static void (*release_of(const struct control_answer *answer))(void *)
{
    return answer->release != NULL ? answer->release : free;
}

static struct MHD_Response *make_response(const struct control_answer *answer)
{
    struct MHD_Response *response =
        answer->body != NULL
            ? MHD_create_response_from_buffer_with_free_callback(answer->length, answer->body,
                                                                 release_of(answer))
            : MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (response == NULL) return NULL;
    MHD_add_response_header(response, "Content-Type", answer->type != NULL ? answer->type : "text/plain");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    /* The page holds all it needs, and asks nobody else. */
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                            "connect-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'");
    return response;
}

static void peer_name(struct MHD_Connection *connection, char *text, size_t size)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *peer = info != NULL ? info->client_addr : NULL;
    snprintf(text, size, "?");
    if (peer == NULL) return;
    if (peer->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)peer)->sin_addr, text, (socklen_t)size);
    else if (peer->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)peer)->sin6_addr, text, (socklen_t)size);
}

/* Requests that change something, and refused requests, are logged. */
static void log_request(struct server *server, struct MHD_Connection *connection, const char *method,
                        const char *path, unsigned code)
{
    if (code < 400 && strcmp(method, "POST") != 0 && strcmp(method, "DELETE") != 0) return;
    char peer[64], what[120];
    peer_name(connection, peer, sizeof peer);
    snprintf(what, sizeof what, "%.10s %.100s", method, path);
    answer_clean(what);
    for (char *c = what; *c != '\0'; c++)
        if (*c == '\n') *c = '?';
    br_log(server->options.log, BR_LOG_NOTE, NULL, "control: %s %s: %u", peer, what, code);
}

static enum MHD_Result send_response(struct server *server, struct MHD_Connection *connection,
                                     struct MHD_Response *response, unsigned code)
{
    count(server, code);
    return response != NULL ? MHD_queue_response(connection, code, response) : MHD_NO;
}

static enum MHD_Result send_answer(struct server *server, struct MHD_Connection *connection,
                                   const char *method, const char *path, const struct control_answer *answer,
                                   const char *header, const char *value)
{
    struct MHD_Response *response = make_response(answer);
    if (response == NULL) release_of(answer)(answer->body);
    if (response != NULL && header != NULL) MHD_add_response_header(response, header, value);
    log_request(server, connection, method, path, answer->code);
    enum MHD_Result result = send_response(server, connection, response, answer->code);
    if (response != NULL) MHD_destroy_response(response);
    return result;
}

/* --- what there is --- */

static bool is_below(const struct control_route *route, const char *path)
{
    size_t length = strlen(route->path);
    return length > 1 && route->path[length - 1] == '/' && strncmp(path, route->path, length) == 0 &&
           path[length] != '\0';
}

static const struct control_route *find_route(const struct server *server, const char *method,
                                              const char *path, bool *known_path, char *allow, size_t size)
{
    const struct control_route *found = NULL;
    if (strcmp(method, "HEAD") == 0) method = "GET"; /* the library leaves the body out */
    *known_path = false;
    allow[0] = '\0';
    for (const struct control_route *r = server->options.routes; r->method != NULL; r++) {
        if (strcmp(r->path, path) != 0 && !is_below(r, path)) continue;
        *known_path = true;
        size_t used = strlen(allow);
        snprintf(allow + used, size - used, "%s%s", used > 0 ? ", " : "", r->method);
        if (strcmp(r->method, method) == 0) found = r;
    }
    return found;
}

/* 404 and 405 say what there is. */
static void answer_unknown(const struct server *server, bool known_path, const char *allow,
                           struct control_answer *answer)
{
    char text[160];
    if (known_path)
        snprintf(text, sizeof text, "this path knows %.100s only", allow);
    else
        snprintf(text, sizeof text, "there is no such path");
    json_t *list = json_array();
    for (const struct control_route *r = server->options.routes; r->method != NULL; r++)
        json_array_append_new(list, json_sprintf("%s %s: %s", r->method, r->path, r->help));
    json_t *document = json_pack("{ss so}", "error", text, "there_is", list);
    answer->code = known_path ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND;
    answer->type = "application/json";
    answer->body = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;
    answer->length = answer->body != NULL ? strlen(answer->body) : 0;
    json_decref(document);
}

const char *request_query(const struct control_request *request, const char *key)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, key);
}

const char *request_header(const struct control_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* --- requests --- */

static bool has_query(struct MHD_Connection *connection)
{
    return MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, NULL, NULL) > 0;
}

/* Answers by the route, or with an answer that is still fresh. */
static enum MHD_Result answer_route(struct server *server, struct MHD_Connection *connection,
                                    const char *method, const char *path, struct deferred *pending)
{
    const struct control_route *route = pending->route;
    if (pending->answered) {
        pending->answered = false;
        return send_answer(server, connection, method, path, &pending->answer, NULL, NULL);
    }
    struct control_request request = {.server = server,
                                      .later = pending,
                                      .connection = connection,
                                      .path = route->path,
                                      .below = is_below(route, path) ? path + strlen(route->path) : "",
                                      .body = pending->body != NULL ? pending->body : "",
                                      .length = pending->length};
    const char *accept = request_header(&request, "Accept");
    bool open_metrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    struct kept *kept = &server->kept[route - server->options.routes][open_metrics];
    bool may_keep = route->fresh_ms > 0 && !has_query(connection);
    uint64_t now = br_clock_ns();
    if (may_keep && kept->response != NULL && now < kept->until_ns)
        return send_response(server, connection, kept->response, MHD_HTTP_OK);
    struct control_answer answer = {.code = MHD_HTTP_OK};
    route->answer(server->options.arg, &request, &answer);
    if (answer.later) {
        MHD_suspend_connection(connection);
        return MHD_YES;
    }
    if (answer.body == NULL) answer_error(&answer, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    if (!may_keep || answer.code != MHD_HTTP_OK)
        return send_answer(server, connection, method, path, &answer, NULL, NULL);
    if (kept->response != NULL) MHD_destroy_response(kept->response);
    kept->response = make_response(&answer);
    if (kept->response == NULL) free(answer.body);
    kept->until_ns = now + (uint64_t)route->fresh_ms * 1000000u;
    return send_response(server, connection, kept->response, answer.code);
}

/* The headers are there: refuses what can be refused before the body comes. True when it was. */
static bool refused(struct server *server, struct MHD_Connection *connection, const char *method,
                    const char *path, const struct control_route **route, enum MHD_Result *result)
{
    struct control_answer answer = {.code = 0};
    char allow[64];
    bool known_path;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const char *header = NULL, *value = NULL;
    enum access_verdict verdict = access_check(&server->access, connection, method);
    *route = find_route(server, method, path, &known_path, allow, sizeof allow);
    if (verdict == ACCESS_AMBIGUOUS) {
        header = "Connection";
        value = "close";
        answer_error(&answer, MHD_HTTP_BAD_REQUEST, "%s", access_text(verdict));
    } else if (verdict == ACCESS_NO_TOKEN) {
        header = "WWW-Authenticate";
        value = "Basic realm=\"beamring\", charset=\"UTF-8\"";
        answer_error(&answer, MHD_HTTP_UNAUTHORIZED,
                     "expected the token: 'Authorization: Bearer TOKEN', or as a password with any name");
    } else if (verdict != ACCESS_OK) {
        answer_error(&answer, MHD_HTTP_FORBIDDEN, "%s", access_text(verdict));
    } else if (*route == NULL) {
        if (known_path) header = "Allow";
        value = allow;
        answer_unknown(server, known_path, allow, &answer);
    } else if (length != NULL && strtoull(length, NULL, 10) > SERVER_BODY) {
        answer_error(&answer, MHD_HTTP_CONTENT_TOO_LARGE, "the body has more than %d bytes", SERVER_BODY);
    } else {
        return false;
    }
    *result = send_answer(server, connection, method, path, &answer, header, value);
    return true;
}

/* A part of the body; false: there is too much of it, or no memory. */
static bool take_body(struct deferred *pending, const char *data, size_t size)
{
    if (pending->length + size > SERVER_BODY) return false;
    char *longer = realloc(pending->body, pending->length + size + 1);
    if (longer == NULL) return false;
    memcpy(longer + pending->length, data, size);
    pending->body = longer;
    pending->length += size;
    pending->body[pending->length] = '\0';
    return true;
}

/* Where there was no memory for it, one that nobody looks at. */
static struct connection *connection_of(struct MHD_Connection *connection)
{
    static struct connection none;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL && info->socket_context != NULL ? info->socket_context : &none;
}

/* Called when the headers are there, for each part of the body, and behind it. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **state)
{
    (void)version;
    struct server *server = arg;
    struct deferred *pending = *state;
    enum MHD_Result result;
    connection_of(connection)->busy = true;
    if (pending == NULL) {
        const struct control_route *route;
        if (refused(server, connection, method, path, &route, &result)) return result;
        connection_of(connection)->known = true;
        *state = pending = calloc(1, sizeof *pending);
        if (pending == NULL) return MHD_NO;
        pending->route = route;
        return MHD_YES;
    }
    if (*size > 0) {
        bool taken = take_body(pending, data, *size);
        *size = 0;
        return taken ? MHD_YES : MHD_NO; /* a body without a length: the connection is closed */
    }
    return answer_route(server, connection, method, path, pending);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)arg, (void)how;
    struct deferred *pending = *state;
    connection_of(connection)->busy = false;
    if (pending == NULL) return;
    if (pending->answered) free(pending->answer.body); /* whoever asked has gone */
    free(pending->body);
    free(pending);
    *state = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct server *server = arg;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = info != NULL ? connections_add(&server->connections, info->connect_fd) : NULL;
        connections_make_room(&server->connections, SERVER_CONNECTIONS - SERVER_ROOM);
    } else {
        connections_remove(&server->connections, *state);
    }
}

/* --- answers that come later --- */

struct deferred *request_defer(const struct control_request *request)
{
    struct deferred *deferred = request->later;
    deferred->connection = request->connection;
    deferred->next = request->server->waiting;
    request->server->waiting = deferred;
    return deferred;
}

static void forget(struct server *server, const struct deferred *deferred)
{
    struct deferred **at = &server->waiting;
    while (*at != NULL && *at != deferred) at = &(*at)->next;
    if (*at != NULL) *at = deferred->next;
}

void request_undefer(const struct control_request *request)
{
    forget(request->server, request->later);
}

/* The library calls on_request once more for it. */
static void resume(struct server *server, struct deferred *deferred, const struct control_answer *answer)
{
    forget(server, deferred);
    deferred->answer = *answer;
    if (answer->body == NULL) answer_error(&deferred->answer, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    deferred->answered = true;
    MHD_resume_connection(deferred->connection);
}

/* --- in the loop --- */

static void run_daemon(struct server *server)
{
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(server->daemon);
    ev_timer_stop(server->options.ev, &server->due);
    if (MHD_get_timeout(server->daemon, &ms) != MHD_YES) return;
    ev_timer_set(&server->due, (double)ms * 1e-3, 0);
    ev_timer_start(server->options.ev, &server->due);
}

void server_answer(struct server *server, struct deferred *deferred, const struct control_answer *answer)
{
    resume(server, deferred, answer);
    run_daemon(server);
}

static void on_readable(struct ev_loop *ev, ev_io *watcher, int events)
{
    (void)ev, (void)events;
    run_daemon(watcher->data);
}

static void on_due(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    run_daemon(watcher->data);
}

static void on_sweep(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    struct server *server = watcher->data;
    connections_sweep(&server->connections);
}

/* The library's own messages are about what clients do: nothing that an operator could act on. */
static void ignore_message(void *arg, const char *format, va_list args)
{
    (void)arg, (void)format, (void)args;
}

static int start_daemon(struct server *server, int fd, struct br_error *error)
{
    /* MHD calls back with memory of the server only while MHD_run, or its end, is on the stack. */
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, server,
        MHD_OPTION_EXTERNAL_LOGGER, ignore_message, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)SERVER_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)SERVER_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SERVER_TIMEOUT_S,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        server->daemon != NULL ? MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL) return br_fail(error, BR_E_IO, "libmicrohttpd could not start");
    (void)fcntl(info->epoll_fd, F_SETFD, FD_CLOEXEC);
    ev_io_init(&server->readable, on_readable, info->epoll_fd, EV_READ);
    ev_timer_init(&server->due, on_due, 0, 0);
    ev_timer_init(&server->sweep, on_sweep, SWEEP_S, SWEEP_S);
    server->readable.data = server->due.data = server->sweep.data = server;
    ev_io_start(server->options.ev, &server->readable);
    ev_timer_start(server->options.ev, &server->sweep);
    return BR_OK;
}

int server_create(struct server **result, const struct server_options *options, struct br_error *error)
{
    struct server *server = *result = calloc(1, sizeof *server);
    if (server == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the control interface");
    server->options = *options;
    int fd = -1, status = access_open(&server->access, options->listen, options->token_file, error);
    if (status == BR_OK)
        status = access_listen(&server->access, &fd, server->address, sizeof server->address, error);
    if (status == BR_OK) status = start_daemon(server, fd, error);
    if (status == BR_OK) return BR_OK;
    if (server->daemon == NULL && fd >= 0) close(fd);
    br_error_context(error, "control");
    server_destroy(server);
    *result = NULL;
    return status;
}

void server_destroy(struct server *server)
{
    if (server == NULL) return;
    if (server->daemon != NULL) {
        ev_io_stop(server->options.ev, &server->readable);
        ev_timer_stop(server->options.ev, &server->due);
        ev_timer_stop(server->options.ev, &server->sweep);
        while (server->waiting != NULL) {
            struct control_answer answer = {0};
            answer_error(&answer, MHD_HTTP_SERVICE_UNAVAILABLE, "the node ends");
            resume(server, server->waiting, &answer);
        }
        MHD_run(server->daemon);
        MHD_stop_daemon(server->daemon);
    }
    for (unsigned i = 0; i < SERVER_MAX_ROUTES; i++)
        for (unsigned k = 0; k < 2; k++)
            if (server->kept[i][k].response != NULL) MHD_destroy_response(server->kept[i][k].response);
    explicit_bzero(&server->access, sizeof server->access);
    free(server);
}

const char *server_address(const struct server *server)
{
    return server->address;
}

void server_counts(const struct server *server, struct http_counts *counts)
{
    *counts = server->counts;
    counts->connections = server->connections.count;
}
