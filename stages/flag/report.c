/* report.c - what is flagged, for statistics, the control interface and people. */
#include "stages/flag/flag.h"

#include <stdio.h>

/* Up to so many inputs each have a counter; more inputs have counters for groups of neighbours. */
enum { MOST_GROUPS = 256, TEXT = 40 };
enum { SAMPLES_KURTOSIS, SAMPLES_POWER, SAMPLES_FEW, INPUTS_KURTOSIS, INPUTS_OTHER, GROUPS };

static size_t in_group(const struct flag *flag)
{
    return (flag->ninputs + MOST_GROUPS - 1) / MOST_GROUPS;
}

void flag_make_counters(struct br_stage *stage, struct flag *flag)
{
    size_t each = in_group(flag), ngroups = (flag->ninputs + each - 1) / each;
    struct br_counter *counter = br_stage_alloc(stage, (GROUPS + ngroups) * sizeof *counter);
    char *text = br_stage_alloc(stage, ngroups * TEXT);
    counter[SAMPLES_KURTOSIS] = (struct br_counter){"samples", "kurtosis"};
    counter[SAMPLES_POWER] = (struct br_counter){"samples", "power"};
    counter[SAMPLES_FEW] = (struct br_counter){"samples", "too_few"};
    counter[INPUTS_KURTOSIS] = (struct br_counter){"all inputs", "kurtosis"};
    counter[INPUTS_OTHER] = (struct br_counter){"all inputs", "power"};
    for (size_t g = 0; g < ngroups; g++, text += TEXT) {
        size_t last = (g + 1) * each < flag->ninputs ? (g + 1) * each - 1 : flag->ninputs - 1;
        if (last == g * each)
            snprintf(text, TEXT, "input %zu", last);
        else
            snprintf(text, TEXT, "inputs %zu to %zu", g * each, last);
        counter[GROUPS + g] = (struct br_counter){text, "flagged"};
    }
    br_stage_has_counters(stage, counter, GROUPS + ngroups);
    flag->counted = br_stage_alloc(stage, (GROUPS + ngroups) * sizeof *flag->counted);
    flag->input = br_stage_alloc(stage, flag->ninputs * sizeof *flag->input);
}

/* An operator should know when a channel has no input left, and when hardly anything passes for noise.
 * `kurtosis`: the share of the long block's samples that is flagged for it. */
static void tell(struct br_stage *stage, struct flag *flag, const struct br_flag_result *result, size_t F,
                 double kurtosis)
{
    char text[200] = "";
    size_t empty = 0;
    for (size_t f = 0; f < F; f++) empty += result->used[f] == 0;
    if (empty > 0)
        snprintf(text, sizeof text, "no input is left in %zu of %zu channels", empty, F);
    else if (kurtosis > 0.5 && flag->least_level == -8)
        snprintf(
            text, sizeof text,
            "most samples are flagged for their kurtosis: interference, or an F-engine that sends levels "
            "-7 to 7 (least_level: -7)");
    if (text[0] != '\0' || flag->troubled) br_stage_trouble(stage, text[0] != '\0' ? text : NULL);
    flag->troubled = text[0] != '\0';
}

void flag_count(struct br_stage *stage, struct flag *flag, const struct br_flag_result *result,
                const struct br_frame *out, size_t from, size_t to, unsigned step)
{
    size_t F = br_stage_output(stage, 0)->nchannels, N = flag->ninputs, each = in_group(flag);
    size_t block = (size_t)flag->block / step, ngroups = (N + each - 1) / each;
    uint64_t *counted = flag->counted, before = counted[SAMPLES_KURTOSIS];
    flag->all += out->samples * F;
    for (size_t b = from / block; b * block < to; b++) {
        size_t first = b * block > from ? b * block : from,
               last = (b + 1) * block < to ? (b + 1) * block : to;
        for (size_t f = 0; f < F; f++) {
            uint8_t reason = result->reason[b * F + f];
            if (reason == BR_FLAG_KEPT) continue;
            counted[reason == BR_FLAG_KURTOSIS ? SAMPLES_KURTOSIS
                    : reason == BR_FLAG_POWER  ? SAMPLES_POWER
                                               : SAMPLES_FEW] += (last - first) * step;
        }
    }
    for (size_t n = 0; n < N; n++) {
        uint64_t kurtosis = result->input[n] * out->samples, other = result->input[N + n] * out->samples;
        flag->input[n] += kurtosis + other;
        counted[GROUPS + n / each] += kurtosis + other;
        if (flag->rules.bad[n]) continue; /* those are flagged anyway */
        counted[INPUTS_KURTOSIS] += kurtosis;
        counted[INPUTS_OTHER] += other;
    }
    for (size_t i = 0; i < GROUPS + ngroups; i++) br_stage_count(stage, i, counted[i]);
    tell(stage, flag, result, F,
         (double)(counted[SAMPLES_KURTOSIS] - before) / ((double)out->samples * (double)F));
}

void flag_conclude(struct br_stage *stage, const struct flag *flag)
{
    if (flag->all == 0) return;
    double per = 100 / (double)flag->all;
    const uint64_t *c = flag->counted;
    char text[160] = "";
    size_t worst[5], n = 0, length = 0;
    /* the five inputs that are flagged most, bad ones among them: they might have healed */
    for (; n < 5 && n < flag->ninputs; n++) {
        worst[n] = flag->ninputs;
        for (size_t i = 0; i < flag->ninputs; i++) {
            bool taken = false;
            for (size_t k = 0; k < n; k++) taken |= worst[k] == i;
            if (!taken && (worst[n] == flag->ninputs || flag->input[i] > flag->input[worst[n]])) worst[n] = i;
        }
        if (flag->input[worst[n]] > 0)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s %zu (%.3g %%)",
                                       n > 0 ? "," : "; inputs most often:", worst[n],
                                       per * (double)flag->input[worst[n]]);
    }
    br_stage_note(stage, "flagged %.3g %% of the samples for their kurtosis, %.3g %% for their power%s",
                  per * (double)c[SAMPLES_KURTOSIS], per * (double)c[SAMPLES_POWER], text);
}
