/* fuzz_yaml.c - any bytes as a pipeline file: no crash, no hang, no leak; what is read obeys the limits and
 * the schema.
 *
 * Lines that begin with "#set " are taken as --set texts too. */
#include "runtime/config/parts.h"

#include "buffers/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MAX_SETS = 4, SET_LENGTH = 128 };

struct item {
    int64_t n;
    double x;
    struct br_strings words;
};
struct stage {
    bool flag;
    int64_t n;
    double x;
    const char *name, *choice, *path;
    struct br_rational rational;
    struct br_ints ints;
    struct br_reals reals;
    struct item *map;
    struct br_maps maps;
};

static const char *const choices[] = {"auto", "block", "drop", NULL};
static const struct br_param item_fields[] = {
    BR_PARAM("n", BR_P_INT, struct item, n, NULL, .required = true, .min = 1, .max = 100),
    BR_PARAM("x", BR_P_REAL, struct item, x, NULL, .def = "0.5", .min = -1, .max = 1),
    BR_PARAM("words", BR_P_STRINGS, struct item, words, NULL, .def = "[a, 'b']"),
    {0},
};
#define FIELD(f) .offset = offsetof(struct stage, f)
static const struct br_param stage_fields[] = {
    {.name = "flag", .type = BR_P_BOOL, FIELD(flag), .def = "false"},
    {.name = "n", .type = BR_P_INT, FIELD(n), .min = -5, .max = 5},
    {.name = "x", .type = BR_P_REAL, FIELD(x)},
    {.name = "name", .type = BR_P_STRING, FIELD(name)},
    {.name = "choice", .type = BR_P_CHOICE, FIELD(choice), .choices = choices},
    {.name = "path", .type = BR_P_PATH, FIELD(path)},
    {.name = "rational", .type = BR_P_RATIONAL, FIELD(rational)},
    {.name = "ints", .type = BR_P_INTS, FIELD(ints), .min = 0, .max = 9, .min_count = 1, .max_count = 4},
    {.name = "reals", .type = BR_P_REALS, FIELD(reals)},
    {.name = "map", .type = BR_P_MAP, FIELD(map), .fields = item_fields, .size = sizeof(struct item)},
    {.name = "maps", .type = BR_P_MAPS, FIELD(maps), .fields = item_fields, .size = sizeof(struct item)},
    {0},
};
static const char *const also[] = {"stage", "in", "out", NULL};

static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    nowhere = fopen("/dev/null", "w");
    if (nowhere == NULL) abort();
    setenv("A", "value", 1);
    setenv("E", "", 1);
    return 0;
}

static void must(bool holds)
{
    if (!holds) abort();
}

static size_t count_nodes(const struct br_node *node, unsigned depth)
{
    size_t nodes = 1;
    must(depth <= BR_CONFIG_MAX_DEPTH + MAX_SETS + 1 && node->file != NULL && node->line > 0 &&
         node->column > 0);
    if (node->kind == BR_NODE_SCALAR) must(node->text != NULL);
    for (size_t i = 0; i < node->count; i++) {
        if (node->kind == BR_NODE_MAP)
            must(node->key[i]->kind == BR_NODE_SCALAR && node->key[i]->text != NULL);
        nodes += count_nodes(node->item[i], depth + 1);
    }
    return nodes;
}

static void check_item(const struct item *item)
{
    must(item->n >= 1 && item->n <= 100 && item->x >= -1 && item->x <= 1);
    for (size_t i = 0; i < item->words.count; i++) must(item->words.value[i] != NULL);
}

static void fill(struct br_config *config, const struct br_node *map)
{
    struct stage s = {0};
    size_t before = br_config_errors(config);
    size_t errors = br_config_fill(config, map, stage_fields, also, &s);
    must(errors == br_config_errors(config) - before);
    if (errors > 0) return;
    must(s.n >= -5 && s.n <= 5 && !isinf(s.x) && s.rational.num >= 0 && s.ints.count <= 4);
    for (size_t i = 0; i < s.ints.count; i++) must(s.ints.value[i] >= 0 && s.ints.value[i] <= 9);
    for (size_t i = 0; i < s.reals.count; i++) must(isfinite(s.reals.value[i]));
    if (s.map != NULL) check_item(s.map);
    for (size_t i = 0; i < s.maps.count; i++) check_item((const struct item *)s.maps.value + i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char set[MAX_SETS][SET_LENGTH];
    const char *sets[MAX_SETS];
    size_t nset = 0;
    for (size_t i = 0; i + 5 < size && nset < MAX_SETS; i++) {
        if (memcmp(data + i, "#set ", 5) != 0 || (i > 0 && data[i - 1] != '\n')) continue;
        size_t n = 0;
        for (i += 5; i < size && data[i] != '\n' && n < SET_LENGTH - 1; i++) set[nset][n++] = (char)data[i];
        set[nset][n] = '\0';
        sets[nset] = set[nset];
        nset++;
    }
    struct br_config *config;
    struct br_error error = {0};
    if (br_config_parse(&config, "fuzz.yaml", (const char *)data, size, nset, sets, &error) != BR_OK)
        return 0;
    const struct br_node *root = br_config_root(config);
    must(root != NULL || br_config_errors(config) > 0);
    if (root != NULL) {
        count_nodes(root, 1);
        fill(config, root);
        const struct br_node *list = br_node_get(root, "pipeline");
        for (size_t i = 0; list != NULL && list->kind == BR_NODE_LIST && i < list->count; i++)
            fill(config, list->item[i]);
    }
    br_config_print_errors(config, nowhere);
    br_config_free(config);
    if (br_config_parse_value(&config, "request", (const char *)data, size, &error) != BR_OK) return 0;
    if (br_config_root(config) != NULL) count_nodes(br_config_root(config), 1);
    br_config_free(config);
    return 0;
}
