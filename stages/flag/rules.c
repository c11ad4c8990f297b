/* rules.c - bad inputs, thresholds and limits as the user gives them. */
#include "formats/tables/hdf5_tables.h"
#include "stages/flag/flag.h"

#include <stdlib.h>

/* Marks the inputs of a list, each at most once. */
static int list_bad(struct br_stage *stage, const struct flag *flag, uint8_t *bad)
{
    for (size_t i = 0; i < flag->bad_inputs.count; i++) {
        int64_t n = flag->bad_inputs.value[i];
        if (n >= (int64_t)flag->ninputs)
            return br_stage_fail_at(stage, "bad_inputs",
                                    "there is no input %lld; expected 0 to %zu (pol x dishes + dish)",
                                    (long long)n, flag->ninputs - 1);
        if (bad[n]) return br_stage_fail_at(stage, "bad_inputs", "input %lld is listed twice", (long long)n);
        bad[n] = 1;
    }
    return BR_OK;
}

static int read_bad(struct br_stage *stage, const struct flag *flag, uint8_t *bad, size_t npol,
                    size_t ndishes)
{
    struct br_error error = {0};
    struct br_bad_inputs file;
    int status = br_stage_reads_file(stage, "bad_inputs_file", flag->bad_inputs_file);
    if (status != BR_OK) return status;
    if (br_bad_inputs_read(&file, flag->bad_inputs_file, &error) != BR_OK)
        return br_stage_fail_at(stage, "bad_inputs_file", "%s", error.text);
    if (file.npol == npol && file.ndishes == ndishes)
        for (size_t n = 0; n < flag->ninputs; n++) bad[n] = file.value[n] != 0;
    else
        status = br_stage_fail_at(stage, "bad_inputs_file",
                                  "%s: /bad_inputs is [%zu][%zu]; expected pol %zu, dish %zu",
                                  flag->bad_inputs_file, file.npol, file.ndishes, npol, ndishes);
    free(file.value);
    return status;
}

static int make_bad(struct br_stage *stage, struct flag *flag, size_t npol, size_t ndishes)
{
    uint8_t *bad = br_stage_alloc(stage, flag->ninputs);
    size_t good = 0;
    if (flag->bad_inputs.count > 0 && flag->bad_inputs_file != NULL)
        return br_stage_fail_at(stage, "bad_inputs_file",
                                "bad_inputs is given too; expected at most one of the two");
    int status = flag->bad_inputs_file != NULL ? read_bad(stage, flag, bad, npol, ndishes)
                                               : list_bad(stage, flag, bad);
    if (status != BR_OK) return status;
    for (size_t n = 0; n < flag->ninputs; n++) good += !bad[n];
    if (good == 0)
        return br_stage_fail_at(stage, flag->bad_inputs_file != NULL ? "bad_inputs_file" : "bad_inputs",
                                "all %zu inputs are bad: nothing would be left", flag->ninputs);
    flag->rules.bad = bad;
    return BR_OK;
}

int flag_make_rules(struct br_stage *stage, struct flag *flag, size_t npol, size_t ndishes)
{
    const struct br_reals *sigma = &flag->threshold_sigma, *power = &flag->power;
    if (power->value[0] >= power->value[1])
        return br_stage_fail_at(stage, "power", "%g to %g are not limits; expected [least, most]",
                                power->value[0], power->value[1]);
    flag->rules = (struct br_flag_rules){(float)sigma->value[0], (float)sigma->value[sigma->count - 1],
                                         (float)power->value[0], (float)power->value[1], NULL};
    return make_bad(stage, flag, npol, ndishes);
}
