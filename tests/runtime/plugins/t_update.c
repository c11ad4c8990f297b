/* t_update - for tests: passes bytes on, and notes with which values each frame met. */
#include "tests/runtime/plugins/t_update.h"

#include <runtime/stage.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct br_param params[] = {
    BR_PARAM("add", BR_P_INT, struct t_update, add, "a number", .def = "0"),
    BR_PARAM("refuse", BR_P_INT, struct t_update, refuse, "an `add` that prepare refuses", .def = "-1"),
    BR_PARAM("file", BR_P_PATH, struct t_update, file, "a file with the number `add` and END"),
    BR_PARAM("fixed", BR_P_INT, struct t_update, fixed, "a number that stays", .def = "0"),
    {0},
};
static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {{"out", "bytes"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct t_update *u = self;
    if (u->file != NULL) {
        FILE *file = fopen(u->file, "r");
        long long number = 0;
        char word[4] = "";
        if (file == NULL) return br_stage_fail_at(stage, "file", "cannot open %s", u->file);
        int got = fscanf(file, "%lld %3s", &number, word);
        fclose(file);
        if (got != 2 || strcmp(word, "END") != 0)
            return br_stage_fail_at(stage, "file", "%s ends too early", u->file);
        u->add = number;
    }
    if (u->add == 666) return br_stage_fail_at(stage, "add", "666 is not a number that anybody wants");
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct t_update *u = self;
    (void)stage;
    const struct br_frame *in = io->in[0];
    if (in == NULL) return BR_FINISHED;
    int64_t table = u->table != NULL ? *u->table : -1;
    unsigned n = u->nseen;
    if (n == 0 || u->seen[n - 1].add != u->add || u->seen[n - 1].fixed != u->fixed ||
        u->seen[n - 1].table != table)
        if (n < T_UPDATE_SEEN) {
            u->seen[n].first = in->first;
            u->seen[n].add = u->add;
            u->seen[n].fixed = u->fixed;
            u->seen[n].table = table;
            u->nseen++;
        }
    memcpy(io->out[0]->data, in->data, in->samples);
    io->out[0]->complete = true;
    return BR_CONSUMED | BR_PRODUCED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct t_update *u = self;
    br_stage_note(stage, "add is %lld in the end", (long long)u->add);
    free(u->table);
    u->table = NULL;
    return BR_OK;
}

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct t_update *u = fresh;
    (void)self;
    if (u->add == u->refuse)
        return br_stage_fail(stage, BR_E_NO_MEMORY, "told to refuse %lld", (long long)u->add);
    u->table = malloc(sizeof *u->table);
    if (u->table == NULL) return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory");
    *u->table = u->add;
    return BR_OK;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    struct t_update *u = self, *with = fresh;
    int64_t *table = u->table;
    (void)stage, (void)sample;
    u->add = with->add;
    u->refuse = with->refuse;
    u->table = with->table;
    with->table = table;
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    free(((struct t_update *)fresh)->table);
}

static const char *const updates[] = {"add", "file", "refuse", NULL};

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_update",
    .summary = "takes updates",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .size = sizeof(struct t_update),
    .configure = configure,
    .process = process,
    .stop = stop,
    .updates = updates,
    .prepare = prepare,
    .commit = commit,
    .discard = discard,
};
