/* test_positions.c - `telescope: positions_m`: lists, tables in either system of axes, and mistakes. */
#include "runtime/graph/positions.h"
#include "tests/runtime/run/run.h"

#include <math.h>
#include <unistd.h>

#define SMALL "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, in: a}\n"
#define GRID  ", grid: {m: 2, n: 3}, spacing_m: {m: 8.5, n: 6.3}, dishes: [[0, 0], [1, 2]]"

static char table[64];

/* Writes a table; returns a pipeline that reads it, with more keys of `telescope:`. */
static const char *with_table(const char *more, const char *text)
{
    static char yaml[1024];
    FILE *file = fopen(table, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    snprintf(yaml, sizeof yaml, "telescope: {name: t, positions_m: %s%s}\n" SMALL, table, more);
    return yaml;
}

/* Everything that is printed of mistakes, or logged. */
static void printed(struct test_run *run, char *text, size_t size)
{
    FILE *file = tmpfile();
    br_config_print_errors(run->config, file);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    size_t used = strlen(text);
    fflush(run->log_file);
    rewind(run->log_file);
    text[used + fread(text + used, 1, size - 1 - used, run->log_file)] = '\0';
}

static void says(const char *yaml, size_t mistakes, const char *words)
{
    struct test_run run;
    char text[8192];
    build(&run, yaml);
    printed(&run, text, sizeof text);
    if (br_config_errors(run.config) != mistakes || strstr(text, words) == NULL)
        fail_msg("%zu mistakes, expected %zu and '%s':\n%s\n%s", br_config_errors(run.config), mistakes,
                 words, text, yaml);
    end(&run);
}

static void test_list(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(
        &run,
        "telescope: {name: roof, height_m: 1222.5, positions_m: [[1.5, -2, 0.25], [30, 4, -1]]}\n" SMALL);
    const struct br_telescope *t = run.graph->telescope;
    assert_int_equal(t->ndishes, 2);
    assert_true(t->dishes == NULL && t->grid_m == 0 && t->grid_n == 0 && isnan(t->spacing_m_m));
    assert_true(t->position[0][0] == 1.5 && t->position[0][1] == -2 && t->position[0][2] == 0.25);
    assert_true(t->position[1][0] == 30 && t->height_m == 1222.5 && isnan(t->latitude_deg));
    end(&run);
    /* measured places of dishes that have cells too */
    build_ok(&run, "telescope: {name: t" GRID ", positions_m: [[0, 0, 0.1], [12.5, 8.6, 0]]}\n" SMALL);
    t = run.graph->telescope;
    assert_true(t->dishes[1].n == 2 && t->grid_n == 3 && t->position[1][0] == 12.5 &&
                t->position[0][2] == 0.1);
    end(&run);
}

static void test_table(void **state)
{
    (void)state;
    struct test_run run;
    build_ok(
        &run,
        with_table("",
                   "# a roof\n\nname, up , cable_ns,east,north\r\na1,0.5,13,-7.25,1e1\r\n b7 , 1, 2,3,4\n"));
    const struct br_telescope *t = run.graph->telescope;
    assert_int_equal(t->ndishes, 2);
    assert_true(t->position[0][0] == -7.25 && t->position[0][1] == 10 && t->position[0][2] == 0.5);
    assert_true(t->position[1][0] == 3 && t->position[1][1] == 4 && t->position[1][2] == 1);
    end(&run);
}

/* Coordinates by astropy (EarthLocation.from_geodetic): the first point is 1200 m up at latitude 37.2 and
 * longitude -118.3 degrees, the second is 100 m above it, the third at latitude 37.201. */
static void test_earth(void **state)
{
    (void)state;
    static const char text[] = "x_m,y_m,z_m\n"
                               "-2411952.3100945405,-4479481.552706769,3835821.766113744\n"
                               "-2411990.072638769,-4479551.68536219,3835882.2260252303\n"
                               "-2411920.4927582177,-4479422.461500647,3835910.182219034\n";
    struct test_run run;
    build_ok(&run, with_table("", "\xEF\xBB\xBF"
                                  "east,north,up\r\n1,2,3\r\n4,5,6\r\n"));
    assert_int_equal(run.graph->telescope->ndishes, 2);
    end(&run);
    build_ok(&run, with_table(", latitude_deg: 37.2, longitude_deg: -118.3, height_m: 1200", text));
    const struct br_telescope *t = run.graph->telescope;
    for (int k = 0; k < 3; k++) assert_true(fabs(t->position[0][k]) < 1e-6);
    assert_true(fabs(t->position[1][0]) < 1e-6 && fabs(t->position[1][1]) < 1e-6);
    assert_true(fabs(t->position[1][2] - 100) < 1e-6);
    assert_true(fabs(t->position[2][1] - 110.99) < 0.02 && fabs(t->position[2][0]) < 1e-6);
    assert_true(fabs(t->position[2][2] + 0.00097) < 1e-4); /* the Earth is round */
    end(&run);
    /* a site that is not given is the mean of the dishes */
    build_ok(&run, with_table("", text));
    t = run.graph->telescope;
    double sum[3] = {0};
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 3; k++) sum[k] += t->position[d][k];
    for (int k = 0; k < 3; k++) assert_true(fabs(sum[k]) < 1e-5);
    assert_true(fabs(t->latitude_deg - 37.200333) < 1e-5 && fabs(t->longitude_deg + 118.3) < 1e-9);
    assert_true(fabs(t->height_m - 1233.333) < 0.01);
    assert_true(fabs(t->position[1][2] - t->position[0][2] - 100) < 1e-3);
    end(&run);
}

static void test_mistakes(void **state)
{
    (void)state;
    char words[200];
#define LIST(TEXT) "telescope: {name: t, positions_m: " TEXT "}\n" SMALL
    says(LIST("[]"), 1, "expected a list of 1 to 65535 places [east, north, up] in metres");
    says(LIST("{m: 1}"), 1, "or the name of a file");
    says(LIST("[[0, 0, 0], [1, 2]]"), 1, "test.yaml:1:47: position");
    says(LIST("[[0, 0, 0], [1, zebra, 2]]"), 1, "'zebra' is not a number");
    says(LIST("[[0, 0, 0], [1, nan, 2]]"), 1, "'nan' is not a number");
    says(LIST("[[0, 0, 0], [1, 2e7, 2]]"), 1, "'2e7' is out of range");
    says(LIST("[[0, 0, 0], [1, 2, 3], [5, 6, 7], [1, 2.0002, 3.0003]]"), 1,
         "test.yaml:1:69: telescope: positions_m: dish 3 is in the place of dish 1");
    says(LIST("[[-118.28143, 37.24, 1183], [-118.28137, 37.24, 1183]]"), 1, "and metres, not degrees");
    says(LIST("nowhere.csv"), 1, "there is no file 'nowhere.csv'; looked in ");
    says(LIST("/dev/null"), 1, "is not a regular file");
    says("telescope: {name: t" GRID ", positions_m: [[0, 0, 0]]}\n" SMALL, 1,
         "has 1 places, `dishes` 2 cells");
    says("telescope: {name: t, grid: {m: 2, n: 3}}\n" SMALL, 1, "'spacing_m' is missing");
    says("telescope: {name: t, latitude_deg: 3}\n" SMALL, 1, "does not say where its dishes are");
    /* places in the table's own file */
    snprintf(words, sizeof words, "%s:3:5: ", table);
    says(with_table("", "east,north,up\n1,2,3\n4,5 ,6,7\n"), 1,
         "4 columns; expected 3, as the first line names");
    says(with_table("", "east,north,up\n1,2,3\n4,  x,6\n"), 1, words);
    says(with_table("", "east,north,up\n1,2,3\n4,,6\n"), 1, "north: '' is not a value");
    says(with_table("", "east,north,high\n1,2,3\n"), 1,
         "the columns are east, north, high; expected east, north and up");
    says(with_table("", "east,north,up,east\n1,2,3,4\n"), 1, "'east' names two columns");
    says(with_table("", "1,2,3\n4,5,6\n"), 1, "the columns are 1, 2, 3; expected");
    says(with_table("", "east,north,up\n"), 1, "the table has no rows");
    says(with_table("", ""), 1, "the table has no rows");
    says(with_table("", "x,y,z\n10,20,30\n40,50,60\n"), 1, "expected metres from the centre of the Earth");
    says(with_table("", "x,y,z\n-2411952,-4479481,3.8e9\n"), 1, "out of range");
    snprintf(words, sizeof words, "%s:4:1: telescope: positions_m: dish 2 is in the place of dish 0", table);
    says(with_table("", "east,north,up\n1,2,3\n9,9,9\n1,2,3\n"), 1, words);
    /* a damaged file of HDF5 */
    says(with_table("", "\x89HDF\r\n\x1a\n and nothing"), 1, "telescope: positions_m: ");
}

/* Expects the words in the log for an array at 400 MHz; NULL: no warning. */
static void warns(const char *yaml, const char *words)
{
    struct test_run run;
    char text[8192];
    static const double mhz[2] = {390, 400};
    build_ok(&run, yaml);
    struct br_stream stream = {.nchannels = 2, .freq_mhz = mhz, .telescope = run.graph->telescope};
    br_positions_check_size(&stream, &run.log);
    printed(&run, text, sizeof text);
    if (words != NULL ? strstr(text, words) == NULL : strstr(text, "warning") != NULL)
        fail_msg("'%s' is not in:\n%s\n%s", words, text, yaml);
    end(&run);
}

static void test_sizes(void **state)
{
    (void)state;
    warns(LIST("[[0, 0, 0], [0.0063, 0, 0], [0, 0.0085, 0.001]]"),
          "are their positions in kilometres or degrees?");
    warns(LIST("[[0, 0, 0], [6300, 0, 0], [250000, 0, 0]]"), "are their positions in millimetres");
    warns(LIST("[[0, 0, 0], [0.4, 0, 0], [900, 20, 3]]"), NULL);
}

int main(void)
{
    strcpy(table, "/tmp/beamring-positions-XXXXXX");
    int fd = mkstemp(table);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_earth), cmocka_unit_test(test_mistakes),
                                       cmocka_unit_test(test_sizes)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(table);
    return failed;
}
