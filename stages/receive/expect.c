/* expect.c - what the parameters of `receive` say will come, format by format. */
#include "buffers/regular_file.h"
#include "formats/chime_l0/receive.h"
#include "formats/frb_node/receive.h"
#include "formats/kotekan/receive.h"
#include "stages/common/stage/shape.h"
#include "stages/receive/receive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *pipeline_memory(void *owner, size_t bytes)
{
    return br_stage_alloc(owner, bytes);
}

/* --- frb-node -------------------------------------------------------------------------------------- */

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

int expect_frb_node(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    struct frb_node_document document = {0};
    if (r->document == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "document is missing; expected the YAML file that describes the data (packetize "
                             "writes it with document:, `beamring receive` records it)");
    int status = br_stage_reads_file(stage, "document", r->document);
    if (status == BR_OK) status = read_document(stage, r->document, &document);
    if (status != BR_OK) return status;
    status = frb_node_stream(&document, br_stage_output(stage, 0), pipeline_memory, stage, &error);
    frb_node_free(&document);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

int prepare_frb_node(struct br_stage *stage, struct receive *r)
{
    struct frb_receiver *f = (struct frb_receiver *)r->state;
    struct br_error error = {0};
    int status = read_document(stage, r->document, &f->document);
    if (status != BR_OK || frb_receiver_prepare(f, &error) == BR_OK) return status;
    return br_stage_fail(stage, error.status, "%s", error.text);
}

/* --- chime-l0 -------------------------------------------------------------------------------------- */

int expect_chime_l0(struct br_stage *stage, struct receive *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    struct l0_receiver *l0 = (struct l0_receiver *)r->state;
    struct br_error error = {0};
    if (r->beams == NULL || r->channels == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "beams and channels are missing; expected what to receive, such as "
                             "beams: {first: 0, count: 4}, channels: {first: 0, count: 1024}");
    if (r->beams->first + r->beams->count > 65536)
        return br_stage_fail_at(stage, "beams", "ids up to %lld; expected at most 65535",
                                (long long)(r->beams->first + r->beams->count - 1));
    if (r->channels->first + r->channels->count > L0_CHANNELS)
        return br_stage_fail_at(stage, "channels", "up to %lld; expected at most 1023",
                                (long long)(r->channels->first + r->channels->count - 1));
    if ((r->steps & (r->steps - 1)) != 0)
        return br_stage_fail_at(stage, "steps", "%lld; expected a power of two", (long long)r->steps);
    if (!hints->have_epoch || hints->epoch_ns < 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the time of count 0 is missing; add stream: {epoch_ns: ...} to the pipeline");
    l0->nbeams = (size_t)r->beams->count;
    l0->ncoarse = (size_t)r->channels->count;
    uint16_t *beams = br_stage_alloc(stage, l0->nbeams * 2), *coarse = br_stage_alloc(stage, l0->ncoarse * 2);
    for (size_t i = 0; i < l0->nbeams; i++) beams[i] = (uint16_t)((size_t)r->beams->first + i);
    for (size_t i = 0; i < l0->ncoarse; i++) coarse[i] = (uint16_t)((size_t)r->channels->first + i);
    l0->beam_ids = beams;
    l0->coarse_ids = coarse;
    l0->nupfreq = (unsigned)r->nupfreq;
    l0->nsteps = (unsigned)r->steps;
    l0->counts_per_sample = (unsigned)r->counts_per_sample;
    l0->frame0_ns = (uint64_t)hints->epoch_ns;
    l0->buffer_bytes = (int)r->receive_buffer;
    l0->interface = r->multicast_interface;
    l0->fd = -1;
    int status = l0_receiver_stream(l0, br_stage_output(stage, 0), pipeline_memory, stage, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

int prepare_chime_l0(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    int status = l0_receiver_prepare((struct l0_receiver *)r->state, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* --- kotekan --------------------------------------------------------------------------------------- */

/* The array that is to come, by the user's words. */
static int describe_array(struct br_stage *stage, struct receive *r, size_t steps, struct kotekan_array *a)
{
    static const struct {
        const char *name, *axes;
        enum br_dtype dtype;
        bool beams;
    } arrays[] = {{"field", "time,freq,pol,dish", BR_INT4X2, false},
                  {"voltages", "beam,freq,pol,time", BR_INT4X2, true},
                  {"intensities", "freq,time,beam", BR_F16, true},
                  {"grid", "freq,time,gridp,gridq", BR_F16, false}};
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    size_t k = 0, F = hints->nfreq, npol = hints->npol > 0 ? hints->npol : 2, B = (size_t)r->nbeams;
    while (strcmp(arrays[k].name, r->array) != 0) k++;
    if (arrays[k].beams != (r->nbeams > 0))
        return br_stage_fail_at(stage, "nbeams",
                                arrays[k].beams ? "frames of beams have this many; expected at least 1"
                                                : "frames of %s have no beams",
                                r->array);
    if (F % (size_t)r->factor != 0)
        return br_stage_fail_at(stage, "factor",
                                "%" PRId64 " does not divide the %zu channels of `stream: freq_mhz`",
                                r->factor, F);
    if (k == 0 && r->downsample != 0 && r->downsample != r->factor)
        return br_stage_fail_at(stage, "downsample",
                                "%" PRId64 "; a time step of the field is as many samples as `factor`",
                                r->downsample);
    *a = (struct kotekan_array){.what = arrays[k].name,
                                .factor = (unsigned)r->factor,
                                .downsample = (unsigned)(r->downsample > 0 ? r->downsample : r->factor)};
    if (k == 3 && telescope->dishes == NULL)
        return br_stage_fail_at(
            stage, "array", "the dishes of telescope '%s' are not on a grid; expected one", telescope->name);
    const size_t lengths[][4] = {{steps, F, npol, telescope->ndishes},
                                 {B, F, npol, steps},
                                 {F, steps, B, 0},
                                 {F, steps, 2 * telescope->grid_m, 2 * telescope->grid_n}};
    struct br_error error = {0};
    if (br_array_init(&a->array, arrays[k].dtype, arrays[k].axes, lengths[k], &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

int expect_kotekan(struct br_stage *stage, struct receive *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    struct br_stream *out = br_stage_output(stage, 0);
    if (telescope == NULL || hints->nfreq == 0 || hints->sample_ns.num == 0 || !hints->have_epoch)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "kotekan's metadata does not say the dishes, channels and times of E: add `telescope:` and "
            "stream: {epoch_ns: ..., sample_ns: ..., freq_mhz: ...} to the pipeline");
    if (r->coding != NULL && strcmp(r->coding, "int4x2") != 0 && strcmp(r->coding, "chime") != 0)
        return br_stage_fail_at(stage, "coding", "'%.40s'; expected int4x2 or chime", r->coding);
    struct kotekan_array array;
    int status = describe_array(stage, r, 1, &array);
    if (status != BR_OK) return status;
    if (r->frame_samples % array.downsample != 0)
        return br_stage_fail_at(stage, "frame_samples",
                                "%" PRId64 "; expected a multiple of the %u samples of a time step",
                                r->frame_samples, array.downsample);
    size_t F = hints->nfreq, steps = (size_t)r->frame_samples / array.downsample;
    status = describe_array(stage, r, steps, &array);
    if (status != BR_OK) return status;
    double *width = br_stage_alloc(stage, F * sizeof *width);
    for (size_t f = 0; f < F; f++)
        width[f] = hints->width_mhz > 0
                       ? hints->width_mhz
                       : 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num / array.factor;
    *out = (struct br_stream){.epoch_ns = hints->epoch_ns,
                              .sample_ns = hints->sample_ns,
                              .sideband = hints->sideband,
                              .freq_mhz = hints->freq_mhz,
                              .width_mhz = width,
                              .scale = 1,
                              .telescope = telescope};
    kotekan_array_stream(out, &array, steps);
    if (r->coding != NULL && !kotekan_is_plain(out))
        return br_stage_fail_at(stage, "coding",
                                "only the electric field as the F-engine gives it has codings");
    struct kotekan_receiver *k = (struct kotekan_receiver *)r->state;
    k->stream = out;
    k->coding = r->coding != NULL ? coding_from_name(r->coding) : CODING_UNKNOWN;
    k->max_frame_bytes = (uint64_t)r->max_frame_bytes;
    return BR_OK;
}
