/* The document of the FRB-node protocol: one table of its keys drives writing and reading. */
#include "formats/frb_node/frb_node.h"
#include "formats/common/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum kind { INTEGER, REAL, INTEGERS, REALS, REAL_OR_REALS };

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset;
} keys[] = {
#define KEY(name, kind)                                                                                      \
    {                                                                                                        \
#name, kind, offsetof(struct frb_node_document, name)                                                \
    }
    KEY(version, INTEGER),
    KEY(zone_nfreq, INTEGERS),
    KEY(zone_freq_edges, REALS),
    KEY(freq_channels, INTEGERS),
    KEY(beamset, INTEGER),
    KEY(beam_ids, INTEGERS),
    KEY(beam_positions_x, REALS),
    KEY(beam_positions_y, REALS),
    KEY(unix_ns_at_seq_0, INTEGER),
    KEY(dt_ns_per_seq, INTEGER),
    KEY(seq_per_frb_time_sample, INTEGER),
    KEY(tel_origin_itrs_lat_deg, REAL),
    KEY(tel_origin_itrs_lon_deg, REAL),
    KEY(tel_grid_x_axis, REALS),
    KEY(tel_grid_y_axis, REALS),
    KEY(tel_dish_elev_axis, REALS),
    KEY(tel_dish_vert_axis, REALS),
    KEY(tel_dish_coelev_deg, REAL),
    KEY(tel_dish_separation_x_m, REAL),
    KEY(tel_dish_separation_y_m, REAL),
    KEY(noise_variance, REAL_OR_REALS),
#undef KEY
};
enum { NKEYS = sizeof keys / sizeof *keys };

void frb_node_free(struct frb_node_document *document)
{
    for (size_t i = 0; i < NKEYS; i++)
        if (keys[i].kind >= INTEGERS)
            free(((struct frb_node_ints *)((char *)document + keys[i].offset))->value);
    *document = (struct frb_node_document){0};
}

int frb_node_copy(struct frb_node_document *to, const struct frb_node_document *from, struct br_error *error)
{
    *to = *from;
    for (size_t i = 0; i < NKEYS; i++)
        if (keys[i].kind >= INTEGERS) ((struct frb_node_ints *)((char *)to + keys[i].offset))->value = NULL;
    for (size_t i = 0; i < NKEYS; i++) {
        if (keys[i].kind < INTEGERS) continue;
        struct frb_node_ints *list = (struct frb_node_ints *)((char *)to + keys[i].offset);
        size_t bytes = list->count * sizeof *list->value;
        list->value = malloc(bytes + 1);
        if (list->value == NULL) {
            frb_node_free(to);
            return br_fail(error, BR_E_NO_MEMORY, "no memory for the document");
        }
        memcpy(list->value, ((const struct frb_node_ints *)((const char *)from + keys[i].offset))->value,
               bytes);
    }
    return BR_OK;
}

/* --- channels ------------------------------------------------------------------------------------------- */

size_t frb_node_channel(const struct frb_node_document *d, int64_t channel, double *mhz, double *width_mhz)
{
    size_t zone = 0;
    while (zone + 1 < d->zone_nfreq.count && channel >= d->zone_nfreq.value[zone])
        channel -= d->zone_nfreq.value[zone++];
    double low = d->zone_freq_edges.value[zone],
           width = (d->zone_freq_edges.value[zone + 1] - low) / (double)d->zone_nfreq.value[zone];
    *mhz = low + ((double)channel + 0.5) * width;
    *width_mhz = width;
    return zone;
}

/* --- writing -------------------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t used, size;
    bool full;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *text, const char *format, ...)
{
    char piece[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (text->used + (size_t)n + 1 > text->size) {
        size_t size = 2 * text->size + 4096;
        char *grown = text->full ? NULL : realloc(text->at, size);
        if (grown == NULL) {
            text->full = true;
            return;
        }
        text->at = grown;
        text->size = size;
    }
    memcpy(text->at + text->used, piece, (size_t)n + 1);
    text->used += (size_t)n;
}

/* Every YAML reader takes a number for real only if it has a point: 1e-05 is a text to some. */
static void add_real(struct text *text, double value)
{
    char digits[TEXT_REAL + 4];
    text_real_format(digits, value);
    size_t mantissa = strspn(digits, "+-0123456789");
    if (digits[mantissa] == '\0') strcat(digits, ".0");
    if (digits[mantissa] == 'e') {
        memmove(digits + mantissa + 2, digits + mantissa, strlen(digits + mantissa) + 1);
        memcpy(digits + mantissa, ".0", 2);
    }
    add(text, "%s", digits);
}

/* Takes out the blanks and line ends between the numbers of lists. */
static void squeeze(struct text *text)
{
    size_t to = 0;
    for (size_t from = 0; from < text->used; from++) {
        if (to > 0 && text->at[to - 1] == ',' && (text->at[from] == ' ' || text->at[from] == '\n')) continue;
        text->at[to++] = text->at[from];
    }
    text->at[to] = '\0';
    text->used = to;
}

int frb_node_write(const struct frb_node_document *document, char **out, size_t *length,
                   struct br_error *error)
{
    struct text text = {0};
    int status = frb_node_check(document, error);
    if (status != BR_OK) return status;
    for (size_t i = 0; i < NKEYS; i++) {
        const void *field = (const char *)document + keys[i].offset;
        const struct frb_node_ints *ints = field;
        const struct frb_node_reals *reals = field;
        add(&text, "%s: ", keys[i].name);
        if (keys[i].kind == INTEGER) add(&text, "%" PRId64, *(const int64_t *)field);
        if (keys[i].kind == REAL) add_real(&text, *(const double *)field);
        if (keys[i].kind == REAL_OR_REALS && reals->count == 1) {
            add_real(&text, reals->value[0]);
        } else if (keys[i].kind >= INTEGERS) {
            for (size_t k = 0; k < ints->count; k++) {
                add(&text, "%s", k == 0 ? "[" : k % 16 == 0 ? ",\n  " : ", ");
                if (keys[i].kind == INTEGERS)
                    add(&text, "%" PRId64, ints->value[k]);
                else
                    add_real(&text, reals->value[k]);
            }
            add(&text, "]");
        }
        add(&text, "\n");
    }
    if (text.full) {
        free(text.at);
        return br_fail(error, BR_E_NO_MEMORY, "no memory for the document");
    }
    if (text.used + 1 > FRB_NODE_YAML_MAX) squeeze(&text);
    if (text.used + 1 > FRB_NODE_YAML_MAX) {
        free(text.at);
        return br_fail(
            error, BR_E_FORMAT,
            "the document has %zu bytes; the protocol allows %d: send fewer beams to a destination",
            text.used + 1, FRB_NODE_YAML_MAX);
    }
    *out = text.at;
    *length = text.used + 1;
    return BR_OK;
}

/* --- reading -------------------------------------------------------------------------------------------- */

static const char digits[] = "0123456789";

struct reader {
    struct frb_node_document *document;
    const struct key *key;      /* whose value comes next; NULL: a key comes next */
    bool in_list, listed_noise; /* noise_variance is a list */
    size_t room;                /* of the list being read */
    bool seen[NKEYS];
    struct br_error *error;
};

/* A number as every YAML reader takes it: decimal, without leading zeros, which some take for octal. */
static bool is_number(const char *text, bool whole)
{
    const char *p = text + (*text == '-' || *text == '+');
    size_t before = strspn(p, digits), after = 0;
    if (before > 1 && *p == '0') return false;
    p += before;
    if (!whole && *p == '.') {
        after = strspn(p + 1, digits);
        p += 1 + after;
    }
    if (before + after == 0) return false;
    if (!whole && (*p == 'e' || *p == 'E')) {
        p += 1 + (p[1] == '-' || p[1] == '+');
        size_t exponent = strspn(p, digits);
        if (exponent == 0) return false;
        p += exponent;
    }
    return *p == '\0';
}

static int take_number(struct reader *r, const char *text)
{
    const struct key *key = r->key;
    void *field = (char *)r->document + key->offset;
    bool whole = key->kind == INTEGER || key->kind == INTEGERS;
    int64_t integer = 0;
    double real = 0;
    if (!is_number(text, whole) || (whole ? text_i64(text, &integer) != 0 : text_real(text, &real) != 0))
        return br_fail(r->error, BR_E_FORMAT, "%s: '%.40s' is not %s", key->name, text,
                       whole ? "an integer" : "a number");
    if (key->kind == INTEGER) *(int64_t *)field = integer;
    if (key->kind == REAL) *(double *)field = real;
    if (key->kind < INTEGERS) return BR_OK;
    struct frb_node_ints *list = field; /* the lists of integers and of reals look alike */
    if (list->count == r->room) {
        size_t room = 2 * r->room + 16;
        void *grown = realloc(list->value, room * sizeof *list->value);
        if (grown == NULL) return br_fail(r->error, BR_E_NO_MEMORY, "no memory for %s", key->name);
        list->value = grown;
        r->room = room;
    }
    if (whole)
        list->value[list->count++] = integer;
    else
        ((struct frb_node_reals *)field)->value[list->count++] = real;
    return BR_OK;
}

static int take_key(struct reader *r, const char *text, size_t line)
{
    for (size_t i = 0; i < NKEYS; i++) {
        if (strcmp(keys[i].name, text) != 0) continue;
        if (r->seen[i]) return br_fail(r->error, BR_E_FORMAT, "the key %s stands there twice", text);
        r->seen[i] = true;
        r->key = &keys[i];
        r->room = 0;
        return BR_OK;
    }
    return br_fail(r->error, BR_E_FORMAT, "unknown key in line %zu; expected those of the protocol", line);
}

static int take_scalar(struct reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    if (event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL)
        return br_fail(r->error, BR_E_FORMAT, "anchors and tags are not allowed");
    if (strlen(text) != event->data.scalar.length)
        return br_fail(r->error, BR_E_FORMAT, "a text holds a zero byte");
    if (r->key == NULL) return take_key(r, text, event->start_mark.line + 1);
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return br_fail(r->error, BR_E_FORMAT, "%s: '%.40s' is in quotes; expected a number", r->key->name,
                       text);
    if (!r->in_list && (r->key->kind == INTEGERS || r->key->kind == REALS))
        return br_fail(r->error, BR_E_FORMAT, "%s: '%.40s'; expected a list", r->key->name, text);
    int status = take_number(r, text);
    if (!r->in_list) r->key = NULL;
    return status;
}

/* One event after the one mapping began. 1: the mapping has ended. */
static int take_event(struct reader *r, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT:
        if (r->key == NULL || r->in_list || r->key->kind < INTEGERS)
            return br_fail(r->error, BR_E_FORMAT, "%s: a list where a number was expected",
                           r->key != NULL ? r->key->name : "a key");
        if (event->data.sequence_start.anchor != NULL || event->data.sequence_start.tag != NULL)
            return br_fail(r->error, BR_E_FORMAT, "anchors and tags are not allowed");
        r->in_list = true;
        return BR_OK;
    case YAML_SEQUENCE_END_EVENT:
        r->listed_noise = r->listed_noise || r->key->kind == REAL_OR_REALS;
        r->in_list = false;
        r->key = NULL;
        return BR_OK;
    case YAML_MAPPING_END_EVENT:
        return 1;
    default:
        return br_fail(r->error, BR_E_FORMAT, "%s: expected a number or a list of numbers",
                       r->key != NULL ? r->key->name : "a key");
    }
}

/* All events. Before the mapping there may be the start of stream and document only, and nothing but their
 * ends behind it. */
static int take_events(struct reader *r, yaml_parser_t *parser)
{
    bool in_map = false, ended = false, over = false;
    while (!over) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return br_fail(r->error, BR_E_FORMAT, "it is not YAML: %s in line %zu",
                           parser->problem ? parser->problem : "no memory", parser->problem_mark.line + 1);
        int status = BR_OK;
        if (in_map) {
            status = take_event(r, &event);
            ended = status == 1;
            in_map = !ended;
            if (ended) status = BR_OK;
        } else if (ended) {
            over = event.type == YAML_STREAM_END_EVENT;
            if (!over && event.type != YAML_DOCUMENT_END_EVENT)
                status = br_fail(r->error, BR_E_FORMAT, "there is a second document behind the first");
        } else if (event.type == YAML_MAPPING_START_EVENT) {
            in_map = event.data.mapping_start.anchor == NULL && event.data.mapping_start.tag == NULL;
            if (!in_map) status = br_fail(r->error, BR_E_FORMAT, "anchors and tags are not allowed");
        } else if (event.type != YAML_STREAM_START_EVENT && event.type != YAML_DOCUMENT_START_EVENT)
            status = br_fail(r->error, BR_E_FORMAT, "expected a mapping with the keys of the protocol");
        yaml_event_delete(&event);
        if (status != BR_OK) return status;
    }
    return BR_OK;
}

int frb_node_parse(struct frb_node_document *document, const char *text, size_t length,
                   struct br_error *error)
{
    struct br_error local = {0};
    struct reader reader = {.document = document, .error = error != NULL ? error : &local};
    yaml_parser_t parser;
    *document = (struct frb_node_document){0};
    if (!yaml_parser_initialize(&parser)) return br_fail(error, BR_E_NO_MEMORY, "no memory for the document");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    int status = take_events(&reader, &parser);
    yaml_parser_delete(&parser);
    for (size_t i = 0; i < NKEYS && status == BR_OK; i++)
        if (!reader.seen[i]) status = br_fail(error, BR_E_FORMAT, "the key %s is missing", keys[i].name);
    if (status == BR_OK && reader.listed_noise &&
        document->noise_variance.count != document->zone_nfreq.count)
        status =
            br_fail(error, BR_E_FORMAT, "noise_variance: a list of %zu for %zu zones; expected %zu",
                    document->noise_variance.count, document->zone_nfreq.count, document->zone_nfreq.count);
    if (status == BR_OK) status = frb_node_check(document, error);
    if (status != BR_OK) frb_node_free(document);
    return status;
}

bool frb_node_agree(const struct frb_node_document *a, const struct frb_node_document *b,
                    struct br_error *why)
{
    for (size_t i = 0; i < NKEYS; i++) {
        const void *x = (const char *)a + keys[i].offset, *y = (const char *)b + keys[i].offset;
        const struct frb_node_ints *s = x, *t = y;
        if (strcmp(keys[i].name, "freq_channels") == 0) continue;
        bool same =
            keys[i].kind < INTEGERS
                ? memcmp(x, y, 8) == 0
                : s->count == t->count && memcmp(s->value, t->value, s->count * sizeof *s->value) == 0;
        if (same) continue;
        br_fail(why, BR_E_FORMAT, "%s differs from that of the first sender", keys[i].name);
        return false;
    }
    return true;
}

int frb_node_stream(const struct frb_node_document *d, struct br_stream *stream,
                    void *(*alloc)(void *owner, size_t bytes), void *owner, struct br_error *error)
{
    size_t F = d->freq_channels.count, B = d->beam_ids.count, lengths[3] = {B, F, FRB_NODE_STEPS};
    double *mhz = alloc(owner, F * sizeof *mhz), *width = alloc(owner, F * sizeof *width);
    struct br_beam *beams = alloc(owner, B * sizeof *beams);
    const struct br_telescope *telescope = stream->telescope;
    for (size_t f = 0; f < F; f++) frb_node_channel(d, d->freq_channels.value[f], &mhz[f], &width[f]);
    /* the wire's x runs east, ours north along m: see docs/wires.md */
    for (size_t b = 0; b < B; b++)
        beams[b] = (struct br_beam){d->beam_positions_y.value[b], d->beam_positions_x.value[b]};
    *stream = (struct br_stream){.frame_samples = (uint64_t)d->seq_per_frb_time_sample * FRB_NODE_STEPS,
                                 .epoch_ns = d->unix_ns_at_seq_0,
                                 .sample_ns = {d->dt_ns_per_seq, 1},
                                 .nchannels = F,
                                 .freq_mhz = mhz,
                                 .width_mhz = width,
                                 .nzones = 1,
                                 .zone = {{0, F, 1, (unsigned)d->seq_per_frb_time_sample, 0}},
                                 .scale = 1,
                                 .telescope = telescope,
                                 .nbeams = B,
                                 .beams = beams};
    stream->side =
        (struct br_array){.dtype = BR_F32, .naxes = 3, .axis = {{"beam", B}, {"freq", F}, {"number", 2}}};
    return br_array_init(&stream->array, BR_INT4, "beam,freq,time", lengths, error);
}
