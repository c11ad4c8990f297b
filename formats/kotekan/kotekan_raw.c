#include "formats/kotekan/kotekan_raw.h"
#include "formats/common/fileio.h"

#include <stdio.h>

static uint32_t little32(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool kotekan_raw_probe(const void *start, size_t length)
{
    const uint8_t *b = start;
    bool plausible =
        length >= 16 && little32(b) >= 4096 && little32(b) <= 65536; /* later layouts are named */
    return plausible && little32(b + 4) == CHORD_MAX_DIMS && little32(b + 8) == CHORD_NAME;
}

int kotekan_raw_read(struct kotekan_frame *frame, int fd, const char *path, uint64_t at, uint64_t file_bytes,
                     struct br_error *error)
{
    uint8_t bytes[KOTEKAN_RAW_HEADER];
    uint64_t left = file_bytes - at;
    if (left < 4)
        return br_fail(error, BR_E_FORMAT, "%s: the file ends in the size of the metadata at byte %llu", path,
                       (unsigned long long)at);
    int status = fileio_read_all(fd, path, bytes, 4, at, error);
    if (status != BR_OK) return status;
    uint32_t size = little32(bytes);
    if (size == 0)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the frame at byte %llu has no metadata, so its shape and time are not known",
                       path, (unsigned long long)at);
    char where[4200];
    snprintf(where, sizeof where, "%s: at byte %llu", path, (unsigned long long)at);
    if (chord_metadata_check_size(size, where, error) != BR_OK) return BR_E_FORMAT;
    if (left - 4 < size)
        return br_fail(error, BR_E_FORMAT,
                       "%s: the file ends in the metadata at byte %llu, after %llu of %u bytes", path,
                       (unsigned long long)at, (unsigned long long)(left - 4), size);
    status = fileio_read_all(fd, path, bytes + 4, size, at + 4, error);
    if (status == BR_OK) status = chord_metadata_decode(&frame->metadata, bytes + 4, size, 0, path, error);
    if (status != BR_OK) return status;
    frame->offset = at + 4 + size;
    frame->bytes = chord_metadata_frame_bytes(&frame->metadata);
    frame->there = file_bytes - frame->offset < frame->bytes ? file_bytes - frame->offset : frame->bytes;
    return BR_OK;
}

int kotekan_raw_field(const struct chord_metadata *m, const char *from, struct kotekan_field *field,
                      struct br_error *error)
{
    static const char letters[4] = {'T', 'F', 'P', 'D'};
    if (m->type != CHORD_INT4X2 && m->type != CHORD_INT4X2_CHIME)
        return br_fail(error, BR_E_FORMAT, "%s: the frame '%s' holds %s; expected the electric field, int4x2",
                       from, m->name, chord_type_name(m->type));
    uint64_t length[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    int place[4] = {-1, -1, -1, -1};
    for (int i = 0; i < m->dims; i++) {
        int k = 0;
        while (k < 4 && (m->dim_name[i][0] != letters[k] || m->dim_name[i][1] != '\0')) k++;
        if (k == 4 || place[k] >= 0)
            return br_fail(
                error, BR_E_FORMAT,
                "%s: dimension %d of the frame '%s' is '%s'; expected the electric field with T, F, P and D, "
                "each once",
                from, i, m->name, m->dim_name[i]);
        place[k] = i;
        length[k] = (uint64_t)m->dim[i];
        stride[k] = (uint64_t)m->stride[i];
    }
    if (place[0] < 0 || (place[2] >= 0 && (place[2] < place[0] || place[2] < place[1])) ||
        (place[3] >= 0 && (place[3] < place[0] || place[3] < place[1] || place[3] < place[2])))
        return br_fail(error, BR_E_FORMAT,
                       "%s: the dimensions of the frame '%s' are in an order that is not read; expected T, "
                       "F, P, D or F, T, "
                       "P, D, slowest first",
                       from, m->name);
    if (m->nfreq > 0 && (uint64_t)m->nfreq != length[1])
        return br_fail(error, BR_E_FORMAT, "%s: chordMetadata has nfreq %d, but %llu channels in dimension F",
                       from, m->nfreq, (unsigned long long)length[1]);
    for (int i = 0; i < m->nfreq; i++)
        if (m->upchan_factor[i] > 1)
            return br_fail(
                error, BR_E_FORMAT,
                "%s: channel %d is upchannelized by %d; expected the electric field as the F-engine gives it",
                from, i, m->upchan_factor[i]);
    uint64_t cell = length[2] * length[3];
    *field = (struct kotekan_field){.samples = length[0],
                                    .nfreq = length[1],
                                    .npol = length[2],
                                    .ndish = length[3],
                                    .stride_time = stride[0],
                                    .stride_freq = place[1] < 0 ? cell : stride[1],
                                    .stride_pol = length[3],
                                    .stride_dish = 1,
                                    .chime = m->type == CHORD_INT4X2_CHIME};
    uint32_t downsample = 1;
    int status = chord_metadata_first(m, from, &field->first, &downsample, error);
    if (status == BR_OK && downsample != 1)
        return br_fail(error, BR_E_FORMAT,
                       "%s: a time step is %u samples (time_downsampling_fpga); expected 1", from,
                       downsample);
    return status;
}
