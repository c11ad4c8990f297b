#include "stage_driver.h"
#include "runtime/stage_updates.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct br_param *find(const struct br_stage *stage, const char *name)
{
    const struct br_param *p = stage->type->params;
    while (p->name != NULL && strcmp(p->name, name) != 0) p++;
    if (p->name == NULL) {
        fprintf(stderr, "stage %s has no parameter %s\n", stage->type->name, name);
        abort();
    }
    return p;
}

static void *given(struct br_stage *stage, const char *name, enum br_param_type type, enum br_param_type or)
{
    const struct br_param *p = find(stage, name);
    if ((p->type != type && p->type != or) || stage->ngiven == 16) abort();
    stage->given[stage->ngiven++] = p->name;
    return (char *)stage->self + p->offset;
}

struct br_stage *driver_new(const struct br_stage_type *type)
{
    struct br_stage *stage = calloc(1, sizeof *stage);
    stage->type = type;
    stage->self = calloc(1, type->size);
    for (const struct br_param *p = type->params; p != NULL && p->name != NULL; p++) {
        void *field = (char *)stage->self + p->offset;
        if (p->type == BR_P_REAL) *(double *)field = __builtin_nan("");
        if (p->def == NULL) continue;
        if (p->type == BR_P_BOOL) *(bool *)field = strcmp(p->def, "true") == 0;
        if (p->type == BR_P_INT) *(int64_t *)field = strtoll(p->def, NULL, 10);
        if (p->type == BR_P_REAL) *(double *)field = strtod(p->def, NULL);
        if (p->type == BR_P_STRING || p->type == BR_P_CHOICE || p->type == BR_P_PATH)
            *(const char **)field = p->def;
    }
    return stage;
}

void driver_free(struct br_stage *stage)
{
    br_pool_destroy(stage->pool);
    for (unsigned i = 0; i < stage->nmemory; i++) free(stage->memory[i]);
    free(stage->self);
    free(stage);
}

void driver_set_int(struct br_stage *stage, const char *name, int64_t value)
{
    *(int64_t *)given(stage, name, BR_P_INT, BR_P_INT) = value;
}

void driver_set_real(struct br_stage *stage, const char *name, double value)
{
    *(double *)given(stage, name, BR_P_REAL, BR_P_REAL) = value;
}

void driver_set_bool(struct br_stage *stage, const char *name, bool value)
{
    *(bool *)given(stage, name, BR_P_BOOL, BR_P_BOOL) = value;
}

void driver_set_string(struct br_stage *stage, const char *name, const char *value)
{
    enum br_param_type type = find(stage, name)->type;
    *(const char **)given(stage, name, type == BR_P_STRING ? BR_P_STRING : BR_P_CHOICE, BR_P_PATH) = value;
}

void driver_set_strings(struct br_stage *stage, const char *name, const char *const *values, size_t count)
{
    *(struct br_strings *)given(stage, name, BR_P_STRINGS, BR_P_STRINGS) = (struct br_strings){count, values};
}

void driver_set_ints(struct br_stage *stage, const char *name, const int64_t *values, size_t count)
{
    *(struct br_ints *)given(stage, name, BR_P_INTS, BR_P_INTS) = (struct br_ints){count, values};
}

int driver_configure(struct br_stage *stage)
{
    if (stage->type->outputs != NULL) stage->out[0] = stage->in[0];
    int status = stage->type->configure(stage, stage->self);
    struct br_error error = {0};
    if (status == BR_OK && stage->type->outputs != NULL && br_stream_check(&stage->out[0], &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return status;
}

int driver_start(struct br_stage *stage)
{
    return stage->type->start(stage, stage->self);
}

int driver_stop(struct br_stage *stage)
{
    return stage->type->stop(stage, stage->self);
}

int driver_process(struct br_stage *stage, const struct br_frame *in, struct br_frame *out)
{
    struct br_io io = {.in = {in}, .out = {out}};
    if (out != NULL) {
        out->complete = true;
        out->first = in != NULL ? in->first : 0;
        out->samples = in != NULL ? in->samples : 0;
        out->missing = 0;
    }
    return stage->type->process(stage, stage->self, &io);
}

uint64_t driver_lost_samples(const struct br_stage *stage, enum br_loss reason)
{
    return stage->lost[reason];
}

uint64_t driver_all_lost_samples(const struct br_stage *stage)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++) all += stage->lost[i];
    return all;
}

struct br_frame *driver_frame(const struct br_stream *stream)
{
    struct br_frame *frame = calloc(1, sizeof *frame);
    size_t bytes = (br_stream_max_bytes(stream) + 63) / 64 * 64;
    frame->data = aligned_alloc(64, bytes > 0 ? bytes : 64);
    frame->valid = malloc(br_stream_max_validity(stream));
    if (stream->side.naxes > 0) frame->side = malloc(br_array_bytes(&stream->side));
    memset(frame->data, 0xa5, bytes);
    memset(frame->valid, 0x5a, br_stream_max_validity(stream));
    frame->complete = true;
    return frame;
}

void driver_frame_free(struct br_frame *frame)
{
    free(frame->data);
    free(frame->valid);
    free(frame->side);
    free(frame);
}

/* --- runtime/stage.h ----------------------------------------------------------------------------- */

const struct br_stream *br_stage_input(const struct br_stage *stage, unsigned i)
{
    return &stage->in[i];
}

struct br_stream *br_stage_output(struct br_stage *stage, unsigned i)
{
    return &stage->out[i];
}

void br_stage_suggest_depth(struct br_stage *stage, unsigned i, unsigned depth)
{
    (void)stage, (void)i, (void)depth;
}

const struct br_telescope *br_stage_telescope(const struct br_stage *stage)
{
    return stage->telescope;
}

const struct br_stream_hints *br_stage_hints(const struct br_stage *stage)
{
    return &stage->hints;
}

bool br_stage_given(const struct br_stage *stage, const char *param)
{
    for (unsigned i = 0; i < stage->ngiven; i++)
        if (strcmp(stage->given[i], param) == 0) return true;
    return false;
}

/* There is no other stage whose files these could be. */
bool br_stage_is_update(const struct br_stage *stage)
{
    (void)stage;
    return false;
}

int br_stage_reads_file(struct br_stage *stage, const char *param, const char *path)
{
    (void)stage, (void)param, (void)path;
    return BR_OK;
}

int br_stage_writes_files(struct br_stage *stage, const char *param, const char *directory,
                          const char *prefix, const char *suffix)
{
    (void)stage, (void)param, (void)directory, (void)prefix, (void)suffix;
    return BR_OK;
}

void *br_stage_alloc(struct br_stage *stage, size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL || stage->nmemory == sizeof stage->memory / sizeof *stage->memory) abort();
    return stage->memory[stage->nmemory++] = memory;
}

/* No updates come. */
const void *br_stage_running(const struct br_stage *stage)
{
    (void)stage;
    return NULL;
}

uint64_t br_stage_next_update(struct br_stage *stage, uint64_t end)
{
    (void)stage;
    return end;
}

void br_stage_update(struct br_stage *stage, uint64_t sample)
{
    (void)stage, (void)sample;
}

enum br_sideband br_stage_sideband(struct br_stage *stage)
{
    return stage->in[0].sideband == BR_SIDEBAND_UNKNOWN ? BR_SIDEBAND_UPPER : stage->in[0].sideband;
}

int64_t br_stage_run_ns(const struct br_stage *stage)
{
    (void)stage;
    return 0;
}

const char *br_stage_name(const struct br_stage *stage)
{
    return stage->type->name;
}

static void keep_first(char *text, size_t size, const char *format, va_list args)
{
    if (text[0] == '\0') vsnprintf(text, size, format, args);
}

int br_stage_fail(struct br_stage *stage, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_first(stage->error, sizeof stage->error, format, args);
    va_end(args);
    if (stage->status == 0) stage->status = status;
    return status;
}

int br_stage_fail_at(struct br_stage *stage, const char *param, const char *format, ...)
{
    find(stage, param);
    va_list args;
    va_start(args, format);
    keep_first(stage->error, sizeof stage->error, format, args);
    va_end(args);
    stage->status = BR_E_INVALID;
    return BR_E_INVALID;
}

int br_stage_fail_run_at(struct br_stage *stage, const char *param, const char *format, ...)
{
    char text[sizeof stage->error];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return br_stage_fail_at(stage, param, "%s", text);
}

static void say(struct br_stage *stage, const char *format, va_list args)
{
    char text[sizeof stage->warning];
    if (stage->said == NULL) return;
    vsnprintf(text, sizeof text, format, args);
    stage->said(text);
}

void br_stage_note(struct br_stage *stage, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(stage, format, args);
    va_end(args);
}

void br_stage_warn(struct br_stage *stage, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    keep_first(stage->warning, sizeof stage->warning, format, args);
    say(stage, format, again);
    va_end(again);
    va_end(args);
}

void br_stage_count_saturated(struct br_stage *stage, uint64_t values)
{
    stage->saturated += values;
}

void br_stage_trouble(struct br_stage *stage, const char *text)
{
    (void)stage, (void)text;
}

void br_stage_waits_for(struct br_stage *stage, const char *what)
{
    (void)stage, (void)what;
}

void br_stage_has_counters(struct br_stage *stage, const struct br_counter *counters, size_t count)
{
    (void)stage, (void)counters, (void)count;
}

void br_stage_count(struct br_stage *stage, size_t i, uint64_t value)
{
    (void)stage, (void)i, (void)value;
}

void br_stage_count_lost(struct br_stage *stage, enum br_loss reason, uint64_t samples)
{
    if (reason >= BR_LOSS_COUNT) abort();
    stage->lost[reason] += samples;
}

struct br_frame *br_stage_lend_ahead(struct br_stage *stage, unsigned output, unsigned ahead)
{
    (void)output;
    return stage->lend != NULL ? stage->lend(ahead) : NULL;
}

/* No stage here takes updates. */
bool br_stage_follows_updates(const struct br_stage *stage)
{
    (void)stage;
    return false;
}

size_t br_stage_updates_held(const struct br_stage *stage, uint64_t sample, char *text, size_t size)
{
    (void)stage, (void)sample;
    if (size > 0) text[0] = '\0';
    return 0;
}

size_t br_stage_updates_begun(const struct br_stage *stage, uint64_t first, uint64_t end, char *text,
                              size_t size)
{
    (void)stage, (void)first, (void)end;
    if (size > 0) text[0] = '\0';
    return 0;
}

bool br_stage_stopping(const struct br_stage *stage)
{
    return stage->stopping;
}

bool br_stage_sleep_until(struct br_stage *stage, uint64_t ns)
{
    struct timespec until = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
    return stage->stopping;
}

/* --- there is no GPU here ---------------------------------------------------------------------- */

int br_stage_pass(struct br_stage *stage, const struct br_frame *in, struct br_frame *out)
{
    memcpy(out->data, in->data, br_frame_bytes(br_stage_input(stage, 0), in));
    return BR_OK;
}

void br_stage_mark(const struct br_stage *stage, uint64_t first, uint64_t end, const char *id)
{
    (void)stage, (void)first, (void)end, (void)id;
}

const struct br_stream *br_stage_downstream(const struct br_stage *stage, size_t i, const char **name)
{
    (void)stage, (void)i, (void)name;
    return NULL;
}

int br_stage_device(const struct br_stage *stage)
{
    return stage->feeds && stage->device > 0 ? 0 : -1;
}

void *br_stage_stream(const struct br_stage *stage)
{
    (void)stage;
    return NULL;
}

int br_stage_decline_gpu(struct br_stage *stage, const char *format, ...)
{
    (void)stage, (void)format;
    return BR_OK;
}

int br_stage_exchange(struct br_stage *stage, void *to, const void *from, size_t bytes)
{
    (void)stage;
    memcpy(to, from, bytes);
    return BR_OK;
}

int br_stage_copy_rows(struct br_stage *stage, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                       size_t width, size_t rows)
{
    (void)stage;
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return BR_OK;
}

int br_stage_set_rows(struct br_stage *stage, void *to, size_t pitch, int byte, size_t width, size_t rows)
{
    (void)stage;
    for (size_t i = 0; i < rows; i++) memset((char *)to + i * pitch, byte, width);
    return BR_OK;
}

void br_stage_holds(struct br_stage *stage, const struct br_memory *memory)
{
    (void)stage, (void)memory;
}

unsigned br_stage_threads(const struct br_stage *stage)
{
    return stage->threads > 0 ? stage->threads : 1;
}

int br_stage_parallel_begin(struct br_stage *stage, unsigned most, size_t jobs, br_stage_work *work,
                            void *arg)
{
    if (stage->pool == NULL) stage->pool = br_pool_create(br_stage_threads(stage), NULL, 0);
    if (stage->pool == NULL || br_pool_in_job()) abort();
    br_round_begin(&stage->round, stage->pool, most, jobs, work, arg);
    return BR_OK;
}

int br_stage_parallel_add(struct br_stage *stage, size_t more)
{
    br_round_add(&stage->round, more);
    return BR_OK;
}

int br_stage_parallel_end(struct br_stage *stage)
{
    br_round_end(&stage->round);
    return BR_OK;
}

int br_stage_parallel(struct br_stage *stage, size_t jobs, br_stage_work *work, void *arg)
{
    br_stage_parallel_begin(stage, 0, jobs, work, arg);
    return br_stage_parallel_end(stage);
}
