/* replay.h - what the parts of `replay` share: it finds files, and is the caller of formats/'s readers. */
#ifndef BEAMRING_STAGES_REPLAY_REPLAY_H
#define BEAMRING_STAGES_REPLAY_REPLAY_H

#include "formats/format.h"
#include "runtime/stage_feed.h"

/* The stage as a reader sees it. */
struct replay_caller {
    struct caller caller;
    struct br_stage *stage;
    struct br_feed *feed; /* NULL: frames are in the host's memory */
};

/* In configure; both live as long as the stage. */
void replay_caller(struct replay_caller *caller, struct br_stage *stage);

/* Expands names and glob patterns. A pattern without a match is an error at the parameter `files`. */
int files_expand(struct br_stage *stage, const struct br_strings *patterns, struct file_list *list);

#endif
