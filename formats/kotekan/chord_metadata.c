#include "formats/kotekan/chord_metadata.h"

#include <stdbool.h>
#include <string.h>

/* Byte offsets. The old layout has n_one_hot and its two tables between `offset` and `sample0_offset`, the
 * new one offset_downsampling behind sample0_offset; what follows is the same but for its place. */
enum {
    AT_MAX_DIM = 0,
    AT_MAX_NAME = 4,
    AT_MAX_FREQ = 8,
    AT_COUNTER = 12,
    AT_NAME = 16,
    AT_TYPE = 36,
    AT_DIMS = 40,
    AT_DIM = 44,
    AT_DIM_NAME = 84,
    AT_STRIDE = 288,
    AT_OFFSET = 368,
    AT_ONE_HOT = 376,
    AT_ONE_HOT_NAME = 380,
    AT_ONE_HOT_INDEX = 580,
    MOST_CHANNEL = 1 << 20,
    MOST_FACTOR = 1 << 20
};

struct layout {
    size_t sample0, offset_downsampling, nfreq, coarse, factor, half, downsampling, bytes;
    int first_shifted, shift; /* codes of types from first_shifted on are higher by shift */
};

static const struct layout old_layout = {624, 0, 632, 636, 4732, 8832, 17024, CHORD_METADATA_BYTES, 0, 0};
static const struct layout new_layout = {
    376, 384, 388, 392, 4488, 8584, 16776, CHORD_METADATA_NEW_BYTES, CHORD_UINT4X2, 1};

static const struct {
    const char *name;
    unsigned bits;
} types[CHORD_TYPES] = {
    [CHORD_UNKNOWN] = {"unknown", 0},  [CHORD_UINT4X2] = {"uint4x2", 8},
    [CHORD_UINT8] = {"uint8", 8},      [CHORD_UINT16] = {"uint16", 16},
    [CHORD_UINT32] = {"uint32", 32},   [CHORD_UINT64] = {"uint64", 64},
    [CHORD_INT4X2] = {"int4x2", 8},    [CHORD_INT4X2_CHIME] = {"int4x2 in the coding chime", 8},
    [CHORD_INT8] = {"int8", 8},        [CHORD_INT16] = {"int16", 16},
    [CHORD_INT32] = {"int32", 32},     [CHORD_INT64] = {"int64", 64},
    [CHORD_FLOAT16] = {"float16", 16}, [CHORD_FLOAT32] = {"float32", 32},
    [CHORD_FLOAT64] = {"float64", 64},
};

const char *chord_type_name(enum chord_type type)
{
    return type < CHORD_TYPES ? types[type].name : "?";
}

unsigned chord_type_bits(enum chord_type type)
{
    return type < CHORD_TYPES ? types[type].bits : 0;
}

int chord_metadata_size_known(uint64_t bytes)
{
    return bytes == CHORD_METADATA_BYTES || bytes == CHORD_METADATA_NEW_BYTES;
}

int chord_metadata_check_size(uint64_t bytes, const char *from, struct br_error *error)
{
    if (chord_metadata_size_known(bytes)) return BR_OK;
    if (bytes == 1 || bytes == 2)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: it begins with %llu, the tag of a frame descriptor (FrameDesc), which kotekan sends "
            "since 2026; expected frames without one, with chordMetadata of %d bytes as in its branch "
            "chord",
            from, (unsigned long long)bytes, CHORD_METADATA_BYTES);
    bool later = bytes >= 4096 && bytes <= 65536;
    return br_fail(error, BR_E_FORMAT,
                   "%s: %llu bytes of metadata; expected chordMetadata of %d bytes (or %d)%s", from,
                   (unsigned long long)bytes, CHORD_METADATA_BYTES, CHORD_METADATA_NEW_BYTES,
                   later ? ": this is the layout of another kotekan; those of 2026 and later, which have no "
                           "one-hot dimensions and other times, are not read"
                         : "");
}

/* --- bytes ------------------------------------------------------------------------------------------ */

static int32_t get32(const uint8_t *b)
{
    return (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static int64_t get64(const uint8_t *b)
{
    return (int64_t)((uint64_t)(uint32_t)get32(b) | (uint64_t)(uint32_t)get32(b + 4) << 32);
}

static void put32(uint8_t *b, int32_t value)
{
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)((uint32_t)value >> 8 * i);
}

static void put64(uint8_t *b, int64_t value)
{
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)((uint64_t)value >> 8 * i);
}

/* Up to its NUL; what stands behind it does not matter. */
static void get_name(char *name, const uint8_t *b)
{
    memset(name, 0, CHORD_NAME + 1);
    for (size_t i = 0; i < CHORD_NAME && b[i] != 0; i++) name[i] = (char)b[i];
}

/* A name for messages is printable. */
static bool printable(const char *name)
{
    for (; *name != 0; name++)
        if (*name < 0x20 || *name > 0x7e) return false;
    return true;
}

/* --- decoding --------------------------------------------------------------------------------------- */

static int bad(struct br_error *error, const char *from, const char *field, long long value,
               const char *expected)
{
    return br_fail(error, BR_E_FORMAT, "%s: chordMetadata has %s %lld; expected %s", from, field, value,
                   expected);
}

static int check_maxima(const uint8_t *b, const char *from, struct br_error *error)
{
    bool one_more = get32(b) >= 0 && get32(b) <= 1 && get32(b + 4) == CHORD_MAX_DIMS &&
                    get32(b + 8) == CHORD_NAME && get32(b + 12) == CHORD_MAX_FREQ;
    if (one_more)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: one word stands before the chordMetadata: config_tracker_update, which newer versions of "
            "kotekan send; set `use_config_tracker: false` in its bufferSend",
            from);
    if (get32(b + AT_MAX_DIM) != CHORD_MAX_DIMS)
        return bad(error, from, "max_dim", get32(b + AT_MAX_DIM),
                   "10: this is not chordMetadata, or one of another version");
    if (get32(b + AT_MAX_NAME) != CHORD_NAME)
        return bad(error, from, "max_dimname", get32(b + AT_MAX_NAME), "20: metadata of another version");
    if (get32(b + AT_MAX_FREQ) != CHORD_MAX_FREQ)
        return bad(error, from, "max_freq", get32(b + AT_MAX_FREQ), "1024: metadata of another version");
    return BR_OK;
}

/* A row-major array that fills the frame. */
static int check_shape(const struct chord_metadata *m, uint64_t frame_bytes, const char *from,
                       struct br_error *error)
{
    for (int i = 0; i < m->dims; i++) {
        if (m->dim[i] <= 0)
            return br_fail(error, BR_E_FORMAT,
                           "%s: chordMetadata has length %ld in dimension %d; expected at least 1", from,
                           (long)m->dim[i], i);
        if (m->dim_name[i][0] == 0 || !printable(m->dim_name[i]))
            return br_fail(error, BR_E_FORMAT, "%s: chordMetadata has no printable name for dimension %d",
                           from, i);
    }
    uint64_t bytes = chord_metadata_frame_bytes(m);
    if (bytes == 0)
        return br_fail(error, BR_E_FORMAT,
                       "%s: chordMetadata has lengths whose product is not the size of a frame", from);
    int64_t stride = 1;
    for (int i = m->dims - 1; i >= 0; i--) {
        if (m->stride[i] != stride)
            return br_fail(error, BR_E_FORMAT,
                           "%s: chordMetadata has stride %lld in dimension %d (%s); expected %lld: only "
                           "arrays without holes are read",
                           from, (long long)m->stride[i], i, m->dim_name[i], (long long)stride);
        stride *= m->dim[i];
    }
    if (m->offset != 0)
        return bad(error, from, "offset", (long long)m->offset, "0: only arrays without holes are read");
    if (frame_bytes != 0 && frame_bytes != bytes)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the frame has %llu bytes, but its chordMetadata describes %llu", from,
                       (unsigned long long)frame_bytes, (unsigned long long)bytes);
    return BR_OK;
}

static int check_channels(const struct chord_metadata *m, const char *from, struct br_error *error)
{
    for (int i = 0; i < m->nfreq; i++) {
        const char *field = NULL;
        long long value = 0;
        if (m->coarse_freq[i] < -1 || m->coarse_freq[i] > MOST_CHANNEL)
            field = "coarse_freq", value = m->coarse_freq[i];
        if (m->upchan_factor[i] < -1 || m->upchan_factor[i] == 0 || m->upchan_factor[i] > MOST_FACTOR)
            field = "freq_upchan_factor", value = m->upchan_factor[i];
        if (m->time_downsampling[i] < -1 || m->time_downsampling[i] == 0 ||
            m->time_downsampling[i] > MOST_FACTOR)
            field = "time_downsampling_fpga", value = m->time_downsampling[i];
        if (m->half_fpga_sample0[i] < -1) field = "half_fpga_sample0", value = m->half_fpga_sample0[i];
        if (field != NULL)
            return br_fail(error, BR_E_FORMAT, "%s: chordMetadata has %s[%d] = %lld, which makes no sense",
                           from, field, i, value);
    }
    return BR_OK;
}

int chord_metadata_decode(struct chord_metadata *m, const void *bytes, uint64_t size, uint64_t frame_bytes,
                          const char *from, struct br_error *error)
{
    const uint8_t *b = bytes;
    if (chord_metadata_check_size(size, from, error) != BR_OK) return BR_E_FORMAT;
    if (check_maxima(b, from, error) != BR_OK) return BR_E_FORMAT;
    bool old = size == CHORD_METADATA_BYTES;
    const struct layout *at = old ? &old_layout : &new_layout;
    memset(m, 0, sizeof *m);
    m->bytes = (size_t)size;
    m->frame_counter = get32(b + AT_COUNTER);
    get_name(m->name, b + AT_NAME);
    if (!printable(m->name))
        return br_fail(error, BR_E_FORMAT, "%s: the array's name in the chordMetadata is not printable",
                       from);
    long long code = get32(b + AT_TYPE),
              type = at->shift > 0 && code >= at->first_shifted ? code - at->shift : code;
    if (type <= CHORD_UNKNOWN || type >= CHORD_TYPES)
        return bad(error, from, "type", code, "the code of a type, 1 to 14");
    m->type = (enum chord_type)type;
    m->dims = get32(b + AT_DIMS);
    if (m->dims < 1 || m->dims > CHORD_MAX_DIMS) return bad(error, from, "dims", m->dims, "1 to 10");
    for (int i = 0; i < m->dims; i++) {
        m->dim[i] = get32(b + AT_DIM + 4 * i);
        get_name(m->dim_name[i], b + AT_DIM_NAME + CHORD_NAME * i);
        m->stride[i] = get64(b + AT_STRIDE + 8 * i);
    }
    m->offset = get64(b + AT_OFFSET);
    m->n_one_hot = old ? get32(b + AT_ONE_HOT) : 0;
    if (m->n_one_hot < -1 || m->n_one_hot > CHORD_MAX_DIMS)
        return bad(error, from, "n_one_hot", m->n_one_hot, "0 to 10");
    for (int i = 0; i < m->n_one_hot; i++) {
        get_name(m->one_hot_name[i], b + AT_ONE_HOT_NAME + CHORD_NAME * i);
        m->one_hot_index[i] = get32(b + AT_ONE_HOT_INDEX + 4 * i);
    }
    m->sample0_offset = get64(b + at->sample0);
    m->offset_downsampling = old ? 1 : get32(b + at->offset_downsampling);
    m->nfreq = get32(b + at->nfreq);
    if (m->nfreq < -1 || m->nfreq > CHORD_MAX_FREQ) return bad(error, from, "nfreq", m->nfreq, "0 to 1024");
    for (int i = 0; i < m->nfreq; i++) {
        m->coarse_freq[i] = get32(b + at->coarse + 4 * (size_t)i);
        m->upchan_factor[i] = get32(b + at->factor + 4 * (size_t)i);
        m->half_fpga_sample0[i] = get64(b + at->half + 8 * (size_t)i);
        m->time_downsampling[i] = get32(b + at->downsampling + 4 * (size_t)i);
    }
    if (check_shape(m, frame_bytes, from, error) != BR_OK) return BR_E_FORMAT;
    return check_channels(m, from, error);
}

/* --- encoding --------------------------------------------------------------------------------------- */

void chord_metadata_init(struct chord_metadata *m, const char *name, enum chord_type type)
{
    memset(m, 0, sizeof *m);
    m->bytes = CHORD_METADATA_BYTES;
    m->type = type;
    m->offset_downsampling = 1;
    strncpy(m->name, name, CHORD_NAME);
}

void chord_metadata_add(struct chord_metadata *m, const char *name, size_t length)
{
    strncpy(m->dim_name[m->dims], name, CHORD_NAME);
    m->dim[m->dims++] = (int32_t)length;
}

void chord_metadata_finish(struct chord_metadata *m)
{
    int64_t stride = 1;
    for (int i = m->dims - 1; i >= 0; i--) {
        m->stride[i] = stride;
        stride *= m->dim[i];
    }
}

static void put_name(uint8_t *b, const char *name)
{
    size_t length = strlen(name);
    memcpy(b, name, length < CHORD_NAME ? length : CHORD_NAME);
}

void chord_metadata_encode(const struct chord_metadata *m, void *bytes)
{
    uint8_t *b = bytes;
    bool old = m->bytes == CHORD_METADATA_BYTES;
    const struct layout *at = old ? &old_layout : &new_layout;
    memset(b, 0, m->bytes);
    put32(b + AT_MAX_DIM, CHORD_MAX_DIMS);
    put32(b + AT_MAX_NAME, CHORD_NAME);
    put32(b + AT_MAX_FREQ, CHORD_MAX_FREQ);
    put32(b + AT_COUNTER, m->frame_counter);
    put_name(b + AT_NAME, m->name);
    put32(b + AT_TYPE, (int32_t)m->type + ((int)m->type >= at->first_shifted ? at->shift : 0));
    put32(b + AT_DIMS, m->dims);
    for (int i = 0; i < m->dims; i++) {
        put32(b + AT_DIM + 4 * i, m->dim[i]);
        put_name(b + AT_DIM_NAME + CHORD_NAME * i, m->dim_name[i]);
        put64(b + AT_STRIDE + 8 * i, m->stride[i]);
    }
    put64(b + AT_OFFSET, m->offset);
    if (old) {
        put32(b + AT_ONE_HOT, m->n_one_hot);
        for (int i = 0; i < m->n_one_hot; i++) {
            put_name(b + AT_ONE_HOT_NAME + CHORD_NAME * i, m->one_hot_name[i]);
            put32(b + AT_ONE_HOT_INDEX + 4 * i, m->one_hot_index[i]);
        }
    } else {
        put32(b + at->offset_downsampling, m->offset_downsampling);
    }
    put64(b + at->sample0, m->sample0_offset);
    put32(b + at->nfreq, m->nfreq);
    for (int i = 0; i < m->nfreq; i++) {
        put32(b + at->coarse + 4 * (size_t)i, m->coarse_freq[i]);
        put32(b + at->factor + 4 * (size_t)i, m->upchan_factor[i]);
        put64(b + at->half + 8 * (size_t)i, m->half_fpga_sample0[i]);
        put32(b + at->downsampling + 4 * (size_t)i, m->time_downsampling[i]);
    }
}

/* --- meaning ---------------------------------------------------------------------------------------- */

int chord_metadata_dim(const struct chord_metadata *m, const char *name)
{
    for (int i = 0; i < m->dims; i++)
        if (strcmp(m->dim_name[i], name) == 0) return i;
    return -1;
}

uint64_t chord_metadata_frame_bytes(const struct chord_metadata *m)
{
    const uint64_t most = (uint64_t)1 << 40;
    uint64_t bytes = chord_type_bits(m->type) / 8;
    for (int i = 0; i < m->dims; i++) {
        if (m->dim[i] <= 0 || (bytes > 0 && (uint64_t)m->dim[i] > most / bytes)) return 0;
        bytes *= (uint64_t)m->dim[i];
    }
    return bytes;
}

/* half_fpga_sample0 and the samples of a step, where all channels have the same. */
static int common_times(const struct chord_metadata *m, const char *from, int64_t *half, int64_t *d,
                        struct br_error *error)
{
    *half = 0;
    *d = 1;
    for (int i = 0; i < m->nfreq; i++) {
        int64_t d_i = m->time_downsampling[i] < 0 ? 1 : m->time_downsampling[i];
        int64_t half_i = m->half_fpga_sample0[i] < 0 ? d_i - 1 : m->half_fpga_sample0[i];
        if (i > 0 && (half_i != *half || d_i != *d))
            return br_fail(
                error, BR_E_FORMAT,
                "%s: channels 0 and %d of the frame do not start at one time (half_fpga_sample0 %lld "
                "and %lld, time_downsampling_fpga %lld and %lld), which is not supported",
                from, i, (long long)*half, (long long)half_i, (long long)*d, (long long)d_i);
        *half = half_i;
        *d = d_i;
    }
    return BR_OK;
}

int chord_metadata_first_step(const struct chord_metadata *m, const char *from, uint64_t *first,
                              uint32_t *downsample, uint32_t *half, struct br_error *error)
{
    const int64_t most = (int64_t)1 << 61;
    int64_t h, d;
    int status = common_times(m, from, &h, &d, error);
    if (status != BR_OK) return status;
    if (m->sample0_offset < 0 || m->sample0_offset > most / d)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: chordMetadata puts the frame's first step at sample0_offset = %lld of %lld samples; "
            "expected a count from 0 to 2^61 samples",
            from, (long long)m->sample0_offset, (long long)d);
    if (h >= 64 * d)
        return bad(error, from, "half_fpga_sample0", (long long)h,
                   "the centre of a step or of a filter's taps");
    *first = (uint64_t)(m->sample0_offset * d);
    *downsample = (uint32_t)d;
    *half = (uint32_t)h;
    return BR_OK;
}

int chord_metadata_first(const struct chord_metadata *m, const char *from, uint64_t *first,
                         uint32_t *downsample, struct br_error *error)
{
    int64_t half, d;
    int status = common_times(m, from, &half, &d, error);
    if (status != BR_OK) return status;
    __int128_t twice = (__int128_t)2 * d * m->sample0_offset + half - (d - 1);
    if (m->sample0_offset < 0 || twice < 0 || twice > (__int128_t)1 << 62)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: chordMetadata puts the frame's first sample at sample0_offset = %lld, half_fpga_sample0 "
            "= %lld; expected a count from 0 to 2^61",
            from, (long long)m->sample0_offset, (long long)half);
    if (twice % 2 != 0)
        return bad(error, from, "half_fpga_sample0", (long long)half,
                   "a time that is a whole number of samples at the start of a step");
    *first = (uint64_t)(twice / 2);
    *downsample = (uint32_t)d;
    return BR_OK;
}

void chord_metadata_set_times(struct chord_metadata *m, size_t nfreq, const int32_t *coarse_freq,
                              uint32_t factor, uint64_t first, uint32_t downsample)
{
    m->nfreq = (int32_t)nfreq;
    m->sample0_offset = (int64_t)(first / downsample);
    for (size_t i = 0; i < nfreq; i++) {
        m->coarse_freq[i] = coarse_freq[i];
        m->upchan_factor[i] = (int32_t)factor;
        m->time_downsampling[i] = (int32_t)downsample;
        m->half_fpga_sample0[i] = (int64_t)(downsample - 1 + 2 * (first % downsample));
    }
}
