#include "kernels/calibrate/calibrate.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* three inputs have amplitudes, but leave nothing that could tell the noise */
enum { FEWEST = 4, ITERATIONS = 500 };
#define CONVERGED 1e-10 /* relative change of r in two iterations */
#define NOISELESS                                                                                            \
    1e-6 /* residuals below this part of the amplitudes are rounding: nothing stands out of it */

#define DEAD_POWER 0.05 /* of the median: an input below it that does not fit either is not connected */

typedef double _Complex complex_t;

struct fit {
    size_t n;         /* inputs in the fit */
    size_t *input;    /* [n] their numbers */
    complex_t *ratio; /* [n][n] R_ij, 0 on the diagonal */
    double *count;    /* [n][n] samples */
    complex_t *r;     /* [n] */
    complex_t *next;  /* [n] scratch; [n][n] for the eigenvector */
    double *misfit;   /* [n] */
    double *sorted;   /* [n] scratch */
    double noise;     /* rms of a component of sqrt(n_ij) (R_ij - r_i conj(r_j)) */
    size_t iterations;
};

static void fit_free(struct fit *fit)
{
    free(fit->input);
    free(fit->ratio);
    free(fit->count);
    free(fit->r);
    free(fit->next);
    free(fit->misfit);
    free(fit->sorted);
}

static bool fit_alloc(struct fit *fit, size_t n)
{
    *fit = (struct fit){.input = malloc(n * sizeof *fit->input),
                        .ratio = malloc(n * n * sizeof *fit->ratio),
                        .count = malloc(n * n * sizeof *fit->count),
                        .r = malloc(n * sizeof *fit->r),
                        .next = malloc(n * n * sizeof *fit->next),
                        .misfit = malloc(n * sizeof *fit->misfit),
                        .sorted = malloc(n * sizeof *fit->sorted)};
    return fit->input != NULL && fit->ratio != NULL && fit->count != NULL && fit->r != NULL &&
           fit->next != NULL && fit->misfit != NULL && fit->sorted != NULL;
}

/* Mean power of an input, 0 where there is none. */
static double power(size_t n, size_t i, const double *sum, const double *samples)
{
    size_t k = br_calibrate_pair(n, i, i);
    double mean = samples[k] > 0 ? sum[2 * k] / samples[k] : 0;
    return mean > 0 && isfinite(mean) ? mean : 0;
}

/* Takes the good inputs: R and n of their pairs. */
static void gather(struct fit *fit, size_t n, const uint8_t *flag, const double *sum, const double *samples)
{
    fit->n = 0;
    for (size_t i = 0; i < n; i++)
        if (flag[i] == BR_GAIN_GOOD) fit->input[fit->n++] = i;
    for (size_t a = 0; a < fit->n; a++)
        for (size_t b = a; b < fit->n; b++) {
            size_t i = fit->input[a], j = fit->input[b], k = br_calibrate_pair(n, i, j);
            bool there = a != b && samples[k] > 0 && isfinite(sum[2 * k]) && isfinite(sum[2 * k + 1]);
            double norm = sqrt(power(n, i, sum, samples) * power(n, j, sum, samples));
            complex_t v = there ? (sum[2 * k] + I * sum[2 * k + 1]) / samples[k] / norm : 0;
            fit->ratio[a * fit->n + b] = v;
            fit->ratio[b * fit->n + a] = conj(v);
            fit->count[a * fit->n + b] = fit->count[b * fit->n + a] = there ? samples[k] : 0;
        }
}

/* r_i = sum_j n_ij R_ij r_j / sum_j n_ij |r_j|^2 */
static void iterate(const struct fit *fit, const complex_t *r, complex_t *next)
{
    for (size_t i = 0; i < fit->n; i++) {
        complex_t above = 0;
        double below = 0;
        for (size_t j = 0; j < fit->n; j++) {
            double w = fit->count[i * fit->n + j];
            above += w * fit->ratio[i * fit->n + j] * r[j];
            below += w * (creal(r[j]) * creal(r[j]) + cimag(r[j]) * cimag(r[j]));
        }
        next[i] = below > 0 ? above / below : 0;
    }
}

/* False where it does not converge. */
static bool solve(struct fit *fit)
{
    size_t n = fit->n;
    double value = 0;
    for (size_t i = 0; i < n; i++) /* to column-major */
        for (size_t j = 0; j < n; j++) fit->next[j * n + i] = fit->ratio[i * n + j];
    if (!br_leading_eigenvector(n, (double *)(void *)fit->next, (double *)(void *)fit->r, &value))
        return false;
    if (!(value > 0)) return false;
    for (size_t i = 0; i < n; i++) fit->r[i] *= sqrt(value * (double)n / (double)(n - 1));
    for (fit->iterations = 1; fit->iterations <= ITERATIONS; fit->iterations++) {
        double change = 0, size = 0;
        iterate(fit, fit->r, fit->next);
        iterate(fit, fit->next, fit->next + n);
        for (size_t i = 0; i < n; i++) {
            complex_t r = 0.5 * (fit->next[i] + fit->next[n + i]);
            change += pow(cabs(r - fit->r[i]), 2);
            size += pow(cabs(r), 2);
            fit->r[i] = r;
        }
        if (!isfinite(size)) return false;
        if (change <= CONVERGED * CONVERGED * size) return true;
    }
    return false;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct fit *fit, const double *value)
{
    memcpy(fit->sorted, value, fit->n * sizeof *value);
    qsort(fit->sorted, fit->n, sizeof *fit->sorted, ascending);
    return fit->sorted[fit->n / 2];
}

/* Residuals of each input, and of all. */
static void measure(struct fit *fit)
{
    double all = 0;
    size_t pairs = 0;
    for (size_t i = 0; i < fit->n; i++) {
        double sum = 0;
        size_t count = 0;
        for (size_t j = 0; j < fit->n; j++) {
            double w = fit->count[i * fit->n + j];
            double off = cabs(fit->ratio[i * fit->n + j] - fit->r[i] * conj(fit->r[j]));
            sum += w * off * off;
            count += w > 0;
        }
        fit->misfit[i] = count > 0 ? sqrt(sum / (double)count) : 0;
        all += sum;
        pairs += count;
    }
    /* of 2 values a pair, counted twice here, the fit takes 2 an input */
    double free = (double)pairs - 2 * (double)fit->n;
    fit->noise = pairs > 0 ? sqrt(all / 2 / (free > 1 ? free : (double)pairs)) : 0;
}

/* S/N of r_i. With R = |r|^2, the source's part of a power, what is left of a visibility has the variance
 * (1 - R)^2 / n. One component's error is the root of two parts: (1 - R)^2 / 2 / sum_j n_ij |r_j|^2 from the
 * noise of all pairs, as if they were independent; and (1 - R) / 2 n because they are not, all of input i's
 * having the noise of input i beside the same source. */
static double gain_snr(const struct fit *fit, size_t i)
{
    double below = 0, samples = 0, pairs = 0;
    for (size_t j = 0; j < fit->n; j++) {
        double w = fit->count[i * fit->n + j];
        below += w * pow(cabs(fit->r[j]), 2);
        samples += w;
        pairs += w > 0;
    }
    if (!(below > 0)) return 0;
    double noise_part = fmax(1 - pow(cabs(fit->r[i]), 2), 1e-3); /* of the input's power */
    double error = fit->noise * sqrt(1 / below + pairs / samples / noise_part);
    error = fmax(error, 1e-12 * cabs(fit->r[i])); /* a fit without noise is as good as doubles are */
    return error > 0 ? cabs(fit->r[i]) / error : 0;
}

/* Flags the input whose residual stands out most; false where none does. */
static bool flag_misfit(struct fit *fit, const struct br_calibrate_params *p, double amplitude, uint8_t *flag)
{
    size_t worst = 0;
    double largest = 0;
    for (size_t i = 0; i < fit->n; i++) {
        if (fit->misfit[i] > fit->misfit[worst]) worst = i;
        for (size_t j = 0; j < fit->n; j++) largest = fmax(largest, fit->count[i * fit->n + j]);
    }
    double typical = fmax(median(fit, fit->misfit), NOISELESS * amplitude * amplitude * sqrt(largest));
    if (!(fit->misfit[worst] > p->max_residual * typical)) return false;
    flag[fit->input[worst]] = BR_GAIN_MISFIT;
    return true;
}

/* Flags all inputs that are too weak; false where none is. */
static bool flag_weak(const struct fit *fit, const struct br_calibrate_params *p, double amplitude,
                      uint8_t *flag)
{
    bool any = false;
    for (size_t i = 0; i < fit->n; i++)
        if (cabs(fit->r[i]) < p->min_amplitude * amplitude) {
            flag[fit->input[i]] = BR_GAIN_WEAK;
            any = true;
        }
    return any;
}

static void write_gains(struct fit *fit, size_t n, const struct br_calibrate_params *p, const double *sum,
                        const double *samples, struct br_calibrate_result *result)
{
    size_t reference = 0; /* the first good input, or the one that was asked for */
    double mean = 0, products = 0, amplitudes = 0, squares = 0;
    for (size_t a = 0; a < fit->n; a++)
        if (fit->input[a] == p->reference) reference = a;
    for (size_t a = 0; a < fit->n; a++) {
        size_t i = fit->input[a];
        complex_t gain = 1 / (fit->r[a] * sqrt(power(n, i, sum, samples)));
        result->gain[2 * i] = creal(gain);
        result->gain[2 * i + 1] = cimag(gain);
        result->misfit[i] = fit->misfit[a];
        result->gain_snr[i] = gain_snr(fit, a);
        mean += cabs(gain) / (double)fit->n;
        amplitudes += cabs(fit->r[a]);
        squares += pow(cabs(fit->r[a]), 2);
        for (size_t b = 0; b < fit->n; b++) products += fit->count[a * fit->n + b];
    }
    for (size_t i = 0; i < 2 * n; i++) result->gain[i] /= mean;
    double pairs = (double)fit->n * (double)(fit->n - 1);
    double typical = (amplitudes * amplitudes - squares) / pairs; /* mean |r_i r_j| */
    double error = fmax(fit->noise, 1e-12 * typical);
    result->snr = typical * sqrt(products / pairs) / error;
    result->residual = M_SQRT2 * fit->noise;
    result->ngood = fit->n;
    result->reference = fit->input[reference];
    br_calibrate_refer(n, result->gain, result->reference);
    result->iterations = fit->iterations;
}

void br_calibrate_refer(size_t n, double *gain, size_t reference)
{
    double re = gain[2 * reference], im = gain[2 * reference + 1], size = hypot(re, im);
    for (size_t i = 0; i < n; i++) {
        double was = gain[2 * i];
        gain[2 * i] = (was * re + gain[2 * i + 1] * im) / size;
        gain[2 * i + 1] = (gain[2 * i + 1] * re - was * im) / size;
    }
    gain[2 * reference] = size;
    gain[2 * reference + 1] = 0;
}

static void unsolved(struct br_calibrate_result *result, size_t n)
{
    memset(result->gain, 0, 2 * n * sizeof *result->gain);
    memset(result->gain_snr, 0, n * sizeof *result->gain_snr);
    for (size_t i = 0; i < n; i++)
        if (result->flag[i] == BR_GAIN_GOOD) result->flag[i] = BR_GAIN_UNSOLVED;
    result->solved = false;
    result->ngood = 0;
}

/* Fits until nothing stands out. */
static bool fit_all(struct fit *fit, const struct br_calibrate_params *p, const double *sum,
                    const double *samples, struct br_calibrate_result *result)
{
    for (;;) {
        gather(fit, p->ninputs, result->flag, sum, samples);
        if (fit->n < FEWEST) {
            br_because(&result->why, "%zu of %zu inputs are left; a fit needs %d", fit->n, p->ninputs,
                       FEWEST);
            return false;
        }
        if (!solve(fit)) {
            br_because(&result->why, "the fit does not converge: no source stands out in that direction");
            return false;
        }
        measure(fit);
        double *value = (double *)(void *)fit->next;
        for (size_t i = 0; i < fit->n; i++) value[i] = cabs(fit->r[i]);
        double amplitude = median(fit, value);
        if (flag_misfit(fit, p, amplitude, result->flag)) continue;
        for (size_t i = 0; i < fit->n; i++) value[i] = gain_snr(fit, i);
        double snr = median(fit, value);
        if (!(snr >= p->min_snr)) { /* before weak inputs: in noise alone most would be */
            br_because(&result->why, "the source is too weak: gains have S/N %.2g; expected %.2g", snr,
                       p->min_snr);
            return false;
        }
        if (!flag_weak(fit, p, amplitude, result->flag)) return true;
    }
}

/* Calls inputs dead that do not fit and have next to no power. Those that fit keep their gain. */
static void name_dead(struct fit *fit, size_t n, const double *sum, const double *samples, uint8_t *flag)
{
    double *value = (double *)(void *)fit->next;
    fit->n = 0;
    for (size_t i = 0; i < n; i++)
        if (power(n, i, sum, samples) > 0) value[fit->n++] = power(n, i, sum, samples);
    double least = fit->n > 0 ? DEAD_POWER * median(fit, value) : 0;
    for (size_t i = 0; i < n; i++)
        if ((flag[i] == BR_GAIN_WEAK || flag[i] == BR_GAIN_MISFIT) && power(n, i, sum, samples) < least)
            flag[i] = BR_GAIN_DEAD;
}

int br_calibrate(const struct br_calibrate_params *p, const double *sum, const double *samples,
                 struct br_calibrate_result *result, struct br_why *why)
{
    size_t n = p->ninputs;
    struct fit fit;
    if (!fit_alloc(&fit, n)) {
        fit_free(&fit);
        return br_because(why, "no memory for the fit of %zu inputs", n);
    }
    memset(result->gain, 0, 2 * n * sizeof *result->gain);
    memset(result->gain_snr, 0, n * sizeof *result->gain_snr);
    memset(result->misfit, 0, n * sizeof *result->misfit);
    result->why = (struct br_why){""};
    result->snr = result->residual = 0;
    result->reference = p->reference;
    result->iterations = 0;
    for (size_t i = 0; i < n; i++)
        result->flag[i] = power(n, i, sum, samples) > 0 ? BR_GAIN_GOOD : BR_GAIN_DEAD;
    result->solved = fit_all(&fit, p, sum, samples, result);
    if (result->solved)
        write_gains(&fit, n, p, sum, samples, result);
    else
        unsolved(result, n);
    name_dead(&fit, n, sum, samples, result->flag);
    fit_free(&fit);
    return 0;
}
