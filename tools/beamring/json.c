#include "tools/beamring/json.h"

#include "runtime/base/json_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int json_print(json_t *document)
{
    int failed =
        document == NULL || json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) != 0;
    if (!failed) putchar('\n');
    json_decref(document);
    return failed;
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* --- a pipeline --------------------------------------------------------------------------------- */

static json_t *memory_of(const struct br_memory *m)
{
    return json_pack("{so so so}", "host", count(m->host), "locked", count(m->locked), "gpu",
                     count(m->device));
}

static json_t *device_of(int device)
{
    char name[24] = "cpu";
    if (device >= 0) snprintf(name, sizeof name, "cuda:%d", device);
    return json_string(name);
}

static json_t *queue_of(const struct br_edge *edge)
{
    const struct br_stream *s = &edge->stream;
    double low = INFINITY, high = 0, frame_s = (double)s->frame_samples * br_stream_sample_s(s);
    for (size_t c = 0; c < s->nchannels; c++) {
        low = fmin(low, s->freq_mhz[c] - s->width_mhz[c] / 2);
        high = fmax(high, s->freq_mhz[c] + s->width_mhz[c] / 2);
    }
    json_t *axes = json_array(), *readers = json_array();
    for (unsigned i = 0; i < s->array.naxes; i++)
        json_array_append_new(axes, json_pack("{ss so}", "name", s->array.axis[i].name, "length",
                                              count(s->array.axis[i].length)));
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        json_array_append_new(readers, json_pack("{so ss so}", "stage", br_json_text(link->stage->name),
                                                 "policy", br_policy_name[link->policy], "history_s",
                                                 json_real(link->history_s)));
    size_t bytes = br_array_bytes(&s->array) + br_array_bytes(&s->side);
    return json_pack("{so so so ss so so s[ff] ss sf si so sf sf si so so so sI}", "name",
                     br_json_text(edge->name), "from", br_json_text(edge->producer->name), "readers", readers,
                     "dtype", br_dtype_name(s->array.dtype), "axes", axes, "channels", count(s->nchannels),
                     "band_mhz", low, high, "sideband", br_sideband_name(s->sideband), "step_s",
                     br_stream_sample_s(s) * s->zone[0].downsample, "step_samples",
                     (int)s->zone[0].downsample, "frame_samples", count(s->frame_samples), "frame_s", frame_s,
                     "bytes_per_s", (double)bytes / frame_s, "slots", (int)edge->depth, "memory",
                     edge->place.space == BR_SPACE_CUDA     ? device_of(edge->place.device)
                     : edge->place.space == BR_SPACE_PINNED ? json_string("locked")
                                                            : json_string("host"),
                     "host_bytes", count(br_queue_bytes(edge->queue)), "gpu_bytes",
                     count(br_queue_device_bytes(edge->queue)), "epoch_ns", (json_int_t)s->epoch_ns);
}

json_t *json_pipeline(const struct br_graph *graph)
{
    json_t *stages = json_array(), *queues = json_array();
    for (size_t i = 0; i < graph->nstages; i++) {
        const struct br_stage *s = &graph->stage[i];
        json_array_append_new(stages, json_pack("{so ss so sb so}", "name", br_json_text(s->name), "stage",
                                                s->type->name, "device", device_of(s->device), "inserted",
                                                i >= graph->nfile, "memory", memory_of(&s->memory)));
    }
    for (size_t i = 0; i < br_graph_nedges(graph); i++)
        json_array_append_new(queues, queue_of(br_graph_edge(graph, i)));
    return json_pack("{so so}", "stages", stages, "queues", queues);
}

json_t *json_memory(const struct br_graph *graph)
{
    struct br_memory all = br_graph_memory(graph, 0);
    json_t *gpus = json_array();
    for (int device = 0; device < graph->ngpus; device++)
        json_array_append_new(gpus, count(br_graph_memory(graph, device).device));
    return json_pack("{so so so}", "host", count(all.host), "locked", count(all.locked), "gpus", gpus);
}

/* --- mistakes ----------------------------------------------------------------------------------- */

/* "FILE:LINE:COLUMN: MESSAGE"; a file's name may hold colons. */
static json_t *mistake_of(const char *line)
{
    for (const char *c = strchr(line, ':'); c != NULL; c = strchr(c + 1, ':')) {
        int row, column, length = 0;
        if (sscanf(c, ":%d:%d: %n", &row, &column, &length) != 2 || length == 0) continue;
        char *file = strndup(line, (size_t)(c - line));
        json_t *mistake = json_pack("{so si si so}", "file", br_json_text(file), "line", row, "column",
                                    column, "message", br_json_text(c + length));
        free(file);
        return mistake;
    }
    return json_pack("{so}", "message", br_json_text(line));
}

json_t *json_mistakes(const struct br_config *config)
{
    char *all = NULL, *rest = NULL;
    size_t length;
    json_t *list = json_array();
    FILE *out = open_memstream(&all, &length);
    if (out == NULL) return list;
    br_config_print_errors(config, out);
    fclose(out);
    for (char *line = strtok_r(all, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        json_array_append_new(list, mistake_of(line));
    free(all);
    return list;
}

/* --- a stage's descriptor ------------------------------------------------------------------------ */

static json_t *params_of(const struct br_param *params)
{
    static const char *const types[] = {
        [BR_P_BOOL] = "bool",         [BR_P_INT] = "integer",   [BR_P_REAL] = "number",
        [BR_P_STRING] = "text",       [BR_P_CHOICE] = "choice", [BR_P_PATH] = "path",
        [BR_P_RATIONAL] = "rational", [BR_P_INTS] = "integers", [BR_P_REALS] = "numbers",
        [BR_P_STRINGS] = "texts",     [BR_P_MAP] = "map",       [BR_P_MAPS] = "maps"};
    json_t *list = json_array();
    for (const struct br_param *p = params; p != NULL && p->name != NULL; p++) {
        json_t *one = json_pack("{ss ss so so so sb}", "name", p->name, "type", types[p->type], "help",
                                br_json_text(p->help), "unit", br_json_text(p->unit), "default",
                                br_json_text(p->def), "required", p->required);
        if (p->min < p->max || p->max > 0) {
            json_object_set_new(one, "min", json_real(p->min));
            json_object_set_new(one, "max", json_real(p->max));
        }
        if (p->choices != NULL) {
            json_t *choices = json_array();
            for (const char *const *c = p->choices; *c != NULL; c++)
                json_array_append_new(choices, json_string(*c));
            json_object_set_new(one, "choices", choices);
        }
        if (p->formats != NULL) json_object_set_new(one, "formats", br_json_text(p->formats));
        if (p->fields != NULL) json_object_set_new(one, "fields", params_of(p->fields));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *ports_of(const struct br_port *port)
{
    json_t *list = json_array();
    for (; port != NULL && port->name != NULL; port++)
        json_array_append_new(list,
                              json_pack("{ss so}", "name", port->name, "help", br_json_text(port->help)));
    return list;
}

json_t *json_stage_type(const struct br_stage_type *type)
{
    json_t *updates = json_array();
    for (const char *const *u = type->updates; u != NULL && *u != NULL; u++)
        json_array_append_new(updates, json_string(*u));
    return json_pack("{ss ss so so so so so}", "name", type->name, "summary", type->summary, "inputs",
                     ports_of(type->inputs), "outputs", ports_of(type->outputs), "parameters",
                     params_of(type->params), "updates", updates, "description",
                     br_json_text(type->description));
}

/* --- info ------------------------------------------------------------------------------------------ */

static json_t *number_or_text(const char *value)
{
    json_t *number = json_loads(value, JSON_DECODE_ANY, NULL);
    if (json_is_number(number)) return number;
    json_decref(number);
    return br_json_text(value);
}

/* A second line of a value makes a list of it. */
static void add_value(json_t *values, const char *name, json_t *value)
{
    json_t *old = json_object_get(values, name);
    if (old == NULL) {
        json_object_set_new(values, name, value);
    } else if (json_is_array(old)) {
        json_array_append_new(old, value);
    } else {
        json_object_set_new(values, name, json_pack("[Oo]", old, value));
    }
}

enum { NAME_AT = 2, VALUE_AT = 15 }; /* of info_line */

json_t *json_of_info(const char *all)
{
    json_t *files = json_array(), *file = NULL;
    char name[64] = "", *copy = strdup(all), *rest = NULL;
    for (char *line = copy != NULL ? strtok_r(copy, "\n", &rest) : NULL; line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *kind = strstr(line, ": ");
        size_t length = strlen(line);
        bool pair = strncmp(line, "  ", NAME_AT) == 0 && length > VALUE_AT && file != NULL &&
                    (!isspace((unsigned char)line[NAME_AT]) || line[VALUE_AT - 1] == ' ');
        if (pair) {
            size_t end = VALUE_AT - 1;
            while (line[end] != ' ' && line[end] != '\0') end++; /* a name longer than its column */
            size_t last = end;
            while (last > NAME_AT && line[last - 1] == ' ') last--;
            if (last > NAME_AT) snprintf(name, sizeof name, "%.*s", (int)(last - NAME_AT), line + NAME_AT);
            while (line[end] == ' ') end++;
            add_value(json_object_get(file, "values"), name, number_or_text(line + end));
        } else if (line[0] != ' ' && kind != NULL) {
            char *path = strndup(line, (size_t)(kind - line));
            file = json_pack("{so so so}", "file", br_json_text(path), "kind", br_json_text(kind + 2),
                             "values", json_object());
            json_array_append_new(files, file);
            free(path);
        } else if (file != NULL) {
            if (json_object_get(file, "notes") == NULL) json_object_set_new(file, "notes", json_array());
            json_array_append_new(json_object_get(file, "notes"), br_json_text(line));
        }
    }
    free(copy);
    return files;
}
