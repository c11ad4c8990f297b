/* remote.h - asking a node's control interface. */
#ifndef BEAMRING_TOOLS_BEAMRING_REMOTE_H
#define BEAMRING_TOOLS_BEAMRING_REMOTE_H

#include <jansson.h>
#include <stdbool.h>

struct remote {
    const char *url;        /* as the user gave it; default http://127.0.0.1:8081 */
    const char *token_file; /* or NULL */
    bool json, repeat;      /* the option that `repeats` names was given */
};

/* Reads [URL], --token-file FILE and the option `repeats`. Returns 0, or 2 after a message. */
int remote_arguments(int argc, char **argv, const char *repeats, struct remote *remote);

/* GET of a path below the URL; NULL after a message to stderr that says what is wrong. The caller decrefs. */
json_t *remote_get(const struct remote *remote, const char *command, const char *path);

/* POST of a text; *code receives the answer's, which the caller judges. NULL after a message: there is none.
 */
json_t *remote_post(const struct remote *remote, const char *command, const char *path, const char *text,
                    long *code);

/* POST of a document; the answer where the node agreed (200 or 202), else NULL after a message. */
json_t *remote_submit(const struct remote *remote, const char *command, const char *path, const json_t *body);

#endif
