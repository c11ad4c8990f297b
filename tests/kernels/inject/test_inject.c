/* Bursts on the CPU against the definition: which samples they change, and by how much in the mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/inject/inject_run.h"

static void run(struct inject_run *r, const struct inject_case *c)
{
    struct br_why why = {""};
    inject_make(r, c);
    if (inject_run_cpu(r, &why) != 0) fail_msg("%s: %s", c->name, why.text);
}

static size_t zeros_from(const struct inject_run *r, const uint8_t *e, size_t t, int step)
{
    size_t run = 0, frame = t / r->c->samples;
    for (; t < r->total && t / r->c->samples == frame && e[t * r->row] == 0; t += (size_t)step) run++;
    return run;
}

/* Whether sample t of an input is in a run of 8 zeros of its frame; `e` begins with the input. */
static bool is_dead(const struct inject_run *r, const uint8_t *e, size_t t)
{
    return e[t * r->row] == 0 && zeros_from(r, e, t, 1) + zeros_from(r, e, t, -1) - 1 >= 8;
}

static uint32_t power_before(const struct inject_run *r, size_t i)
{
    size_t channel = i / r->c->dishes / r->c->npol;
    struct br_inject_noise noise;
    uint32_t sum = 0;
    for (size_t k = 0; k < r->c->frames; k++) {
        if (!inject_noise_of(r, k, channel, NULL, &noise)) continue;
        for (size_t t = 0; t < noise.count; t++) {
            uint8_t e = r->e[(k * r->c->samples + noise.first + t) * r->row + i];
            int re = ((e & 15) ^ 8) - 8, im = (e >> 4 ^ 8) - 8;
            if (noise.used[t / 32] >> t % 32 & 1) sum += (uint32_t)(re * re + im * im);
        }
    }
    return sum;
}

/* Nothing is changed outside of the burst, in missing samples, in inputs that had not arrived or that are not
 * used; the sums are those of the definition. */
static void only_the_burst_is_changed(void **state)
{
    (void)state;
    uint64_t clipped = 0, lost = 0;
    for (size_t n = 0; n < INJECT_CASES; n++) {
        const struct inject_case *c = &inject_cases[n];
        struct inject_run was, r;
        inject_make(&was, c);
        run(&r, c);
        struct br_inject_sums sums = {r.sums, (uint64_t *)r.sums + 1, NULL};
        sums.power = (uint32_t *)(sums.lost + r.row);
        for (size_t i = 0; i < r.row; i++) {
            size_t line = i / c->dishes, begin = inject_begin(line / c->npol), changed = 0;
            uint64_t want = 0;
            bool used = was.input[i].gain > 0 && power_before(&was, i) > 0;
            for (size_t t = 0; t < r.total; t++) {
                bool within = t >= begin && t < begin + c->length,
                     same = r.e[t * r.row + i] == was.e[t * r.row + i];
                const float *z = r.field + 2 * (line * c->length + (within ? t - begin : 0));
                bool there = within && !isnan(z[0]), dead = is_dead(&was, was.e + i, t);
                if ((!there || dead || !used) && !same) fail_msg("%s: input %zu, sample %zu", c->name, i, t);
                if (there && dead) want += (uint64_t)llrintf((z[0] * z[0] + z[1] * z[1]) * 16777216.0f);
                changed += !same;
            }
            if (used && was.e[begin * r.row + i] != 0 && i != 1 && i != 2 && changed < c->length / 50)
                fail_msg("%s: of input %zu %zu are changed", c->name, i, changed);
            assert_int_equal(sums.power[i], power_before(&was, i));
            if (sums.lost[i] != want) fail_msg("%s: input %zu lost", c->name, i);
            lost += want;
        }
        clipped += *sums.clipped;
        inject_free(&was);
        inject_free(&r);
    }
    assert_true(clipped > 1000 && lost > 0);
}

/* Random bits follow from the sample: where frames begin does not matter, but for runs of zeros there. */
static void frames_change_nothing(void **state)
{
    (void)state;
    struct inject_case one = inject_cases[0], cut = one;
    struct inject_run a, b;
    one.samples *= one.frames;
    one.frames = 1;
    run(&a, &one);
    run(&b, &cut);
    for (size_t i = 0; i < a.total * a.row; i++)
        if (a.e[i] != b.e[i] && i % a.row != 1 && i % a.row != 2 && i % a.row != a.row / 2)
            fail_msg("sample %zu of input %zu", i / a.row, i % a.row);
    inject_free(&a);
    inject_free(&b);
}

static double level(uint8_t e)
{
    return ((e & 15) ^ 8) - 8;
}

/* Levels of noise with a constant field: on average they rise by it, and their variance stays that of the
 * noise and of rounding. */
static void the_noise_is_drawn_anew(void **state)
{
    (void)state;
    struct inject_case c = {"constant", 1, 1, 8, 20000 + 662, 1, 20000, 0, 0, false, false};
    for (int k = 1; k <= 3; k++) {
        struct inject_run r;
        struct br_why why;
        double strength = 0.25 * k; /* of the noise's deviation; no level is clipped by it */
        c.flux = strength * strength;
        inject_make(&r, &c);
        for (size_t i = 0; i < c.length; i++) r.field[2 * i] = 1, r.field[2 * i + 1] = 0;
        uint64_t seed = 5;
        for (size_t i = 0; i < r.total * r.row; i++) r.e[i] = inject_noise_byte(1.3, &seed);
        for (size_t d = 0; d < r.row; d++) r.input[d] = (struct br_inject_input){1, 0, 1};
        assert_int_equal(inject_run_cpu(&r, &why), 0);
        double sum = 0, squares = 0, count = (double)(c.length * r.row);
        for (size_t i = inject_begin(0) * r.row; i < r.total * r.row; i++) {
            sum += level(r.e[i]) / count;
            squares += level(r.e[i]) * level(r.e[i]) / count;
        }
        /* The deviation is measured over 512 samples of 8 inputs, and the power includes that of rounding. */
        double want = strength * sqrt(1.3 * 1.3 + 1. / 12), error = 1.33 / sqrt(count);
        if (fabs(sum - want) > 4 * error + 0.02 * want)
            fail_msg("strength %g: %g, expected %g", strength, sum, want);
        if (fabs(squares - sum * sum - 1.3 * 1.3 - 1. / 12) > 0.02)
            fail_msg("strength %g: variance %g, expected %g", strength, squares - sum * sum,
                     1.3 * 1.3 + 1. / 12);
        inject_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_burst_is_changed),
        cmocka_unit_test(frames_change_nothing),
        cmocka_unit_test(the_noise_is_drawn_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
