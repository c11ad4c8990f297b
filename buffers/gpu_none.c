/* gpu_none.c - gpu.h in a build without CUDA: no devices, so that nothing else is called. */
#include "buffers/gpu.h"

#include <stdio.h>

static int none(struct br_error *error)
{
    return br_fail(error, BR_E_DEVICE, "this beamring was built without CUDA");
}

int br_gpu_devices(struct br_error *why)
{
    none(why);
    return 0;
}

void br_gpu_name(int device, char *text, size_t size)
{
    (void)device;
    snprintf(text, size, "no GPU");
}

int br_gpu_use(int device, struct br_error *error)
{
    (void)device;
    return none(error);
}

int br_gpu_stream_create(struct br_gpu_stream *stream, int device, struct br_error *error)
{
    *stream = (struct br_gpu_stream){device, NULL};
    return none(error);
}

void br_gpu_stream_destroy(struct br_gpu_stream *stream)
{
    (void)stream;
}

int br_gpu_stream_wait(const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)stream;
    return none(error);
}

int br_gpu_stream_query(const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)stream;
    return none(error);
}

int br_gpu_alloc(void **memory, int device, size_t bytes, struct br_error *error)
{
    (void)device, (void)bytes;
    *memory = NULL;
    return none(error);
}

void br_gpu_free(void *memory, int device)
{
    (void)memory, (void)device;
}

int br_gpu_pin(void *memory, size_t bytes, struct br_error *error)
{
    (void)memory, (void)bytes;
    return none(error);
}

void br_gpu_unpin(void *memory)
{
    (void)memory;
}

int br_gpu_event_create(br_gpu_event *event, int device, bool timed, struct br_error *error)
{
    (void)device, (void)timed;
    *event = NULL;
    return none(error);
}

void br_gpu_event_destroy(br_gpu_event event)
{
    (void)event;
}

int br_gpu_event_record(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)event, (void)stream;
    return none(error);
}

int br_gpu_event_order(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)event, (void)stream;
    return none(error);
}

int br_gpu_event_query(br_gpu_event event, struct br_error *error)
{
    (void)event;
    return none(error);
}

bool br_gpu_event_done(br_gpu_event event)
{
    (void)event;
    return true;
}

double br_gpu_event_ms(br_gpu_event from, br_gpu_event to)
{
    (void)from, (void)to;
    return -1;
}

int br_gpu_copy(void *to, const void *from, size_t bytes, const struct br_gpu_stream *stream,
                struct br_error *error)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return none(error);
}

int br_gpu_move_rows(const struct br_rows *rows, unsigned n, bool beside, const struct br_gpu_stream *stream,
                     struct br_error *error)
{
    (void)rows, (void)n, (void)beside, (void)stream;
    return none(error);
}

int br_gpu_set_rows(void *to, size_t pitch, int byte, size_t width, size_t rows,
                    const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)to, (void)pitch, (void)byte, (void)width, (void)rows, (void)stream;
    return none(error);
}

int br_gpu_last_error(struct br_error *error)
{
    (void)error;
    return BR_OK;
}

void br_gpu_range_push(const char *name)
{
    (void)name;
}

void br_gpu_range_pop(void) {}
