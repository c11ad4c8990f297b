/* Answers of several stages as one. */
#include "runtime/control/joined.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *join(const char *const *text, const char *before, const char *behind)
{
    struct joined *joined = joined_begin();
    for (size_t i = 0; text[i] != NULL; i++) {
        char *copy = strdup(text[i]);
        if (!joined_add(joined, copy)) free(copy);
    }
    char *result = joined_count(joined) > 0 ? joined_text(joined, before, behind) : NULL;
    joined_free(joined);
    return result;
}

#define JOIN(...) join((const char *const[]){__VA_ARGS__, NULL}, "", "")

/* The same value as `expected`, whatever the spaces. */
static void check(char *text, const char *expected)
{
    json_t *got = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *wanted = json_loads(expected, 0, NULL);
    if (got == NULL || !json_equal(got, wanted)) fail_msg("%s, expected %s", text, expected);
    json_decref(got);
    json_decref(wanted);
    free(text);
}

static void test_lists(void **state)
{
    (void)state;
    check(JOIN("[1, {\"a\": [2]}]", "[ ]", "[\n \"]\", \"\\\"\"\n]"), "[1, {\"a\": [2]}, \"]\", \"\\\"\"]");
    check(JOIN("[]", "[]"), "[]");
    check(JOIN("[]", "[1]"), "[1]");
    check(join((const char *const[]){"[1]", "[2]", NULL}, "{\"all\": ", "}"), "{\"all\": [1, 2]}");
}

static void test_objects(void **state)
{
    (void)state;
    check(JOIN("{\"b\": [1, \"x,}\"], \"a\": 2}", "{ \"b\" :[ {\"c\": {}} ] , \"\\\"\\\\\": null}", "{}"),
          "{\"a\": 2, \"b\": [1, \"x,}\", {\"c\": {}}], \"\\\"\\\\\": null}");
    check(JOIN("{\"a\": 1}", "{\"a\": [2]}"), "{\"a\": [2]}");
    check(JOIN("{\"a\": [1]}", "{\"a\": {\"x\": 2}}", "{\"ab\": 3, \"\": 4}"),
          "{\"a\": {\"x\": 2}, \"ab\": 3, \"\": 4}");
    check(JOIN("{\"a\": []}", "{\"a\": []}", "{\"a\": [ 5 ]}"), "{\"a\": [5]}");
}

/* One answer stays as it is, letter by letter; what is neither list nor object, or of another kind than the
 * first one, is not taken; an object that ends nowhere is not read beyond its end. */
static void test_strange_ones(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\" 1}", "{\"a\": 1, }", "{\"a\": \"}",
                                      "{\"a\\}",   "{\"a\": [[1}", "{a}"};
    char *one = JOIN("{ \"b\":1,\"a\" :2 }", "[1]", "7", "", "{", "[}");
    assert_string_equal(one, "{ \"b\":1,\"a\" :2 }");
    free(one);
    assert_null(JOIN("7", "\"x\""));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) free(JOIN(bad[i], "{\"c\": 1}"));
    assert_null(JOIN("{a}", "{}"));
    assert_null(JOIN("{\"a\" 1}", "{}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_objects),
                                       cmocka_unit_test(test_strange_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
