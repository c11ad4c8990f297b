/* test_graph.c - from a configuration to a graph: order, memory, and every mistake that the graph
 * can name. */
#include "tests/runtime/run/run.h"

#define GOOD                                                                                                 \
    "pipeline:\n"                                                                                            \
    "  - {stage: t_sink, in: c}\n"                                                                           \
    "  - {stage: t_pair, in: b, out: {name: c, depth: 7}}\n"                                                 \
    "  - {stage: t_pass, in: a, out: b}\n"                                                                   \
    "  - {stage: t_source, out: a}\n"

static void test_order_and_memory(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, GOOD);
    static const char *const order[] = {"t_source", "t_pass", "t_pair", "t_sink"};
    for (size_t i = 0; i < 4; i++) assert_string_equal(run.graph->order[i]->name, order[i]);
    const struct br_edge *a = &stage_called(&run, "t_source")->out[0],
                         *b = &stage_called(&run, "t_pass")->out[0];
    const struct br_edge *c = &stage_called(&run, "t_pair")->out[0];
    assert_int_equal(a->depth, 4);
    assert_int_equal(c->depth, 7);
    assert_int_equal(br_graph_bytes(run.graph),
                     br_queue_bytes(a->queue) + br_queue_bytes(b->queue) + br_queue_bytes(c->queue));
    assert_int_equal(c->stream.frame_samples, 128);
    end(&run);
}

/* Expects exactly `count` errors, and each of the texts somewhere in them. */
static void refused(const char *yaml, size_t count, const char *const *texts)
{
    struct test_run run;
    build(&run, yaml);
    char printed[8192] = "";
    FILE *file = tmpfile();
    br_config_print_errors(run.config, file);
    rewind(file);
    size_t length = fread(printed, 1, sizeof printed - 1, file);
    printed[length] = '\0';
    fclose(file);
    if (run.status != BR_E_INVALID || br_config_errors(run.config) != count)
        fail_msg("status %d, %zu errors, expected %zu:\n%s", run.status, br_config_errors(run.config), count,
                 printed);
    for (; *texts != NULL; texts++)
        if (strstr(printed, *texts) == NULL) fail_msg("'%s' is not in:\n%s", *texts, printed);
    end(&run);
}
#define REFUSED(yaml, count, ...) refused(yaml, count, (const char *const[]){__VA_ARGS__, NULL})

static void test_mistakes(void **state)
{
    (void)state;
    REFUSED("pipeline:\n  - {stage: t_source, out: field}\n  - {stage: t_sink, in: feild}\n", 1,
            "test.yaml:3:25: ", "did you mean 'field'");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_pass, in: a, out: b}\n", 1,
            "test.yaml:3:33: ", "no stage reads queue 'b'");
    REFUSED(
        "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a}\n  - {stage: t_sink, in: a}\n",
        1, "two stages are called 't_sink'", "test.yaml:4");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_source, name: b, out: a}\n  - {stage: "
            "t_sink, in: a}\n",
            1, "'a' has two producers");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink}\n", 1, "lacks 'in:'");
    REFUSED("pipeline:\n  - {stage: t_source, in: a, out: a}\n  - {stage: t_sink, in: a}\n", 1,
            "has no inputs");
    REFUSED("pipeline:\n  - {stage: t_source, out: [a, b]}\n  - {stage: t_sink, in: [a]}\n", 1,
            "too many or too few");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_copies, in: a, out: [b, c, d]}\n", 1,
            "expected 1 to 2 queue names");
    REFUSED("pipeline:\n  - {stage: t_pass, in: b, out: a}\n  - {stage: t_pass, name: p, in: a, out: b}\n", 1,
            "cycle", "'p'");
    REFUSED("pipeline:\n  - {stage: t_sourse, out: a}\n  - {stage: t_sink, in: a}\n", 1,
            "did you mean 't_source'");
    REFUSED("pipeline:\n  - {stage: t_source, out: {name: a, depth: 0}}\n  - {stage: t_sink, in: a}\n", 1,
            "depth");
    REFUSED(
        "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: {from: a, policy: sometimes}}\n",
        1, "policy");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: {from: a, history: {seconds: "
            "3}}}\n",
            1, "cannot look at what has passed");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: {from: a, history: 3}}\n", 1,
            "is not a map");
    REFUSED("pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: {from: a, history: {seconds: "
            "0}}}\n",
            1, "out of range");
    REFUSED("pipeline: []\n", 1, "no stages");
    REFUSED("telescope: {}\n", 3, "there is no pipeline", "does not say where its dishes are");
    REFUSED("device: cuda:99\npipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a}\n", 1,
            "test.yaml:1:9", "GPU");
    REFUSED(
        "device: tpu\npipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a, device: cuda:1}\n",
        2, "tpu", "cuda:1");
}

static void test_two_inputs_must_agree(void **state)
{
    (void)state;
    /* No built-in stage has two inputs; the rule is checked where the ports are counted. */
    REFUSED(
        "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_source, name: s, frame_samples: 3, out: b}\n"
        "  - {stage: t_two, in: [a, b]}\n",
        1, "whose frames differ");
}

static void test_plugins(void **state)
{
    (void)state;
    struct br_plugins *plugins;
    struct br_error error = {0};
    const struct br_stage_type *type;
    assert_int_equal(br_plugins_create(&plugins, &error), BR_OK);
    static const struct {
        const char *name, *text;
    } bad[] = {{"t_old", "version 7"},
               {"t_gone", "br_stage_gone; rebuild the plugin against the installed headers"},
               {"t_empty", "is not a beamring plugin"},
               {"t_unknown", "uses a feature that this beamring does not have"},
               {"t_tiny", "expected at least"},
               {"t_deaf", "it is a source and names parameters that can be updated: it must set"},
               {"t_vast", "expected at most"},
               {"t_alias", "somebody_else"},
               {"t_simk", "t_sink"},
               {"../stages/t_sink", "no stage"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (struct br_error){0};
        assert_int_not_equal(br_plugins_find(plugins, bad[i].name, &type, &error), BR_OK);
        if (strstr(error.text, bad[i].text) == NULL) fail_msg("%s: %s", bad[i].name, error.text);
    }
    error = (struct br_error){0};
    assert_int_equal(br_plugins_find(plugins, "t_sink", &type, &error), BR_OK);
    assert_string_equal(type->name, "t_sink");
    assert_int_equal(br_plugins_add(plugins, "/nowhere/at/all", &error), BR_E_IO);
    bool seen = false;
    const char *const *names = br_plugins_names(plugins);
    for (; *names != NULL; names++) seen |= strcmp(*names, "t_source") == 0;
    assert_true(seen);
    br_plugins_destroy(plugins);
}

static int never(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int never_either(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage, (void)self, (void)io;
    return BR_FINISHED;
}

/* One wrong field of a descriptor, one message, with the field that is to blame. */
static void test_descriptors(void **state)
{
    (void)state;
    struct pair {
        int64_t a, b;
    };
    struct own {
        struct br_maps pairs;
        double x;
    };
    static const struct br_param pair[] = {BR_PARAM("b", BR_P_INT, struct pair, b, NULL), {0}};
    static const struct br_param good_params[] = {
        BR_PARAM("pairs", BR_P_MAPS, struct own, pairs, NULL, .fields = pair, .size = sizeof(struct pair)),
        BR_PARAM("x", BR_P_REAL, struct own, x, NULL),
        {0}};
    static const struct br_param choice[] = {{.name = "c", .type = BR_P_CHOICE}, {0}};
    static const struct br_param map[] = {{.name = "m", .type = BR_P_MAP}, {0}};
    static const struct br_param type[] = {{.name = "t", .type = (enum br_param_type)99}, {0}};
    static const struct br_param small[] = {
        BR_PARAM("pairs", BR_P_MAPS, struct own, pairs, NULL, .fields = pair, .size = sizeof(int64_t)), {0}};
    static const struct br_port port[] = {{"in", NULL}, {0}};
    struct br_port many[BR_MAX_PORTS + 2] = {{0}};
    for (size_t i = 0; i <= BR_MAX_PORTS; i++) many[i] = port[0];
    const struct br_stage_type good = {.name = "n",
                                       .summary = "s",
                                       .configure = never,
                                       .process = never_either,
                                       .inputs = port,
                                       .params = good_params,
                                       .size = sizeof(struct own)};
    struct br_stage_type t[11];
    for (size_t i = 0; i < 11; i++) t[i] = good;
    t[0].name = "";
    t[1].summary = NULL;
    t[2].process = NULL;
    t[3].inputs = NULL;
    t[4].flags = 1u << 30;
    t[5].size = sizeof(struct own) - 1;
    t[6].params = choice;
    t[7].params = map;
    t[8].params = type;
    t[9].params = small;
    t[10].outputs = many;
    static const char *const said[] = {"no name",
                                       "no summary",
                                       "process",
                                       "neither inputs nor outputs",
                                       "flags",
                                       "'x' ends at byte 24 of a struct of 23 bytes; set .size",
                                       "'c' has no .choices",
                                       "'m' is a map without .fields",
                                       "'t' has the unknown type 99",
                                       "'b' ends at byte 16 of a struct of 8 bytes; set the map's .size",
                                       "too many ports"};
    struct br_error error = {0};
    assert_int_equal(br_plugin_check(&good, "x.so", &error), BR_OK);
    for (size_t i = 0; i < 11; i++) {
        error = (struct br_error){0};
        assert_int_equal(br_plugin_check(&t[i], "x.so", &error), BR_E_FORMAT);
        if (strstr(error.text, said[i]) == NULL || strstr(error.text, "plugin x.so") == NULL)
            fail_msg("%zu: %s", i, error.text);
    }
}

#define DISHES    "  dishes: [[0, 0], [1, 2]]\n"
#define TELESCOPE "telescope:\n  name: t\n  grid: {m: 2, n: 3}\n  spacing_m: {m: 8.5, n: 6.3}\n" DISHES
#define SMALL     "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a}\n"

/* A plugin built against older headers runs, and reads as zero beyond its end; one built against newer
 * headers runs while it says nothing that this runtime does not know. */
static void test_descriptors_grow(void **state)
{
    (void)state;
    static const char *const names[] = {"t_older", "t_newer"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct test_run run;
        char yaml[128];
        snprintf(yaml, sizeof yaml, "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: %s, in: a}\n",
                 names[i]);
        build_ok(&run, yaml);
        assert_null(stage_called(&run, names[i])->type->memory);
        start_and_finish(&run);
        assert_int_equal(run.status, BR_OK);
        assert_int_equal(totals(&run, names[i]).in_samples, 1000);
        end(&run);
    }
}

/* A pipeline that wants no GPU does not ask whether there is one. */
static void test_cuda_is_not_started(void **state)
{
    (void)state;
    static const struct {
        const char *whole, *own;
        bool asked;
    } cases[] = {{"device: cpu\n", "", false},
                 {"", ", device: cpu", false},
                 {"", "", true},
                 {"device: cpu\n", ", device: auto", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_run run;
        char text[256];
        snprintf(text, sizeof text,
                 "%spipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_either, in: a, out: b%s}\n"
                 "  - {stage: t_sink, in: b}\n",
                 cases[i].whole, cases[i].own);
        build_ok(&run, text);
        assert_int_equal(run.graph->ngpus >= 0, cases[i].asked);
        end(&run);
    }
}

static void test_telescope_and_hints(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(&run, TELESCOPE "  latitude_deg: -30.5\n"
                             "stream: {epoch_ns: 1700000000000000000, sample_ns: 5120/3, freq_mhz: {first: "
                             "800, step: -0.5, count: 3}}\n" SMALL);
    const struct br_telescope *t = run.graph->telescope;
    assert_string_equal(t->name, "t");
    assert_int_equal(t->ndishes, 2);
    assert_int_equal(t->dishes[1].m, 1);
    assert_int_equal(t->dishes[1].n, 2);
    assert_true(t->position[1][0] == 2 * 6.3 && t->position[1][1] == 8.5 && t->position[1][2] == 0);
    assert_true(t->spacing_n_m == 6.3 && t->latitude_deg == -30.5 && !isfinite(t->height_m));
    const struct br_stream_hints *h = &run.graph->hints;
    assert_true(h->have_epoch && h->epoch_ns == 1700000000000000000);
    assert_true(h->sample_ns.num == 5120 && h->sample_ns.den == 3);
    assert_int_equal(h->nfreq, 3);
    assert_true(h->freq_mhz[2] == 799);
    assert_true(!(h->width_mhz > 0)); /* the step is not a width: channels may lie apart */
    assert_int_equal(h->override, 0);
    assert_false(h->have_sample0);
    end(&run);
    REFUSED(TELESCOPE "  dishez: 3\n" SMALL, 1, "dishez", "did you mean 'dishes'");
    REFUSED("telescope:\n  name: t\n  grid: {m: 2, n: 3}\n  spacing_m: {m: 8.5, n: 6.3}\n  dishes: [[0, 0], "
            "[2, 0], [0, 0], [1]]\n" SMALL,
            3, "dish 1 at [2, 0] is outside the grid", "dish 2 is on the same cell [0, 0] as dish 0",
            "test.yaml:5:36");
    REFUSED("stream: {freq_mhz: {first: 1, step: -0.5, count: 3}}\n" SMALL, 1, "positive frequencies");
    REFUSED("stream: {freq_mhz: [400, zebra]}\n" SMALL, 1, "zebra");
    build_ok(&run, "stream: {sample_ns: 5120, width_mhz: 1, override: [sample_ns, width_mhz]}\n" SMALL);
    assert_int_equal(run.graph->hints.override, BR_HINT_SAMPLE | BR_HINT_WIDTH);
    end(&run);
    build_ok(&run, "stream: {sideband: lower, override: [sideband]}\n" SMALL);
    assert_int_equal(run.graph->hints.sideband, BR_SIDEBAND_LOWER);
    assert_int_equal(run.graph->hints.override, BR_HINT_SIDEBAND);
    end(&run);
    REFUSED("stream: {sideband: lsb}\n" SMALL, 1, "lsb", "upper, lower");
    REFUSED("stream: {override: [sideband]}\n" SMALL, 1, "not given");
    REFUSED("stream: {sample_ns: 5120, override: [sample_ns, npol, coding]}\n" SMALL, 2, "'npol'",
            "not given");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_memory),      cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_two_inputs_must_agree), cmocka_unit_test(test_plugins),
        cmocka_unit_test(test_descriptors),           cmocka_unit_test(test_descriptors_grow),
        cmocka_unit_test(test_cuda_is_not_started),   cmocka_unit_test(test_telescope_and_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
