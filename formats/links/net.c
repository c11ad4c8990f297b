#include "formats/links/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Splits "host:port"; the host is empty for ":port" and "*:port". */
static bool split(const char *text, char host[NET_TEXT], char port[8])
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon - text >= NET_TEXT || strlen(text) >= NET_TEXT) return false;
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || atoi(colon + 1) > 65535) return false;
    memcpy(port, colon + 1, digits + 1);
    size_t length = (size_t)(colon - text);
    const char *begin = text;
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        begin++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL) {
        return false; /* an IPv6 address without brackets: which colon is the port's? */
    }
    if (length == 1 && *begin == '*') length = 0;
    memcpy(host, begin, length);
    host[length] = '\0';
    return true;
}

bool net_is_address(const char *text)
{
    char host[NET_TEXT], port[8];
    return split(text, host, port);
}

int net_resolve(struct net_address *address, const char *text, int type, struct br_error *error)
{
    char host[NET_TEXT], port[8];
    *address = (struct net_address){0};
    if (!split(text, host, port))
        return br_fail(error, BR_E_INVALID,
                       "'%.100s' is not an address; expected host:port, such as 10.0.0.7:5000 or [::1]:5000",
                       text);
    snprintf(address->text, sizeof address->text, "%s", text);
    struct addrinfo wanted = {.ai_socktype = type, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    if (host[0] == '\0') {
        wanted.ai_flags |= AI_PASSIVE;
        wanted.ai_family = AF_INET;
    }
    int status = getaddrinfo(host[0] != '\0' ? host : NULL, port, &wanted, &found);
    if (status != 0)
        return br_fail(error, BR_E_IO, "cannot resolve the host of '%s': %s", text,
                       status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status));
    memcpy(&address->address, found->ai_addr, found->ai_addrlen);
    address->length = found->ai_addrlen;
    freeaddrinfo(found);
    char name[INET6_ADDRSTRLEN + 16] = "?";
    getnameinfo((struct sockaddr *)&address->address, address->length, name, sizeof name, NULL, 0,
                NI_NUMERICHOST);
    snprintf(address->resolved, sizeof address->resolved, "%s:%s", name, port);
    return BR_OK;
}

static int make_socket(const struct net_address *address, int type, struct br_error *error)
{
    int fd = socket(address->address.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) br_fail(error, BR_E_IO, "no socket for %s: %s", address->text, strerror(errno));
    return fd;
}

static int fail_closed(int fd, const char *what, const struct net_address *address, struct br_error *error)
{
    br_fail(error, BR_E_IO, "cannot %s %s: %s%s", what, address->text, strerror(errno),
            errno == EADDRINUSE ? "; another program (or another stage) listens there" : "");
    close(fd);
    return -1;
}

int net_listen(const struct net_address *address, struct br_error *error)
{
    int fd = make_socket(address, SOCK_STREAM, error), yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes,
               sizeof yes); /* of connections that are closing, not of listeners */
    if (bind(fd, (const struct sockaddr *)&address->address, address->length) != 0 || listen(fd, 64) != 0)
        return fail_closed(fd, "listen on", address, error);
    return fd;
}

unsigned net_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t length = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &length) != 0) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

int net_connect(const struct net_address *address)
{
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (const struct sockaddr *)&address->address, address->length) == 0 || errno == EINPROGRESS)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int net_connected(int fd)
{
    int why = 0;
    socklen_t length = sizeof why;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length) == 0 ? why : errno;
}

static bool is_multicast(const struct net_address *address)
{
    if (address->address.ss_family == AF_INET6)
        return IN6_IS_ADDR_MULTICAST(&((const struct sockaddr_in6 *)&address->address)->sin6_addr);
    return IN_MULTICAST(ntohl(((const struct sockaddr_in *)&address->address)->sin_addr.s_addr));
}

static bool interface_of(const char *text, struct in_addr *interface, struct br_error *error)
{
    interface->s_addr = htonl(INADDR_ANY);
    if (text == NULL || inet_pton(AF_INET, text, interface) == 1) return true;
    br_fail(error, BR_E_IO,
            "'%s' is not an interface for multicast; expected an IPv4 address of this machine", text);
    return false;
}

int net_udp_sender(const struct net_address *destination, int buffer_bytes, int multicast_hops,
                   const char *multicast_interface, struct br_error *error)
{
    struct in_addr interface;
    if (!interface_of(multicast_interface, &interface, error)) return -1;
    int fd = make_socket(destination, SOCK_DGRAM, error);
    if (fd < 0) return -1;
    if (buffer_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    if (is_multicast(destination) && destination->address.ss_family == AF_INET) {
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &multicast_hops, sizeof multicast_hops);
        if (multicast_interface != NULL &&
            setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) != 0)
            return fail_closed(fd, "choose the interface for", destination, error);
    }
    if (connect(fd, (const struct sockaddr *)&destination->address, destination->length) != 0)
        return fail_closed(fd, "send to", destination, error);
    return fd;
}

int net_udp_receiver(const struct net_address *address, int buffer_bytes, const char *multicast_interface,
                     struct br_error *error)
{
    struct in_addr interface;
    if (!interface_of(multicast_interface, &interface, error)) return -1;
    int fd = make_socket(address, SOCK_DGRAM, error), yes = 1;
    if (fd < 0) return -1;
    bool group = is_multicast(address) && address->address.ss_family == AF_INET;
    if (group)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* several may listen to one group */
    if (buffer_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    if (bind(fd, (const struct sockaddr *)&address->address, address->length) != 0)
        return fail_closed(fd, "receive on", address, error);
    if (group) {
        struct ip_mreq request = {.imr_multiaddr = ((const struct sockaddr_in *)&address->address)->sin_addr,
                                  .imr_interface = interface};
        if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) != 0)
            return fail_closed(fd, "join the group", address, error);
    }
    return fd;
}
