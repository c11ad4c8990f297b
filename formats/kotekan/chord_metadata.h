/* chord_metadata.h - kotekan's chordMetadata as bytes: what stands before a frame in its raw files and on its
 * TCP links, and says the frame's type, shape, channels and first sample.
 *
 * It is a C struct as it lies in memory, little-endian. Two layouts are in use, told apart by their size:
 *   CHORD_METADATA_BYTES      21120  with one-hot dimensions
 *   CHORD_METADATA_NEW_BYTES  20872  without them, and with offset_downsampling; every type from uint4x2 on
 *                                    has a code higher by one, behind a new type of bits
 * Integers of -1 mean "not said" in kotekan. */
#ifndef BEAMRING_FORMATS_KOTEKAN_CHORD_METADATA_H
#define BEAMRING_FORMATS_KOTEKAN_CHORD_METADATA_H

#include "buffers/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CHORD_METADATA_BYTES = 21120,
    CHORD_METADATA_NEW_BYTES = 20872,
    CHORD_MAX_DIMS = 10,
    CHORD_NAME = 20, /* characters of a name; a full one has no NUL in the bytes */
    CHORD_MAX_FREQ = 1024
};

/* Types by meaning; the codes in the bytes depend on the layout. */
enum chord_type {
    CHORD_UNKNOWN,
    CHORD_UINT4X2,
    CHORD_UINT8,
    CHORD_UINT16,
    CHORD_UINT32,
    CHORD_UINT64,
    CHORD_INT4X2,       /* complex 4+4 bits: our int4x2 (real part low, two's complement) */
    CHORD_INT4X2_CHIME, /* the coding `chime` (real part high, value + 8) */
    CHORD_INT8,
    CHORD_INT16,
    CHORD_INT32,
    CHORD_INT64,
    CHORD_FLOAT16,
    CHORD_FLOAT32,
    CHORD_FLOAT64,
    CHORD_TYPES
};

struct chord_metadata {
    size_t bytes; /* the layout: CHORD_METADATA_BYTES or CHORD_METADATA_NEW_BYTES */
    int32_t frame_counter;
    char name[CHORD_NAME + 1]; /* of the array: "E", "J", "I" */
    enum chord_type type;
    int32_t dims;
    int32_t dim[CHORD_MAX_DIMS];                   /* lengths, slowest first */
    char dim_name[CHORD_MAX_DIMS][CHORD_NAME + 1]; /* "T", "F", "P", "D", ... */
    int64_t stride[CHORD_MAX_DIMS];                /* elements */
    int64_t offset;                                /* elements */
    int32_t n_one_hot;                             /* 0 in the new layout, like what follows */
    char one_hot_name[CHORD_MAX_DIMS][CHORD_NAME + 1];
    int32_t one_hot_index[CHORD_MAX_DIMS];
    int64_t sample0_offset;              /* added to the frame's own time index */
    int32_t offset_downsampling;         /* 1 in the old layout */
    int32_t nfreq;                       /* coarse channels: the length of what follows; 0 or -1: not said */
    int32_t coarse_freq[CHORD_MAX_FREQ]; /* channel numbers of the F-engine */
    int32_t upchan_factor[CHORD_MAX_FREQ];     /* fine channels per coarse one */
    int64_t half_fpga_sample0[CHORD_MAX_FREQ]; /* TWICE the number of the F-engine's sample ... */
    int32_t time_downsampling[CHORD_MAX_FREQ]; /* ... and its samples per time step */
};

/* "int4x2" etc. */
const char *chord_type_name(enum chord_type type);

/* Bits of an element (a complex one counts as one); 0 for CHORD_UNKNOWN. */
unsigned chord_type_bits(enum chord_type type);

/* True when metadata can have this size. */
int chord_metadata_size_known(uint64_t bytes);

/* The same with words for those that are something else: what a kotekan of 2026 or later sends (a layout of
 * another size; a frame descriptor, whose tag of 1 or 2 stands where the size would) is named. Errors:
 * BR_E_FORMAT. */
int chord_metadata_check_size(uint64_t bytes, const char *from, struct br_error *error);

/* Decodes and validates `bytes` of metadata that precede a frame of `frame_bytes` (0: not known, not
 * compared). `from` names the file or peer in messages. Checked: the size, the three maxima, dimension count,
 * lengths, names, type, a row-major array without holes or offset that fills the frame exactly, channel
 * count, upchannelization and downsampling factors. Errors: BR_E_FORMAT with the field, its value and what
 * was expected. */
int chord_metadata_decode(struct chord_metadata *metadata, const void *bytes, uint64_t size,
                          uint64_t frame_bytes, const char *from, struct br_error *error);

/* Zeroes the metadata and sets the layout of CHORD_METADATA_BYTES, offset_downsampling 1, type and name; then
 * add the dimensions with chord_metadata_add, slowest first, and chord_metadata_finish sets the strides. */
void chord_metadata_init(struct chord_metadata *metadata, const char *name, enum chord_type type);
void chord_metadata_add(struct chord_metadata *metadata, const char *name, size_t length);
void chord_metadata_finish(struct chord_metadata *metadata);

/* Writes metadata->bytes bytes, every one of them set. */
void chord_metadata_encode(const struct chord_metadata *metadata, void *bytes);

/* Index of the dimension called `name`, or -1. */
int chord_metadata_dim(const struct chord_metadata *metadata, const char *name);

/* Bytes of the frame by its dimensions; 0 when they overflow. */
uint64_t chord_metadata_frame_bytes(const struct chord_metadata *metadata);

/* The F-engine's sample at which the frame's first time step starts, and its samples per step: the same for
 * all channels, or an error. A step of D samples, sums over [first, first + D), has its centre at
 * half_fpga_sample0 = D - 1 and index sample0_offset, so first = D * sample0_offset + (half_fpga_sample0 - (D
 * - 1)) / 2. Errors: BR_E_FORMAT. */
int chord_metadata_first(const struct chord_metadata *metadata, const char *from, uint64_t *first,
                         uint32_t *downsample, struct br_error *error);

/* The same for an array whose time steps are several samples, of which sample0_offset counts: first =
 * sample0_offset * *downsample. half_fpga_sample0 then says where in a step its centre lies, *half here;
 * that is D - 1 in files of ours, the taps less 1 behind kotekan's filterbank, and must be the same for
 * all channels. Errors: BR_E_FORMAT. */
int chord_metadata_first_step(const struct chord_metadata *metadata, const char *from, uint64_t *first,
                              uint32_t *downsample, uint32_t *half, struct br_error *error);

/* Sets nfreq, the channel table (upchannelized by `factor`) and the times of a frame so that
 * chord_metadata_first gives them back; `first` is a multiple of `downsample` or the remainder goes into
 * half_fpga_sample0. `coarse_freq` has nfreq <= CHORD_MAX_FREQ. */
void chord_metadata_set_times(struct chord_metadata *metadata, size_t nfreq, const int32_t *coarse_freq,
                              uint32_t factor, uint64_t first, uint32_t downsample);

#endif
