/* frb_node.h - the TCP protocol, version 2, by which X-engine nodes feed FRB-search nodes: its document,
 * headers and sizes.
 *
 * A sender connects and says, little-endian and unpadded: u32 magic; u32 flags; i32 L; L bytes of YAML, the
 * last one 0. Then come minichunks of 256 time samples: u32 magic; u64 seq (of the first sample); f16
 * [beam][freq][2] = {scale, offset}; 4-bit [beam][freq][256], two's complement, the even sample in the low
 * nibble, -8 = masked. Value = scale * x + offset. With FRB_NODE_ACK the receiver answers one byte per
 * minichunk: 1 assembled, 0 dropped. */
#ifndef BEAMRING_FORMATS_FRB_NODE_FRB_NODE_H
#define BEAMRING_FORMATS_FRB_NODE_FRB_NODE_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRB_NODE_MAGIC 0xf4bf4b02u

enum {
    FRB_NODE_ACK = 1,            /* the one flag that there is */
    FRB_NODE_STEPS = 256,        /* time samples of a minichunk */
    FRB_NODE_YAML_MAX = 1 << 20, /* bytes of the document, the final 0 included */
    FRB_NODE_PREFIX = 12,        /* bytes before the document */
    FRB_NODE_HEADER = 12,        /* bytes before a minichunk's scales */
    FRB_NODE_ROW = FRB_NODE_STEPS / 2,
    FRB_NODE_CELL = 4 + FRB_NODE_ROW /* bytes per beam and channel */
};

struct frb_node_ints {
    size_t count;
    int64_t *value;
};
struct frb_node_reals {
    size_t count;
    double *value;
};

/* The document. Lists are malloc'ed; free with frb_node_free. Vectors are [East, North, Up]. */
struct frb_node_document {
    int64_t version;
    struct frb_node_ints zone_nfreq;
    struct frb_node_reals zone_freq_edges; /* MHz, one more than zones */
    struct frb_node_ints freq_channels;    /* numbers in the concatenation of the zones */
    int64_t beamset;
    struct frb_node_ints beam_ids;
    struct frb_node_reals beam_positions_x, beam_positions_y; /* direction cosines */
    int64_t unix_ns_at_seq_0, dt_ns_per_seq, seq_per_frb_time_sample;
    double tel_origin_itrs_lat_deg, tel_origin_itrs_lon_deg;
    struct frb_node_reals tel_grid_x_axis, tel_grid_y_axis, tel_dish_elev_axis, tel_dish_vert_axis;
    double tel_dish_coelev_deg, tel_dish_separation_x_m, tel_dish_separation_y_m;
    struct frb_node_reals noise_variance; /* one, or one per zone */
};

/* Everything that the protocol demands of a document, as receivers assert it: one that they refuse stops them
 * for all senders. Errors: BR_E_FORMAT; the text begins with the key. */
int frb_node_check(const struct frb_node_document *document, struct br_error *error);

/* The same rules read a second time, from the text itself: `length` bytes, the last one 0, as they go onto
 * the wire. It shares no code with frb_node_write, frb_node_parse and frb_node_check, so that what one of
 * these has wrong is found before a receiver finds it. Errors: BR_E_FORMAT; the text begins with the key.
 * BR_E_NO_MEMORY. / */
int frb_node_rules(const char *text, size_t length, struct br_error *error);

/* The document as YAML, malloc'ed; *length counts the final 0. Errors: BR_E_FORMAT (not a document that
 * passes the check, or longer than the protocol allows), BR_E_NO_MEMORY. */
int frb_node_write(const struct frb_node_document *document, char **text, size_t *length,
                   struct br_error *error);

/* Reads and checks; `length` without a final 0. No anchors, no tags, no nesting beyond lists of numbers:
 * whatever the network sends, this takes time and memory in proportion to its length. Errors: BR_E_FORMAT,
 * BR_E_NO_MEMORY; the document is empty then. */
int frb_node_parse(struct frb_node_document *document, const char *text, size_t length,
                   struct br_error *error);
void frb_node_free(struct frb_node_document *document);

/* A copy of its own. Errors: BR_E_NO_MEMORY; it is empty then. */
int frb_node_copy(struct frb_node_document *to, const struct frb_node_document *from, struct br_error *error);

/* True when two senders may feed one receiver: all but freq_channels agrees. On false says why. */
bool frb_node_agree(const struct frb_node_document *a, const struct frb_node_document *b,
                    struct br_error *why);

/* The zone, centre and width of one of the band's channels. */
size_t frb_node_channel(const struct frb_node_document *document, int64_t channel, double *mhz,
                        double *width_mhz);

/* Describes what a receiver of the document's channels hands on: int4 [beam][freq][time], f32 {scale,
 * offset}, one minichunk a frame; base samples are seq. `alloc` gives memory that outlives the stream. */
int frb_node_stream(const struct frb_node_document *document, struct br_stream *stream,
                    void *(*alloc)(void *owner, size_t bytes), void *owner, struct br_error *error);

/* Little-endian numbers at any address; this code runs on little-endian machines only, which is checked when
 * it is built. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the wire formats are little-endian and copied as they are");

#endif
