/* error.h - how a function reports what went wrong.
 *
 * Every function that can fail returns 0 or a negative br_status. If the caller passes a struct br_error, the
 * function fills it with a message for the person who runs the pipeline: what is wrong, where, what was
 * expected, what to do. The first failure is kept. A caller adds context with br_error_context(). */
#ifndef BEAMRING_BUFFERS_ERROR_H
#define BEAMRING_BUFFERS_ERROR_H

#include "buffers/api.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum br_status {
    BR_OK = 0,
    BR_E_INVALID = -1,   /* an argument, parameter or configuration is wrong */
    BR_E_NO_MEMORY = -2, /* an allocation failed */
    BR_E_IO = -3,        /* a file or socket failed; the message names it and carries strerror */
    BR_E_FORMAT = -4,    /* a file or packet violates its format */
    BR_E_STOPPED = -5,   /* the pipeline was aborted while the caller waited; the caller did nothing wrong */
    BR_E_INTERNAL = -6,  /* one part of the program broke the contract of another */
    BR_E_DEVICE = -7     /* a GPU call failed */
};

enum { BR_ERROR_LENGTH = 1024 };

struct br_error {
    int status;                 /* the first failure, or BR_OK */
    char text[BR_ERROR_LENGTH]; /* empty when status is BR_OK */
};

/* Records a failure and returns `status`, so that a caller can write `return br_fail(error, BR_E_IO, ...)`.
 * If `error` already holds a failure, it keeps that one. `error` may be NULL. */
BR_API int br_fail(struct br_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the recorded message. Does nothing if `error` is NULL or holds no failure. */
BR_API void br_error_context(struct br_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
