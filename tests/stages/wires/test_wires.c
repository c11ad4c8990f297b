/* packetize and receive by hand, in one thread over the loopback: what goes in at one end comes out at the
 * other. Values on the wire and peers that misbehave are tested elsewhere, with code of their own; here the
 * sanitizers look on. */
#include "tests/stages/files_common.h"

#include "buffers/half.h"
#include "stages/packetize/calibration.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/socket.h>

extern const struct br_stage_type packetize_stage, receive_stage;

/* As the stages have them: the loader fills these from YAML. */
struct destination {
    const char *address;
    int64_t first_beam, beams;
};
struct range {
    int64_t first, count;
};

static const struct br_dish dishes[] = {{0, 0}, {0, 1}, {1, 0}};
static const double position[3][3] = {{0 * 6.3, 0 * 8.5, 0}, {1 * 6.3, 0 * 8.5, 0}, {0 * 6.3, 1 * 8.5, 0}};
static const struct br_telescope telescope = {.name = "test",
                                              .grid_m = 2,
                                              .grid_n = 2,
                                              .spacing_m_m = 8.5,
                                              .spacing_n_m = 6.3,
                                              .ndishes = 3,
                                              .dishes = dishes,
                                              .position = position,
                                              .latitude_deg = 49,
                                              .longitude_deg = -119};

static void *field_of(struct br_stage *stage, const char *name)
{
    for (const struct br_param *p = stage->type->params; p->name != NULL; p++)
        if (strcmp(p->name, name) == 0) return (char *)stage->self + p->offset;
    fail_msg("no parameter %s", name);
    return NULL;
}

static const char *free_address(int type)
{
    static char text[64];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int fd = socket(AF_INET, type, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
    close(fd);
    snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(a.sin_port));
    return text;
}

static struct br_stage *sender(const char *format, const struct destination *to, const struct br_stream *in)
{
    static const double one = 1;
    struct br_stage *stage = driver_new(&packetize_stage);
    stage->in[0] = *in;
    driver_set_string(stage, "format", format);
    *(struct br_maps *)field_of(stage, "destinations") = (struct br_maps){1, to};
    *(struct br_reals *)field_of(stage, "noise_variance") = (struct br_reals){1, &one};
    return stage;
}

static void begin(struct br_stage *stage)
{
    if (driver_configure(stage) != BR_OK || driver_start(stage) != BR_OK) fail_msg("%s", stage->error);
}

/* The next frame that the receiver hands on; it must come. */
static void next_frame(struct br_stage *receiver, struct br_frame *frame)
{
    for (int i = 0; i < 200; i++) {
        int result = driver_process(receiver, NULL, frame);
        if (result == BR_PRODUCED) return;
        if (result != 0) fail_msg("process returned %d: %s", result, receiver->error);
    }
    fail_msg("no frame came");
}

/* The address and the document, which the stages keep pointing at. */
struct frb_names {
    char address[64], document[256];
};

/* A sender of the stream in frb-node's format and its receiver, both started. */
static void begin_frb_node(const struct br_stream *s, const char *document, struct frb_names *names,
                           struct br_stage **send, struct br_stage **take)
{
    snprintf(names->document, sizeof names->document, "%s", in_scratch(document));
    snprintf(names->address, sizeof names->address, "%s", free_address(SOCK_STREAM));
    const struct destination to = {names->address, 0, 0};
    *send = sender("frb-node", &to, s);
    *take = driver_new(&receive_stage);
    *(double *)field_of(*send, "idle_s") = 0;
    driver_set_string(*send, "document", names->document);
    begin(*send);
    driver_set_string(*take, "format", "frb-node");
    driver_set_string(*take, "address", names->address);
    driver_set_string(*take, "document", names->document);
    begin(*take);
}

static void test_frb_node(void **state)
{
    (void)state;
    enum { BEAMS = 3, CHANNELS = 4, DOWN = 10, FRAMES = 6 };
    static const double freq[CHANNELS] = {400.5, 401.5, 402.5, 403.5}, width[CHANNELS] = {1, 1, 1, 1};
    static const struct br_beam beams[BEAMS] = {{0, 0}, {0.01, 0}, {0, 0.02}};
    struct br_stream s = {.frame_samples = 256 * DOWN,
                          .epoch_ns = 1,
                          .sample_ns = {5120, 1},
                          .nchannels = CHANNELS,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, CHANNELS, 1, DOWN, 0}},
                          .scale = 1,
                          .telescope = &telescope,
                          .nbeams = BEAMS,
                          .beams = beams};
    br_array_init(&s.array, BR_INT4, "beam,freq,time", (size_t[]){BEAMS, CHANNELS, 256}, NULL);
    s.side = (struct br_array){
        .dtype = BR_F32, .naxes = 3, .axis = {{"beam", BEAMS}, {"freq", CHANNELS}, {"number", 2}}};
    struct br_stage *send, *take;
    struct frb_names names;
    begin_frb_node(&s, "document.yaml", &names, &send, &take);

    uint64_t seed = 3, numbers[FRAMES] = {0, 1, 2, 5, 6, 7};
    struct br_frame *sent[FRAMES], *got = driver_frame(&take->out[0]);
    for (int i = 0; i < FRAMES; i++) {
        sent[i] = driver_frame(&s);
        /* the stream begins within a minichunk: 100 of 256 steps */
        random_frame(&s, sent[i], numbers[i] * 2560 + (i == 0 ? 1560 : 0), i == 0 ? 1000 : 2560, 0, &seed);
        for (size_t k = 0; k < BEAMS * CHANNELS * 2; k++) ((float *)sent[i]->side)[k] = 1 + (float)k;
        assert_int_equal(driver_process(send, sent[i], NULL), BR_CONSUMED);
    }
    for (int i = 0; i < FRAMES; i++) {
        if (i == 3) { /* what lies behind the gap is not next: it is handed on at the end */
            struct timespec pause = {0, 50000000};
            for (int k = 0; k < 3; k++) {
                assert_int_equal(driver_process(take, NULL, got), 0);
                nanosleep(&pause, NULL);
            }
            take->stopping = true;
        }
        next_frame(take, got);
        assert_int_equal(got->first, numbers[i] * 2560);
        const uint8_t *x = got->data, *y = sent[i]->data;
        size_t steps = i == 0 ? 100 : 256, at = 256 - steps;
        for (size_t row = 0; row < BEAMS * CHANNELS; row++)
            for (size_t t = 0; t < 256; t++) {
                size_t a = row * 256 + t, b = row * steps + t - at;
                unsigned level = x[a / 2] >> (a % 2 * 4) & 15,
                         want = t < at ? 8 : y[b / 2] >> (b % 2 * 4) & 15;
                assert_int_equal(level, want);
            }
        driver_frame_free(sent[i]);
    }
    assert_int_equal(driver_process(take, NULL, got), BR_FINISHED);
    assert_int_equal(driver_process(send, NULL, NULL), BR_FINISHED);
    driver_frame_free(got);
    end_stage(send);
    end_stage(take);
}

/* Two parts of one minichunk with a hole between, each with a scale of its own: they arrive as one, in the
 * first one's. */
static void test_split_minichunk(void **state)
{
    (void)state;
    enum { DOWN = 10 };
    static const double freq[1] = {400.5}, width[1] = {1};
    static const struct br_beam beam = {0, 0};
    struct br_stream s = {.frame_samples = 256 * DOWN,
                          .epoch_ns = 1,
                          .sample_ns = {5120, 1},
                          .nchannels = 1,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, 1, 1, DOWN, 0}},
                          .scale = 1,
                          .telescope = &telescope,
                          .nbeams = 1,
                          .beams = &beam};
    br_array_init(&s.array, BR_INT4, "beam,freq,time", (size_t[]){1, 1, 256}, NULL);
    s.side =
        (struct br_array){.dtype = BR_F32, .naxes = 3, .axis = {{"beam", 1}, {"freq", 1}, {"number", 2}}};
    struct br_stage *send, *take;
    struct frb_names names;
    begin_frb_node(&s, "split.yaml", &names, &send, &take);

    uint64_t seed = 9;
    struct br_frame *a = driver_frame(&s), *b = driver_frame(&s), *got = driver_frame(&take->out[0]);
    random_frame(&s, a, 2560, 1000, 0, &seed);        /* steps 0 to 99 of minichunk 1 */
    random_frame(&s, b, 2560 + 1510, 1050, 0, &seed); /* steps 151 to 255 */
    const float sides[2][2] = {{2, 10}, {1, 7}};
    memcpy(a->side, sides[0], sizeof sides[0]);
    memcpy(b->side, sides[1], sizeof sides[1]);
    assert_int_equal(driver_process(send, a, NULL), BR_CONSUMED);
    assert_int_equal(driver_process(send, b, NULL), BR_CONSUMED);
    assert_int_equal(driver_process(send, NULL, NULL), BR_FINISHED);
    next_frame(take, got);
    assert_int_equal(got->first, 2560);
    for (size_t t = 0; t < 256; t++) {
        const uint8_t *x = got->data, *y = t < 100 ? a->data : b->data;
        int level = (int)((x[t / 2] >> (t % 2 * 4) & 15) ^ 8) - 8, want = -8;
        size_t from = t < 100 ? t : t - 151;
        if (t < 100 || t >= 151) want = (int)((y[from / 2] >> (from % 2 * 4) & 15) ^ 8) - 8;
        if (t >= 151 && want != -8) want = (int)fmin(fmax(rint((want + 7.0 - 10) / 2), -7), 7);
        assert_int_equal(level, want);
    }
    driver_frame_free(a);
    driver_frame_free(b);
    driver_frame_free(got);
    end_stage(send);
    end_stage(take);
}

static float gaussian(uint64_t *seed)
{
    double u = ((double)(random64(seed) >> 11) + 0.5) * 0x1p-53, v = (double)(random64(seed) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(2 * M_PI * v));
}

static int level_of(float x, const float *side)
{
    return (int)fminf(fmaxf(rintf((x - side[1]) / side[0]), -7), 7);
}

/* Gaussian noise, quantized as the quantizer does it: what is sent has mean 0 and the variance asked for,
 * whatever the channel's own baseline and noise; a block with a burst keeps its height, and hardly moves what
 * comes after it. */
static void test_noise(void **state)
{
    (void)state;
    enum { CHANNELS = 2, BLOCKS = 400, BURST = 300 };
    const float deviation[CHANNELS] = {1, 3}, sigma[CHANNELS] = {0.02f, 70}, baseline[CHANNELS] = {5, 1000};
    struct calibration c = {
        .nbeams = 1, .nchannels = CHANNELS, .steps = 256, .deviation = deviation, .follow = 50 * 256};
    assert_int_equal(calibration_create(&c), 0);
    uint64_t seed = 5;
    double sum[CHANNELS] = {0}, squares[CHANNELS] = {0}, n = 0;
    for (int block = 0; block < BLOCKS; block++) {
        float x[CHANNELS][256], side[2 * CHANNELS];
        uint16_t wire[2 * CHANNELS];
        uint8_t levels[CHANNELS][128] = {{0}};
        for (int f = 0; f < CHANNELS; f++) {
            double mean = 0, rms = 0;
            for (int t = 0; t < 256; t++) {
                x[f][t] = baseline[f] + sigma[f] * (gaussian(&seed) + (block == BURST && t < 64 ? 8 : 0));
                mean += (double)x[f][t] / 256;
            }
            for (int t = 0; t < 256; t++) rms += pow((double)x[f][t] - mean, 2) / 256;
            side[2 * f] = (float)(sqrt(rms) / 2.5);
            side[2 * f + 1] = (float)mean;
            for (int t = 0; t < 256; t++)
                levels[f][t / 2] |= (uint8_t)((level_of(x[f][t], side + 2 * f) & 15) << t % 2 * 4);
        }
        calibrate(&c, levels[0], side, wire);
        for (int f = 0; f < CHANNELS; f++) {
            double high = 0;
            for (int t = 0; t < 256; t++) {
                float level = (float)level_of(x[f][t], side + 2 * f);
                double value =
                    (double)(br_half_to_float(wire[2 * f]) * level + br_half_to_float(wire[2 * f + 1]));
                if (block == BURST && t < 64) high += value / 64;
                if (block < 20 || block == BURST) continue;
                sum[f] += value;
                squares[f] += value * value;
                n += f == 0;
            }
            if (block == BURST) assert_true(fabs(high / (double)deviation[f] - 8) < 0.6);
        }
    }
    for (int f = 0; f < CHANNELS; f++) {
        double mean = sum[f] / n, variance = squares[f] / n - mean * mean,
               want = pow((double)deviation[f], 2);
        assert_true(fabs(mean) < 0.05 * (double)deviation[f]);
        assert_true(fabs(variance / want - 1) < 0.03);
    }
    calibration_free(&c);
}

/* Jobs from the last to the first, each with another worker's memory. */
static void backwards(void *context, size_t jobs, br_parallel_work *work, void *arg)
{
    (void)context;
    while (jobs-- > 0) work(arg, jobs, (unsigned)(jobs % 3));
}

/* Beams are calibrated by several threads to the same bits, also if their number is not a multiple of the
 * jobs. */
static void test_calibration_by_several_threads(void **state)
{
    (void)state;
    enum { BEAMS = 29, CHANNELS = 3, CELLS = BEAMS * CHANNELS };
    const float deviation[CHANNELS] = {1, 2, 3};
    struct calibration one = {
        .nbeams = BEAMS, .nchannels = CHANNELS, .steps = 256, .deviation = deviation, .follow = 4 * 256};
    struct calibration three = one;
    three.parallel = (struct br_parallel){3, NULL, backwards};
    assert_int_equal(calibration_create(&one), 0);
    assert_int_equal(calibration_create(&three), 0);
    uint64_t seed = 9;
    for (int block = 0; block < 8; block++) {
        static uint8_t levels[CELLS * 128];
        float side[2 * CELLS];
        uint16_t wire[2][2 * CELLS];
        for (size_t i = 0; i < sizeof levels; i++) levels[i] = (uint8_t)(10 * gaussian(&seed));
        for (size_t i = 0; i < CELLS; i++) {
            side[2 * i] = i % 7 ? 0.5f : 0;
            side[2 * i + 1] = (float)gaussian(&seed);
        }
        calibrate(&one, levels, side, wire[0]);
        calibrate(&three, levels, side, wire[1]);
        assert_memory_equal(wire[0], wire[1], sizeof wire[0]);
    }
    calibration_free(&one);
    calibration_free(&three);
}

static void test_chime_l0(void **state)
{
    (void)state;
    enum { BEAMS = 5, COARSE = 3, UP = 2, STEPS = 16, DOWN = 384, FRAMES = 8 };
    double freq[COARSE * UP], width[COARSE * UP];
    for (int f = 0; f < COARSE * UP; f++) { /* ascending, coarse channels 12, 11, 10 */
        freq[f] = 800 - 0.390625 * (12.5 - (f + 0.5) / UP);
        width[f] = 0.390625 / UP;
    }
    struct br_stream s = {.frame_samples = STEPS * DOWN,
                          .epoch_ns = 77,
                          .sample_ns = {2560, 1},
                          .nchannels = COARSE * UP,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, COARSE * UP, UP, DOWN, 0}},
                          .scale = 0.5,
                          .nbeams = BEAMS};
    br_array_init(&s.array, BR_F16, "freq,time,beam", (size_t[]){COARSE * UP, STEPS, BEAMS}, NULL);
    char address[64];
    strcpy(address, free_address(SOCK_DGRAM));
    const struct destination to = {address, 0, 0};
    const struct range ids = {40, BEAMS}, channels = {10, COARSE};
    struct br_stage *send = sender("chime-l0", &to, &s), *take = driver_new(&receive_stage);
    driver_set_int(send, "first_beam_id", 40);
    driver_set_string(take, "format", "chime-l0");
    driver_set_string(take, "address", address);
    driver_set_int(take, "nupfreq", UP);
    *(const struct range **)field_of(take, "beams") = &ids;
    *(const struct range **)field_of(take, "channels") = &channels;
    take->hints = (struct br_stream_hints){.have_epoch = true, .epoch_ns = 77};
    begin(take);
    begin(send);
    uint64_t seed = 4;
    struct br_frame *in = driver_frame(&s), *out = driver_frame(&take->out[0]);
    for (int i = 0; i < FRAMES; i++) {
        random_frame(&s, in, (uint64_t)(100 + i) * STEPS * DOWN, STEPS * DOWN, i % 2, &seed);
        uint16_t *x = in->data;
        for (size_t k = 0; k < COARSE * UP * STEPS * BEAMS; k++)
            x[k] = br_half_from_float((float)(random64(&seed) % 1000) - 500);
        assert_int_equal(driver_process(send, in, NULL), BR_CONSUMED);
        br_frame_open_validity(&s, in);
        next_frame(take, out);
        br_frame_open_validity(&take->out[0], out);
        assert_int_equal(out->first, in->first);
        for (size_t b = 0; b < BEAMS; b++)
            for (size_t f = 0; f < COARSE * UP; f++) {
                size_t from = COARSE * UP - 1 - f; /* descending */
                const float *side = (const float *)out->side + 2 * (b * COARSE * UP + f);
                for (size_t t = 0; t < STEPS; t++) {
                    uint8_t level = ((const uint8_t *)out->data)[(b * COARSE * UP + f) * STEPS + t];
                    bool valid = in->valid[from * STEPS + t] != BR_MISSING;
                    float value = side[0] * (float)(level - 128) + side[1],
                          want = 0.5f * br_half_to_float(x[(from * STEPS + t) * BEAMS + b]);
                    assert_int_equal(level != 0, valid);
                    assert_int_equal(out->valid[f * STEPS + t], valid ? BR_VALID : BR_MISSING);
                    assert_int_not_equal(level, 255);
                    if (valid) assert_true(fabsf(value - want) <= 0.501f * side[0] + 1e-3f);
                }
            }
    }
    driver_frame_free(in);
    driver_frame_free(out);
    end_stage(send);
    end_stage(take);
}

/* A sender that gets no memory closes no file of others: descriptor 0 stays open. */
static void test_no_memory(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they need more address space than there is left below the limit */
#else
    enum { BEAMS = 64, COARSE = 1024, STEPS = 1024, DOWN = 384 };
    static double freq[COARSE], width[COARSE];
    for (int f = 0; f < COARSE; f++) {
        freq[f] = 800 - 0.390625 * f;
        width[f] = 0.390625;
    }
    struct br_stream s = {.frame_samples = STEPS * DOWN,
                          .sample_ns = {2560, 1},
                          .nchannels = COARSE,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, COARSE, 1, DOWN, 0}},
                          .scale = 1,
                          .nbeams = BEAMS};
    br_array_init(&s.array, BR_F16, "freq,time,beam", (size_t[]){COARSE, STEPS, BEAMS}, NULL);
    const struct destination to = {free_address(SOCK_DGRAM), 0, 0};
    struct br_stage *send = sender("chime-l0", &to, &s);
    if (driver_configure(send) != BR_OK) fail_msg("%s", send->error);
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    little = before;
    little.rlim_cur = 1 << 20; /* below what is mapped already: every large allocation fails */
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    int status = driver_start(send);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, BR_E_NO_MEMORY);
    driver_stop(send);
    assert_true(fcntl(0, F_GETFD) >= 0);
    driver_free(send);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frb_node), cmocka_unit_test(test_split_minichunk),
        cmocka_unit_test(test_noise),    cmocka_unit_test(test_calibration_by_several_threads),
        cmocka_unit_test(test_chime_l0), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
