#include "formats/tables/beam_table.h"

#include "buffers/output.h"
#include "formats/common/text.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const double degrees = 57.29577951308232;

bool beam_azimuth(const struct br_telescope *telescope, struct br_beam beam, double *azimuth_deg,
                  double *zenith_angle_deg)
{
    double off = hypot(beam.x, beam.y);
    *azimuth_deg = *zenith_angle_deg = 0;
    if (telescope == NULL || !isfinite(telescope->latitude_deg) || !isfinite(telescope->longitude_deg) ||
        !(off <= 1))
        return false;
    double azimuth = degrees * atan2(beam.y, beam.x);
    *azimuth_deg = azimuth < 0 ? azimuth + 360 : azimuth;
    *zenith_angle_deg = degrees * asin(off);
    return true;
}

void beam_table_print(FILE *out, const struct br_stream *s, const char *between)
{
    for (size_t i = 0; i < s->nbeams; i++) {
        char x[TEXT_REAL], y[TEXT_REAL], angles[80] = "";
        double azimuth, zenith;
        if (beam_azimuth(s->telescope, s->beams[i], &azimuth, &zenith))
            snprintf(angles, sizeof angles, "%.9g%s%.9g", azimuth, between, zenith);
        else
            snprintf(angles, sizeof angles, "%s", between);
        fprintf(out, "%zu%s%s%s%s%s%s\n", i, between, text_real_format(x, s->beams[i].x), between,
                text_real_format(y, s->beams[i].y), between, angles);
    }
}

int beam_table_write(const char *path, const struct br_stream *s, struct br_error *error)
{
    if (s->beams == NULL || s->nbeams == 0) return BR_OK;
    FILE *out = br_output_stream(path, true, error);
    if (out == NULL) return BR_E_IO;
    fputs("number,x,y,azimuth_deg,zenith_angle_deg\n", out);
    beam_table_print(out, s, ",");
    bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) return br_fail(error, BR_E_IO, "cannot write %s: %s", path, strerror(errno));
    return BR_OK;
}
