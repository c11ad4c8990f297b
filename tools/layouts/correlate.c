/* The correlator's layouts (kernels/correlate/gpu/): a tile of E in shared memory, and rows of bytes for the
 * products. */
#include "kernels/correlate/gpu/layout.h"
#include "kernels/correlate/gpu/products/products.h"
#include "tools/layouts/check.h"

void layouts_correlate(struct layouts *report);

enum { WARPS = SPREAD_THREADS / 32, LANES = 32 };

/* spread(): into the tile as words of 4 inputs of a sample, item: t * SPREAD_WORDS + word; out of it as words
 * of 4 samples, from which lanes make rows. */
static void check_tile(struct layouts *report)
{
    struct layouts_region *tile =
        layouts_region(report, LAYOUTS_SHARED, "tile", SPREAD_TILE * SPREAD_PITCH, 4);
    for (unsigned t = 0; t < SPREAD_TILE; t++) layouts_padding(tile, spread_word(t, SPREAD_WORDS), 1);
    struct layouts_pass *write = layouts_begin(tile, LAYOUTS_WRITE, "load");
    for (unsigned t = 0; t < SPREAD_TILE; t++) {
        struct layouts_access access = {.bytes = 4};
        for (unsigned lane = 0; lane < LANES; lane++)
            layouts_lane_items(&access, lane, 4 * spread_word(t, lane), t * SPREAD_WORDS + lane);
        layouts_access(write, &access);
    }
    layouts_end(write, 1, 1);

    struct layouts_pass *read = layouts_begin(tile, LAYOUTS_READ, "words of a lane");
    bool taken[SPREAD_TILE] = {false};
    for (unsigned word = 0; word < SPREAD_WORDS; word++)
        for (unsigned q = 0; q < 4; q++) {
            struct layouts_access access = {.bytes = 4};
            for (unsigned lane = 0; lane < LANES; lane++) {
                unsigned t = spread_sample(lane, q);
                taken[t] = true;
                layouts_lane_items(&access, lane, 4 * spread_word(t, word), t * SPREAD_WORDS + word);
            }
            layouts_access(read, &access);
        }
    layouts_end(read, 1, 1);
    for (unsigned t = 0; t < SPREAD_TILE; t++)
        layouts_expect(report, taken[t], "sample %u of a tile is in no row", t);
}

/* The rows of one channel of `padded` inputs, of so many tiles: 128 real parts, 128 imaginary ones, ... */
static void check_rows(struct layouts *report, unsigned padded, unsigned tiles)
{
    size_t pitch = 2 * SPREAD_TILE * tiles;
    struct layouts_region *xy = layouts_region(report, LAYOUTS_GLOBAL, "xy", 2 * padded * pitch, 1);
    struct layouts_pass *write = layouts_begin(xy, LAYOUTS_WRITE, "rows");
    for (unsigned n = 0; n < padded; n++)
        for (unsigned t0 = 0; t0 < tiles * SPREAD_TILE; t0 += SPREAD_TILE)
            for (unsigned part = 0; part < 4; part++) { /* real, imaginary of x; of y */
                struct layouts_access access = {.bytes = 4};
                unsigned apart, row = spread_row(n, padded, PRODUCTS_BLOCK, &apart);
                for (unsigned lane = 0; lane < LANES; lane++)
                    layouts_lane(&access, lane,
                                 (int64_t)((row + part / 2 * apart) * pitch + 2 * t0 +
                                           4 * (part % 2 * SPREAD_WORDS + lane)));
                layouts_access(write, &access);
            }
    layouts_end(write, 1, 1);
}

/* gather(): the products of a column are read for all inputs from its own on. */
static void check_products(struct layouts *report, unsigned padded)
{
    size_t end = 0, blocks = products_blocks(padded);
    for (unsigned b = 0; b < blocks; b++) {
        unsigned begin = b * PRODUCTS_BLOCK, rows = 2 * (padded - begin), apart;
        layouts_expect(report, products_offset(padded, b) == end, "products of block %u begin at %zu", b,
                       products_offset(padded, b));
        for (unsigned j = begin; j < padded; j++) {
            unsigned row = spread_row(j, padded, PRODUCTS_BLOCK, &apart) - 2 * begin;
            layouts_expect(report, row + apart < rows, "row %u of block %u has no y", row, b);
        }
        end += (size_t)rows * (padded - begin < PRODUCTS_BLOCK ? padded - begin : PRODUCTS_BLOCK);
    }
    layouts_expect(report, products_offset(padded, blocks) == end, "the last products end at %zu", end);
}

void layouts_correlate(struct layouts *report)
{
    static const unsigned padded[] = {16, 128, 256, 304, 1024};
    layouts_variant(report, "a tile");
    check_tile(report);
    for (unsigned i = 0; i < sizeof padded / sizeof *padded; i++) {
        layouts_variant(report, "%u inputs", padded[i]);
        check_rows(report, padded[i], 1 + i % 2);
        check_products(report, padded[i]);
    }
}
