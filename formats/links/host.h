/* host.h - what a sender asks of its owner, who knows the pipeline. */
#ifndef BEAMRING_FORMATS_LINKS_HOST_H
#define BEAMRING_FORMATS_LINKS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link_host {
    void *owner;
    void (*note)(void *owner, const char *text);
    void (*warn)(void *owner, const char *text);
    /* A present problem, until the next call; NULL: it is over. */
    void (*trouble)(void *owner, const char *text);
    /* The caller now waits for something outside the pipeline; NULL: it does not any more. */
    void (*waits_for)(void *owner, const char *what);
    /* Whether the pipeline stops. */
    bool (*stopping)(void *owner);
    /* Sleeps until `ns` on br_clock_ns; true at once when the pipeline stops. */
    bool (*sleep_until)(void *owner, uint64_t ns);
};

#endif
