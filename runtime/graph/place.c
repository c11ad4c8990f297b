/* place.c - which stage runs where, and the copies between. */
#include "runtime/graph/graph.h"

#include "buffers/gpu.h"

#include <stdlib.h>
#include <string.h>

/* --- devices --- */

enum { ON_AUTO = -2, ON_CPU = -1 };

/* Asked for only where a stage could use one: the answer starts CUDA, which takes time, memory and open
 * files, and a pipeline on the CPU should have none of that. */
static int count_gpus(struct br_graph *graph)
{
    if (graph->ngpus < 0) graph->ngpus = br_gpu_devices(&graph->no_gpu);
    return graph->ngpus;
}

/* ON_AUTO, ON_CPU or the number of a GPU; mistakes go to the config, and then it is ON_CPU. */
static int read_device(struct br_graph *graph, const struct br_node *map)
{
    const struct br_node *at = br_node_get(map, "device");
    if (at == NULL || at->kind != BR_NODE_SCALAR || strcmp(at->text, "auto") == 0) return ON_AUTO;
    if (strcmp(at->text, "cpu") == 0) return ON_CPU;
    const char *number = strncmp(at->text, "cuda:", 5) == 0 ? at->text + 5 : NULL;
    char *end = NULL;
    long device = number != NULL && *number >= '0' && *number <= '9' ? strtol(number, &end, 10) : -1;
    if (strcmp(at->text, "cuda") == 0)
        device = 0;
    else if (device < 0 || *end != '\0') {
        br_config_error(graph->config, at, "device: '%s' is no device; expected auto, cpu or cuda:N",
                        at->text);
        return ON_CPU;
    }
    if (device < count_gpus(graph)) return (int)device;
    if (graph->ngpus == 0)
        br_config_error(graph->config, at, "device: '%s' asks for a GPU, but %s; expected auto or cpu",
                        at->text, graph->no_gpu.text);
    else
        br_config_error(graph->config, at,
                        "device: '%s' asks for a GPU that is not there; expected cuda:0 to cuda:%d", at->text,
                        graph->ngpus - 1);
    return ON_CPU;
}

void br_graph_place_stages(struct br_graph *graph, const struct br_node *root)
{
    graph->ngpus = -1;
    int all = read_device(graph, root);
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        stage->device = ON_CPU;
        if (stage->type == NULL) continue;
        bool can = (stage->type->flags & BR_STAGE_CUDA) != 0,
             own = br_node_get(stage->node, "device") != NULL;
        int wanted = own ? read_device(graph, stage->node) : all;
        if (wanted >= 0 && own && !can)
            br_config_error(graph->config, br_node_get(stage->node, "device"),
                            "device: 'cuda:%d': stage '%s' has no GPU "
                            "implementation; expected auto or cpu",
                            wanted, stage->name);
        if (!can || wanted == ON_CPU) continue;
        graph->gpu_wanted = true;
        stage->device_given = own && wanted >= 0; /* a whole pipeline's device is only a preference */
        stage->device = wanted >= 0 ? wanted : count_gpus(graph) > 0 ? 0 : ON_CPU;
    }
}

/* --- transfers --- */

static int transfer_configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

/* A copy engine serves its streams in turn, one copy at a time: pieces of this size keep the small copies
 * of other stages from waiting for a whole frame. */
#define PIECE ((size_t)64 << 20)

static int copy_in_pieces(void *to, const void *from, size_t bytes, const struct br_gpu_stream *stream,
                          struct br_error *error)
{
    int status = BR_OK;
    for (size_t at = 0; at < bytes && status == BR_OK; at += PIECE)
        status = br_gpu_copy((uint8_t *)to + at, (const uint8_t *)from + at,
                             bytes - at < PIECE ? bytes - at : PIECE, stream, error);
    return status;
}

/* Enqueues the copy of one frame. What the host knows of it goes at once. */
static int transfer_process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    const struct br_stream *stream = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    const struct br_gpu_stream gpu = {br_stage_device(stage), br_stage_stream(stage)};
    struct br_error error = {0};
    if (in == NULL) return BR_FINISHED;
    int status = copy_in_pieces(out->data, in->data, br_frame_bytes(stream, in), &gpu, &error);
    if (status == BR_OK && in->side != NULL)
        status = br_gpu_copy(out->side, in->side, br_array_bytes(&stream->side), &gpu, &error);
    if (status != BR_OK) return br_stage_fail(stage, status, "%s", error.text);
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(stream, in));
    return BR_CONSUMED | BR_PRODUCED;
}

static const struct br_port anything[] = {{"in", "any stream"}, {0}},
                            the_same[] = {{"out", "the same, elsewhere"}, {0}};
static const struct br_stage_type transfer = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "transfer",
    .summary = "copies frames between memory spaces; inserted by the runtime",
    .inputs = anything,
    .outputs = the_same,
    .flags = BR_STAGE_CUDA,
    .configure = transfer_configure,
    .process = transfer_process,
};

static const char *place_name(int device, char *text, size_t size)
{
    if (device < 0)
        snprintf(text, size, "host");
    else
        snprintf(text, size, "cuda:%d", device);
    return text;
}

static const char *joined(struct br_graph *graph, const char *a, const char *between, const char *b)
{
    size_t length = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = br_config_alloc(graph->config, length);
    snprintf(text, length, "%s%s%s", a, between, b);
    return text;
}

/* Whether all readers of the edge on `device` may lose frames: then the transfer before them may as well. */
static enum br_policy policy_towards(const struct br_edge *edge, int device)
{
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (link->stage->device == device && link->policy == BR_POLICY_BLOCK) return BR_POLICY_BLOCK;
    return BR_POLICY_DROP;
}

/* Puts a transfer between the edge and those of its readers that run on `device`. */
static void insert(struct br_graph *graph, struct br_edge *edge, int device)
{
    char where[32];
    int from = edge->producer->device;
    struct br_stage *stage = &graph->stage[graph->nstages++];
    place_name(device, where, sizeof where);
    *stage = (struct br_stage){
        .graph = graph, .type = &transfer, .node = edge->producer->node, .nin = 1, .nout = 1, .ready = true};
    stage->name = joined(graph, edge->name, " to ", where);
    stage->device = device >= 0 ? device : from;
    stage->affinity = edge->producer->affinity;
    stage->in[0] = (struct br_link){
        .stage = stage, .at = edge->at, .policy = policy_towards(edge, device), .edge = edge};
    struct br_edge *there = &stage->out[0];
    *there = (struct br_edge){.name = joined(graph, edge->name, "@", where),
                              .at = edge->at,
                              .producer = stage,
                              .depth = edge->depth,
                              .depth_given = edge->depth_given,
                              .described = true,
                              .stream = edge->stream};
    struct br_link **kept = &edge->readers, **moved = &there->readers;
    while (*kept != NULL) {
        struct br_link *link = *kept;
        if (link->stage->device != device) {
            kept = &link->next;
            continue;
        }
        *kept = link->next;
        link->next = NULL;
        link->edge = there;
        *moved = link;
        moved = &link->next;
    }
    *kept = &stage->in[0];
}

/* A device other than the producer's on which a reader runs; transfers, which reach both sides, do not
 * count. */
static bool reader_elsewhere(const struct br_edge *edge, int *device)
{
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (link->stage->type != &transfer && link->stage->device != edge->producer->device) {
            *device = link->stage->device;
            return true;
        }
    return false;
}

static bool feeds_transfer(const struct br_edge *edge)
{
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (link->stage->type == &transfer) return true;
    return false;
}

/* The GPU on which all readers of the edge run; ON_CPU: there is no such. */
static int readers_gpu(const struct br_edge *edge)
{
    int device = edge->readers != NULL ? edge->readers->stage->device : ON_CPU;
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (link->stage->device != device) return ON_CPU;
    return device;
}

/* Puts sources that can write their frames on a GPU where these are read. */
static void place_sources(struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        const struct br_node *own = br_node_get(stage->node, "device");
        bool kept = own != NULL && own->kind == BR_NODE_SCALAR && strcmp(own->text, "cpu") == 0;
        if (stage->feeds && !kept && stage->nin == 0 && stage->nout == 1)
            stage->device = readers_gpu(&stage->out[0]);
    }
}

void br_graph_insert_transfers(struct br_graph *graph)
{
    size_t nfile = graph->nstages;
    place_sources(graph);
    for (size_t s = 0; s < nfile; s++)
        for (unsigned i = 0; i < graph->stage[s].nout; i++) {
            int device;
            while (reader_elsewhere(&graph->stage[s].out[i], &device))
                insert(graph, &graph->stage[s].out[i], device);
        }
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        for (unsigned i = 0; i < stage->nout; i++) {
            struct br_edge *edge = &stage->out[i];
            bool to_host = stage->type == &transfer && edge->readers->stage->device < 0;
            if (to_host || (stage->device < 0 && feeds_transfer(edge)))
                edge->place = (struct br_place){BR_SPACE_PINNED, 0};
            else if (stage->device >= 0)
                edge->place = (struct br_place){BR_SPACE_CUDA, stage->device};
            else
                edge->place = BR_HOST;
        }
    }
}
