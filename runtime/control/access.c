/* access.c - see access.h. */
#include "runtime/control/access.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { BACKLOG = 256 };

int access_open(struct access *access, const char *listen, const char *token_file, struct br_error *error)
{
    *access = (struct access){.listen = listen};
    int status = control_address_read(listen, &access->address, error);
    if (status == BR_OK && token_file != NULL) status = control_token_read(token_file, access->token, error);
    if (status == BR_OK && !access->address.loopback && access->token[0] == '\0')
        return br_fail(error, BR_E_INVALID,
                       "'%s' can be reached from other machines; expected a token_file with it", listen);
    return status;
}

static void name_socket(int fd, char *text, size_t size)
{
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    char host[INET6_ADDRSTRLEN] = "?";
    getsockname(fd, (struct sockaddr *)&bound, &length);
    if (bound.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&bound;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(v4->sin_port));
    }
}

int access_listen(const struct access *access, int *result, char *text, size_t size, struct br_error *error)
{
    const struct sockaddr *address = (const struct sockaddr *)&access->address.address;
    int on = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, address, access->address.length) != 0 || listen(fd, BACKLOG) != 0) {
        int reason = errno;
        if (fd >= 0) close(fd);
        return br_fail(error, BR_E_IO, "cannot listen on %s: %s%s", access->listen, strerror(reason),
                       reason == EADDRINUSE ? "; another node may run here: choose another port" : "");
    }
    name_socket(fd, text, size);
    *result = fd;
    return BR_OK;
}

bool access_same(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    unsigned different = na != nb;
    for (size_t i = 0; i < na; i++) different |= (unsigned)(a[i] ^ b[nb > 0 ? i % nb : 0]);
    return different == 0;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* With `Bearer`, or as the password of `Basic`, which browsers know how to ask for. */
static bool has_token(const struct access *access, struct MHD_Connection *connection)
{
    const char *given = header(connection, "Authorization");
    if (given != NULL && strncasecmp(given, "Bearer ", 7) == 0) return access_same(access->token, given + 7);
    char *password = NULL, *user = MHD_basic_auth_get_username_password(connection, &password);
    bool same = password != NULL && access_same(access->token, password);
    MHD_free(user);
    MHD_free(password);
    return same;
}

/* Whether the name by which we are asked is one of this machine's own: an address in numbers, or localhost.
 * Another name may be a web page's, made to point at us so that a browser lets the page read our answers. */
static bool is_own_name(const char *host)
{
    char name[80];
    unsigned char address[16];
    bool brackets = host[0] == '[';
    if (brackets) host++;
    size_t length = strcspn(host, brackets ? "]" : ":");
    const char *port = host + length + (brackets && host[length] == ']');
    if (length == 0 || length >= sizeof name || (brackets && host[length] != ']')) return false;
    if (*port != '\0' && (*port != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0')) return false;
    memcpy(name, host, length);
    name[length] = '\0';
    if (brackets) return inet_pton(AF_INET6, name, address) == 1;
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1;
}

struct lengths {
    unsigned given, hosts;
    bool wrong, encoded;
};

static enum MHD_Result count_lengths(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)kind;
    struct lengths *found = arg;
    if (value == NULL) value = "";
    if (strcasecmp(key, "Content-Length") == 0) {
        found->given++;
        found->wrong = found->wrong || *value == '\0' || value[strspn(value, "0123456789")] != '\0';
    }
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        found->wrong = found->wrong || found->encoded || strcasecmp(value, "chunked") != 0;
        found->encoded = true;
    }
    found->hosts += strcasecmp(key, "Host") == 0;
    return MHD_YES;
}

/* Where two readers of a request could disagree on where it ends, or on whom it is for, nobody may read it.
 * */
static bool is_ambiguous(struct MHD_Connection *connection)
{
    struct lengths found = {0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_lengths, &found);
    return found.wrong || found.hosts > 1 || found.given + found.encoded > 1;
}

enum access_verdict access_check(const struct access *access, struct MHD_Connection *connection,
                                 const char *method)
{
    const char *host = header(connection, "Host"), *origin = header(connection, "Origin");
    if (is_ambiguous(connection)) return ACCESS_AMBIGUOUS;
    if (access->token[0] != '\0') {
        if (!has_token(access, connection)) return ACCESS_NO_TOKEN;
    } else if (host != NULL && !is_own_name(host)) {
        return ACCESS_WRONG_HOST;
    }
    if (origin == NULL || strcmp(method, "GET") == 0) return ACCESS_OK;
    const char *from = strstr(origin, "://");
    return from != NULL && host != NULL && strcasecmp(from + 3, host) == 0 ? ACCESS_OK : ACCESS_WRONG_ORIGIN;
}

const char *access_text(enum access_verdict verdict)
{
    switch (verdict) {
    case ACCESS_OK:
        return "it may";
    case ACCESS_AMBIGUOUS:
        return "expected one Host at most, and one Content-Length or Transfer-Encoding: chunked";
    case ACCESS_NO_TOKEN:
        return "the token is missing or wrong";
    case ACCESS_WRONG_HOST:
        return "without a token this node answers to addresses in numbers and to localhost only";
    case ACCESS_WRONG_ORIGIN:
        return "a page of another site may change nothing here";
    }
    return "?";
}
