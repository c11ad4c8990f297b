/* address.h - where the control interface listens, and the token that it asks for. */
#ifndef BEAMRING_RUNTIME_BASE_ADDRESS_H
#define BEAMRING_RUNTIME_BASE_ADDRESS_H

#include "buffers/error.h"

#include <stdbool.h>
#include <sys/socket.h>

struct control_address {
    struct sockaddr_storage address;
    socklen_t length;
    bool loopback;
};

/* "127.0.0.1:8081", "localhost:8081", "[::1]:8081", "*:8081" (all IPv4 addresses of the machine). No name
 * service is asked. Errors: BR_E_INVALID, with what was expected. */
int control_address_read(const char *text, struct control_address *address, struct br_error *error);

enum { CONTROL_TOKEN_MAX = 256 };

/* Reads the token: one line of 16 to 255 printable characters, in a file that only its owner may read.
 * Errors: BR_E_INVALID, BR_E_IO. */
int control_token_read(const char *path, char token[CONTROL_TOKEN_MAX], struct br_error *error);

#endif
