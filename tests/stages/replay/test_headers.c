/* Headers of recordings that end anywhere, and with every field wrong in turn: refused with the file's name,
 * or replayed as something that the field can mean; nothing else. */
#include "tests/stages/files_common.h"

#include "formats/kotekan/chord_metadata.h"

#include <fcntl.h>

enum { ROOM = 1 << 21, DADA_HEADER = 4096 };

static uint8_t good[ROOM], bytes[ROOM];

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* --- whole files, and how long their headers are ----------------------------------------------------- */

static const char own_keys[] =
    "HDR_SIZE 4096\nDTYPE int4x2\nAXES time,freq,pol,dish\nSHAPE 0,2,2,3\nFRAME_SAMPLES "
    "16\nSAMPLE0 160\nSAMPLE_NS 2560\nEPOCH_NS 0\n"
    "FREQ_MHZ 600,601\nWIDTH_MHZ 1\nSCALE 1\nDOWNSAMPLE 1\nSAMPLES 20\n";
static const char external_keys[] =
    "HDR_SIZE 4096\nNBIT 4\nNDIM 2\nNPOL 2\nNCHAN 2\nNANT 3\nORDER TFPA\nFREQ 600\nBW -10\nTSAMP 2.56\n"
    "UTC_START 2024-02-29-12:00:00\nOBS_OFFSET 0\n";

static size_t make_dada(uint8_t *out, const char *keys)
{
    memset(out, 0, DADA_HEADER);
    snprintf((char *)out, DADA_HEADER, "HEADER DADA\nHDR_VERSION 1.0\n%s", keys);
    for (size_t i = 0; i < 240; i++) out[DADA_HEADER + i] = (uint8_t)i;
    return DADA_HEADER + 240;
}

static size_t make_kotekan(uint8_t *out)
{
    static const int32_t coarse[2] = {1600, 1601};
    struct chord_metadata m;
    chord_metadata_init(&m, "E", CHORD_INT4X2);
    chord_metadata_add(&m, "T", 20);
    chord_metadata_add(&m, "F", 2);
    chord_metadata_add(&m, "P", 2);
    chord_metadata_add(&m, "D", 3);
    chord_metadata_finish(&m);
    chord_metadata_set_times(&m, 2, coarse, 1, 160, 1);
    put32(out, CHORD_METADATA_BYTES);
    chord_metadata_encode(&m, out + 4);
    for (size_t i = 0; i < 240; i++) out[4 + CHORD_METADATA_BYTES + i] = (uint8_t)i;
    return 4 + CHORD_METADATA_BYTES + 240;
}

static size_t make_guppi(uint8_t *out)
{
    static const char *const cards[] = {
        "BLOCSIZE=                  240", "OBSNCHAN=                    6", "NANTS   =                    3",
        "NPOL    =                    4", "NBITS   =                    8", "OBSFREQ =                600.5",
        "OBSBW   =                  2.0", "TBIN    =             1.000E-6", "PKTIDX  =                  160",
        "PKTSTART=                    0", "PIPERBLK=                   10", "STT_IMJD=                60000",
        "STT_SMJD=                    0"};
    size_t n = 0;
    memset(out, ' ', 2048);
    for (; n < sizeof cards / sizeof *cards; n++) memcpy(out + 80 * n, cards[n], strlen(cards[n]));
    memcpy(out + 80 * n++, "END", 3);
    for (size_t i = 0; i < 240; i++) out[80 * n + i] = (uint8_t)i;
    return 80 * n + 240;
}

static size_t make_vdif(uint8_t *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < 20; i++, at += 48) {
        memset(out + at, 0, 48);
        put32(out + at, 1000);
        put32(out + at + 4, i / 2 | 44u << 24);
        put32(out + at + 8, 48 / 8 | 1u << 24);
        put32(out + at + 12, (i % 2) << 16 | 3u << 26 | 1u << 31);
        for (size_t k = 32; k < 48; k++) out[at + k] = (uint8_t)(k + i);
    }
    return at;
}

/* As `record` writes it: HDF5. */
static size_t make_chime(uint8_t *out)
{
    static const double freq[1] = {799.609375}, width[1] = {0.390625};
    struct br_stream s = field_stream(32);
    assert_int_equal(br_array_init(&s.array, BR_INT4X2, "time,freq,pol,dish", (size_t[]){32, 1, 2, 5}, NULL),
                     0);
    s.nchannels = s.zone[0].nchannels = 1;
    s.zone[0].delay = 0;
    s.freq_mhz = freq;
    s.width_mhz = width;
    s.sample_ns = (struct br_rational){2560, 1};
    struct br_stage *w = driver_new(&record_stage);
    w->in[0] = s;
    driver_set_string(w, "directory", scratch);
    driver_set_string(w, "prefix", "h");
    driver_set_string(w, "format", "chime");
    if (driver_configure(w) != 0 || driver_start(w) != 0) fail_msg("%s", w->error);
    struct br_frame *f = driver_frame(&s);
    uint64_t seed = 1;
    random_frame(&s, f, 320, 32, 0, &seed);
    for (size_t i = 0; i < 320; i++) ((uint8_t *)f->data)[i] &= 0x77;
    assert_int_equal(driver_process(w, f, NULL), BR_CONSUMED);
    driver_frame_free(f);
    end_stage(w);
    size_t n;
    const char *path = in_scratch("h_0000001.h5");
    char *data = read_all(path, &n);
    assert_true(n < ROOM);
    memcpy(out, data, n);
    free(data);
    unlink(path);
    return n;
}

/* --- trying --------------------------------------------------------------------------------------------- */

/* Whether a file of these bytes is replayed, as `format` (NULL: as what it looks like): then frames come in
 * order and the run ends well. If not, the message names the file; it stays in `message`. */
static char message[1024];

static bool plays(const char *path, const char *format)
{
    static const double mhz[2] = {600, 601};
    struct br_stage *r = driver_new(&replay_stage);
    driver_set_strings(r, "files", &path, 1);
    driver_set_int(r, "frame_samples", 16);
    driver_set_int(r, "readers", 1);
    if (format != NULL) driver_set_string(r, "format", format);
    r->hints = (struct br_stream_hints){.npol = format == NULL ? 0 : 2};
    if (format != NULL && (strcmp(format, "vdif") == 0 || strcmp(format, "kotekan") == 0))
        r->hints =
            (struct br_stream_hints){.sample_ns = {1000, 1}, .have_epoch = true, .nfreq = 2, .freq_mhz = mhz};
    if (format != NULL && strcmp(format, "kotekan") == 0) r->hints.npol = 2;
    bool accepted = driver_configure(r) == BR_OK;
    snprintf(message, sizeof message, "%s", r->error);
    if (!accepted && strstr(r->error, "bad.file") == NULL) fail_msg("no name of a file in '%s'", r->error);
    if (accepted && br_stream_max_bytes(&r->out[0]) < 1 << 20) {
        if (driver_start(r) != BR_OK) fail_msg("start: %s", r->error);
        struct br_frame *f = driver_frame(&r->out[0]);
        int result = BR_PRODUCED;
        uint64_t next = 0;
        for (int i = 0; i < 8 && result == BR_PRODUCED; i++) {
            result = driver_process(r, NULL, f);
            if (result == BR_PRODUCED && (f->samples == 0 || f->first < next)) fail_msg("time goes back");
            if (result == BR_PRODUCED) next = f->first + f->samples;
        }
        if (result < 0) accepted = false, snprintf(message, sizeof message, "%s", r->error);
        driver_frame_free(f);
        assert_int_equal(driver_stop(r), 0);
    }
    driver_free(r);
    return accepted;
}

static const char *write_bad(const uint8_t *data, size_t n)
{
    const char *path = in_scratch("bad.file");
    write_file(path, data, n);
    return path;
}

static size_t make_own(uint8_t *out)
{
    return make_dada(out, own_keys);
}

static size_t make_external(uint8_t *out)
{
    return make_dada(out, external_keys);
}

/* Every length from 0 up to where the first whole sample (GUPPI: block; HDF5: file) ends, and behind; one in
 * 37 of HDF5 and kotekan, and of the zeros that follow the keys of DADA. */
static void test_truncated(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        size_t (*make)(uint8_t *);
        size_t least; /* bytes without which there is nothing to play; 0: all */
    } files[] = {{"dada", make_own, DADA_HEADER + 12},
                 {"dada", make_external, DADA_HEADER + 12},
                 {"guppi", make_guppi, 0},
                 {"vdif", make_vdif, 34},
                 {"chime", make_chime, 0},
                 {"kotekan", make_kotekan, 4 + CHORD_METADATA_BYTES + 12}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t whole = files[i].make(good), least = files[i].least > 0 ? files[i].least : whole;
        const char *path = write_bad(good, whole);
        for (size_t n = whole + 1; n-- > 0;) {
            /* HDF5: each that is refused costs a process; few within its chunk, some within its header.
             * kotekan's header has 21120 bytes. */
            if (least > DADA_HEADER && n > (least > 20000 ? 40 : 512) && n + 100 < least)
                n -= least > 100000 && n > 9000 ? 4098 : 36;
            assert_int_equal(truncate(path, (off_t)n), 0);
            if (plays(path, files[i].format) != (n >= least))
                fail_msg("%s of %zu bytes, %zu of them: %s", files[i].format, whole, n, message);
        }
    }
}

/* --- DADA ----------------------------------------------------------------------------------------------- */

static const char *const values[] = {"",
                                     "x",
                                     "-1",
                                     "0",
                                     "2147483648",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "-9223372036854775809",
                                     "1e400",
                                     "nan",
                                     "0.5",
                                     "1,2,3",
                                     "%s%n"};

/* A key of the header has another value. The pairs that make sense are listed; all else is refused, and the
 * message names the key. */
static void wrong_keys(const char *keys, const char *const *key, const char *sensible)
{
    static const char *const words[][2] = {
        {"WIDTH_MHZ", "the width"}, {"CODING", "the coding"}, {"FREQ", "the frequency"}, {"BW", "MHz"}};
    char text[2048], pair[128];
    for (; *key != NULL; key++) {
        const char *word = *key; /* or what a message calls it */
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strcmp(words[i][0], *key) == 0) word = words[i][1];
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char line[64];
            snprintf(line, sizeof line, "\n%s ", *key);
            snprintf(text, sizeof text, "\n%s", keys);
            char *at = strstr(text, line);
            if (at != NULL) {
                char *end = strchr(at + 1, '\n');
                memmove(at + 1, end + 1, strlen(end + 1) + 1);
            }
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s %s\n", *key, values[v]);
            snprintf(pair, sizeof pair, "|%s %s|", *key, values[v]);
            size_t n = make_dada(bytes, text + 1);
            bool accepted = plays(write_bad(bytes, n), "dada"), makes_sense = strstr(sensible, pair) != NULL;
            if (accepted != makes_sense)
                fail_msg("%s is %s: %s", pair, accepted ? "replayed" : "refused", message);
            if (!accepted && strstr(message, *key) == NULL && strstr(message, word) == NULL)
                fail_msg("%s: the message is '%s'", pair, message);
        }
    }
}

static void test_dada(void **state)
{
    (void)state;
    static const char *const own[] = {"HDR_SIZE",    "DTYPE",      "AXES",     "SHAPE",    "FRAME_SAMPLES",
                                      "SAMPLE0",     "SAMPLE_NS",  "EPOCH_NS", "FREQ_MHZ", "WIDTH_MHZ",
                                      "SCALE",       "DOWNSAMPLE", "SAMPLES",  "NZONES",   "FILE_SIZE",
                                      "FILE_NUMBER", "CODING",     NULL};
    static const char *const external[] = {"NBIT", "NDIM", "NPOL",  "NCHAN",     "NANT",       "ORDER",
                                           "FREQ", "BW",   "TSAMP", "UTC_START", "OBS_OFFSET", NULL};
    wrong_keys(own_keys, own,
               "|SAMPLE0 0||SAMPLE0 2147483648||SAMPLE_NS 2147483648||SAMPLE_NS 0.5||EPOCH_NS -1||EPOCH_NS "
               "0||EPOCH_NS 2147483648|"
               "|WIDTH_MHZ 0.5||SCALE 2147483648||SCALE 9223372036854775807||SCALE "
               "18446744073709551616||SCALE 0.5||SAMPLES 0|"
               "|SAMPLES 2147483648||FILE_SIZE 0||FILE_SIZE 2147483648||FILE_SIZE "
               "9223372036854775807||FILE_NUMBER 0|"
               "|FILE_NUMBER 2147483648||FILE_NUMBER 9223372036854775807|");
    wrong_keys(external_keys, external, "|BW -1||BW 0.5||TSAMP 0.5||OBS_OFFSET 0|");
}

/* --- kotekan's size, GUPPI's cards, VDIF's words: bit by bit ----------------------------------------------
 */

static void test_kotekan_sizes(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 21119, 21121, 20872, 1u << 31, 0x7fffffff, 0xffffffff};
    size_t n = make_kotekan(good);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put32(good, sizes[i]);
        assert_false(plays(write_bad(good, n), "kotekan"));
    }
}

/* With sanitizers a file takes ten times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { EACH = 11 };
#else
enum { EACH = 1 };
#endif

/* Every bit of the first header (with sanitizers one in eleven) flipped: whatever it is then, it is refused
 * or played. */
static void test_flipped(void **state)
{
    (void)state;
    static const struct {
        size_t (*make)(uint8_t *);
        const char *format;
        size_t header;
    } files[] = {{make_vdif, "vdif", 32}, {make_guppi, "guppi", 80 * 13}, {make_kotekan, "kotekan", 700}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = files[i].make(good), refused = 0;
        const char *path = write_bad(good, n);
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        for (size_t bit = 0; bit < 8 * files[i].header; bit += EACH) {
            uint8_t byte = good[bit / 8] ^ (uint8_t)(1 << bit % 8);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
            refused += !plays(path, files[i].format);
            assert_int_equal(pwrite(fd, good + bit / 8, 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
        assert_true(refused > files[i].header / 4 / EACH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_truncated), cmocka_unit_test(test_dada),
                                       cmocka_unit_test(test_kotekan_sizes), cmocka_unit_test(test_flipped)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
