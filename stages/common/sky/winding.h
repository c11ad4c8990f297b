/* winding.h - whether gains still wind across the array as the phases of a source elsewhere would.
 *
 * A wrong direction, or conjugated visibilities, leave no residual in a single integration: the gains take
 * up the difference as a plane wave, g_d exp(2 pi i r_d.(s' - s) / lambda) with the true direction s'.
 * Where the receivers' own phases are alike, or at least correlated, that wave can be seen in the gains:
 * their phases are coherent with it. Receivers of any phases hide it. */
#ifndef BEAMRING_STAGES_COMMON_SKY_WINDING_H
#define BEAMRING_STAGES_COMMON_SKY_WINDING_H

#include "stages/common/sky/calibration.h"

struct winding {
    bool found;  /* the gains are coherent for a source elsewhere, and clearly less for the one given */
    bool mirror; /* and elsewhere is -s: the visibilities are conjugated */
    double s[3]; /* that direction: north, east, up */
    double coherence,
        given; /* |sum of phases| / inputs with its wave and as the gains are; rms over channels */
};

/* Looks at one polarisation of gains that were found with the source in direction s. Looked at are s' = -s
 * and a grid over the sky, or, for an array of many beams, over the part of it around s. BR_E_NO_MEMORY. */
int winding_find(const struct calibration *c, const struct visibilities *v, size_t pol, const double s[3],
                 struct winding *winding, struct br_error *error);

#endif
