/* document.h - the document of the FRB-node protocol for a stream: from its channels, beams, times and
 * telescope. */
#ifndef BEAMRING_STAGES_PACKETIZE_DOCUMENT_H
#define BEAMRING_STAGES_PACKETIZE_DOCUMENT_H

#include "formats/frb_node/frb_node.h"
#include "runtime/stage.h"

/* Parameters `zones` and `site` as the loader fills them in. */
struct zones_param {
    struct br_ints nfreq;
    struct br_reals edges_mhz;
};
struct site_param {
    struct br_reals m_axis, n_axis, elev_axis, vert_axis;
    double coelev_deg;
    struct br_reals separation_m;
};
extern const struct br_param zones_fields[], site_fields[];

struct document_param {
    const struct zones_param *zones; /* NULL: from the stream */
    const struct site_param *site;   /* NULL: the defaults */
    int64_t beamset, first_beam_id;
    struct br_reals noise_variance;
};

/* Fills the document for beams [first, first + count) of the stream, malloc'ed. Errors: BR_E_INVALID, saying
 * what the pipeline lacks; those of frb_node_check. */
int document_make(struct frb_node_document *document, const struct br_stream *stream,
                  const struct document_param *param, size_t first, size_t count, struct br_error *error);

#endif
