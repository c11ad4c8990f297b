/* t_grown - for tests: a sink whose descriptor is GROWN_BY bytes longer than this beamring's, or shorter
 * when that is negative; the last byte that its type_size covers beyond ours is GROWN_BYTE, and what
 * follows a shorter one is garbage. */
#include <runtime/stage.h>

#include <string.h>

static int configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage, (void)self;
    return io->in[0] == NULL ? BR_FINISHED : BR_CONSUMED;
}

static const struct br_port inputs[] = {{"in", "anything"}, {0}};

/* So many bytes that the descriptor ends before a field, as in older headers. */
#define GROWN_TO(FIELD) ((int)offsetof(struct br_stage_type, FIELD) - (int)sizeof(struct br_stage_type))

struct grown {
    struct br_stage_type type;
    uint8_t beyond[64];
};

extern const struct grown beamring_stage;
__attribute__((visibility("default"))) const struct grown beamring_stage = {
    .type = {.abi_version = BR_ABI_VERSION,
             .type_size = (uint32_t)((int)sizeof(struct br_stage_type) + GROWN_BY),
             .name = GROWN_NAME,
             .summary = "has a descriptor of another size",
             .inputs = inputs,
             .configure = configure,
             .process = process,
             .memory = GROWN_BY < 0 ? (void (*)(struct br_stage *, void *, struct br_memory *))1 : NULL},
    .beyond = {[GROWN_BY > 0 && GROWN_BY <= 64 ? GROWN_BY - 1 : 0] = GROWN_BYTE},
};
