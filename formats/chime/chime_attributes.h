/* chime_attributes.h - what a CHIME baseband file says of its samples: the side that writes, and its
 * texts.
 *
 * HDF5 must be open for the calling thread alone, or be built for threads. */
#ifndef BEAMRING_FORMATS_CHIME_CHIME_ATTRIBUTES_H
#define BEAMRING_FORMATS_CHIME_CHIME_ATTRIBUTES_H

#include "buffers/stream.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

/* CHIME's raster: channel i at 800 MHz - i * 0.390625 MHz. */
#define CHIME_TOP_MHZ  800.0
#define CHIME_STEP_MHZ (-0.390625)

/* An attribute that is one text, of fixed or variable length; "" where there is none, or a longer one than
 * `size` - 1 bytes. False where it is something else. */
bool chime_get_text(hid_t file, const char *name, char *text, size_t size);

/* Number and frequency of the stream's channel, the sample time, and when base sample `first` was: freq_id,
 * freq, delta_time, time0_fpga_count, time0_ctime, time0_ctime_offset; and sideband, where it is known. */
bool chime_put_attributes(hid_t file, const struct br_stream *stream, size_t channel, int64_t freq_id,
                          uint64_t first);

/* The bytes of a file before and behind its data, which are rows x columns bytes in one piece from
 * head_bytes. */
struct chime_around {
    uint8_t *head, *tail;
    uint64_t head_bytes, tail_bytes;
};

/* Describes a file of so many rows and columns: the library makes it in memory, with its data unwritten, so
 * that it waits for nobody and meets no full disk. `put` adds attributes and tables. False where the library
 * fails, or there is no memory. head and tail are malloc'ed, to be freed in either case. */
bool chime_describe(struct chime_around *around, uint64_t rows, uint64_t columns,
                    bool (*put)(hid_t file, const void *arg), const void *arg);

/* /index_map/input: the inputs, by their numbers; `number` NULL: 0, 1, ... */
bool chime_put_inputs(hid_t file, size_t inputs, const uint32_t *number);

#endif
