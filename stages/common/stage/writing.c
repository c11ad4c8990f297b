#include "stages/common/stage/writing.h"

#include "runtime/stage_updates.h"
#include "stages/common/stage/made_with.h"

_Static_assert((int)MADE_WITH_ROOM <= (int)WRITER_UPDATES, "room for the updates");

static void note(void *owner, const char *text)
{
    br_stage_note(owner, "%s", text);
}

static size_t held(void *owner, uint64_t first, uint64_t end, char *text, size_t size)
{
    return made_with(owner, first, end, text, size);
}

static size_t begun(void *owner, uint64_t first, uint64_t end, char *text, size_t size)
{
    return br_stage_updates_begun(owner, first, end, text, size);
}

struct writer_host writing_host(struct br_stage *stage)
{
    return (struct writer_host){.owner = stage, .note = note, .held = held, .begun = begun};
}

int writing_status(struct br_stage *stage, const struct file_writer *w, int status)
{
    if (status == BR_OK) return BR_OK;
    return w->at != NULL ? br_stage_fail_at(stage, w->at, "%s", w->error.text)
                         : br_stage_fail(stage, status, "%s", w->error.text);
}
