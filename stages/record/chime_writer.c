/* CHIME baseband files: one for each channel; what is never written, or missing, is zero. */
#include "stages/common/formats/chime_attributes.h"
#include "stages/common/stage/shape.h"
#include "stages/record/external.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };
static const double top_mhz = CHIME_TOP_MHZ, step_mhz = CHIME_STEP_MHZ;

static int configure(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    if (!external_numbers(s, top_mhz, step_mhz, f->id)) {
        external_loses(
            f, "the channel numbers (the frequencies are not 800 MHz less a whole number of 0.390625 MHz)");
        for (size_t i = 0; i < s->nchannels; i++) f->id[i] = (int32_t)i;
    }
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / step_mhz + 1) > 1e-9) {
            external_loses(f, "the channel width %.9g MHz (a reader takes 0.390625)", s->width_mhz[i]);
            break;
        }
    if (s->sample_ns.den != 1)
        external_loses(f, "the exact sample time %lld/%lld ns", (long long)s->sample_ns.num,
                       (long long)s->sample_ns.den);
    if (s->sideband == BR_SIDEBAND_UNKNOWN)
        br_stage_note(stage,
                      "nobody says which sideband the channels hold; readers of CHIME's files take the lower "
                      "one. Say which: `stream: {sideband: upper}` or `lower`");
    br_stage_note(stage,
                  "CHIME's files have inputs in a row; who reads them must be told that they are %zu "
                  "polarisations of %zu dishes: npol: "
                  "%zu",
                  f->npol, f->ndish, f->npol);
    return BR_OK;
}

static bool make_file(const struct external *f, const struct br_stream *s, size_t channel, hid_t *file,
                      hid_t *dataset)
{
    hsize_t inputs = f->cell, none[2] = {0, inputs}, most[2] = {H5S_UNLIMITED, inputs};
    hsize_t chunk[2] = {CHUNK / inputs > 0 ? CHUNK / inputs : 1, inputs};
    *file = H5Fcreate(f->path, f->overwrite ? H5F_ACC_TRUNC : H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    if (*file < 0) return false;
    bool good = chime_put_attributes(*file, s, channel, f->id[channel], f->first);
    hid_t space = H5Screate_simple(2, none, most), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 2, chunk);
    *dataset = H5Dcreate2(*file, "baseband", H5T_NATIVE_UINT8, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Pclose(plist);
    H5Sclose(space);
    return chime_put_inputs(*file, inputs, NULL) && good && *dataset >= 0;
}

static int start(struct br_stage *stage, struct external *f)
{
    f->hdf5 = malloc(2 * f->nchannels * sizeof *f->hdf5);
    if (f->hdf5 == NULL) return br_no_memory(stage, 2 * f->nchannels * sizeof *f->hdf5);
    for (size_t i = 0; i < 2 * f->nchannels; i++) f->hdf5[i] = -1;
    for (size_t i = 0; i < f->nchannels; i++) {
        int status = external_name(stage, f, (uint64_t)f->id[i]);
        if (status != BR_OK) return status;
    }
    f->files = 0;
    return BR_OK;
}

/* A channel's rows in the coding chime: value + 8, real part high; zero where it is missing. */
static void encode(struct external *f, const struct br_frame *frame, size_t channel, uint8_t *out)
{
    for (size_t t = 0; t < frame->samples; t++, out += f->cell) {
        size_t at = t * f->nchannels + channel;
        const uint8_t *in = (const uint8_t *)frame->data + at * f->cell;
        if (!frame->complete && frame->valid[at] == BR_MISSING) {
            memset(out, 0, f->cell);
            continue;
        }
        for (size_t i = 0; i < f->cell; i++) {
            uint8_t flipped = in[i] ^ 0x88;
            out[i] = (uint8_t)(flipped << 4 | flipped >> 4);
            if (out[i] != 0) continue;
            out[i] = 0x10; /* -7 - 8i: 0 would say that it is missing */
            f->changed++;
        }
    }
}

static bool write_rows(hid_t dataset, hsize_t row, hsize_t rows, hsize_t inputs, const uint8_t *bytes)
{
    hsize_t size[2] = {row + rows, inputs}, at[2] = {row, 0}, count[2] = {rows, inputs};
    if (H5Dset_extent(dataset, size) < 0) return false;
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, count, NULL);
    bool good = H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
                H5Dwrite(dataset, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, bytes) >= 0;
    H5Sclose(memory);
    H5Sclose(space);
    return good;
}

static int write_channels(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    for (size_t i = 0; i < f->nchannels; i++) {
        hid_t file = f->hdf5[2 * i], dataset = f->hdf5[2 * i + 1];
        bool good = true;
        if (file < 0) {
            int status = external_name(stage, f, (uint64_t)f->id[i]);
            if (status != BR_OK) return status;
            good = make_file(f, s, i, &file, &dataset);
            f->hdf5[2 * i] = file;
            f->hdf5[2 * i + 1] = dataset;
        }
        encode(f, frame, i, f->bytes);
        if (!good || !write_rows(dataset, frame->first - f->first, frame->samples, f->cell, f->bytes))
            return br_stage_fail(stage, BR_E_IO, "HDF5 cannot write channel %d to %s/%s_*.h5", f->id[i],
                                 f->directory, f->prefix);
    }
    return BR_OK;
}

/* HDF5 knows no threads, and a pipeline may have several recorders. */
static int write_frame(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int status = write_channels(stage, f, frame);
    pthread_mutex_unlock(&lock);
    return status;
}

static int stop(struct br_stage *stage, struct external *f)
{
    int status = BR_OK;
    for (size_t i = 0; f->hdf5 != NULL && i < f->nchannels; i++) {
        bool good = f->hdf5[2 * i + 1] < 0 || H5Dclose(f->hdf5[2 * i + 1]) >= 0;
        if (f->hdf5[2 * i] >= 0) good = H5Fclose(f->hdf5[2 * i]) >= 0 && good;
        if (!good && status == BR_OK)
            status = br_stage_fail(stage, BR_E_IO, "HDF5 cannot complete a file %s/%s_*.h5", f->directory,
                                   f->prefix);
    }
    free(f->hdf5);
    f->hdf5 = NULL;
    return status;
}

const struct external_format external_chime = {.name = "chime",
                                               .suffix = "h5",
                                               .says_missing = true,
                                               .says_sideband = true,
                                               .configure = configure,
                                               .start = start,
                                               .write = write_frame,
                                               .stop = stop};
