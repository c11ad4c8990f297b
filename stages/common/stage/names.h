/* names.h - placeholders in a stage's `directory` and `prefix`. A node that is started again by its service
 * manager then writes under new names:
 *
 *   {start}  UTC of the first sample, as 20261127T201003.250Z
 *   {date}   the day of the first sample, as 20261127
 *   {run}    UTC of the pipeline's start; all stages of a process have the same
 */
#ifndef BEAMRING_STAGES_COMMON_STAGE_NAMES_H
#define BEAMRING_STAGES_COMMON_STAGE_NAMES_H

#include "runtime/stage.h"
#include "stages/common/stage/earlier.h"

/* For the help text of the two parameters. */
#define NAMES_HELP "; may contain {start}, {date} and {run}"

struct names {
    const char **name[2];     /* the stage's parameters: directory, prefix */
    const char *template[2];  /* as the user wrote them */
    bool overwrite;           /* replaces files of an earlier run */
    earlier_is_ours *is_ours; /* such files; NULL: they are not looked for */
    bool late;                /* the first sample decides: call names_fill before names_begin */
    bool begun;               /* names_begin has been called */
    struct file_lock claim;   /* file_lock_release gives the names back */
};

/* In configure: checks the placeholders and replaces the stage's two parameters by names in the pipeline's
 * memory. While `late`, the names stand in for those of the first sample; they have the same length.
 * `overwrite` together with placeholders is an error. Returns BR_OK or the error's status. */
int names_configure(struct names *names, struct br_stage *stage, const char **directory, const char **prefix,
                    bool overwrite, earlier_is_ours *is_ours);

/* In configure: refuses at the parameter `at` to replace files of an earlier run, unless `overwrite`. */
int names_check(const struct names *names, struct br_stage *stage, const char *at);

/* In process: fills in the time of base sample `first` of the stage's input. */
void names_fill(const struct names *names, struct br_stage *stage, uint64_t first);

/* Before the first file: makes the directory and those above it, claims the names and removes earlier files
 * with `overwrite`. Status; the stage has failed. */
int names_begin(struct names *names, struct br_stage *stage);

/* For a parameter that takes no placeholders: BR_OK, or the error's status. */
int names_plain(struct br_stage *stage, const char *param, const char *text);

#endif
