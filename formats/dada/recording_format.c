/* The writing half of recording.h. */
#include "formats/dada/recording.h"
#include "formats/tables/beam_table.h"

#include "formats/common/axes.h"
#include "formats/common/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The letter by which ORDER calls an axis. */
static char letter(const char *axis)
{
    static const struct {
        const char *name;
        char letter;
    } letters[] = {
        {"time", 'T'},  {"freq", 'F'},  {"pol", 'P'},    {"dish", 'A'},     {"beam", 'B'},
        {"gridp", 'X'}, {"gridq", 'Y'}, {"moment", 'M'}, {"baseline", 'V'},
    };
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (strcmp(axis, letters[i].name) == 0) return letters[i].letter;
    return '?';
}

static void put_array(struct dada_writer *w, const char *prefix, const struct br_array *array)
{
    char key[24], axes[AXES_TEXT], shape[BR_MAX_AXES * 24] = "";
    size_t used = 0;
    for (unsigned i = 0; i < array->naxes; i++) {
        const struct br_axis *axis = &array->axis[i];
        size_t length = strcmp(axis->name, "time") == 0 ? 0 : axis->length;
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i > 0 ? "," : "", length);
    }
    snprintf(key, sizeof key, "%sDTYPE", prefix);
    dada_put(w, key, "%s", br_dtype_name(array->dtype));
    snprintf(key, sizeof key, "%sAXES", prefix);
    dada_put(w, key, "%s", axes_of(array, axes));
    snprintf(key, sizeof key, "%sSHAPE", prefix);
    dada_put(w, key, "%s", shape);
}

void recording_order(const struct br_array *array, char letters[BR_MAX_AXES + 1])
{
    for (unsigned i = 0; i < array->naxes; i++) letters[i] = letter(array->axis[i].name);
    letters[array->naxes] = '\0';
}

void recording_band(const struct br_stream *s, double *centre, double *width)
{
    double low = s->freq_mhz[0], high = s->freq_mhz[0];
    double edge_low = s->width_mhz[0] / 2, edge_high = edge_low;
    for (size_t i = 0; i < s->nchannels; i++) {
        if (s->freq_mhz[i] < low) low = s->freq_mhz[i], edge_low = s->width_mhz[i] / 2;
        if (s->freq_mhz[i] > high) high = s->freq_mhz[i], edge_high = s->width_mhz[i] / 2;
    }
    low -= edge_low;
    high += edge_high;
    bool falling =
        s->nchannels > 1 ? s->freq_mhz[s->nchannels - 1] < s->freq_mhz[0] : s->sideband == BR_SIDEBAND_LOWER;
    *centre = (low + high) / 2;
    *width = falling ? low - high : high - low;
}

/* The keys that every reader of DADA files knows. */
static void put_standard(struct dada_writer *w, const struct br_stream *s, const struct recording_file *file)
{
    const struct br_array *array = &s->array;
    char text[TEXT_TIME], order[BR_MAX_AXES + 1] = "";
    double centre, width;
    recording_band(s, &centre, &width);
    recording_order(array, order);
    bool complex_type = array->dtype == BR_INT4X2 || array->dtype == BR_INT8X2 || array->dtype == BR_INT32X2;
    size_t row;
    bool flat = recording_is_flat(s, &row);
    int64_t start = br_stream_time_ns(s, file->obs_first);

    dada_put(w, "HEADER", "DADA");
    dada_put(w, "HDR_VERSION", "1.0");
    dada_put(w, "HDR_SIZE", "%zu", file->header_bytes);
    dada_put(w, "DADA_VERSION", "1.0");
    dada_put(w, "OBS_ID", "%s", file->obs_id);
    dada_put(w, "FILE_NAME", "%s", file->name);
    dada_put(w, "FILE_NUMBER", "%" PRIu64, file->number);
    dada_put(w, "FILE_SIZE", "%" PRIu64, file->payload_bytes);
    dada_put(w, "OBS_OFFSET", "%" PRIu64, file->obs_offset);
    dada_put(w, "OBS_OVERLAP", "0");
    dada_put(w, "SOURCE", "unset");
    dada_put(w, "TELESCOPE", "%s", s->telescope != NULL ? s->telescope->name : "unset");
    dada_put(w, "INSTRUMENT", "beamring");
    dada_put(w, "FREQ", "%s", text_real_format((char[TEXT_REAL]){0}, centre));
    dada_put(w, "BW", "%s", text_real_format((char[TEXT_REAL]){0}, width));
    double step_us = br_stream_sample_s(s) * 1e6 * s->zone[0].downsample;
    dada_put(w, "TSAMP", "%s", text_real_format((char[TEXT_REAL]){0}, step_us));
    dada_put(w, "NBIT", "%u", br_dtype_bits(array->dtype) / (complex_type ? 2 : 1));
    dada_put(w, "NDIM", "%d", complex_type ? 2 : 1);
    dada_put(w, "NPOL", "%zu", br_array_length(array, "pol"));
    dada_put(w, "NCHAN", "%zu", s->nchannels);
    dada_put(w, "NANT", "%zu", br_array_length(array, "dish"));
    dada_put(w, "ORDER", "%s", order);
    dada_put(w, "RESOLUTION", "%" PRIu64,
             flat ? (uint64_t)row : recording_frame_bytes(s, 0, s->frame_samples));
    dada_put(w, "UTC_START", "%s", text_utc_format(text, start));
    dada_put(w, "MJD_START", "%s", text_mjd_format(text, start));
}

void recording_format(struct dada_writer *w, const struct br_stream *s, const struct recording_file *file)
{
    put_standard(w, s, file);
    put_array(w, "", &s->array);
    if (s->side.naxes > 0) put_array(w, "AUX_", &s->side);
    dada_put(w, "SAMPLE0", "%" PRIu64, file->first);
    dada_put(w, "SAMPLES", "%" PRIu64, file->samples);
    dada_put(w, "FRAME_SAMPLES", "%" PRIu64, s->frame_samples);
    dada_put(w, "SAMPLE_NS", "%" PRId64 "/%" PRId64, s->sample_ns.num, s->sample_ns.den);
    dada_put(w, "EPOCH_NS", "%" PRId64, s->epoch_ns);
    if (file->updates != NULL && file->updates[0] != '\0') dada_put(w, "UPDATES", "%s", file->updates);
    dada_put(w, "SCALE", "%s", text_real_format((char[TEXT_REAL]){0}, s->scale));
    dada_put_reals(w, "FREQ_MHZ", s->freq_mhz, s->nchannels);
    bool same = true;
    for (size_t i = 1; i < s->nchannels; i++)
        same = same && !(s->width_mhz[i] < s->width_mhz[0] || s->width_mhz[i] > s->width_mhz[0]);
    dada_put_reals(w, "WIDTH_MHZ", s->width_mhz, same ? 1 : s->nchannels);
    if (s->sideband != BR_SIDEBAND_UNKNOWN) dada_put(w, "SIDEBAND", "%s", br_sideband_name(s->sideband));
    if (!br_stream_is_zoned(s)) dada_put(w, "DOWNSAMPLE", "%u", s->zone[0].downsample);
    dada_put(w, "NZONES", "%u", s->nzones);
    for (unsigned i = 0; i < s->nzones; i++) {
        const struct br_zone *z = &s->zone[i];
        char key[16];
        snprintf(key, sizeof key, "ZONE_%u", i);
        dada_put(w, key, "%zu,%zu,%u,%u,%u", z->first_channel, z->nchannels, z->factor, z->downsample,
                 z->delay);
    }
    if (s->telescope != NULL) recording_put_telescope(w, s->telescope);
    if (s->beams != NULL && s->nbeams > 0) {
        if (s->beams_x > 0) dada_put(w, "BEAMS_GRID", "%zu,%zu", s->beams_x, s->beams_y);
        if (file->beams_start == NULL && !beams_move(s))
            dada_put_reals(w, "BEAMS_XY", &s->beams[0].x, 2 * s->nbeams); /* struct br_beam is two doubles */
    }
    if (file->beams_start != NULL) dada_put_reals(w, "BEAMS_START", file->beams_start, 2 * s->nbeams);
    if (file->beams_radec != NULL) dada_put_reals(w, "BEAMS_RADEC", file->beams_radec, 2 * s->nbeams);
}
