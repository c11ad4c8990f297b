#include "stages/common/stage/random.h"

#include <math.h>

void gaussian_table(int16_t *table)
{
    /* Upwards from the median. The upper tail's probability is convex, so that Newton's steps from below
     * never overshoot, and each quantile is a good start for the next. */
    const int half = GAUSSIAN_ENTRIES / 2;
    double z = 0;
    for (int i = 0; i < half; i++) {
        double tail = 0.5 - (i + 0.5) / GAUSSIAN_ENTRIES;
        for (int k = 0; k < 30; k++) {
            double step =
                (0.5 * erfc(z * M_SQRT1_2) - tail) / (exp(-z * z / 2) * 0.5 * M_2_SQRTPI * M_SQRT1_2);
            z += step;
            if (fabs(step) < 1e-10) break;
        }
        int16_t value = (int16_t)lrint(z * GAUSSIAN_UNIT);
        table[half + i] = value;
        table[half - 1 - i] = (int16_t)-value;
    }
}
