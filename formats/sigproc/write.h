/* write.h - intensity beams into SIGPROC files, one per beam and band.
 *
 * All files of a band grow together, in whole samples. Nothing in a header depends on a file's length, so
 * that a search can read files while they grow. */
#ifndef BEAMRING_FORMATS_SIGPROC_WRITE_H
#define BEAMRING_FORMATS_SIGPROC_WRITE_H

#include "formats/sigproc/files.h"
#include "formats/sigproc/missing.h"
#include "formats/sigproc/rows.h"
#include "formats/tables/beam_table.h"

struct sigproc_writer {
    const struct br_stream *stream;
    const struct apparent_site *site;        /* of the telescope; NULL: not known */
    const char *directory, *prefix, *source; /* source NULL: what the beam follows, or "beam N" */
    double src_raj, src_dej; /* of all beams, as SIGPROC writes them; NAN: where each looks at the start */
    double max_gap_s;
    int telescope_id, machine_id;
    unsigned step; /* base samples per sample of the files */
    size_t nbeams, nbands;
    const size_t *beam;                    /* [nbeams] of the stream */
    const struct sigproc_band *bands;      /* [nbands] */
    struct rows rows;                      /* its form; the frame is the writer's */
    void (*disk)(void *owner, bool there); /* brackets what may wait for a disk */
    void *owner;

    struct beam_table table;
    struct br_look *look;    /* [the stream's nbeams] at the start of the files */
    struct files files;      /* [band][beam] */
    struct missing *missing; /* [band] */
    void *scratch;           /* rows of ROWS_BEAMS beams */
    size_t chunk;            /* steps that fit */
    bool open;
    unsigned part;    /* from 1: files after a long hole are further parts */
    uint64_t next;    /* the step that is to be written next */
    uint64_t written; /* steps in all */
};

/* Reserves memory; sigproc_writer_open takes the directory and the prefix. Errors: BR_E_NO_MEMORY;
 * sigproc_writer_free follows in either case. */
int sigproc_writer_create(struct sigproc_writer *writer, struct br_error *error);
int sigproc_writer_open(struct sigproc_writer *writer, struct br_error *error);

/* Seconds that are missing before the frame if that is more than max_gap_s, so that it begins new files; else
 * 0. */
double sigproc_writer_gap(const struct sigproc_writer *writer, const struct br_frame *frame);

/* Appends a frame; a hole before it is filled in. Errors: BR_E_IO. */
int sigproc_writer_put(struct sigproc_writer *writer, const struct br_frame *frame, struct br_error *error);

/* Completes the open files. Errors: BR_E_IO; the rest is completed all the same. */
int sigproc_writer_end(struct sigproc_writer *writer, struct br_error *error);
void sigproc_writer_free(struct sigproc_writer *writer);

#endif
