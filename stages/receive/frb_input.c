/* receive, format frb-node. */
#include "buffers/regular_file.h"
#include "formats/frb_node/frb_receiver.h"
#include "stages/common/stage/shape.h"
#include "stages/receive/receive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *pipeline_memory(void *owner, size_t bytes)
{
    return br_stage_alloc(owner, bytes);
}

static int read_document(struct br_stage *stage, const char *path, struct frb_node_document *document)
{
    struct br_error error = {0};
    char *text = malloc(FRB_NODE_YAML_MAX);
    FILE *file = br_fopen_regular(path, NULL, &error);
    size_t length = file != NULL && text != NULL ? fread(text, 1, FRB_NODE_YAML_MAX, file) : 0;
    int status = BR_OK;
    if (text == NULL)
        status = br_no_memory(stage, FRB_NODE_YAML_MAX);
    else if (file == NULL)
        status = br_stage_fail_at(stage, "document", "%s", error.text);
    else if (ferror(file))
        status = br_stage_fail_at(stage, "document", "cannot read %s: %s", path, strerror(errno));
    else if (length == FRB_NODE_YAML_MAX)
        status = br_stage_fail_at(stage, "document", "%s is longer than the 1 MiB of the protocol", path);
    else if (frb_node_parse(document, text, length, &error) != BR_OK)
        status = br_stage_fail_at(stage, "document", "%s: %s", path, error.text);
    if (file != NULL) fclose(file);
    free(text);
    return status;
}

static int configure(struct br_stage *stage, struct receive *r)
{
    struct br_stream *out = br_stage_output(stage, 0);
    struct br_error error = {0};
    struct frb_node_document document = {0};
    if (r->document == NULL)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "document is missing; expected the YAML file of what will come (packetize writes it with "
            "document:, `beamring receive` records it)");
    int status = br_stage_reads_file(stage, "document", r->document);
    if (status == BR_OK) status = read_document(stage, r->document, &document);
    if (status != BR_OK) return status;
    status = frb_node_stream(&document, out, pipeline_memory, stage, &error);
    frb_node_free(&document);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int start(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    struct frb_receiver *f = r->state = calloc(1, sizeof *f);
    if (f == NULL) return br_no_memory(stage, sizeof *f);
    f->window = (unsigned)r->window;
    f->handshake_s = r->handshake_s;
    r->counts = &f->counts;
    int status = read_document(stage, r->document, &f->document);
    if (status == BR_OK && frb_receiver_prepare(f, &error) != BR_OK)
        status = br_stage_fail(stage, error.status, "%s", error.text);
    if (status != BR_OK) return status;
    if (frb_receiver_listen(f, &r->at, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    br_stage_note(stage, "listening on port %u", net_port(f->server.listener));
    return BR_OK;
}

static int step(struct br_stage *stage, struct receive *r, int ms)
{
    struct frb_receiver *f = r->state;
    struct br_error error = {0};
    /* Complete frames are handed on before more is read: whether a piece that comes again is late or a
     * duplicate must not depend on how long the frames before it take. */
    if (assembly_ready(&f->assembly, false) != NULL) return BR_OK;
    int status = frb_receiver_step(f, ms, &error);
    if (f->complaint[0] != '\0') memcpy(r->complaint, f->complaint, sizeof r->complaint);
    f->complaint[0] = '\0';
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int fill(struct br_stage *stage, struct receive *r, struct br_frame *out, bool flush)
{
    struct frb_receiver *f = r->state;
    if (!assembly_take(&f->assembly, br_stage_output(stage, 0), flush, out)) return 0;
    frb_receiver_retry(f);
    return 1;
}

static bool connected(const struct receive *r)
{
    return ((const struct frb_receiver *)r->state)->open > 0;
}

static void stop(struct receive *r)
{
    if (r->state != NULL) frb_receiver_free(r->state);
    free(r->state);
}

const struct receive_format frb_node_input = {
    "frb-node", sizeof(struct frb_receiver), configure, start, step, fill, connected, stop};
