#include "formats/tables/beam_table.h"

#include "buffers/output.h"
#include "formats/common/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool beams_are_known(const struct br_stream *s)
{
    return s->nbeams > 0 && (s->beams != NULL || (s->motion != NULL && s->motion->nbeams == s->nbeams));
}

bool beams_move(const struct br_stream *s)
{
    return s->nbeams > 0 && s->motion != NULL && br_motion_moves(s->motion);
}

int beams_look(const struct br_stream *s, const struct apparent_site *site, uint64_t sample,
               struct br_look *look, struct br_error *error)
{
    struct br_motion still = {.nbeams = s->nbeams,
                              .beams = s->beams,
                              .sample_s = br_stream_sample_s(s),
                              .site = site,
                              .epoch_ns = s->epoch_ns};
    int status = BR_OK;
    size_t moving = s->motion != NULL && s->motion->nbeams <= s->nbeams ? s->motion->nbeams : 0;
    if (moving > 0) {
        status = br_motion_looks(s->motion, sample, look);
        still.site = s->motion->site;
        still.nbeams -= moving; /* the incoherent beam behind the others */
        still.beams += moving;
    }
    if (status == BR_OK && still.nbeams > 0) status = br_motion_looks(&still, sample, look + moving);
    if (status != BR_OK) return br_fail(error, status, "no memory for %zu beams", s->nbeams);
    const struct br_telescope *t = s->telescope;
    bool placed = t != NULL && isfinite(t->latitude_deg) && isfinite(t->longitude_deg);
    for (size_t b = 0; b < s->nbeams && !placed; b++) look[b].azimuth_deg = look[b].altitude_deg = NAN;
    return BR_OK;
}

static void put(FILE *out, const char *between, const char *format, double value)
{
    fputs(between, out);
    if (isfinite(value)) fprintf(out, format, value);
}

static void put_look(FILE *out, const struct br_look *look, const char *between)
{
    char text[TEXT_REAL];
    fprintf(out, "%s%s", between, isfinite(look->x) ? text_real_format(text, look->x) : "");
    fprintf(out, "%s%s", between, isfinite(look->y) ? text_real_format(text, look->y) : "");
    put(out, between, "%.9g", look->azimuth_deg);
    put(out, between, "%.9g", 90 - look->altitude_deg);
    put(out, between, "%.7f", look->ra_deg);
    put(out, between, "%.7f", look->dec_deg);
}

void beam_table_print(FILE *out, const struct br_look *look, size_t count, const char *between)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%zu", i);
        put_look(out, &look[i], between);
        fputc('\n', out);
    }
}

static int write_failed(const char *path, int why, struct br_error *error)
{
    return br_fail(error, BR_E_IO, "cannot write %s: %s", path, strerror(why));
}

/* `end` NULL: not known yet. */
static int write_table(const struct beam_table *table, const char *path, const uint64_t *end,
                       struct br_error *error)
{
    const struct br_stream *s = table->stream;
    struct br_look *look = malloc(2 * s->nbeams * sizeof *look);
    if (look == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", s->nbeams);
    int status = beams_look(s, table->site, table->first, look, error);
    if (status == BR_OK && end != NULL) status = beams_look(s, table->site, *end, look + s->nbeams, error);
    FILE *out = status == BR_OK ? br_output_stream(path, true, error) : NULL;
    if (out == NULL) {
        free(look);
        return status == BR_OK ? BR_E_IO : status;
    }
    char start[TEXT_TIME], stop[TEXT_TIME] = "";
    text_utc_format(start, br_stream_time_ns(s, table->first));
    if (end != NULL) text_utc_format(stop, br_stream_time_ns(s, *end));
    fputs("number,x,y,azimuth_deg,zenith_angle_deg,ra_deg,dec_deg,utc,x_end,y_end,azimuth_end_deg,"
          "zenith_angle_end_deg,ra_end_deg,dec_end_deg,utc_end\n",
          out);
    for (size_t i = 0; i < s->nbeams; i++) {
        fprintf(out, "%zu", i);
        put_look(out, &look[i], ",");
        fprintf(out, ",%s", start);
        if (end != NULL)
            put_look(out, &look[s->nbeams + i], ",");
        else
            fputs(",,,,,,", out);
        fprintf(out, ",%s\n", stop);
    }
    free(look);
    bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad ? write_failed(path, errno, error) : BR_OK;
}

int beam_table_begin(struct beam_table *t, uint64_t first, struct br_error *error)
{
    if (t->begun || !beams_are_known(t->stream)) return BR_OK;
    t->begun = true;
    t->first = first;
    return write_table(t, t->path, NULL, error);
}

int beam_table_end(struct beam_table *t, uint64_t end, struct br_error *error)
{
    char next[sizeof t->path + 8];
    if (!t->begun) return BR_OK;
    snprintf(next, sizeof next, "%s.next", t->path);
    int status = write_table(t, next, &end, error);
    if (status == BR_OK) status = br_output_rename(next, t->path, error);
    if (status != BR_OK) remove(next);
    return status;
}
