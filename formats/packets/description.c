/* description.c - reading a description: the keys, and what they must satisfy together. See description.h. */
#include "formats/packets/description.h"
#include "buffers/regular_file.h"
#include "formats/packets/header.h"
#include "runtime/config/config.h"

#include <limits.h>
#include <string.h>

/* The keys as they stand in YAML. */
struct field_keys {
    int64_t offset, item, bytes, shift, bits, divide, equals, expect, lost_if;
    const char *byte_order;
    bool pointer;
};
struct form_keys {
    struct br_strings fields;
    struct br_ints times;
    int64_t offset;
    int64_t bits, samples; /* of the sequence */
};
struct channel_keys {
    int64_t base, step;
};
struct payload_keys {
    int64_t offset;
    struct br_strings axes;
    struct br_ints lengths;
};
struct coding_keys {
    const char *values, *real;
};
struct freq_keys {
    double first, step;
};
struct ids_keys {
    int64_t first, step, count;
    struct br_ints ids;
};
struct keys {
    const char *header, *byte_order;
    int64_t bytes, port;
    const struct form_keys *sequence, *source, *stream;
    const struct channel_keys *channel;
    const struct payload_keys *payload;
    const struct coding_keys *coding;
    struct br_rational sample_ns;
    const char *sideband;
    const struct freq_keys *freq;
    const struct ids_keys *sources, *streams;
};

/* The description and the tree that owns its memory. */
struct owned {
    struct packet_description packet;
    struct br_config *config;
};

static const char *const order_choices[] = {"big", "little", NULL};
static const char *const header_choices[] = {"fixed", "spead", NULL};
const char *const packet_values[] = {"offset_binary", "twos_complement", NULL};
const char *const packet_real[] = {"high", "low", NULL};
static const char *const axis_names[] = {"time", "freq", "pol", "dish", "input", NULL};

#define MAX_NUMBER 9.2e18

/* A key whose field has its name. */
#define KEY(TYPE, OWNER, NAME, ...) BR_PARAM(#NAME, BR_P_##TYPE, struct OWNER, NAME, __VA_ARGS__)

static const struct br_param field_params[] = {
    KEY(INT, field_keys, offset, "from the start of the UDP payload", .min = 0, .max = 65506,
        .unit = "bytes"),
    KEY(INT, field_keys, item, "SPEAD: id of the item", .min = 1, .max = 32767),
    KEY(BOOL, field_keys, pointer, "SPEAD: points into the heap instead of having a value", .def = "false"),
    KEY(INT, field_keys, bytes, "width in the header", .min = 1, .max = 8),
    KEY(CHOICE, field_keys, byte_order, "of this field; default: the packet's", .choices = order_choices),
    KEY(INT, field_keys, shift, "bits below the number", .def = "0", .min = 0, .max = 63),
    KEY(INT, field_keys, bits, "width of the number; default: all above shift", .min = 1, .max = 64),
    KEY(INT, field_keys, divide, "the number counts in units of this", .def = "1", .min = 1,
        .max = MAX_NUMBER),
    KEY(INT, field_keys, equals, "another value: a packet of another protocol", .min = 0, .max = MAX_NUMBER),
    KEY(INT, field_keys, expect, "another value: a malformed packet", .min = 0, .max = MAX_NUMBER),
    KEY(INT, field_keys, lost_if, "bits that say that the payload is bad", .def = "0", .min = 0,
        .max = MAX_NUMBER),
    {0},
};
#define FORM_PARAMS                                                                                          \
    KEY(STRINGS, form_keys, fields, "names of fields", .required = true, .min_count = 1,                     \
        .max_count = PACKET_MAX_TERMS),                                                                      \
        KEY(INTS, form_keys, times, "what each is multiplied by; default: 1", .max_count = PACKET_MAX_TERMS, \
            .min_count = 1),                                                                                 \
        KEY(INT, form_keys, offset, "what is added", .def = "0")
static const struct br_param form_params[] = {FORM_PARAMS, {0}};
static const struct br_param sequence_params[] = {
    FORM_PARAMS,
    KEY(INT, form_keys, bits, "the counter starts again after 2^this; default: when its fields do", .min = 1,
        .max = 64),
    KEY(INT, form_keys, samples, "one count", .def = "1", .min = 1, .max = 1 << 30, .unit = "base samples"),
    {0},
};
static const struct br_param channel_params[] = {
    KEY(INT, channel_keys, base, "channel of stream 0", .def = "0", .min = -1e9, .max = 1e9),
    KEY(INT, channel_keys, step, "from one channel of a packet to the next", .def = "1", .min = -1e9,
        .max = 1e9),
    {0},
};
static const struct br_param payload_params[] = {
    KEY(INT, payload_keys, offset, "from the start of the UDP payload", .min = 0, .max = 65506,
        .unit = "bytes"),
    KEY(STRINGS, payload_keys, axes, "time, freq, pol, dish, input; slowest first", .required = true,
        .min_count = 1, .max_count = PACKET_MAX_AXES),
    KEY(INTS, payload_keys, lengths, "of the axes", .required = true, .min = 1, .max = PACKET_MAX_BYTES,
        .min_count = 1, .max_count = PACKET_MAX_AXES),
    {0},
};
static const struct br_param coding_params[] = {
    KEY(CHOICE, coding_keys, values, "of a nibble", .choices = packet_values),
    KEY(CHOICE, coding_keys, real, "which nibble is the real part", .choices = packet_real),
    {0},
};
static const struct br_param freq_params[] = {
    KEY(REAL, freq_keys, first, "centre of channel 0", .required = true, .unit = "MHz"),
    KEY(REAL, freq_keys, step, "from a channel to the next", .required = true, .unit = "MHz"),
    {0},
};
static const struct br_param ids_params[] = {
    KEY(INT, ids_keys, first, "the first id", .def = "0", .min = 0, .max = PACKET_MAX_IDS - 1),
    KEY(INT, ids_keys, step, "between ids", .def = "1", .min = 1, .max = PACKET_MAX_IDS),
    KEY(INT, ids_keys, count, "how many", .min = 1, .max = PACKET_MAX_IDS),
    KEY(INTS, ids_keys, ids, "or all of them, in order", .min = 0, .max = PACKET_MAX_IDS - 1, .min_count = 1,
        .max_count = PACKET_MAX_IDS),
    {0},
};
#define MAP(owner, params) .fields = params, .size = sizeof(struct owner)
static const struct br_param packet_params[] = {
    KEY(CHOICE, keys, header, "fields at fixed offsets, or items of SPEAD-64-48", .def = "fixed",
        .choices = header_choices),
    KEY(CHOICE, keys, byte_order, "of the fields", .def = "big", .choices = order_choices),
    KEY(INT, keys, bytes, "of the UDP payload", .min = 1, .max = PACKET_MAX_BYTES),
    KEY(INT, keys, port, "usual UDP port; 0: unknown", .def = "0", .min = 0, .max = 65535),
    KEY(MAP, keys, sequence, "counter of the first time sample", MAP(form_keys, sequence_params),
        .required = true),
    KEY(MAP, keys, source, "id of the sender", MAP(form_keys, form_params)),
    KEY(MAP, keys, stream, "id of the channels", MAP(form_keys, form_params)),
    KEY(MAP, keys, channel, "channels of a packet", MAP(channel_keys, channel_params)),
    KEY(MAP, keys, payload, "where the samples are", MAP(payload_keys, payload_params), .required = true),
    KEY(MAP, keys, coding, "of a byte", MAP(coding_keys, coding_params)),
    KEY(RATIONAL, keys, sample_ns, "base sample", .unit = "ns"),
    KEY(CHOICE, keys, sideband, "of channels", .choices = br_sideband_names),
    BR_PARAM("freq_mhz", BR_P_MAP, struct keys, freq, "centres of channels by id",
             MAP(freq_keys, freq_params)),
    KEY(MAP, keys, sources, "senders of a node, by default", MAP(ids_keys, ids_params)),
    KEY(MAP, keys, streams, "streams of a node, by default", MAP(ids_keys, ids_params)),
    {0},
};

/* --- fields ------------------------------------------------------------------------------------ */

static void read_field(struct owned *o, const struct br_node *node, const char *name, bool packet_little)
{
    struct packet_description *p = &o->packet;
    struct field_keys k = {0};
    if (node->kind != BR_NODE_MAP) {
        br_config_error(o->config, node, "fields.%s: expected a map with offset and bytes, or with item",
                        name);
        return;
    }
    if (br_config_fill(o->config, node, field_params, NULL, &k) > 0) return;
    struct packet_field *f = &p->field[p->nfields++];
    *f = (struct packet_field){.name = name,
                               .offset = (size_t)k.offset,
                               .item = (unsigned)k.item,
                               .pointer = k.pointer,
                               .bytes = p->spead ? 6 : (unsigned)k.bytes,
                               .little =
                                   k.byte_order != NULL ? strcmp(k.byte_order, "little") == 0 : packet_little,
                               .shift = (unsigned)k.shift,
                               .divide = (uint64_t)k.divide,
                               .has_equals = br_node_get(node, "equals") != NULL,
                               .has_expect = br_node_get(node, "expect") != NULL,
                               .equals = (uint64_t)k.equals,
                               .expect = (uint64_t)k.expect,
                               .lost_if = (uint64_t)k.lost_if};
    bool placed = br_node_get(node, "offset") != NULL, fixed = placed && k.bytes > 0 && k.item == 0;
    bool item = k.item != 0 && !placed && k.bytes == 0 && k.byte_order == NULL;
    if (p->spead ? !item : !fixed) {
        br_config_error(o->config, node, "fields.%s: expected %s", name,
                        p->spead ? "item, and neither offset, bytes nor byte_order, as the header is SPEAD's"
                                 : "offset and bytes, and no item, as the header is not SPEAD's");
        return;
    }
    unsigned width = 8 * f->bytes;
    f->bits = k.bits > 0 ? (unsigned)k.bits : f->shift < width ? width - f->shift : 0;
    if (f->bits == 0 || f->shift + f->bits > width)
        br_config_error(o->config, node,
                        "fields.%s: shift %u and bits %u are more than the %u bits of the field", name,
                        f->shift, f->bits, width);
    else if (!p->spead && f->offset + f->bytes > p->bytes)
        br_config_error(o->config, node, "fields.%s: ends at byte %zu; the packet has %zu bytes", name,
                        f->offset + f->bytes, p->bytes);
}

static void read_fields(struct owned *o, const struct br_node *root, bool little)
{
    const struct br_node *map = br_node_get(root, "fields");
    if (map == NULL || map->kind != BR_NODE_MAP || map->count == 0 || map->count > PACKET_MAX_FIELDS) {
        br_config_error(o->config, map != NULL ? map : root,
                        "fields: expected a map of 1 to %d fields, NAME: {offset: ..., bytes: ...}",
                        PACKET_MAX_FIELDS);
        return;
    }
    for (size_t i = 0; i < map->count; i++) read_field(o, map->item[i], map->key[i]->text, little);
}

/* --- forms ------------------------------------------------------------------------------------- */

static int find_field(const struct packet_description *p, const char *name)
{
    for (unsigned i = 0; i < p->nfields; i++)
        if (strcmp(p->field[i].name, name) == 0) return (int)i;
    return -1;
}

static void read_form(struct owned *o, const struct br_node *root, const char *key, const struct form_keys *k,
                      struct packet_form *form)
{
    struct packet_description *p = &o->packet;
    const struct br_node *node = br_node_get(root, key);
    if (k == NULL) return;
    if (k->times.count > 0 && k->times.count != k->fields.count) {
        br_config_error(o->config, br_node_get(node, "times"), "%s.times: %zu numbers for %zu fields", key,
                        k->times.count, k->fields.count);
        return;
    }
    for (size_t i = 0; i < k->fields.count; i++) {
        int field = find_field(p, k->fields.value[i]);
        if (field < 0) {
            const char *names[PACKET_MAX_FIELDS + 1] = {NULL};
            for (unsigned j = 0; j < p->nfields; j++) names[j] = p->field[j].name;
            const char *similar = br_suggest(k->fields.value[i], names);
            br_config_error(o->config, br_node_get(node, "fields"), "%s.fields: there is no field '%s'%s%s%s",
                            key, k->fields.value[i], similar != NULL ? "; did you mean '" : "",
                            similar != NULL ? similar : "", similar != NULL ? "'?" : "");
            continue;
        }
        form->term[form->nterms++] =
            (struct packet_term){(unsigned)field, k->times.count > 0 ? k->times.value[i] : 1};
    }
    form->base = k->offset;
}

static uint64_t read_period(struct owned *o, const struct br_node *node, unsigned bits)
{
    uint64_t fields = packet_sequence_period(&o->packet);
    if (bits == 0) return fields;
    if (fields != 0 && (bits == 64 || (uint64_t)1 << bits > fields))
        br_config_error(o->config, br_node_get(node, "bits"),
                        "sequence.bits: %u, but its fields start again after %llu counts; expected at most "
                        "that, or leave `bits` out",
                        bits, (unsigned long long)fields);
    return bits == 64 ? 0 : (uint64_t)1 << bits;
}

/* --- payload ----------------------------------------------------------------------------------- */

static int find_axis(const char *name)
{
    for (int i = 0; axis_names[i] != NULL; i++)
        if (strcmp(axis_names[i], name) == 0) return i;
    return -1;
}

static bool read_axes(struct owned *o, const struct br_node *node, const struct payload_keys *k)
{
    struct packet_description *p = &o->packet;
    const struct br_node *axes = br_node_get(node, "axes"), *lengths = br_node_get(node, "lengths");
    unsigned seen = 0;
    if (k->axes.count != k->lengths.count) {
        br_config_error(o->config, lengths, "payload.lengths: %zu lengths for %zu axes", k->lengths.count,
                        k->axes.count);
        return false;
    }
    p->naxes = (unsigned)k->axes.count;
    for (unsigned i = 0; i < p->naxes; i++) {
        int axis = find_axis(k->axes.value[i]);
        if (axis < 0 || (seen & 1u << axis) != 0) {
            const char *similar = br_suggest(k->axes.value[i], axis_names);
            br_config_error(
                o->config, axes, "payload.axes: '%s' %s; expected time, freq, pol, dish or input%s%s%s",
                k->axes.value[i], axis < 0 ? "is not an axis" : "stands twice",
                axis < 0 && similar != NULL ? "; did you mean '" : "",
                axis < 0 && similar != NULL ? similar : "", axis < 0 && similar != NULL ? "'?" : "");
            return false;
        }
        seen |= 1u << axis;
        p->axis[i].axis = (enum packet_axis)axis;
        p->axis[i].length = (size_t)k->lengths.value[i];
    }
    return true;
}

static void read_payload(struct owned *o, const struct br_node *root, const struct payload_keys *k)
{
    struct packet_description *p = &o->packet;
    const struct br_node *node = br_node_get(root, "payload");
    if (!read_axes(o, node, k)) return;
    size_t bytes = 1;
    p->nsamples = p->nchannels = p->ninputs = 1;
    for (unsigned i = p->naxes; i-- > 0;) {
        struct packet_payload_axis *a = &p->axis[i];
        a->stride = bytes;
        bytes *= a->length; /* each is at most 65507, and so is what stays below */
        if (bytes > PACKET_MAX_BYTES) {
            br_config_error(o->config, br_node_get(node, "lengths"),
                            "payload.lengths: more than the %d bytes that UDP carries", PACKET_MAX_BYTES);
            return;
        }
        *(a->axis == PACKET_TIME   ? &p->nsamples
          : a->axis == PACKET_FREQ ? &p->nchannels
                                   : &p->ninputs) *= a->length;
    }
    p->payload_bytes = bytes;
    if (p->spead != (br_node_get(node, "offset") == NULL))
        br_config_error(o->config, node, "payload.offset: %s",
                        p->spead ? "expected none: SPEAD's payload follows the items"
                                 : "is missing; expected the bytes before the samples");
    p->payload_offset = (size_t)k->offset;
    for (unsigned i = 0; !p->spead && i < p->nfields; i++) {
        const struct packet_field *f = &p->field[i];
        if (f->offset < p->payload_offset + bytes && f->offset + f->bytes > p->payload_offset)
            br_config_error(
                o->config, node,
                "payload: bytes %zu to %zu are samples, but the field '%s' stands at bytes %zu to %zu; "
                "expected all fields before the payload, or behind it",
                p->payload_offset, p->payload_offset + bytes - 1, f->name, f->offset,
                f->offset + f->bytes - 1);
    }
    if (!p->spead && p->payload_offset + bytes > p->bytes)
        br_config_error(o->config, node, "payload: %zu bytes from byte %zu on; the packet has %zu bytes",
                        bytes, p->payload_offset, p->bytes);
}

/* --- together ---------------------------------------------------------------------------------- */

static struct packet_ids read_ids(struct owned *o, const struct br_node *root, const char *key,
                                  const struct ids_keys *k)
{
    struct packet_ids ids = {0};
    const struct br_node *node = br_node_get(root, key);
    if (k == NULL) return ids;
    if ((k->ids.count > 0) == (k->count > 0)) {
        br_config_error(o->config, node, "%s: expected either count (and first, step) or ids", key);
        return ids;
    }
    if (k->ids.count > 0) return (struct packet_ids){k->ids.count, k->ids.value};
    if (k->first + (k->count - 1) * k->step >= PACKET_MAX_IDS) {
        br_config_error(o->config, node, "%s: the last id is %lld; expected at most %d", key,
                        (long long)(k->first + (k->count - 1) * k->step), PACKET_MAX_IDS - 1);
        return ids;
    }
    int64_t *value = br_config_alloc(o->config, (size_t)k->count * sizeof *value);
    for (int64_t i = 0; i < k->count; i++) value[i] = k->first + i * k->step;
    return (struct packet_ids){(size_t)k->count, value};
}

static void read_packet(struct owned *o, const struct br_node *root)
{
    static const char *const also[] = {"fields", NULL};
    struct packet_description *p = &o->packet;
    struct keys k = {0};
    if (br_config_fill(o->config, root, packet_params, also, &k) > 0) return;
    p->spead = strcmp(k.header, "spead") == 0;
    p->bytes = (size_t)k.bytes;
    if (p->spead != (k.bytes == 0))
        br_config_error(o->config, root,
                        p->spead ? "bytes: expected none: a SPEAD header's length varies"
                                 : "'bytes' is missing; expected the bytes of the UDP payload");
    read_fields(o, root, strcmp(k.byte_order, "little") == 0);
    read_payload(o, root, k.payload);
    read_form(o, root, "sequence", k.sequence, &p->sequence);
    p->sequence_offset = p->sequence.base;
    p->sequence.base = 0;
    p->sequence_samples = k.sequence->samples;
    p->sequence_period = read_period(o, br_node_get(root, "sequence"), (unsigned)k.sequence->bits);
    read_form(o, root, "source", k.source, &p->source);
    read_form(o, root, "stream", k.stream, &p->stream);
    p->channel_base = k.channel != NULL ? k.channel->base : 0;
    p->channel_step = k.channel != NULL ? k.channel->step : 1;
    p->values = k.coding != NULL ? k.coding->values : NULL;
    p->real = k.coding != NULL ? k.coding->real : NULL;
    p->sample_ns = k.sample_ns;
    p->sideband = br_sideband_named(k.sideband);
    p->has_freq = k.freq != NULL;
    if (k.freq != NULL) p->freq_first_mhz = k.freq->first, p->freq_step_mhz = k.freq->step;
    p->port = (unsigned)k.port;
    p->sources = read_ids(o, root, "sources", k.sources);
    p->streams = read_ids(o, root, "streams", k.streams);
    static const int64_t zero[1] = {0};
    if (k.source == NULL && p->sources.count == 0) p->sources = (struct packet_ids){1, zero};
    if (k.stream == NULL && p->streams.count == 0) p->streams = (struct packet_ids){1, zero};
}

/* All messages into the error, a line each. A file without fields is of another kind and is not quoted; the
 * text that searches for a description has the description's own name. */
static int report(const struct br_config *config, const char *name, struct br_error *error)
{
    char text[BR_ERROR_LENGTH] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    if (out == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for messages");
    bool known = br_node_get(br_config_root(config), "fields") != NULL;
    br_config_print_places(config, name, known ? NULL : "a packet description, with `fields`", out);
    fclose(out);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n') text[--length] = '\0';
    return br_fail(error, BR_E_INVALID, "%s", text);
}

static int make(struct packet_description **description, const char *name, struct br_config *config,
                struct br_error *error)
{
    struct owned *o = br_config_alloc(config, sizeof *o);
    const struct br_node *root = br_config_root(config);
    o->config = config;
    o->packet.file = root != NULL ? root->file : name;
    o->packet.name = name;
    if (root != NULL && br_config_errors(config) == 0) read_packet(o, root);
    if (br_config_errors(config) > 0 || root == NULL) {
        int status = report(config, name, error);
        br_config_free(config);
        return status;
    }
    *description = &o->packet;
    return BR_OK;
}

/* "chord-crs" of "/x/chord-crs.yaml", in the config's memory. */
static const char *base_name(struct br_config *config, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t length = strcspn(name, ".");
    char *copy = br_config_alloc(config, length + 1);
    memcpy(copy, name, length);
    return copy;
}

int packet_description_parse(struct packet_description **description, const char *name, const char *text,
                             size_t length, struct br_error *error)
{
    struct br_config *config;
    *description = NULL;
    int status = br_config_parse(&config, name, text, length, 0, NULL, error);
    return status == BR_OK ? make(description, base_name(config, name), config, error) : status;
}

int packet_description_load(struct packet_description **description, const char *name, struct br_error *error)
{
    char text[PATH_MAX + 40];
    struct br_config *config;
    *description = NULL;
    if (name == NULL || name[0] == '\0' || strlen(name) >= PATH_MAX)
        return br_fail(error, BR_E_INVALID,
                       "expected the name of a packet description, such as chord-crs, or a path");
    if (strchr(name, '/') != NULL || strchr(name, '.') != NULL) {
        if (br_check_regular(name, error) != BR_OK) return BR_E_IO;
        int status = br_config_load(&config, name, 0, NULL, error);
        return status == BR_OK ? make(description, base_name(config, name), config, error) : status;
    }
    if (strpbrk(name, "\"\\$\n") != NULL)
        return br_fail(error, BR_E_INVALID, "'%.60s' is not a name of a packet description", name);
    int length = snprintf(text, sizeof text, "include: \"packets/%s.yaml\"\n", name);
    int status = br_config_parse(&config, name, text, (size_t)length, 0, NULL, error);
    if (status == BR_OK) status = make(description, base_name(config, name), config, error);
    return status == BR_OK ? BR_OK : packet_no_preset(name, status, error);
}

void packet_description_free(struct packet_description *description)
{
    if (description == NULL) return;
    const struct owned *o =
        (const struct owned *)(const void *)((const char *)description - offsetof(struct owned, packet));
    br_config_free(o->config);
}
