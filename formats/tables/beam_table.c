#include "formats/tables/beam_table.h"

#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "formats/common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool beams_are_known(const struct br_stream *s)
{
    return s->nbeams > 0 && (s->beams != NULL || (s->motion != NULL && s->motion->nbeams == s->nbeams));
}

bool beams_move(const struct br_stream *s)
{
    return s->nbeams > 0 && s->motion != NULL && br_motion_moves(s->motion);
}

/* At the time of base sample `sample`, with the directions that hold at `of`. */
static int look_at(const struct br_stream *s, const struct apparent_site *site, uint64_t of, uint64_t sample,
                   struct br_look *look, struct br_error *error)
{
    struct br_motion still = {.nbeams = s->nbeams,
                              .beams = s->beams,
                              .sample_s = br_stream_sample_s(s),
                              .site = site,
                              .epoch_ns = s->epoch_ns};
    int64_t now = br_stream_time_ns(s, sample);
    int status = BR_OK;
    struct br_pointing *held;
    const struct br_motion *motion = br_pointings_hold(s->motion, of, &held);
    size_t moving = motion != NULL && motion->nbeams <= s->nbeams ? motion->nbeams : 0;
    if (moving > 0) {
        status = br_motion_looks(motion, now, look);
        still.site = s->motion->site;
        still.nbeams -= moving; /* the incoherent beam behind the others */
        still.beams += moving;
    }
    br_pointing_release(held);
    if (status == BR_OK && still.nbeams > 0) status = br_motion_looks(&still, now, look + moving);
    if (status != BR_OK) return br_fail(error, status, "no memory for %zu beams", s->nbeams);
    const struct br_telescope *t = s->telescope;
    bool placed = t != NULL && isfinite(t->latitude_deg) && isfinite(t->longitude_deg);
    for (size_t b = 0; b < s->nbeams && !placed; b++) look[b].azimuth_deg = look[b].altitude_deg = NAN;
    return BR_OK;
}

int beams_look(const struct br_stream *s, const struct apparent_site *site, uint64_t sample,
               struct br_look *look, struct br_error *error)
{
    return look_at(s, site, sample, sample, look, error);
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

/* A line for each beam, from base sample table->first to *end; NULL: not known yet. */
static int put_lines(FILE *out, const struct beam_table *table, const uint64_t *end, struct br_error *error)
{
    const struct br_stream *s = table->stream;
    struct br_look *look = malloc(2 * s->nbeams * sizeof *look);
    if (look == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", s->nbeams);
    int status = beams_look(s, table->site, table->first, look, error);
    if (status == BR_OK && end != NULL)
        status = look_at(s, table->site, *end > 0 ? *end - 1 : 0, *end, look + s->nbeams, error);
    char start[TEXT_TIME], stop[TEXT_TIME] = "";
    text_utc_format(start, br_stream_time_ns(s, table->first));
    if (end != NULL) text_utc_format(stop, br_stream_time_ns(s, *end));
    for (size_t i = 0; status == BR_OK && i < s->nbeams; i++) {
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
    return status;
}

/* Writes text behind what stays of the file. A disk that is full leaves the file as it is. */
static int write_text(const struct beam_table *table, const char *text, size_t length, struct br_error *error)
{
    int fd = table->at == 0 ? br_output_open(table->path, true, error)
                            : open(table->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && table->at == 0) return BR_E_IO;
    int why = fd < 0 ? errno : posix_fallocate(fd, (off_t)table->at, (off_t)length);
    if (why == EOPNOTSUPP || why == EINVAL) why = 0; /* a file system that cannot tell */
    if (why == 0) why = fileio_write(fd, text, length, table->at);
    if (fd >= 0 && close(fd) != 0 && why == 0) why = errno;
    return why == 0 ? BR_OK : br_fail(error, BR_E_IO, "cannot write %s: %s", table->path, strerror(why));
}

/* Writes the last lines again, up to *end, and where there is `another` those that begin there. */
static int write_lines(struct beam_table *table, const uint64_t *end, bool another, struct br_error *error)
{
    char *text = NULL;
    size_t length = 0, head = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %s", table->path);
    if (table->at == 0)
        head = (size_t)fprintf(out, "number,x,y,azimuth_deg,zenith_angle_deg,ra_deg,dec_deg,utc,x_end,y_end,"
                                    "azimuth_end_deg,zenith_angle_end_deg,ra_end_deg,dec_end_deg,utc_end\n");
    int status = put_lines(out, table, end, error);
    struct beam_table next = *table;
    if (another) {
        next.first = *end;
        head = (size_t)ftell(out);
        if (status == BR_OK) status = put_lines(out, &next, NULL, error);
    }
    if (fclose(out) != 0 && status == BR_OK)
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for %s", table->path);
    if (status == BR_OK) status = write_text(table, text, length, error);
    free(text);
    if (status != BR_OK) return status;
    table->at += head;
    table->first = next.first;
    return BR_OK;
}

int beam_table_reach(struct beam_table *t, uint64_t first, uint64_t end, struct br_error *error)
{
    uint64_t next;
    int status = BR_OK;
    if (!beams_are_known(t->stream)) return BR_OK;
    if (!t->begun) {
        t->begun = true;
        t->first = first;
        status = write_lines(t, NULL, false, error);
    }
    while (status == BR_OK && (next = br_pointings_next(t->stream->motion, t->first)) < end)
        status = write_lines(t, &next, true, error);
    return status;
}

int beam_table_end(struct beam_table *t, uint64_t end, struct br_error *error)
{
    return t->begun ? write_lines(t, &end, false, error) : BR_OK;
}
