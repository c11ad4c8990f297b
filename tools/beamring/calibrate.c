/* calibrate.c - `beamring calibrate`: receivers' gains from the visibilities of a source. */
#include "tools/beamring/calibrate.h"

#include "buffers/output.h"
#include "formats/common/text.h"
#include "formats/sky/coordinates.h"
#include "runtime/graph/graph.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/plot.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: beamring calibrate VIS... --source RA,DEC|sun|moon | --direction X,Y | --azel A,E [options]\n"
    "VIS are UVH5 files, or DADA recordings of what `correlate` makes. `beamring help calibrate` lists the\n"
    "options.\n";

static int wrong(const char *format, const char *value)
{
    fputs("beamring calibrate: ", stderr);
    fprintf(stderr, format, value);
    fputc('\n', stderr);
    return 2;
}

/* "A,B" into two texts; false where it is not two. */
static bool halves(const char *text, char *first, char *second, size_t size)
{
    const char *comma = strchr(text, ',');
    if (comma == NULL || (size_t)(comma - text) >= size || strlen(comma + 1) >= size) return false;
    memcpy(first, text, (size_t)(comma - text));
    first[comma - text] = '\0';
    strcpy(second, comma + 1);
    return strchr(second, ',') == NULL;
}

/* One of several --source, or the one --direction or --azel. */
static int read_place(const char *option, const char *text, struct source_place *place)
{
    char first[64] = "", second[64] = "", message[BR_ERROR_LENGTH + 64];
    bool on_sky = strcmp(option, "--source") == 0, plain = false;
    double a, b;
    struct br_error error = {0};
    struct sky_source *source = &place->source[place->nsources];
    if (place->nsources > 0 && (!on_sky || !source_on_sky(place)))
        return wrong("%s",
                     "both --source and --direction or --azel; expected one of them, or several --source");
    if (place->nsources++ == MAX_SOURCES) return wrong("--source '%s': expected at most 16 of them", text);
    bool two = halves(text, first, second, sizeof first);
    int status = BR_E_INVALID;
    if (on_sky && !apparent_is_there())
        br_fail(
            &error, status,
            "this beamring was built without ERFA (liberfa-dev), which knows where the sky stands; give a "
            "--direction");
    else if (on_sky)
        status = two ? sky_radec(source, first, second, &plain, &error) : sky_named(source, text, &error);
    else if (!two || text_real(first, &a) != 0 || text_real(second, &b) != 0)
        br_fail(&error, status, "expected %s",
                option[2] == 'd' ? "X,Y, direction cosines to the north (m) and to the east (n)"
                                 : "AZIMUTH,ALTITUDE in degrees, the azimuth from north over east");
    else
        status = option[2] == 'd' ? sky_xy(source, a, b, &error) : sky_azel(source, a, b, &error);
    if (status == BR_OK) return 0;
    if (on_sky && apparent_is_there())
        return wrong(
            "--source '%s': expected RA,DEC, in degrees (83.633,22.014) or as 05:34:31.9,+22:00:52, with "
            "0 to 360 degrees (24 h) and -90 to 90, or sun or moon",
            text);
    snprintf(message, sizeof message, "%s '%%s': %s", option, error.text);
    return wrong(message, text);
}

static int read_number(const char *option, const char *text, double least, double most, double *value)
{
    char message[128];
    if (text_real(text, value) == 0 && *value >= least && *value <= most) return 0;
    snprintf(message, sizeof message, "%s '%%s': expected a number from %g to %g", option, least, most);
    return wrong(message, text);
}

/* Checks the form of --at; the node knows whether it can be. */
static int read_at(const char *text)
{
    uint64_t number;
    if (strcmp(text, "now") == 0 || (strncmp(text, "sample:", 7) == 0 && text_u64(text + 7, &number) == 0) ||
        (strncmp(text, "time:", 5) == 0 && text_u64(text + 5, &number) == 0))
        return 0;
    return wrong("--at '%s': expected now, sample:N or time:NS (Unix time in ns)", text);
}

/* One option with its value. */
static int read_option(struct calibrate_request *r, const char *name, const char *value)
{
    static const struct text_option {
        const char *name;
        size_t offset;
    } texts[] = {
        {"--telescope", offsetof(struct calibrate_request, telescope)},
        {"--out", offsetof(struct calibrate_request, out)},
        {"--plot", offsetof(struct calibrate_request, plot)},
        {"--post", offsetof(struct calibrate_request, post)},
        {"--stages", offsetof(struct calibrate_request, stages)},
        {"--token-file", offsetof(struct calibrate_request, token_file)},
        {"--eop", offsetof(struct calibrate_request, eop)},
    };
    double number = -1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(name, texts[i].name) == 0) {
            memcpy((char *)r + texts[i].offset, &value, sizeof value);
            return 0;
        }
    if (strcmp(name, "--source") == 0 || strcmp(name, "--direction") == 0 || strcmp(name, "--azel") == 0) {
        if (r->place.nsources > 0)
            snprintf(r->source + strlen(r->source), sizeof r->source - strlen(r->source), " or ");
        snprintf(r->source + strlen(r->source), sizeof r->source - strlen(r->source), "%s", value);
        return read_place(name, value, &r->place);
    }
    if (strcmp(name, "--sideband") == 0) {
        r->sideband = br_sideband_named(value);
        return r->sideband != BR_SIDEBAND_UNKNOWN ? 0
                                                  : wrong("--sideband '%s': expected upper or lower", value);
    }
    if (strcmp(name, "--at") == 0) {
        r->at = value;
        return read_at(value);
    }
    if (strcmp(name, "--ref-input") == 0) {
        int status = read_number(name, value, 0, 65535, &number);
        r->options.reference = (long)number;
        return status == 0 && floor(number) < number
                   ? wrong("--ref-input '%s': expected a dish's number", value)
                   : status;
    }
    if (strcmp(name, "--ut1-utc") == 0) return read_number(name, value, -1, 1, &r->place.ut1_utc_s);
    if (strcmp(name, "--min-snr") == 0) return read_number(name, value, 0, 1e6, &r->options.min_snr);
    if (strcmp(name, "--max-residual") == 0)
        return read_number(name, value, 1, 1e6, &r->options.max_residual);
    return wrong("unknown option '%s'; `beamring help calibrate` lists them", name);
}

static int read_arguments_of(int argc, char **argv, struct calibrate_request *r)
{
    *r = (struct calibrate_request){
        .file = argv + 1,
        .place.ut1_utc_s = NAN,
        .options = {.min_snr = 5, .max_residual = 3, .min_amplitude = 0.3, .reference = -1},
        .out = "gains.h5"};
    for (int i = 1; i < argc; i++) {
        char name[32];
        if (argv[i][0] != '-') {
            r->file[r->nfiles++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--overwrite") == 0) {
            r->overwrite = true;
            continue;
        }
        const char *equals = strchr(argv[i], '='), *value = equals != NULL ? equals + 1 : argv[i + 1];
        snprintf(name, sizeof name, "%.*s", (int)(equals != NULL ? equals - argv[i] : 31), argv[i]);
        int status = read_option(r, name, value != NULL ? value : "");
        if (status != 0) return status;
        if (value == NULL) return wrong("%s needs a value", name);
        if (equals == NULL) i++;
    }
    if (r->nfiles == 0 || r->place.nsources == 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (r->post == NULL && (r->at != NULL || r->stages != NULL || r->token_file != NULL))
        return wrong("%s goes with --post URL", r->at != NULL       ? "--at"
                                                : r->stages != NULL ? "--stages"
                                                                    : "--token-file");
    return 0;
}

/* A file's `telescope:`. Returns 0, or 2 after its mistakes. */
static int read_telescope(const char *path, struct br_config **config, struct br_graph *graph)
{
    struct br_error error = {0};
    *graph = (struct br_graph){0};
    if (br_config_load(config, path, 0, NULL, &error) != BR_OK && error.text[0] != '\0') {
        fprintf(stderr, "beamring calibrate: %s\n", error.text);
        return 2;
    }
    graph->config = *config;
    if (br_config_errors(*config) == 0)
        br_graph_read_telescope(graph, br_node_get(br_config_root(*config), "telescope"));
    if (br_config_errors(*config) > 0) {
        br_config_print_errors(*config, stderr);
        return 2;
    }
    if (graph->telescope != NULL && graph->telescope->ndishes > 0) return 0;
    return wrong("%s has no `telescope:` with dishes", path);
}

/* The file of --eop, or the telescope's. Returns 0, or 2 after a message. */
static int read_eop(struct calibrate_request *r, const struct br_telescope *telescope, struct eop *eop)
{
    struct br_error error = {0};
    const char *path = r->eop != NULL ? r->eop : telescope != NULL ? telescope->eop : NULL;
    if (path == NULL || !source_on_sky(&r->place)) return 0;
    if (eop_read(eop, path, &error) != BR_OK) return wrong("%s", error.text);
    r->place.eop = eop;
    return 0;
}

static int write_file(const struct calibrate_request *r, const struct visibilities *v,
                      const struct calibration *c, uint64_t digest, struct br_error *error)
{
    char *names = NULL;
    size_t length;
    FILE *list = open_memstream(&names, &length);
    if (list == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the names of files");
    for (size_t i = 0; i < r->nfiles; i++) fprintf(list, "%s\n", r->file[i]);
    fclose(list);
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (size_t i = 0; i < v->nspans; i++) {
        if (v->span[i].begin_ns < begin) begin = v->span[i].begin_ns;
        if (v->span[i].end_ns > end) end = v->span[i].end_ns;
    }
    char source[192], polarisations[16];
    snprintf(source, sizeof source, "%s%.150s",
             r->place.source[0].kind > SKY_RADEC ? "" : calibrate_place_kind(&r->place), r->source);
    snprintf(polarisations, sizeof polarisations, "%s%s%s", v->shape.pol[0], c->npol > 1 ? " " : "",
             v->shape.pol[1]);
    struct gains_file file = {.nfreq = c->nfreq,
                              .npol = c->npol,
                              .ndishes = c->ndishes,
                              .gain = c->gain,
                              .flag = c->flag,
                              .weight = c->weight,
                              .residual = c->residual,
                              .snr = c->snr,
                              .reference = c->reference,
                              .freq_mhz = v->freq_mhz,
                              .width_mhz = v->width_mhz,
                              .antenna = v->antenna,
                              .sideband = calibrate_sideband(v),
                              .polarisations = polarisations,
                              .telescope = v->shape.telescope,
                              .source = source,
                              .visibilities = names,
                              .begin_ns = begin,
                              .end_ns = end,
                              .digest = digest};
    signal(SIGXFSZ, SIG_IGN); /* a file that becomes too long is an error, not the end */
    int status = gains_file_write(&file, r->out, r->overwrite, error);
    free(names);
    return status;
}

/* Warns where the gains point elsewhere than to the source. */
static int look_at_winding(const struct calibrate_request *r, const struct visibilities *v,
                           const struct calibration *c, struct br_error *error)
{
    int status = BR_OK;
    for (size_t p = 0; p < c->npol && status == BR_OK; p++) {
        struct winding winding;
        status = winding_find(c, v, p, v->towards, &winding, error);
        if (status == BR_OK && winding.found) calibrate_warn_winding(r, v, p, &winding);
    }
    return status;
}

static int calibrate(const struct calibrate_request *r, const struct br_telescope *telescope,
                     struct visibilities *v, struct calibration *c)
{
    struct br_error error = {0};
    int status = BR_OK;
    if (r->plot != NULL) status = br_output_check(r->plot, &error);
    v->stated = r->sideband;
    for (size_t i = 0; i < r->nfiles && status == BR_OK; i++)
        status = visibilities_add(v, r->file[i], telescope, &r->place, &error);
    if (status == BR_OK) calibrate_warn_inputs(v);
    if (status == BR_OK) status = visibilities_check(v, &error);
    if (status == BR_OK) status = calibration_make(c, v, &r->options, &error);
    if (status == BR_OK) status = look_at_winding(r, v, c, &error);
    uint64_t digest = status == BR_OK ? visibilities_digest(v) : 0;
    if (status == BR_OK) {
        calibrate_report(r, v, c);
        status = write_file(r, v, c, digest, &error);
    }
    if (status != BR_OK) {
        fprintf(stderr, "beamring calibrate: %s\n", error.text);
        return 1;
    }
    printf("written to %s\n", r->out);
    fflush(stdout);
    status = r->post != NULL ? calibrate_post(r, digest) : 0;
    if (r->plot != NULL &&
        plot("calibrate", "gains_report.py", "numpy, h5py and matplotlib", r->out, r->plot) != 0)
        status = 1;
    return status;
}

int cmd_calibrate(int argc, char **argv)
{
    struct calibrate_request request;
    struct visibilities visibilities = {0};
    struct calibration calibration = {0};
    struct br_config *config = NULL;
    struct br_graph graph = {0};
    struct eop eop = {0};
    int status = read_arguments_of(argc, argv, &request);
    if (status == 0 && request.telescope != NULL) status = read_telescope(request.telescope, &config, &graph);
    if (status == 0) status = read_eop(&request, graph.telescope, &eop);
    if (status == 0) status = calibrate(&request, graph.telescope, &visibilities, &calibration);
    calibration_free(&calibration);
    visibilities_free(&visibilities);
    eop_free(&eop);
    br_config_free(config);
    return status;
}
