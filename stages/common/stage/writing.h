/* writing.h - what a stage is to the writers of formats/ (formats/writer.h). */
#ifndef BEAMRING_STAGES_COMMON_STAGE_WRITING_H
#define BEAMRING_STAGES_COMMON_STAGE_WRITING_H

#include "formats/writer.h"
#include "runtime/stage.h"

/* The stage as a host: notes and updates; `disk` is left to the caller. `updates_room` is set in start. */
struct writer_host writing_host(struct br_stage *stage);

/* Fails the stage with the writer's error when the status is not BR_OK. Returns the status. */
int writing_status(struct br_stage *stage, const struct file_writer *writer, int status);

#endif
