/* Filling a struct by a schema: every type, every refusal with its place and its suggestion, defaults,
 * lifetimes. */
#include "tests/runtime/config/config_text.h"

#include "buffers/stream.h"

#include <math.h>

struct point {
    double x, y;
};
struct zone {
    int64_t channels, factor;
    struct br_ints list;
    struct point *at;
};

struct all {
    bool flag;
    int64_t whole;
    double real;
    const char *text, *choice, *path;
    struct br_rational rational;
    struct br_ints ints;
    struct br_reals reals;
    struct br_strings strings;
    struct zone *map;
    struct br_maps maps;
};

static const char *const choices[] = {"fast", "slow", "nearest", NULL};
static const struct br_param point_fields[] = {
    BR_PARAM("x", BR_P_REAL, struct point, x, "east", .required = true),
    BR_PARAM("y", BR_P_REAL, struct point, y, NULL, .def = "-0.5"),
    {0},
};
static const struct br_param zone_fields[] = {
    BR_PARAM("channels", BR_P_INT, struct zone, channels, NULL, .required = true, .min = 1, .max = 1024),
    BR_PARAM("factor", BR_P_INT, struct zone, factor, NULL, .def = "1", .min = 1, .max = 128),
    BR_PARAM("list", BR_P_INTS, struct zone, list, NULL, .def = "[7, 8]"),
    BR_PARAM("at", BR_P_MAP, struct zone, at, NULL, .fields = point_fields, .size = sizeof(struct point)),
    {0},
};
#define FIELD(f) .offset = offsetof(struct all, f)
static const struct br_param schema[] = {
    {.name = "flag", .type = BR_P_BOOL, FIELD(flag)},
    {.name = "whole", .type = BR_P_INT, FIELD(whole), .min = -10, .max = 100, .unit = "samples"},
    {.name = "real", .type = BR_P_REAL, FIELD(real), .min = 0, .max = 1.5, .unit = "MHz"},
    {.name = "text", .type = BR_P_STRING, FIELD(text)},
    {.name = "choice", .type = BR_P_CHOICE, FIELD(choice), .choices = choices},
    {.name = "path", .type = BR_P_PATH, FIELD(path)},
    {.name = "rational", .type = BR_P_RATIONAL, FIELD(rational)},
    {.name = "ints", .type = BR_P_INTS, FIELD(ints), .min = 0, .max = 65535, .min_count = 1, .max_count = 3},
    {.name = "reals", .type = BR_P_REALS, FIELD(reals)},
    {.name = "strings", .type = BR_P_STRINGS, FIELD(strings), .min_count = 2, .max_count = 2},
    {.name = "map", .type = BR_P_MAP, FIELD(map), .fields = zone_fields, .size = sizeof(struct zone)},
    {.name = "maps", .type = BR_P_MAPS, FIELD(maps), .fields = zone_fields, .size = sizeof(struct zone)},
    {0},
};

/* Fills from a text; the config has the errors. */
static struct br_config *fill(const char *text, struct all *all)
{
    struct br_config *config = good(parse(text));
    *all = (struct all){0};
    size_t n = br_config_fill(config, br_config_root(config), schema, NULL, all);
    assert_int_equal(n, br_config_errors(config));
    return config;
}

static void test_all_types(void **state)
{
    (void)state;
    struct all a;
    struct br_config *config = good(fill("flag: true\nwhole: -10\nreal: 1.5\ntext: \"5\"\nchoice: "
                                         "slow\npath: a/b c\nrational: 5120/3\nints: [0, 65535, 1e3]\n"
                                         "reals: [1, -2.5e-3, .5]\nstrings: [\"\", x]\nmap: {channels: 4, "
                                         "at: {x: 1}}\nmaps: [{channels: 1}, {channels: 2, "
                                         "factor: 64, list: 9}]\n",
                                         &a));
    assert_true(a.flag);
    assert_int_equal(a.whole, -10);
    assert_true(a.real == 1.5);
    assert_string_equal(a.text, "5");
    assert_string_equal(a.choice, "slow");
    assert_string_equal(a.path, "a/b c");
    assert_int_equal(a.rational.num, 5120);
    assert_int_equal(a.rational.den, 3);
    assert_int_equal(a.ints.count, 3);
    assert_int_equal(a.ints.value[1], 65535);
    assert_int_equal(a.ints.value[2], 1000);
    assert_int_equal(a.reals.count, 3);
    assert_true(a.reals.value[1] == -2.5e-3 && a.reals.value[2] == 0.5);
    assert_int_equal(a.strings.count, 2);
    assert_string_equal(a.strings.value[0], "");
    assert_string_equal(a.strings.value[1], "x");
    assert_int_equal(a.map->channels, 4);
    assert_int_equal(a.map->factor, 1);
    assert_int_equal(a.map->list.count, 2);
    assert_int_equal(a.map->list.value[1], 8);
    assert_true(a.map->at->x == 1 && a.map->at->y == -0.5);
    const struct zone *zone = a.maps.value;
    assert_int_equal(a.maps.count, 2);
    assert_int_equal(zone[0].channels, 1);
    assert_null(zone[0].at);
    assert_int_equal(zone[1].factor, 64);
    assert_int_equal(zone[1].list.count, 1); /* a single value is a list of one */
    assert_int_equal(zone[1].list.value[0], 9);
    br_config_free(config);
}

static void test_absent(void **state)
{
    (void)state;
    struct all a;
    struct br_config *config = good(fill("{}\n", &a));
    assert_true(isnan(a.real));
    assert_false(a.flag);
    assert_null(a.text);
    assert_null(a.choice);
    assert_null(a.map);
    assert_int_equal(a.whole, 0);
    assert_int_equal(a.rational.num, 0);
    assert_int_equal(a.rational.den, 0);
    assert_int_equal(a.ints.count, 0);
    assert_int_equal(a.maps.count, 0);
    /* No map at all is a map with nothing in it. */
    struct point p = {0};
    assert_int_equal(br_config_fill(config, NULL, point_fields + 1, NULL, &p), 0);
    assert_true(p.y == -0.5);
    assert_int_equal(br_config_fill(config, NULL, point_fields, NULL, &p), 1);
    assert_messages(config, "'x' is missing; expected a number (east)\n");
}

/* Filled-in values stay when more are filled in, and go with the config. */
static void test_lifetime(void **state)
{
    (void)state;
    struct br_config *config = good(parse("a: {ints: [1, 2, 3], text: word, maps: [{channels: 3}]}\n"));
    struct all first = {0}, more;
    const struct br_node *map = br_node_get(br_config_root(config), "a");
    assert_int_equal(br_config_fill(config, map, schema, NULL, &first), 0);
    for (int i = 0; i < 2000; i++) {
        more = (struct all){0};
        assert_int_equal(br_config_fill(config, map, schema, NULL, &more), 0);
    }
    assert_int_equal(first.ints.value[2], 3);
    assert_string_equal(first.text, "word");
    assert_int_equal(((const struct zone *)first.maps.value)[0].list.value[0], 7);
    unsigned char *zeros = br_config_alloc(config, 300000);
    for (size_t i = 0; i < 300000; i++) assert_int_equal(zeros[i], 0);
    memset(zeros, 1, 300000);
    assert_int_equal((uintptr_t)br_config_alloc(config, 1) % 16, 0);
    assert_non_null(br_config_alloc(config, 0));
    br_config_free(config);
}

/* Each text has one mistake: these words say it, at this place. */
static const struct {
    const char *text, *message;
} mistakes[] = {
    {"flag: yes", "1:7: flag: 'yes' is neither; expected true or false; did you mean 'true'?"},
    {"flag: 0", "1:7: flag: '0' is neither; expected true or false; did you mean 'false'?"},
    {"flag: \"true\"", "1:7: flag: 'true' is in quotes, so it is a text; expected true or false"},
    {"flag: [true]", "1:7: flag: a list of 1 is not a single value; expected true or false"},
    {"whole: many",
     "1:8: whole: 'many' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 101", "1:8: whole: '101' is out of range; expected a whole number from -10 to 100 samples"},
    {"whole: -11", "1:8: whole: '-11' is out of range; expected a whole number from -10 to 100 samples"},
    {"whole: 1.5",
     "1:8: whole: '1.5' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 1 2",
     "1:8: whole: '1 2' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 0xg",
     "1:8: whole: '0xg' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 0x65", "1:8: whole: '0x65' is out of range; expected a whole number from -10 to 100 samples"},
    {"whole: 010", "1:8: whole: '010' begins with 0, which some read as octal; expected a whole number "
                   "from -10 to 100 samples"},
    {"whole: '5'",
     "1:8: whole: '5' is in quotes, so it is a text; expected a whole number from -10 to 100 samples"},
    {"whole: 99999999999999999999",
     "1:8: whole: '99999999999999999999' does not fit into 64 bits; expected a whole number "
     "from -10 to 100 samples"},
    {"whole: 1e300",
     "1:8: whole: '1e300' does not fit into 64 bits; expected a whole number from -10 to 100 samples"},
    {"whole: 9.3e18",
     "1:8: whole: '9.3e18' does not fit into 64 bits; expected a whole number from -10 to 100 samples"},
    {"whole: 1.25e1",
     "1:8: whole: '1.25e1' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 5e-1",
     "1:8: whole: '5e-1' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: 9e18", "1:8: whole: '9e18' is out of range; expected a whole number from -10 to 100 samples"},
    {"whole: +", "1:8: whole: '+' is not a whole number; expected a whole number from -10 to 100 samples"},
    {"whole: {a: 1}",
     "1:8: whole: a map is not a single value; expected a whole number from -10 to 100 samples"},
    {"whole:", "1:7: whole: '' is not a value (leave the key out for its default); expected a whole number "
               "from -10 to 100 "
               "samples"},
    {"real: ~", "1:7: real: '~' is not a value (leave the key out for its default); expected a number from "
                "0 to 1.5 MHz"},
    {"real: 1.51", "1:7: real: '1.51' is out of range; expected a number from 0 to 1.5 MHz"},
    {"real: -1e-9", "1:7: real: '-1e-9' is out of range; expected a number from 0 to 1.5 MHz"},
    {"real: nan", "1:7: real: 'nan' is not a number; expected a number from 0 to 1.5 MHz"},
    {"real: .inf", "1:7: real: '.inf' is not a number; expected a number from 0 to 1.5 MHz"},
    {"real: 1e999", "1:7: real: '1e999' is too large; expected a number from 0 to 1.5 MHz"},
    {"real: 1..2", "1:7: real: '1..2' is not a number; expected a number from 0 to 1.5 MHz"},
    {"real: e", "1:7: real: 'e' is not a number; expected a number from 0 to 1.5 MHz"},
    {"text: [a]", "1:7: text: a list of 1 is not a single value; expected a text"},
    {"text: null", "1:7: text: 'null' is not a value (leave the key out for its default); expected a text"},
    {"path: ''", "1:7: path: '' is empty; expected a path"},
    {"choice: quick", "1:9: choice: 'quick' is not a choice; expected one of fast, slow, nearest"},
    {"choice: faster",
     "1:9: choice: 'faster' is not a choice; expected one of fast, slow, nearest; did you mean 'fast'?"},
    {"rational: 1/0", "1:11: rational: '1/0' is not a positive fraction; expected a positive number or "
                      "fraction such as 2560 or "
                      "5120/3"},
    {"rational: -5", "1:11: rational: '-5' is not a positive fraction; expected a positive number or "
                     "fraction such as 2560 or "
                     "5120/3"},
    {"ints: []", "1:7: ints: a list of 0 has 0 items; expected a list of 1 to 3 items, each a whole "
                 "number from 0 to 65535"},
    {"ints: [1, 2, 3, 4]",
     "1:7: ints: a list of 4 has 4 items; expected a list of 1 to 3 items, each a whole number from 0 "
     "to 65535"},
    {"ints: [1, x]", "1:11: ints[1]: 'x' is not a whole number; expected a whole number from 0 to 65535"},
    {"ints: [1, [2]]",
     "1:11: ints[1]: a list of 1 is not a single value; expected a list of 1 to 3 items, each a whole "
     "number from 0 to 65535"},
    {"ints: -1", "1:7: ints: '-1' is out of range; expected a whole number from 0 to 65535"},
    {"ints: {a: 1}", "1:7: ints: a map is not a list; expected a list of 1 to 3 items, each a whole "
                     "number from 0 to 65535"},
    {"reals: ", "1:7: reals: '' is not a value (leave the key out for its default); expected a number"},
    {"strings: a", "1:10: strings: 'a' has 1 item; expected a list of 2 items, each a text"},
    {"map: 5", "1:6: map: '5' is not a map; expected a map with channels, factor, list, at"},
    {"map: {channels: 5, at: {x: a}}", "1:28: map.at.x: 'a' is not a number; expected a number"},
    {"map: {channels: 5, fcator: 2}",
     "1:20: unknown key 'fcator' in 'map'; expected one of channels, factor, list, at; did "
     "you mean 'factor'?"},
    {"map: {factor: 5}", "1:6: 'map.channels' is missing; expected a whole number from 1 to 1024"},
    {"maps: {channels: 5}",
     "1:7: maps: a map is not a list; expected a list of items, each a map with channels, factor, "
     "list, at"},
    {"maps: [{channels: 5}, {channels: 5, factor: 0}]",
     "1:45: maps[1].factor: '0' is out of range; expected a whole number "
     "from 1 to 128"},
    {"maps: [{channels: 5}, 7]",
     "1:23: maps[1]: '7' is not a map; expected a map with channels, factor, list, at"},
    {"xyzzy: 1", "1:1: unknown key 'xyzzy'; expected one of flag, whole, real, text, choice, path, "
                 "rational, ints, reals, "
                 "strings, map, maps"},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct all a;
        char expected[600];
        struct br_config *config = fill(mistakes[i].text, &a);
        snprintf(expected, sizeof expected, "t.yaml:%s\n", mistakes[i].message);
        assert_messages(config, expected);
    }
}

/* In whatever form they are written: no digit is lost, up to the last number of 64 bits. */
static void test_exact_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"9e18", 9000000000000000000},
                 {"9223372036854775807", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN},
                 {"9.223372036854775807e18", INT64_MAX},
                 {"-9.223372036854775808E+18", INT64_MIN},
                 {"9007199254740993.0", 9007199254740993},
                 {"90071992547409930e-1", 9007199254740993},
                 {"1234567890123456789.000", 1234567890123456789},
                 {"0.0000e5", 0},
                 {"0e99", 0},
                 {"-.5e1", -5},
                 {"1700000000123456789", 1700000000123456789}};
    static const struct br_param any[] = {{"n", BR_P_INT, 0, .min = -9.3e18, .max = 9.3e18}, {0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        int64_t value = -1;
        struct br_config *config;
        struct br_error error = {0};
        snprintf(text, sizeof text, "n: %s", cases[i].text);
        assert_int_equal(br_config_parse(&config, "t.yaml", text, strlen(text), 0, NULL, &error), BR_OK);
        if (br_config_fill(config, br_config_root(config), any, NULL, &value) > 0 || value != cases[i].value)
            fail_msg("%s: %lld", text, (long long)value);
        br_config_free(config);
    }
}

static void test_all_at_once(void **state)
{
    (void)state;
    struct all a;
    struct br_config *config =
        fill("hole: 3\nreal: 7\nmaps:\n  - {factor: 0}\n  - {channels: x, factr: 2}\nflag: maybe\n", &a);
    assert_int_equal(br_config_errors(config), 7);
    SAYS(config, "t.yaml:1:1: unknown key 'hole'", "did you mean 'whole'?",
         "t.yaml:2:7: ", "t.yaml:4:5: 'maps[0].channels' is missing",
         "t.yaml:4:14: ", "t.yaml:5:16: ", "t.yaml:5:19: ", "t.yaml:6:7: ");
}

/* Two schemas share a map: each allows the other's keys, and suggests them. */
static void test_also(void **state)
{
    (void)state;
    static const char *const also[] = {"stage", "name", NULL};
    struct br_config *config = good(parse("stage: a\nname: b\nx: 1\n"));
    struct point p = {0};
    assert_int_equal(br_config_fill(config, br_config_root(config), point_fields, also, &p), 0);
    br_config_free(config);
    config = good(parse("stag: a\nx: 1\n"));
    assert_int_equal(br_config_fill(config, br_config_root(config), point_fields, also, &p), 1);
    assert_messages(
        config, "t.yaml:1:1: unknown key 'stag'; expected one of x, y, stage, name; did you mean 'stage'?\n");
    config = good(parse("[1, 2]\n"));
    assert_int_equal(br_config_fill(config, br_config_root(config), point_fields, also, &p), 1);
    assert_messages(config, "t.yaml:1:1: a list of 2 is not a map; expected a map with x, y\n");
}

/* Defaults go through the same checks: a schema that contradicts itself is found by its first use. */
static void test_defaults(void **state)
{
    (void)state;
    struct texts {
        const char *plain, *quoted, *empty;
        struct br_reals pair;
        struct point *point;
        struct br_maps none;
    };
    static const struct br_param defaults[] = {
        BR_PARAM("plain", BR_P_STRING, struct texts, plain, NULL, .def = "some words"),
        BR_PARAM("quoted", BR_P_PATH, struct texts, quoted, NULL, .def = "'*.dada'"),
        BR_PARAM("empty", BR_P_STRING, struct texts, empty, NULL, .def = "\"\""),
        BR_PARAM("pair", BR_P_REALS, struct texts, pair, NULL, .def = "[0, 1]", .min_count = 2,
                 .max_count = 2),
        BR_PARAM("point", BR_P_MAP, struct texts, point, NULL, .def = "{x: 3}", .fields = point_fields,
                 .size = sizeof(struct point)),
        BR_PARAM("none", BR_P_MAPS, struct texts, none, NULL, .def = "[]", .fields = point_fields,
                 .size = sizeof(struct point)),
        {0},
    };
    struct texts t = {0};
    struct br_config *config = good(parse("{}\n"));
    assert_int_equal(br_config_fill(config, br_config_root(config), defaults, NULL, &t), 0);
    assert_string_equal(t.plain, "some words");
    assert_string_equal(t.quoted, "*.dada");
    assert_string_equal(t.empty, "");
    assert_int_equal(t.pair.count, 2);
    assert_true(t.pair.value[1] == 1);
    assert_true(t.point->x == 3 && t.point->y == -0.5);
    assert_int_equal(t.none.count, 0);
    br_config_free(config);

    static const struct br_param broken[] = {
        {.name = "n", .type = BR_P_INT, .offset = 0, .def = "5", .min = 0, .max = 4},
        {.name = "m", .type = BR_P_INT, .offset = 8, .def = "[", .min = 0, .max = 4},
        {0},
    };
    int64_t two[2] = {0};
    config = good(parse("\n{}\n"));
    assert_true(br_config_fill(config, br_config_root(config), broken, NULL, two) >= 2);
    SAYS(config, "t.yaml:2:1: n: the default '5' is out of range; expected a whole number from 0 to 4",
         "m: the schema's default '['");
}

/* Lists of pairs: all numbers in one row, the counts are those of pairs. */
static void test_groups(void **state)
{
    (void)state;
    struct pairs {
        struct br_reals reals;
        struct br_ints ints;
    };
    static const struct br_param fields[] = {
        BR_PARAM("reals", BR_P_REALS, struct pairs, reals, NULL, .group = 2, .min = -1, .max = 9),
        BR_PARAM("ints", BR_P_INTS, struct pairs, ints, NULL, .group = 3, .max_count = 1),
        {0},
    };
    struct pairs p = {0};
    struct br_config *config = good(parse("reals: [[1, 2], [3, 4.5], [-1, 0]]\nints: [[7, 8, 9]]\n"));
    assert_int_equal(br_config_fill(config, br_config_root(config), fields, NULL, &p), 0);
    assert_int_equal(p.reals.count, 6);
    assert_true(p.reals.value[3] == 4.5 && p.reals.value[4] == -1);
    assert_int_equal(p.ints.count, 3);
    assert_int_equal(p.ints.value[2], 9);
    br_config_free(config);
    config = good(parse("reals: [[1, 2], [3], 4, [5, 6, 7], [1, 10]]\nints: [[1, 2, 3], [4, 5, 6]]\n"));
    assert_int_equal(br_config_fill(config, br_config_root(config), fields, NULL, &p), 5);
    SAYS(config,
         "t.yaml:1:17: reals[1]: ", "t.yaml:1:22: reals[2]: '4' does not fit; expected a list of 2 numbers",
         "t.yaml:1:25: reals[3]: ", "t.yaml:1:40: reals[4]: '10' is out of range", "t.yaml:2:7: ints: ");
}

/* Values too long to show and too many keys to list still make one line. */
static void test_long(void **state)
{
    (void)state;
    char text[5000];
    struct all a;
    strcpy(text, "whole: ");
    memset(text + 7, 'x', 4000);
    text[4007] = '\0';
    struct br_config *config = fill(text, &a);
    char *said = messages(config);
    assert_non_null(strstr(said, "xxx...'"));
    assert_true(strlen(said) < 300);
    free(said);
    br_config_free(config);
    memset(text, 'a', 1000); /* YAML allows no longer ones */
    strcpy(text + 1000, ": 1");
    config = fill(text, &a);
    said = messages(config);
    assert_true(strlen(said) < 600 && strstr(said, "unknown key") != NULL);
    free(said);
    br_config_free(config);
}

static void test_suggest(void **state)
{
    (void)state;
    static const char *const names[] = {"upchannelize", "factor",   "downsample", "in",
                                        "out",          "frb_grid", "frb_beams",  NULL};
    static const struct {
        const char *word, *name;
    } cases[] = {
        {"upchanelize", "upchannelize"},
        {"factr", "factor"},
        {"Factor", "factor"},
        {"fcator", "factor"},
        {"down", "downsample"},
        {"ou", "out"},
        {"frb-grid", "frb_grid"},
        {"frb_beam", "frb_beams"},
        {"x", NULL},
        {"", NULL},
        {"spectrum", NULL},
        {"xyz", NULL},
        {"downsampledownsampledownsampledownsampledownsample", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = br_suggest(cases[i].word, names);
        if (cases[i].name == NULL)
            assert_null(name);
        else
            assert_string_equal(name != NULL ? name : "(none)", cases[i].name);
    }
    static const char *const none[] = {NULL};
    assert_null(br_suggest("a", none));
    assert_null(br_suggest("a", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types),      cmocka_unit_test(test_absent),
        cmocka_unit_test(test_lifetime),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_exact_integers), cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_also),           cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_long),           cmocka_unit_test(test_suggest),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
