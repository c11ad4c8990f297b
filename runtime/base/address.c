/* address.c - see address.h. */
#include "runtime/base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_TOKEN = 16 };

static int wrong(const char *text, const char *what, struct br_error *error)
{
    return br_fail(
        error, BR_E_INVALID,
        "'%.80s' is not an address to listen on: %s; expected ADDRESS:PORT such as 127.0.0.1:8081, "
        "[::1]:8081 or *:8081",
        text, what);
}

int control_address_read(const char *text, struct control_address *address, struct br_error *error)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    *address = (struct control_address){0};
    if (colon == NULL) return wrong(text, "it has no port", error);
    size_t length = (size_t)(colon - text);
    bool bracketed = length >= 2 && text[0] == '[' && colon[-1] == ']';
    if (bracketed) length -= 2;
    if (length >= sizeof host) return wrong(text, "it is too long", error);
    memcpy(host, text + bracketed, length);
    host[length] = '\0';
    char *end;
    errno = 0;
    long port = strtol(colon + 1, &end, 10);
    if (strspn(colon + 1, "0123456789") == 0 || *end != '\0' || errno != 0 || port < 0 || port > 65535)
        return wrong(text, "its port is not a number from 0 to 65535", error);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->address;
    if (strcmp(host, "localhost") == 0) strcpy(host, "127.0.0.1");
    if (strcmp(host, "*") == 0) strcpy(host, "0.0.0.0");
    if (!bracketed && inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        address->length = sizeof *v4;
        address->loopback = (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
        return BR_OK;
    }
    if (bracketed && inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        address->length = sizeof *v6;
        address->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        return BR_OK;
    }
    return wrong(text, "its host is not a numeric address of this machine", error);
}

static int bad_token(const char *path, const char *what, struct br_error *error)
{
    return br_fail(error, BR_E_INVALID, "the token file '%s' %s", path, what);
}

int control_token_read(const char *path, char token[CONTROL_TOKEN_MAX], struct br_error *error)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return br_fail(error, BR_E_IO, "the token file '%s': %s", path, strerror(errno));
    bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    ssize_t n = regular ? read(fd, token, CONTROL_TOKEN_MAX) : -1;
    close(fd);
    if (!regular) return bad_token(path, "is not a file", error);
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return bad_token(path, "may be read by others; expected that only its owner may (chmod 600)", error);
    if (n < 0) return bad_token(path, "cannot be read", error);
    if (n > 0 && token[n - 1] == '\n') n--;
    if (n < LEAST_TOKEN || n >= CONTROL_TOKEN_MAX)
        return bad_token(path, "holds no token; expected one line of 16 to 255 characters", error);
    for (ssize_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return bad_token(path, "holds more than one line of printable characters without blanks", error);
    token[n] = '\0';
    return BR_OK;
}
