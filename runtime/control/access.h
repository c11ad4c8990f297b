/* access.h - who may ask: the address to listen on, the token, and web pages of others. */
#ifndef BEAMRING_RUNTIME_CONTROL_ACCESS_H
#define BEAMRING_RUNTIME_CONTROL_ACCESS_H

#include "runtime/base/address.h"

struct MHD_Connection;

struct access {
    struct control_address address;
    const char *listen;            /* as the user wrote it */
    char token[CONTROL_TOKEN_MAX]; /* "": none is asked for */
};

/* Reads address and token. Errors: BR_E_INVALID, BR_E_IO. */
int access_open(struct access *access, const char *listen, const char *token_file, struct br_error *error);

/* A socket that listens; `text` receives its address and port. Errors: BR_E_IO. */
int access_listen(const struct access *access, int *fd, char *text, size_t size, struct br_error *error);

enum access_verdict {
    ACCESS_OK,
    ACCESS_AMBIGUOUS,   /* two readers could disagree on where the request ends, or on whom it is for */
    ACCESS_NO_TOKEN,    /* a token is asked for, and there is none or a wrong one */
    ACCESS_WRONG_HOST,  /* not a name of this machine: someone else's page that calls itself us */
    ACCESS_WRONG_ORIGIN /* a page of someone else's asks to change something */
};
enum access_verdict access_check(const struct access *access, struct MHD_Connection *connection,
                                 const char *method);
const char *access_text(enum access_verdict verdict);

/* True when the two are equal; the time does not tell where they differ. */
bool access_same(const char *a, const char *b);

#endif
