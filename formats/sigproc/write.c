#include "formats/sigproc/write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_BYTES = 1 << 20, MAX_STEPS = 256 }; /* rows of one beam that are written at once */

static void band_and_part(const struct sigproc_writer *w, size_t band, char text[64])
{
    int n = w->nbands > 1 ? snprintf(text, 64, "_band%zu", band) : 0;
    if (n == 0) text[0] = '\0';
    if (w->part > 1) snprintf(text + n, 64 - (size_t)n, "_part%u", w->part);
}

static void file_name(void *owner, size_t i, char *name)
{
    const struct sigproc_writer *w = owner;
    char tail[64];
    band_and_part(w, i / w->nbeams, tail);
    snprintf(name, FILES_NAME, "%.150s%04zu%s.fil", w->prefix, w->beam[i % w->nbeams], tail);
}

int sigproc_writer_create(struct sigproc_writer *w, struct br_error *error)
{
    size_t widest = 0, cells = w->rows.nchannels * w->rows.nbeams;
    w->missing = calloc(w->nbands, sizeof *w->missing);
    if (w->missing == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu bands", w->nbands);
    for (size_t b = 0; b < w->nbands; b++) {
        if (w->bands[b].nchannels > widest) widest = w->bands[b].nchannels;
        int status = missing_create(&w->missing[b], &w->bands[b], error);
        if (status != BR_OK) return status;
    }
    size_t row = widest * rows_value_bytes(&w->rows);
    w->chunk = SCRATCH_BYTES / row;
    if (w->chunk > MAX_STEPS) w->chunk = MAX_STEPS;
    if (w->chunk < 1) w->chunk = 1;
    w->scratch = malloc(ROWS_BEAMS * w->chunk * row);
    w->look = calloc(w->rows.nbeams, sizeof *w->look);
    if (w->rows.floats) {
        w->rows.mean = calloc(cells, sizeof *w->rows.mean);
        w->rows.seen = calloc(cells, sizeof *w->rows.seen);
    }
    if (w->scratch != NULL && w->look != NULL &&
        (!w->rows.floats || (w->rows.mean != NULL && w->rows.seen != NULL)))
        return BR_OK;
    return br_fail(error, BR_E_NO_MEMORY, "not enough memory: %.1f MiB needed",
                   (double)(ROWS_BEAMS * w->chunk * row + cells * 6) / 1048576);
}

int sigproc_writer_open(struct sigproc_writer *w, struct br_error *error)
{
    w->table = (struct beam_table){.stream = w->stream, .site = w->site};
    snprintf(w->table.path, sizeof w->table.path, "%.4000s/%.150ss.csv", w->directory, w->prefix);
    w->files = (struct files){.directory = w->directory, .name = file_name, .owner = w};
    return files_create(&w->files, w->nbands * w->nbeams, error);
}

void sigproc_writer_free(struct sigproc_writer *w)
{
    for (size_t b = 0; w->missing != NULL && b < w->nbands; b++) missing_destroy(&w->missing[b]);
    files_destroy(&w->files);
    free(w->missing);
    free(w->look);
    free(w->scratch);
    free(w->rows.mean);
    free(w->rows.seen);
}

/* The name of what a beam of the motion follows, or its number. */
static const char *source_of(const struct sigproc_writer *w, const struct br_motion *m, size_t beam,
                             char text[32])
{
    snprintf(text, 32, "beam %zu", beam);
    if (w->source != NULL) return w->source;
    bool own = m != NULL && m->sources != NULL && m->nx == 0 && beam < m->nbeams;
    return own && m->sources[beam].name != NULL ? m->sources[beam].name : text;
}

static double known(double value)
{
    return isfinite(value) ? value : 0;
}

/* Puts where a beam looks into its header. */
static void put_look(const struct sigproc_writer *w, const struct br_look *look, struct sigproc_header *h)
{
    h->az_start_deg = known(look->azimuth_deg);
    h->za_start_deg = known(90 - look->altitude_deg);
    h->src_raj = isfinite(w->src_raj) ? w->src_raj : sigproc_angle(known(look->ra_deg) / 15);
    h->src_dej = isfinite(w->src_dej) ? w->src_dej : sigproc_angle(known(look->dec_deg));
}

/* Begins all files, step `first` being their sample 0. */
static int begin(struct sigproc_writer *w, uint64_t first, struct br_error *error)
{
    const struct br_stream *stream = w->stream;
    int status = BR_OK;
    static const struct br_look nowhere = {NAN, NAN, NAN, NAN, NAN, NAN};
    for (size_t b = 0; b < w->rows.nbeams; b++) w->look[b] = nowhere;
    if (beams_are_known(stream)) status = beams_look(stream, w->site, first * w->step, w->look, error);
    if (status != BR_OK) return status;
    struct br_pointing *held;
    const struct br_motion *motion = br_pointings_hold(stream->motion, first * w->step, &held);
    w->part++;
    w->open = true;
    w->next = first;
    for (size_t band = 0; band < w->nbands; band++) {
        const struct sigproc_band *b = &w->bands[band];
        char tail[64], name[FILES_NAME], source[32];
        band_and_part(w, band, tail);
        snprintf(name, sizeof name, "%.150s%s.gaps", w->prefix, tail);
        missing_begin(&w->missing[band], w->directory, name);
        for (size_t i = 0; i < w->nbeams && status == BR_OK; i++) {
            uint8_t bytes[SIGPROC_HEADER_MAX];
            file_name(w, band * w->nbeams + i, name);
            struct sigproc_header header = {
                .rawdatafile = name,
                .source_name = source_of(w, motion, w->beam[i], source),
                .telescope_id = w->telescope_id,
                .machine_id = w->machine_id,
                .fch1_mhz = b->fch1_mhz,
                .foff_mhz = b->foff_mhz,
                .nchans = (int)b->nchannels,
                .nbits = w->rows.floats ? 32 : 8,
                .nbeams = (int)w->rows.nbeams,
                .ibeam = (int)w->beam[i] + 1,
                .tstart_mjd = sigproc_mjd(sigproc_arrival_ns(stream, first, w->step, b->delay)),
                .tsamp_s = w->step * br_stream_sample_s(stream)};
            put_look(w, &w->look[w->beam[i]], &header);
            status =
                files_begin(&w->files, band * w->nbeams + i, bytes, sigproc_format(bytes, &header), error);
        }
    }
    br_pointing_release(held);
    return status;
}

/* Writes `steps` steps of the frame in w->rows from step `from` of it on to all files. */
static int write_steps(struct sigproc_writer *w, size_t from, uint64_t steps, struct br_error *error)
{
    uint8_t weight = w->rows.data == NULL ? BR_MISSING : BR_VALID;
    for (size_t band = 0; band < w->nbands; band++) {
        const struct sigproc_band *b = &w->bands[band];
        size_t row = b->nchannels * rows_value_bytes(&w->rows);
        int status = missing_add(&w->missing[band], w->rows.data == NULL ? NULL : w->rows.valid,
                                 w->rows.nsteps, from, (size_t)steps, weight, error);
        for (uint64_t done = 0; done < steps && status == BR_OK;) {
            size_t take = steps - done < w->chunk ? (size_t)(steps - done) : w->chunk;
            for (size_t i = 0; i < w->nbeams && status == BR_OK; i += ROWS_BEAMS) {
                size_t group = w->nbeams - i < ROWS_BEAMS ? w->nbeams - i : ROWS_BEAMS;
                rows_make(&w->rows, b, w->beam + i, group, from + (size_t)done, take, w->scratch);
                w->disk(w->owner, true);
                for (size_t k = 0; k < group && status == BR_OK; k++)
                    status = files_append(&w->files, band * w->nbeams + i + k,
                                          (uint8_t *)w->scratch + k * take * row, take * row, error);
                w->disk(w->owner, false);
            }
            done += take;
        }
        if (status != BR_OK) return status;
    }
    w->next += steps;
    w->written += steps;
    return BR_OK;
}

int sigproc_writer_end(struct sigproc_writer *w, struct br_error *error)
{
    int status = BR_OK;
    for (size_t b = 0; w->open && b < w->nbands; b++) {
        int result = missing_end(&w->missing[b], status == BR_OK ? error : NULL);
        if (status == BR_OK) status = result;
    }
    int result = files_close(&w->files, status == BR_OK ? error : NULL);
    if (status == BR_OK) status = result;
    result = beam_table_end(&w->table, w->next * w->step, status == BR_OK ? error : NULL);
    w->open = false;
    return status != BR_OK ? status : result;
}

double sigproc_writer_gap(const struct sigproc_writer *w, const struct br_frame *in)
{
    uint64_t first = in->first / w->step;
    if (!w->open || first <= w->next) return 0;
    double seconds = (double)(first - w->next) * w->step * br_stream_sample_s(w->stream);
    return seconds > w->max_gap_s ? seconds : 0;
}

int sigproc_writer_put(struct sigproc_writer *w, const struct br_frame *in, struct br_error *error)
{
    uint64_t first = in->first / w->step, skip = 0;
    size_t nsteps = br_time_steps(in->first, in->samples, w->step);
    int status = sigproc_writer_gap(w, in) > 0 ? sigproc_writer_end(w, error) : BR_OK;
    if (status == BR_OK && !w->open) status = begin(w, first, error);
    if (status == BR_OK)
        status = beam_table_reach(&w->table, first * w->step, in->first + in->samples, error);
    if (status == BR_OK && first > w->next) { /* the queue dropped frames */
        w->rows.data = NULL;
        status = write_steps(w, 0, first - w->next, error);
    }
    /* Beside a loss two frames may share a step; the first one wrote it. */
    if (status == BR_OK && first < w->next) skip = w->next - first < nsteps ? w->next - first : nsteps;
    if (status != BR_OK || skip == nsteps) return status;
    w->rows.data = in->data;
    w->rows.side = in->side;
    w->rows.valid = in->complete ? NULL : in->valid;
    w->rows.nsteps = nsteps;
    return write_steps(w, (size_t)skip, nsteps - skip, error);
}
