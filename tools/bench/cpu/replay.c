/* Replay: bytes per second of each format through the stage and its queue, from configure to stop, compared
 * with a plain loop of read() over the same file, on one thread. Both read from the page cache. The loop has
 * a buffer of 1 MiB, with which it is fastest (256 KiB ... 16 MiB were tried). Direct reads are from the
 * disk, compared with a loop of direct reads of 4 MiB. */
#include "buffers/clock.h"
#include "formats/common/coding.h"
#include "formats/dada/dada.h"
#include "formats/guppi/guppi.h"
#include "formats/kotekan/kotekan_raw.h"
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"
#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <lz4.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BYTES = 128 << 20,
    PASSES = 8,
    NFREQ = 16,
    ELEMENTS = 128,
    GUPPI_CHANNELS = 64,
    GUPPI_SAMPLES = 32768,
    CHIME_INPUTS = 2048,
    READ = 1 << 20,
    READ_DIRECT = 4 << 20
};
enum { ROW = NFREQ * ELEMENTS };

static char directory[] = "/tmp/beamring-bench-XXXXXX";
static const char stream_text[] =
    "stream: {sample_ns: 2560, epoch_ns: 0, freq_mhz: {first: 400, step: 0.390625, count: %d},\n"
    "         override: [sample_ns, epoch_ns, freq_mhz]}\n"
    "pipeline:\n"
    "  - {stage: replay, files: %s/x.*, out: field, loop: %d, readers: %d%s}\n"
    "  - {stage: record, in: field, directory: %s, prefix: out}\n";

static void put(FILE *f, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, f) != bytes) {
        fprintf(stderr, "beamring bench: cannot write to %s: %s\n", directory, strerror(errno));
        exit(1);
    }
}

/* Random bytes without zeros, so that none counts as missing. */
static uint8_t *noise(void)
{
    static uint8_t *data;
    if (data != NULL) return data;
    data = bench_alloc(BYTES);
    uint64_t seed = 1;
    for (size_t i = 0; i < BYTES; i += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t word = (seed ^ seed >> 29) | 0x0101010101010101u;
        memcpy(data + i, &word, 8);
    }
    return data;
}

/* --- files
 * ----------------------------------------------------------------------------------------------------
 * */

static void write_dada(FILE *f)
{
    char text[4096];
    struct dada_writer w = {text, sizeof text, 0};
    dada_put(&w, "HEADER", "DADA");
    dada_put(&w, "HDR_SIZE", "4096");
    dada_put(&w, "NBIT", "4");
    dada_put(&w, "NDIM", "2");
    dada_put(&w, "NPOL", "2");
    dada_put(&w, "NCHAN", "%d", NFREQ);
    dada_put(&w, "NANT", "%d", ELEMENTS / 2);
    dada_put(&w, "ORDER", "TFPA");
    dada_finish(&w, sizeof text);
    put(f, text, sizeof text);
    put(f, noise(), BYTES);
}

static void write_kotekan(FILE *f)
{
    static struct chord_metadata m;
    static uint8_t bytes[4 + CHORD_METADATA_BYTES];
    int32_t coarse[NFREQ], samples = (16 << 20) / ROW;
    for (int i = 0; i < NFREQ; i++) coarse[i] = 2000 + 128 * i;
    for (size_t at = 0; at < BYTES; at += 16 << 20) {
        chord_metadata_init(&m, "E", CHORD_INT4X2);
        chord_metadata_add(&m, "T", (size_t)samples);
        chord_metadata_add(&m, "F", NFREQ);
        chord_metadata_add(&m, "P", 2);
        chord_metadata_add(&m, "D", ELEMENTS / 2);
        chord_metadata_finish(&m);
        chord_metadata_set_times(&m, NFREQ, coarse, 1, at / ROW, 1);
        uint32_t size = CHORD_METADATA_BYTES;
        memcpy(bytes, &size, 4);
        chord_metadata_encode(&m, bytes + 4);
        put(f, bytes, sizeof bytes);
        put(f, noise() + at, 16 << 20);
    }
}

static void write_guppi(FILE *f)
{
    size_t block = (size_t)4 * GUPPI_CHANNELS * GUPPI_SAMPLES;
    for (size_t i = 0; i * block < BYTES; i++) {
        char text[4096];
        struct guppi_writer w = {text, sizeof text, 0};
        guppi_put_int(&w, "BLOCSIZE", (int64_t)block);
        guppi_put_int(&w, "PIPERBLK", 1);
        guppi_put_int(&w, "PKTIDX", (int64_t)i);
        guppi_put_real(&w, "OBSFREQ", 500);
        guppi_put_real(&w, "OBSBW", 25);
        guppi_put_int(&w, "OBSNCHAN", GUPPI_CHANNELS);
        guppi_put_int(&w, "NPOL", 4);
        guppi_put_int(&w, "NBITS", 8);
        guppi_put_real(&w, "TBIN", 2.56e-6);
        guppi_put_int(&w, "DIRECTIO", 1);
        guppi_finish(&w, true);
        put(f, text, w.used);
        put(f, noise() + i * block, block);
    }
}

/* Two threads of single samples of 1024 channels, as CHIME's VDIF has them. */
static void write_vdif_frames(FILE *f, unsigned log2_channels, unsigned samples, unsigned threads)
{
    uint32_t payload = samples << log2_channels, rate = 390625;
    uint8_t head[32];
    for (uint32_t n = 0; (uint64_t)n * payload < BYTES; n++) {
        uint32_t number = n / threads, per_second = rate / samples;
        uint32_t w[8] = {1000 + number / per_second,
                         number % per_second | 40u << 24,
                         (payload + 32) / 8 | log2_channels << 24,
                         1u << 31 | 3u << 26 | (n % threads) << 16,
                         0,
                         0,
                         0,
                         0};
        memcpy(head, w, sizeof head);
        put(f, head, sizeof head);
        put(f, noise() + (size_t)n * payload % (BYTES - payload), payload);
    }
}

static void write_vdif_fine(FILE *f)
{
    write_vdif_frames(f, 10, 1, 2);
}

static void write_vdif_long(FILE *f)
{
    write_vdif_frames(f, 4, 625, 1);
}

/* --- HDF5
 * ----------------------------------------------------------------------------------------------------
 * */

static void attribute(hid_t file, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR), a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, value);
    H5Aclose(a);
    H5Sclose(space);
}

/* Bitshuffles block by block (bit k of all bytes together) and compresses each block. Returns the size. */
static size_t pack_chunk(const uint8_t *in, size_t bytes, uint8_t *out)
{
    static uint8_t shuffled[8192];
    size_t at = 12;
    for (int i = 0; i < 12; i++)
        out[i] = (uint8_t)(i < 8 ? (uint64_t)bytes >> (56 - 8 * i) : 8192u >> (24 - 8 * (i - 8)));
    for (size_t b = 0; b < bytes; b += 8192) {
        memset(shuffled, 0, sizeof shuffled);
        for (size_t i = 0; i < 8192; i++)
            for (size_t k = 0; k < 8; k++)
                shuffled[k * 1024 + i / 8] |= (uint8_t)((in[b + i] >> k & 1) << i % 8);
        int n = LZ4_compress_default((char *)shuffled, (char *)out + at + 4, 8192, LZ4_compressBound(8192));
        for (int i = 0; i < 4; i++) out[at + (size_t)i] = (uint8_t)((unsigned)n >> (24 - 8 * i));
        at += 4 + (size_t)n;
    }
    return at;
}

/* A CHIME file, plain or bitshuffled with LZ4. Its bytes compress by one bit in eight (so that more is
 * written than read), or are noise like that of telescopes, which does not compress. */
enum chime_data { AS_IS, PACKED, PACKED_FIELD };

/* Offset binary, 1.4 levels rms: sums of 8 bits. */
static const uint8_t *field(const uint8_t *bits, size_t bytes)
{
    static uint8_t data[512 * CHIME_INPUTS];
    for (size_t i = 0; i < bytes; i++) {
        int re = 4 + __builtin_popcount((unsigned)(bits[i] ^ bits[(i + 1) % bytes] << 3) & 255),
            im =
                4 + __builtin_popcount((unsigned)(bits[(i + 77) % bytes] ^ bits[(i + 5) % bytes] << 5) & 255);
        data[i] = (uint8_t)(re << 4 | im);
    }
    return data;
}

static void write_hdf5(const char *path, unsigned freq_id, hsize_t rows, enum chime_data what)
{
    const double delta = 2.56e-6, ctime = 1600000000;
    const uint64_t count = 1000000;
    hsize_t dims[2] = {rows, CHIME_INPUTS}, chunk[2] = {512, CHIME_INPUTS};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
          space = H5Screate_simple(2, dims, NULL);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    attribute(file, "freq_id", H5T_NATIVE_UINT, &freq_id);
    attribute(file, "delta_time", H5T_NATIVE_DOUBLE, &delta);
    attribute(file, "time0_ctime", H5T_NATIVE_DOUBLE, &ctime);
    attribute(file, "time0_fpga_count", H5T_NATIVE_UINT64, &count);
    bool packed = what != AS_IS;
    if (packed) {
        unsigned values[5] = {0, 3, 1, 0, 2};
        H5Pset_chunk(plist, 2, chunk);
        H5Pset_filter(plist, 32008, H5Z_FLAG_OPTIONAL, 5, values);
    }
    hid_t data = H5Dcreate2(file, "baseband", H5T_NATIVE_UINT8, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (!packed) H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, noise());
    size_t bytes = (size_t)(chunk[0] * chunk[1]);
    uint8_t *out = bench_alloc(2 * bytes);
    for (hsize_t row = 0; packed && row < rows; row += chunk[0]) {
        hsize_t at[2] = {row, 0};
        const uint8_t *from = noise() + row * CHIME_INPUTS % (BYTES - bytes);
        size_t n = pack_chunk(what == PACKED_FIELD ? field(from, bytes) : from, bytes, out);
        H5Dwrite_chunk(data, H5P_DEFAULT, 0, at, n, out);
    }
    H5Dclose(data);
    H5Pclose(plist);
    H5Sclose(space);
    H5Fclose(file);
}

/* --- one format
 * ----------------------------------------------------------------------------------------------------
 * */

struct run {
    char text[1024];
    char path[16][64];
    size_t nfiles;
    bool direct;
    uint8_t *ring; /* READ bytes for the plain loop, or more */
    uint64_t bytes, samples;
    char error[BR_ERROR_LENGTH];
};

static int count_frames(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage;
    (void)self;
    return io->in[0] != NULL ? BR_CONSUMED : BR_FINISHED;
}

static void replay(struct run *r)
{
    struct br_error error = {0};
    struct loaded l;
    struct br_stage_type sink;
    int status = load_text(&l, "bench", r->text, stderr, BR_LOG_WARNING, &error);
    if (status == BR_OK) {
        struct br_stage *last = &l.graph->stage[1];
        sink = *last->type; /* a reader that does nothing, in place of a recorder */
        sink.start = NULL;
        sink.stop = NULL;
        sink.process = count_frames;
        last->type = &sink;
        status = br_pipeline_start(l.graph, &error);
        if (status == BR_OK) status = br_pipeline_finish(l.graph, &error);
        struct br_stage_totals totals;
        br_stage_get_totals(&l.graph->stage[0], &totals);
        r->samples = totals.out_samples;
    }
    if (status != BR_OK) snprintf(r->error, sizeof r->error, "%s", error.text);
    unload_pipeline(&l);
}

static void plain_read(struct run *r)
{
    r->bytes = 0;
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < r->nfiles; i++) {
            int fd = open(r->path[i], O_RDONLY | O_CLOEXEC | (r->direct ? O_DIRECT : 0));
            ssize_t n;
            while (fd >= 0 && (n = read(fd, r->ring, r->direct ? READ_DIRECT : READ)) > 0)
                r->bytes += (uint64_t)n;
            if (fd >= 0) close(fd);
        }
}

enum { PAIRS = 9 };

/* Alternates the work and the loop. Takes the median of the ratios of adjacent runs, which slow down
 * together, and the median of the times. */
static void alternate(struct run *r, void (*work)(struct run *), double *work_s, double *ratio)
{
    double seconds[PAIRS], ratios[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        uint64_t begin = br_clock_ns();
        work(r);
        uint64_t middle = br_clock_ns();
        plain_read(r);
        uint64_t end = br_clock_ns();
        seconds[i] = (double)(middle - begin) * 1e-9;
        ratios[i] = (double)(end - middle) / (double)(middle - begin);
    }
    qsort(seconds, PAIRS, sizeof *seconds, bench_by_value);
    qsort(ratios, PAIRS, sizeof *ratios, bench_by_value);
    *work_s = seconds[PAIRS / 2];
    *ratio = ratios[PAIRS / 2];
}

/* The cost of replay without decoding: as many threads as `replay` uses read pieces that fit a core's cache,
 * and copy them to frames with stores that bypass the caches. */
enum { COPY_PIECE = 128 << 10, COPY_RING = 16 << 20, COPIERS = 2 };

struct copier {
    const struct run *r;
    unsigned index;
    uint8_t *piece, *ring; /* [COPY_PIECE]; [COPY_RING], for all */
};

static void *copy_on(void *arg)
{
    struct copier *c = arg;
    int fd = open(c->r->path[0], O_RDONLY | O_CLOEXEC);
    for (int pass = 0; fd >= 0 && pass < PASSES; pass++) {
        ssize_t n;
        for (size_t at = (size_t)c->index * COPY_PIECE; (n = pread(fd, c->piece, COPY_PIECE, (off_t)at)) > 0;
             at += COPIERS * (size_t)COPY_PIECE)
            coding_convert_past_caches(CODING_INT4X2, c->piece, c->ring + at % COPY_RING, (size_t)n);
    }
    coding_settle();
    if (fd >= 0) close(fd);
    return NULL;
}

static void copy_all(struct run *r)
{
    pthread_t thread[COPIERS];
    struct copier c[COPIERS];
    unsigned started = 0;
    for (; started < COPIERS; started++) {
        c[started] = (struct copier){r, started, r->ring + COPY_RING + (size_t)started * COPY_PIECE, r->ring};
        if (pthread_create(&thread[started], NULL, copy_on, &c[started]) != 0) break;
    }
    while (started > 0) pthread_join(thread[--started], NULL);
}

static void ceiling(struct run *r)
{
    double seconds, ratio;
    char against[64];
    size_t room = COPY_RING + COPIERS * (size_t)COPY_PIECE;
    r->ring = aligned_alloc(4096, room);
    if (r->ring == NULL) return;
    memset(r->ring, 1, room);
    alternate(r, copy_all, &seconds, &ratio);
    free(r->ring);
    snprintf(against, sizeof against, "of read(), %.2f GB/s", (double)r->bytes / seconds * 1e-9 / ratio);
    bench_report("(two threads that read, and copy once more)", (double)r->bytes / seconds * 1e-9, "GB/s",
                 against, ratio, 0, 1);
}

static int measure(const char *what, struct run *r, int nfreq, int readers, double required)
{
    double replay_s, ratio;
    char against[64];
    r->error[0] = '\0';
    snprintf(r->text, sizeof r->text, stream_text, nfreq, directory, PASSES, readers,
             r->direct ? ", direct: true" : "", directory);
    replay(r); /* tells whether it can be */
    size_t room = r->direct ? READ_DIRECT : READ;
    r->ring = r->error[0] == '\0' ? aligned_alloc(4096, room) : NULL;
    if (r->ring == NULL) {
        printf("%-52s %s\n", what, r->error[0] != '\0' ? r->error : "not enough memory");
        return 1;
    }
    memset(r->ring, 1, room);
    alternate(r, replay, &replay_s, &ratio);
    free(r->ring);
    snprintf(against, sizeof against, "of %sread(), %.2f GB/s", r->direct ? "direct " : "",
             (double)r->bytes / replay_s * 1e-9 / ratio);
    return bench_report(what, (double)r->bytes / replay_s * 1e-9, "GB/s", against, ratio, required, 1);
}

static int bench_file(const char *what, void (*write)(FILE *), const char *ending, int nfreq)
{
    struct run r = {.nfiles = 1};
    snprintf(r.path[0], sizeof r.path[0], "%s/x.%s", directory, ending);
    FILE *f = fopen(r.path[0], "wb");
    if (f == NULL) return 1;
    write(f);
    fflush(f);
    fdatasync(fileno(f)); /* otherwise the disk is still written to during the measurement */
    fclose(f);
    int result = measure(what, &r, nfreq, 0, 0.7);
    if (write == write_dada) {
        result += measure("DADA, one reader", &r, nfreq, 1, 0);
        ceiling(&r);
        r.direct = true;
        int fd = open(r.path[0], O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (fd >= 0)
            result += measure("DADA, direct", &r, nfreq, 0, 0.9);
        else
            printf("%-52s skipped: no direct reads in %s\n", "DADA, direct", directory);
        if (fd >= 0) close(fd);
    }
    unlink(r.path[0]);
    return result;
}

static int bench_chime(const char *what, enum chime_data data, double required)
{
    struct run r = {.nfiles = 4};
    for (unsigned i = 0; i < r.nfiles; i++) {
        snprintf(r.path[i], sizeof r.path[i], "%s/x.%u.h5", directory, i);
        write_hdf5(r.path[i], 10 + i, BYTES / CHIME_INPUTS / 4, data);
    }
    int result = measure(what, &r, 4, 0, required);
    for (size_t i = 0; i < r.nfiles; i++) unlink(r.path[i]);
    return result;
}

int bench_replay(void)
{
    if (mkdtemp(directory) == NULL) {
        fprintf(stderr, "beamring bench: cannot make %s: %s\n", directory, strerror(errno));
        return 1;
    }
    int result = bench_file("DADA", write_dada, "dada", NFREQ);
    result += bench_file("kotekan raw frames", write_kotekan, "raw", NFREQ);
    result += bench_file("GUPPI RAW, 64 channels", write_guppi, "raw", GUPPI_CHANNELS);
    result += bench_file("VDIF, 1 thread x 16 channels x 625 samples", write_vdif_long, "vdif", 16);
    result += bench_file("VDIF, 2 threads x 1024 channels x 1 sample", write_vdif_fine, "vdif", 1024);
    result += bench_chime("CHIME baseband, 4 frequencies", AS_IS, 0.7);
    result += bench_chime("CHIME baseband, bitshuffle and LZ4", PACKED, 0.7);
    result += bench_chime("CHIME baseband, the same of received noise", PACKED_FIELD, 0.7);
    rmdir(directory);
    return result;
}
