/* wire.c - see wire.h. */
#include "runtime/ranks/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool wire_append(struct wire_bytes *bytes, const void *data, size_t length)
{
    if (bytes->data == NULL || bytes->used + length > bytes->capacity) {
        size_t capacity = 2 * (bytes->used + length) + 4096;
        unsigned char *grown = realloc(bytes->data, capacity);
        if (grown == NULL) return false;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (length > 0) memcpy(bytes->data + bytes->used, data, length);
    bytes->used += length;
    return true;
}

static void take(struct wire_bytes *bytes, size_t length)
{
    bytes->used -= length;
    memmove(bytes->data, bytes->data + length, bytes->used);
}

bool wire_flush(struct wire *wire)
{
    size_t sent = 0;
    bool ok = wire->fd >= 0;
    while (ok && sent < wire->out.used) {
        ssize_t n = send(wire->fd, wire->out.data + sent, wire->out.used - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        ok = n >= 0;
        if (n > 0) sent += (size_t)n;
    }
    if (sent > 0) take(&wire->out, sent);
    return ok;
}

bool wire_send(struct wire *wire, const struct wire_head *head, const void *payload)
{
    if (wire->fd < 0 || wire->out.used > WIRE_MAX_WAITING) return false;
    if (!wire_append(&wire->out, head, sizeof *head) || !wire_append(&wire->out, payload, head->length))
        return false;
    return wire_flush(wire);
}

bool wire_fill(struct wire *wire)
{
    unsigned char piece[65536];
    while (wire->fd >= 0) {
        ssize_t n = recv(wire->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0 || !wire_append(&wire->in, piece, (size_t)n)) return false;
    }
    return false;
}

const struct wire_head *wire_next(struct wire *wire, const unsigned char **payload)
{
    const struct wire_head *head = (const struct wire_head *)(const void *)wire->in.data;
    if (wire->in.used < sizeof *head) return NULL;
    if (head->type >= WIRE_TYPES || head->length > WIRE_MAX_PAYLOAD) {
        wire_close(wire);
        return NULL;
    }
    if (wire->in.used < sizeof *head + head->length) return NULL;
    *payload = wire->in.data + sizeof *head;
    return head;
}

void wire_drop(struct wire *wire)
{
    const struct wire_head *head = (const struct wire_head *)(const void *)wire->in.data;
    take(&wire->in, sizeof *head + head->length);
}

void wire_close(struct wire *wire)
{
    if (wire->fd >= 0) close(wire->fd);
    free(wire->in.data);
    free(wire->out.data);
    *wire = (struct wire){.fd = -1};
}
