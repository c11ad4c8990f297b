/* Loading YAML: positions, variables, includes, --set, aliases, and what is refused, with its place. */
#include "tests/runtime/config/config_text.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_positions(void **state)
{
    (void)state;
    struct br_config *config = good(parse("# comment\na: 1\nb:\n  - {c: \"x\", \xc3\xa9: 'y'}\n"));
    const struct br_node *root = br_config_root(config);
    assert_int_equal(root->kind, BR_NODE_MAP);
    assert_int_equal(root->count, 2);
    assert_string_equal(root->key[0]->text, "a");
    assert_string_equal(root->item[0]->text, "1");
    assert_false(root->item[0]->quoted);
    assert_int_equal(root->item[0]->line, 2);
    assert_int_equal(root->item[0]->column, 4);
    const struct br_node *map = br_node_get(root, "b")->item[0];
    assert_int_equal(map->line, 4);
    assert_int_equal(map->column, 5);
    assert_true(map->item[0]->quoted);
    /* Columns count characters, not bytes. */
    assert_int_equal(map->key[1]->column, 14);
    assert_int_equal(map->item[1]->column, 17);
    assert_string_equal(map->item[1]->file, "t.yaml");
    assert_null(br_node_get(root, "c"));
    assert_null(br_node_get(root->item[0], "c"));
    assert_null(br_node_get(NULL, "c"));
    br_config_free(config);
}

static void test_syntax(void **state)
{
    (void)state;
    SAYS(parse("a: [1, 2\nb: 3\n"), "t.yaml:2:2: ");
    SAYS(parse("a: {b: 1"), "t.yaml:1:9: ", "expected");
    SAYS(parse("a: b: c\n"), "t.yaml:1:5: ", "quote");
    SAYS(parse("a:\n  - b\n\t- c\n"), "t.yaml:3:1: ", "tabs");
    SAYS(parse("ab: \"\xff\"\n"), "t.yaml:1:6: ", "UTF-8");
    SAYS(parse("x: 1\nab: \x01\n"), "t.yaml:2:5: ", "control");
    SAYS(parse_set("a: 1\0b", 6, 0, NULL), "t.yaml:1:5: ");
    SAYS(parse("a: \"x\\0y\"\n"), "t.yaml:1:4: ", "character 0");
    SAYS(parse("\xff\xfe"
               "a\0:\0 \0b\0"),
         "t.yaml:1:1: ", "UTF-8");
    SAYS(parse("a: 1\n--- \nb: 1\n"), "t.yaml:2:1: ", "one document");
    SAYS(parse("a: *b\n"), "t.yaml:1:4: ", "'*b'");
    SAYS(parse("a: &bem 1\nc: *bam\n"), "t.yaml:2:4: ", "did you mean '*bem'?");
    SAYS(parse("a: &b [1, *b]\n"), "t.yaml:1:11: ", "within");
    SAYS(parse("a: !!int 3\nb: !mine {c: 1}\n"), "t.yaml:1:4: ", "'!!int'", "t.yaml:2:4: ", "'!mine'");
    SAYS(parse("b: &x {c: 1}\na: {<<: *x, d: 2}\n"), "t.yaml:2:5: ", "merge keys");
    SAYS(parse("? [a, b]\n: 1\n"), "t.yaml:1:3: ", "a key is a list");
    SAYS(parse("a: \xee\x80\xa4\n"), "t.yaml:1:4: ", "reserved");
}

/* A request's body is so many bytes, also where one of them is 0. */
static void test_request_with_a_zero(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 1}\0 {\"b\": 2}";
    struct br_config *config;
    struct br_error error = {0};
    for (size_t length = 1; length < sizeof text; length++) {
        char *body = malloc(length); /* so that a sanitizer sees what is read behind it */
        assert_non_null(body);
        memcpy(body, text, length);
        assert_int_equal(br_config_parse_value(&config, "request", body, length, &error), BR_OK);
        assert_int_equal(br_config_errors(config) > 0, length != strlen(text));
        br_config_free(config);
        free(body);
    }
}

static void test_empty(void **state)
{
    (void)state;
    static const char *const nothing[] = {
        "", "\n\n", "# only a comment\n", "---\n", "--- # nothing\n...\n", "\xef\xbb\xbf"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        struct br_config *config = parse(nothing[i]);
        assert_null(br_config_root(config));
        assert_messages(config, "t.yaml:1:1: the file is empty; expected YAML\n");
    }
    br_config_free(good(parse("\xef\xbb\xbf"
                              "a: 1\n"))); /* a byte order mark is not a mistake */
}

static void test_duplicates(void **state)
{
    (void)state;
    assert_messages(parse("a: 1\nb: {c: 1, d: 2, c: 3, c: 4}\na: 2\n"),
                    "t.yaml:2:17: the key 'c' is given twice (first in line 2, column 5); expected it once\n"
                    "t.yaml:2:23: the key 'c' is given twice (first in line 2, column 5); expected it once\n"
                    "t.yaml:3:1: the key 'a' is given twice (first in line 1, column 1); expected it once\n");
}

static void test_aliases(void **state)
{
    (void)state;
    struct br_config *config = good(parse("a: &x {n: [1, 2]}\nb: *x\nc: [*x, *x]\n"));
    assert_string_equal(text_at(config, "b.n.1"), "2");
    assert_string_equal(text_at(config, "c.1.n.0"), "1");
    br_config_free(config);
    /* Setting below one alias leaves the other. */
    const char *const set[] = {"b.n=9"};
    const char *text = "stream: &x {n: 1}\nb: *x\n";
    config = good(parse_set(text, strlen(text), 1, set));
    assert_string_equal(text_at(config, "b.n"), "9");
    assert_string_equal(text_at(config, "stream.n"), "1");
    br_config_free(config);
}

/* Ten aliases of ten aliases of ...: refused before anyone walks the tree. */
static void test_laughs(void **state)
{
    (void)state;
    char text[4096] = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 9; i++) {
        size_t n = strlen(text);
        n += (size_t)snprintf(text + n, sizeof text - n, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "*a%d%s", i - 1, k < 9 ? ", " : "]\n");
    }
    SAYS(parse(text), "t.yaml:6:", "more than 1048576 values");
}

static void test_limits(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(2 * DEEP + 1);
    assert_non_null(text);
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    SAYS(parse(text), "t.yaml:1:65: ", "more than 64");
    memset(text + 64, '\0', 1);
    memset(text, '[', 64);
    SAYS(parse(text), "expected"); /* not closed, but not too deep */
    /* Depth through aliases: 40 levels named, used 40 levels down. */
    size_t n = 0;
    n += (size_t)sprintf(text + n, "a: &a ");
    for (int i = 0; i < 40; i++) text[n++] = '[';
    for (int i = 0; i < 40; i++) text[n++] = ']';
    n += (size_t)sprintf(text + n, "\nb: ");
    for (int i = 0; i < 40; i++) text[n++] = '[';
    n += (size_t)sprintf(text + n, "*a");
    for (int i = 0; i < 40; i++) text[n++] = ']';
    text[n] = '\0';
    SAYS(parse(text), "t.yaml:2:44: ", "more than 64");
    free(text);

    size_t size = (16 << 20) + 1;
    text = malloc(size);
    assert_non_null(text);
    memset(text, ' ', size);
    SAYS(parse_set(text, size, 0, NULL), "t.yaml", "bytes");
    free(text);
}

static void test_many_errors(void **state)
{
    (void)state;
    char text[8000] = "";
    for (int i = 0; i < 300; i++) strcat(text, "a: 1\n");
    struct br_config *config = parse(text);
    assert_int_equal(br_config_errors(config), 299);
    SAYS(config, "t.yaml:2:1: ", "t.yaml:201:1: ", "and 99 more");
}

/* One mistake is one line, in the order of the file whatever the order of finding, without a place at the
 * end. */
static void test_printing(void **state)
{
    (void)state;
    struct br_config *config = good(parse("a: 1\nb: 2\n"));
    const struct br_node *root = br_config_root(config);
    br_config_error(config, NULL, "nowhere %d", 7);
    br_config_error(config, root->item[1], "two\nlines \x1b[31m");
    br_config_error(config, root->item[0], "first");
    br_config_error(config, root->item[0], "first");
    assert_int_equal(br_config_errors(config), 4);
    assert_messages(config, "t.yaml:1:4: first\nt.yaml:2:4: two lines ?[31m\nnowhere 7\n");
}

static void test_variables(void **state)
{
    (void)state;
    setenv("T_WORD", "one, two: [", 1);
    setenv("T_EMPTY", "", 1);
    unsetenv("T_NONE");
    struct br_config *config =
        good(parse("a: ${T_WORD}\nb: {c: ${T_WORD}, d: x${T_NONE:-{1, 2}y, e: \"${T_EMPTY:-\xc3\xa9]}\"}\nf: "
                   "$${T_WORD} $5 ${T_EMPTY}\n"
                   "g: |\n  ${T_WORD}\nh: ${T_EMPTY}\ni: '${T_NONE:-5}'\nj: 'n${T_NONE:-5}' # ${\n"));
    assert_string_equal(text_at(config, "a"), "one, two: ["); /* a value never changes the structure */
    assert_string_equal(text_at(config, "b.c"), "one, two: [");
    assert_string_equal(text_at(config, "b.d"), "x{1, 2y");
    assert_string_equal(text_at(config, "b.e"), "\xc3\xa9]");
    assert_int_equal(br_node_get(br_node_get(br_config_root(config), "b"), "e")->column, 45);
    assert_string_equal(text_at(config, "f"), "${T_WORD} $5 ");
    assert_string_equal(text_at(config, "g"), "one, two: [\n");
    assert_string_equal(text_at(config, "h"), "");
    assert_string_equal(text_at(config, "i"), "5");
    /* Quotes that only hold a reference say nothing about the type. */
    assert_false(br_node_get(br_config_root(config), "i")->quoted);
    assert_true(br_node_get(br_config_root(config), "j")->quoted);
    br_config_free(config);

    assert_messages(
        parse("a: 1\nb: {c: ${T_NONE}, d: 1}\n"),
        "t.yaml:2:8: the environment variable 'T_NONE' is not set; expected a value for it, or a default: "
        "${T_NONE:-value}\n");
    SAYS(parse("a: ${T_WORD\n"), "t.yaml:1:4: ", "begins no reference");
    SAYS(parse("a: \"${}\"\nb: \"${1}\"\nc: \"${A:b}\"\n"), "t.yaml:1:4: ", "t.yaml:2:4: ", "t.yaml:3:4: ");
    SAYS(parse("a: ${T_NONE:-${T_WORD}}\n"), "t.yaml:1:4: ", "do not nest");
    unsetenv("T_WORD");
    unsetenv("T_EMPTY");
}

/* Each reference is short, what they stand for is not. */
static void test_variables_too_long(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    char *value = malloc(size + 1), *text = malloc(1 << 12);
    assert_non_null(value);
    assert_non_null(text);
    memset(value, 'v', size);
    value[size] = '\0';
    setenv("T_LONG", value, 1);
    strcpy(text, "a: \"");
    for (int i = 0; i < 70; i++) strcat(text, "${T_LONG}");
    strcat(text, "\"\n");
    SAYS(parse(text), "t.yaml:1:4: ", "bytes once");
    unsetenv("T_LONG");
    free(value);
    free(text);
}

static void test_set(void **state)
{
    (void)state;
    static const char text[] =
        "telescope: {name: x}\npipeline:\n- {stage: simulate, seed: 1}\n- {stage: up, name: fine}\n";
    const char *const set[] = {
        "telescope.name=y", "simulate.seed=2",     "fine.factor=[1, 2]", "fine.beams.grid=a=b.c",
        "device=cpu",       "stream.coding=chime", "simulate.seed=3",    "telescope.name=\"${T_NONE:-z}\""};
    struct br_config *config = good(parse_set(text, strlen(text), sizeof set / sizeof *set, set));
    assert_string_equal(text_at(config, "telescope.name"), "z");
    assert_string_equal(text_at(config, "pipeline.0.seed"), "3");
    assert_string_equal(text_at(config, "pipeline.0.stage"), "simulate");
    assert_string_equal(text_at(config, "pipeline.1.factor.1"), "2");
    assert_string_equal(text_at(config, "pipeline.1.beams.grid"), "a=b.c");
    assert_string_equal(text_at(config, "device"), "cpu");
    assert_string_equal(text_at(config, "stream.coding"), "chime");
    const struct br_node *seed =
        br_node_get(br_node_get(br_config_root(config), "pipeline")->item[0], "seed");
    assert_string_equal(seed->file, "--set");
    assert_int_equal(seed->line, 7); /* the seventh --set */
    assert_int_equal(seed->column, 15);
    br_config_free(config);

    const char *const bad[] = {"simulat.seed=2", "seed",           "=1",         "simulate.=1",
                               ".seed=1",        "a..b=1",         "simulate=1", "telescope.name.x=1",
                               "fine.factor=[1", "include=x.yaml", "",           "up.factor=3"};
    config = parse_set(text, strlen(text), sizeof bad / sizeof *bad, bad);
    SAYS(config, "--set:1:1: there is no stage 'simulat'", "did you mean 'simulate'?",
         "--set:2:1: ", "--set:3:1: ", "--set:4:1: ", "--set:5:1: ", "--set:6:1: ", "--set:7:1: ",
         "--set:8:16: 'telescope.name' has no keys",
         "--set:9:15: ", "--set:10:1: ", "--set:11:1: ", "--set:12:1: there is no stage 'up'");
    const char *const some[] = {"a=1"};
    SAYS(parse_set("", 0, 1, some), "empty");
    SAYS(parse_set("a: [", 4, 1, some), "t.yaml:1:5: ");
}

/* --- files ------------------------------------------------------------------------------------ */

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct br_config *load(const char *name)
{
    char path[200];
    struct br_config *config = NULL;
    struct br_error error = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(br_config_load(&config, path, 0, NULL, &error), BR_OK);
    assert_non_null(config);
    return config;
}

static int make_folder(void **state)
{
    (void)state;
    char path[200];
    strcpy(folder, "/tmp/beamring-yaml-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/sub", folder);
    return mkdir(path, 0700);
}

static void empty_folder(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(name) != 0) empty_folder(name);
    }
    if (directory != NULL) closedir(directory);
    rmdir(path);
}

static int remove_folder(void **state)
{
    (void)state;
    empty_folder(folder);
    return 0;
}

static void test_include(void **state)
{
    (void)state;
    put("a.yaml", "include: [sub/b.yaml, sub/c.yaml]\nm: {x: a, n: {p: a}}\nl: [a]\n");
    put("sub/b.yaml", "m: {x: b, y: b, n: {q: b}}\nl: [b, b]\ns: b\n");
    put("sub/c.yaml",
        "include: d.yaml\nm: {y: c, z: c}\ns: {t: c}\n"); /* relative to the file that includes it */
    put("sub/d.yaml", "m: {z: d, w: d}\n");
    struct br_config *config = good(load("a.yaml"));
    assert_string_equal(text_at(config, "m.x"), "a"); /* the including file wins */
    assert_string_equal(text_at(config, "m.y"), "c"); /* then the later one of the list */
    assert_string_equal(text_at(config, "m.z"), "c");
    assert_string_equal(text_at(config, "m.w"), "d");
    assert_string_equal(text_at(config, "m.n.p"), "a");
    assert_string_equal(text_at(config, "m.n.q"), "b");
    assert_string_equal(text_at(config, "l.0"), "a"); /* lists do not merge */
    assert_null(text_at(config, "l.1"));
    assert_string_equal(text_at(config, "s.t"), "c");
    assert_null(br_node_get(br_config_root(config), "include"));
    const struct br_node *w = br_node_get(br_node_get(br_config_root(config), "m"), "w");
    assert_non_null(strstr(w->file, "/sub/d.yaml"));
    assert_int_equal(w->line, 1);
    br_config_free(config);
}

static void test_include_search(void **state)
{
    (void)state;
    char sub[100];
    put("sub/found.yaml", "a: 1\n");
    snprintf(sub, sizeof sub, "/no/such/place:%s/sub", folder);
    setenv("BEAMRING_CONFIG_PATH", sub, 1);
    put("s.yaml", "include: ${T_NONE:-found}.yaml\n");
    struct br_config *config = good(load("s.yaml"));
    assert_string_equal(text_at(config, "a"), "1");
    br_config_free(config);
    unsetenv("BEAMRING_CONFIG_PATH");
    SAYS(load("s.yaml"), "s.yaml:1:10: ", "found.yaml", "looked in", folder, "beamring/config");
}

static void test_include_errors(void **state)
{
    (void)state;
    put("x.yaml", "a: 1\ninclude: nowhere.yaml\n");
    SAYS(load("x.yaml"), "x.yaml:2:10: include: there is no file 'nowhere.yaml'");
    put("x.yaml", "include: /no/such/file.yaml\n");
    SAYS(load("x.yaml"), "x.yaml:1:10: ", "/no/such/file.yaml", "No such file");
    put("x.yaml", "include: {a: b}\n");
    SAYS(load("x.yaml"), "x.yaml:1:10: ", "name of a file");
    put("x.yaml", "include: [[a], '', ]\n");
    SAYS(load("x.yaml"), "x.yaml:1:11: ", "x.yaml:1:16: ");
    put("x.yaml", "include: sub/y.yaml\n");
    put("sub/y.yaml", "a: 1\ninclude: ../x.yaml\n");
    SAYS(load("x.yaml"), "y.yaml:2:10: ", "cycle");
    put("x.yaml", "include: x.yaml\n");
    SAYS(load("x.yaml"), "x.yaml:1:10: ", "cycle");
    put("sub/y.yaml", "[a]\n");
    put("x.yaml", "include: sub/y.yaml\n");
    SAYS(load("x.yaml"), "y.yaml:1:1: ", "list", "expected a map");
    put("sub/y.yaml", "");
    SAYS(load("x.yaml"), "y.yaml:1:1: ", "empty");
    /* A mistake in the included file does not hide those of the including one, which come first. */
    put("sub/y.yaml", "b: {c: 1, c: 2}\n");
    put("x.yaml", "include: sub/y.yaml\nd: 1\nd: 2\n");
    struct br_config *config = load("x.yaml");
    char *text = messages(config);
    assert_non_null(strstr(text, "x.yaml:3:1: "));
    assert_non_null(strstr(text, "y.yaml:1:11: "));
    assert_true(strstr(text, "x.yaml:3:1: ") < strstr(text, "y.yaml:1:11: "));
    free(text);
    br_config_free(config);
    put("x.yaml", "include: /dev/zero\n");
    SAYS(load("x.yaml"), "x.yaml:1:10: ", "regular");
    char fifo[100], include[200];
    snprintf(fifo, sizeof fifo, "%s/sub/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(include, sizeof include, "include: %s\n", fifo);
    put("x.yaml", include);
    SAYS(load("x.yaml"), "x.yaml:1:10: ", "regular"); /* and does not wait for a writer */
}

/* Files that include each other in a row, and files that include the next one twice: 2^n loads. */
static void test_include_limits(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "row%d.yaml", i);
        snprintf(text, sizeof text, "include: row%d.yaml\n", i + 1);
        put(name, text);
        snprintf(name, sizeof name, "twice%d.yaml", i);
        snprintf(text, sizeof text, "include: [twice%d.yaml, twice%d.yaml]\n", i + 1, i + 1);
        put(name, i < 12 ? text : "a: 1\n");
    }
    SAYS(load("row0.yaml"), "row16.yaml:1:10: ", "more than 16");
    SAYS(load("twice0.yaml"), "more than 256");
}

static void test_no_file(void **state)
{
    (void)state;
    SAYS(load("missing.yaml"), "missing.yaml", "No such file");
    SAYS(load("sub"), "sub", "directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_request_with_a_zero),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_laughs),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_errors),
        cmocka_unit_test(test_printing),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_variables_too_long),
        cmocka_unit_test(test_set),
        cmocka_unit_test_setup_teardown(test_include, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_include_search, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_include_errors, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_include_limits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
