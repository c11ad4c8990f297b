/* fake_gpu.c - see fake_gpu.h: as much of buffers/gpu.h as queues need. */
#include "tests/buffers/fake_gpu.h"

#include <stdlib.h>

_Atomic bool fake_events_happen = true;
bool fake_events_last;
int fake_record_status;
void (*fake_on_record)(void *);
void *fake_on_record_arg;

int br_gpu_alloc(void **memory, int device, size_t bytes, struct br_error *error)
{
    (void)device;
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory != NULL ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory");
}

void br_gpu_free(void *memory, int device)
{
    (void)device;
    free(memory);
}

int br_gpu_pin(void *memory, size_t bytes, struct br_error *error)
{
    (void)memory, (void)bytes, (void)error;
    return BR_OK;
}

void br_gpu_unpin(void *memory)
{
    (void)memory;
}

int br_gpu_event_create(br_gpu_event *event, int device, bool timed, struct br_error *error)
{
    (void)device, (void)timed;
    *event = calloc(1, sizeof(bool));
    return *event != NULL ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory");
}

void br_gpu_event_destroy(br_gpu_event event)
{
    free(event);
}

int br_gpu_event_record(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)stream;
    *(bool *)event = fake_events_happen && fake_events_last;
    void (*call)(void *) = fake_on_record;
    fake_on_record = NULL;
    if (call != NULL) call(fake_on_record_arg);
    return fake_record_status == BR_OK ? BR_OK : br_fail(error, fake_record_status, "recording failed");
}

int br_gpu_event_order(br_gpu_event event, const struct br_gpu_stream *stream, struct br_error *error)
{
    (void)event, (void)stream, (void)error;
    return BR_OK;
}

int br_gpu_event_query(br_gpu_event event, struct br_error *error)
{
    (void)error;
    return br_gpu_event_done(event);
}

bool br_gpu_event_done(br_gpu_event event)
{
    return fake_events_happen || *(bool *)event;
}
