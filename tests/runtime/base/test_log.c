/* Messages: text and JSON, lines that are kept, and what is said too often. */
#include "tests/runtime/run/run.h"

#include "buffers/error.h"

#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

static char *printed(FILE *file)
{
    long length = ftell(file);
    char *text = calloc(1, (size_t)length + 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)length, file), length);
    return text;
}

static unsigned lines(const char *text)
{
    unsigned n = 0;
    for (; *text != '\0'; text++) n += *text == '\n';
    return n;
}

static void test_text(void **state)
{
    (void)state;
    struct br_log log;
    FILE *file = tmpfile();
    br_log_init(&log, file, BR_LOG_WARNING);
    br_log(&log, BR_LOG_NOTE, "record", "nobody sees this");
    br_log(&log, BR_LOG_WARNING, "record", "%d of %s", 3, "them");
    br_log(&log, BR_LOG_ERROR, NULL, "no stage");
    char *text = printed(file);
    assert_string_equal(text, "beamring: record: warning: 3 of them\nbeamring: error: no stage\n");
    for (int i = 0; i < BR_LOG_LEVELS; i++) assert_int_equal(atomic_load(&log.messages[i]), 1);
    free(text);
    br_log_destroy(&log);
    fclose(file);
}

static void test_json(void **state)
{
    (void)state;
    struct br_log log;
    FILE *file = tmpfile();
    br_log_init(&log, file, BR_LOG_NOTE);
    log.json = true;
    br_log(&log, BR_LOG_NOTE, "record", "a \"quoted\" line\nand \x01 another");
    br_log(&log, BR_LOG_ERROR, NULL, "%s", "no UTF-8: \xff\xfe");
    char *text = printed(file);
    char *second = strchr(text, '\n') + 1;
    assert_int_equal(lines(text), 2);
    json_t *a = json_loadb(text, (size_t)(second - text), 0, NULL), *b = json_loads(second, 0, NULL);
    assert_non_null(a);
    assert_non_null(b);
    assert_string_equal(json_string_value(json_object_get(a, "stage")), "record");
    assert_string_equal(json_string_value(json_object_get(a, "level")), "note");
    assert_string_equal(json_string_value(json_object_get(a, "message")),
                        "a \"quoted\" line\nand \x01 another");
    assert_true(json_is_null(json_object_get(b, "stage")));
    assert_string_equal(json_string_value(json_object_get(b, "message")), "no UTF-8: ??");
    const char *time = json_string_value(json_object_get(b, "time"));
    assert_int_equal(strlen(time), strlen("2026-11-23T12:00:00.000000Z"));
    assert_int_equal(time[26], 'Z');
    json_decref(a);
    json_decref(b);
    free(text);
    br_log_destroy(&log);
    fclose(file);
}

/* Only some messages of a frequent kind are printed; errors and rare kinds always are. */
static void test_too_often(void **state)
{
    (void)state;
    struct br_log log;
    FILE *file = tmpfile();
    br_log_init(&log, file, BR_LOG_NOTE);
    for (int i = 0; i < 1000; i++) br_log(&log, BR_LOG_WARNING, "capture", "packet %d is late", i);
    for (int i = 0; i < 3; i++) br_log(&log, BR_LOG_WARNING, "other", "packet %d is late", i);
    for (int i = 0; i < 50; i++) br_log(&log, BR_LOG_ERROR, "capture", "broken %d", i);
    char *text = printed(file);
    assert_int_equal(lines(text), LOG_BURST + 3 + 50);
    free(text);
    /* After the window the next one says how many there were. */
    for (int i = 0; i < LOG_KINDS; i++)
        if (log.kind[i].left_out > 0) log.kind[i].since_ns -= (uint64_t)(LOG_WINDOW_S + 1) * 1000000000u;
    rewind(file);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    br_log(&log, BR_LOG_WARNING, "capture", "packet %d is late", 7);
    text = printed(file);
    assert_string_equal(text,
                        "beamring: capture: warning: packet 7 is late (980 more like this were left out)\n");
    assert_int_equal(atomic_load(&log.messages[BR_LOG_WARNING]), 1004);
    free(text);
    br_log_destroy(&log);
    fclose(file);
}

static void test_lines_are_kept(void **state)
{
    (void)state;
    struct br_log log;
    struct br_log_line line;
    FILE *file = tmpfile();
    br_log_init(&log, file, BR_LOG_ERROR);
    br_log(&log, BR_LOG_NOTE, "a", "not kept yet");
    assert_int_equal(br_log_keep(&log, 4), BR_OK);
    assert_false(br_log_get(&log, 0, &line));
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    for (int i = 0; i < 6; i++) br_log(&log, BR_LOG_NOTE, i % 2 ? "odd" : NULL, "line %d", i);
    br_log(&log, BR_LOG_WARNING, "long", "%s", long_text);
    for (uint64_t i = 0; i < 3; i++) assert_false(br_log_get(&log, i, &line));
    assert_true(br_log_get(&log, 3, &line));
    assert_string_equal(line.text, "line 3");
    assert_string_equal(line.who, "odd");
    assert_true(br_log_get(&log, 4, &line));
    assert_string_equal(line.who, "");
    assert_int_equal(line.level, BR_LOG_NOTE);
    assert_true(br_log_get(&log, 6, &line));
    assert_int_equal(strlen(line.text), LOG_TEXT - 1);
    assert_int_equal(line.level, BR_LOG_WARNING);
    assert_false(br_log_get(&log, 7, &line));
    br_log_destroy(&log);
    fclose(file);
}

/* The memory of all lines is resident from the start, not a page at a time as lines come. */
static void test_memory_is_there(void **state)
{
    (void)state;
    enum { LINES = 1000 };
    struct br_log log;
    br_log_init(&log, stderr, BR_LOG_ERROR);
    assert_int_equal(br_log_keep(&log, LINES), BR_OK);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (size_t)log.slot / page * page,
           end = (size_t)(log.slot + LINES), pages = (end - first + page - 1) / page, missing = 0;
    unsigned char resident[LINES]; /* a line is shorter than a page */
    assert_true(pages < LINES);
    assert_int_equal(mincore((void *)first, end - first, resident), 0);
    for (size_t i = 0; i < pages; i++) missing += (resident[i] & 1) == 0;
    assert_int_equal(missing, 0);
    br_log_destroy(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text), cmocka_unit_test(test_json), cmocka_unit_test(test_too_often),
        cmocka_unit_test(test_lines_are_kept), cmocka_unit_test(test_memory_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
