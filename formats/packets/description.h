/* description.h - an F-engine's packets as data: a YAML file says where the fields of a header stand
 * and what they mean; no code knows a telescope.
 *
 * A packet holds a dense block of complex 4 + 4 bit samples, one byte each, of some time samples,
 * channels and inputs. Its header says
 *   sequence   the base sample of its first time sample
 *   source     who sent it, which says what inputs it holds
 *   stream     which of the channels of that source it holds
 * and each of the three is a linear form of header fields: base + sum of times x field. Anything that a site
 * or an operator must decide (which sources and streams a node gets) has defaults in the description, and
 * layout.h takes it.
 *
 * docs/packets.md explains the keys; config/packets/ has a description for each F-engine that is
 * known. */
#ifndef BEAMRING_FORMATS_PACKETS_DESCRIPTION_H
#define BEAMRING_FORMATS_PACKETS_DESCRIPTION_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACKET_MAX_FIELDS = 24,
    PACKET_MAX_TERMS = 8,
    PACKET_MAX_AXES = 5,
    PACKET_MAX_BYTES = 65507, /* what UDP can carry */
    PACKET_MAX_IDS = 65536    /* values of a source or stream id */
};

/* One number of the header. */
struct packet_field {
    const char *name;
    size_t offset;        /* bytes from the start of the UDP payload */
    bool pointer;         /* SPEAD: a pointer into the heap, not an immediate value */
    unsigned item;        /* SPEAD: the item's id; its immediate value is the number */
    unsigned bytes;       /* width in the header, 1 to 8 */
    bool little;          /* byte order */
    unsigned shift, bits; /* the number is (word >> shift) & (2^bits - 1) */
    uint64_t divide; /* then divided by this, without remainder; a packet with a remainder is malformed */
    bool has_equals, has_expect;
    uint64_t equals;  /* another value: the packet is of another protocol (foreign) */
    uint64_t expect;  /* another value: the packet is malformed */
    uint64_t lost_if; /* any of these bits set: the sender says that the payload is bad (flagged) */
};

/* base + sum over terms of times x field. */
struct packet_form {
    int64_t base;
    unsigned nterms;
    struct packet_term {
        unsigned field; /* index into the description's fields */
        int64_t times;
    } term[PACKET_MAX_TERMS];
};

enum packet_axis { PACKET_TIME, PACKET_FREQ, PACKET_POL, PACKET_DISH, PACKET_INPUT };

/* The ids that a node gets, in the order of the frame. */
struct packet_ids {
    size_t count;
    const int64_t *value;
};

extern const char *const packet_values[]; /* "offset_binary", "twos_complement", NULL */
extern const char *const packet_real[];   /* "high", "low", NULL */

struct packet_description {
    const char *name, *file;
    bool spead;            /* the header is SPEAD-64-48: fields stand by item id */
    size_t bytes;          /* UDP payload; SPEAD: 0, it is 8 + 8 x items + payload_bytes */
    size_t payload_offset; /* from the start of the UDP payload; SPEAD: 0, it follows the items */
    size_t payload_bytes;  /* the product of the lengths of the axes */

    unsigned nfields;
    struct packet_field field[PACKET_MAX_FIELDS];

    /* a counter; the first time sample is base sample offset + samples x counter */
    struct packet_form sequence;
    uint64_t sequence_period; /* counts after which the counter starts again; 0: 2^64 */
    int64_t sequence_samples, sequence_offset;
    struct packet_form source; /* id of the sender */
    /* id of the channels: channel i of the packet is the F-engine's channel channel_base + stream +
     * channel_step x i */
    struct packet_form stream;
    int64_t channel_base, channel_step;

    unsigned naxes; /* of the payload, slowest first */
    struct packet_payload_axis {
        enum packet_axis axis;
        size_t length, stride; /* stride in bytes */
    } axis[PACKET_MAX_AXES];
    size_t nsamples, nchannels,
        ninputs; /* of a packet: length of time, of freq, and of the others together */

    /* of packet_values: a nibble is value + 8, or two's complement; NULL: the node must say it */
    const char *values;
    const char *real; /* of packet_real: which nibble is the real part; NULL: the node must say it */

    enum br_sideband sideband;    /* unknown: `stream:` says it, or nobody */
    struct br_rational sample_ns; /* base sample; {0, 0}: the pipeline's `stream:` says it */
    bool has_freq;
    double freq_first_mhz, freq_step_mhz; /* centre of channel id c: first + step x c */

    unsigned port;                      /* usual UDP port; 0: unknown */
    struct packet_ids sources, streams; /* defaults; count 0: the node must say them */
};

/* The names of the descriptions in config/packets/, NULL-terminated. */
extern const char *const packet_presets[];

/* For an error of reading the preset `name`: if no such file was found, the error says which presets there
 * are. Returns its status. */
int packet_no_preset(const char *name, int status, struct br_error *error);

/* Reads a description: a path, or the name of one in the folder packets/ of the configuration
 * directory ("chord-crs"). Mistakes come all together, each "file:line:column: ...", a line each, as
 * far as the error has room. Free with packet_description_free. Errors: BR_E_INVALID, BR_E_NO_MEMORY. */
int packet_description_load(struct packet_description **description, const char *name,
                            struct br_error *error);

/* The same from a text in memory; `name` takes the place of the file name. */
int packet_description_parse(struct packet_description **description, const char *name, const char *text,
                             size_t length, struct br_error *error);
void packet_description_free(struct packet_description *description);

/* Memory that must not fail: zeroed, and as long-lived as its owner (br_stage_alloc, or one that ends
 * the program). */
struct packet_memory {
    void *(*alloc)(void *owner, size_t bytes);
    void *owner;
};

/* Copies a description into such memory, and frees it. */
struct packet_description *packet_description_keep(struct packet_description *description,
                                                   struct packet_memory memory);

#endif
