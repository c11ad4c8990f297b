/* check.h - proves, on the CPU, that a kernel's layouts are right.
 *
 * tools/layouts/KERNEL.c defines `void layouts_KERNEL(struct layouts *report)` (KERNEL as in the list in
 * tools/layouts/meson.build) and in it replays what each variant of the kernel does, through the functions
 * of kernels/KERNEL/layout.h that the kernel itself uses:
 *
 *   layouts_variant(report, "MT=%d", mt);
 *   struct layouts_region *field = layouts_region(report, LAYOUTS_SHARED, "field", 128 * 128, 1);
 *   struct layouts_pass *pass = layouts_begin(field, LAYOUTS_WRITE, "load");
 *   for (every instruction of every warp) {
 *       struct layouts_access access = {.bytes = 16};
 *       for (unsigned lane = 0; lane < 32; lane++) layouts_lane(&access, lane, place(warp, lane, ...));
 *       layouts_access(pass, &access);
 *   }
 *   layouts_end(pass, 1, 1);                  (each element exactly once)
 *
 * Checked for each access: inside the region; aligned to its width; in shared memory as few wavefronts as
 * its width allows; in global memory whole cache lines. For each pass: how often each element is touched.
 * Where an access says which logical element stands at each place (items), what is read must be what was
 * written there. An access that breaks a rule knowingly is declared with a reason (layouts_allow...), which
 * the report prints. */
#ifndef BEAMRING_TOOLS_LAYOUTS_CHECK_H
#define BEAMRING_TOOLS_LAYOUTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LAYOUTS_LANES = 32, LAYOUTS_LINE = 128, LAYOUTS_SECTOR = 32 };

enum layouts_space { LAYOUTS_SHARED, LAYOUTS_GLOBAL };
enum layouts_direction { LAYOUTS_READ, LAYOUTS_WRITE };

struct layouts_region;
struct layouts_pass;

/* A report over any number of variants. Start with {.out = stdout}; call layouts_finish at the end. */
struct layouts {
    FILE *out;         /* where lines go; NULL: nowhere */
    bool verbose;      /* a line for each pass */
    unsigned failures; /* of all variants */
    unsigned variants, passes, exceptions;
    uint64_t accesses;
    char last[512]; /* the last failure */
    char variant[160];
    struct layouts_region *regions;
};

/* Begins a variant (regions of the one before are gone). */
void layouts_variant(struct layouts *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the last variant and releases everything. Returns whether nothing failed. */
bool layouts_finish(struct layouts *report);
/* Something of the caller's own that must hold: true, or a failure with the text. Returns `holds`. */
bool layouts_expect(struct layouts *report, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- memory ---- */

/* `elements` of `element_bytes` each. Offset 0 is a multiple of 128 bytes. Lives until the next variant. A
 * region of global memory may be a small array of the real shape: offsets are then the true ones. */
struct layouts_region *layouts_region(struct layouts *report, enum layouts_space space, const char *name,
                                      size_t elements, size_t element_bytes);
/* Elements that nobody need touch. */
void layouts_padding(struct layouts_region *region, size_t first, size_t count);
/* Element i holds item i: an input. Without this a region holds nothing until it is written. */
void layouts_fill(struct layouts_region *region);
/* Forgets what the region holds: a buffer is used again. */
void layouts_clear(struct layouts_region *region);

/* ---- accesses ---- */

/* The accesses of one warp by one instruction.
 *   loads, stores, cp.async      bytes = 1, 2, 4, 8 or 16 per lane
 *   ldmatrix, stmatrix           bytes = 16, lanes 0..8n-1 with the rows' addresses (x1, x2, x4: n = 1, 2, 4)
 *   wgmma operands, TMA boxes    bytes = 16, each 8 rows of 16 bytes of a core matrix as 8 lanes
 * Wavefronts in shared memory: 32 lanes at once up to 4 bytes, half-warps for 8, quarter-warps for 16;
 * within these, each bank of 4 bytes delivers one word, to as many lanes as want it. (Loads of 8 and 16
 * bytes of which neighbouring lanes read the same take half of that; they count in full.) */
struct layouts_access {
    unsigned bytes;
    uint32_t active;           /* bit per lane */
    int64_t at[LAYOUTS_LANES]; /* byte offset from the region's start */
    bool items;                /* item[][] says what stands there; else only places are checked */
    int64_t item[LAYOUTS_LANES]
                [16]; /* of each element that the lane touches, in order of address; LAYOUTS_ANY: anything */
};

enum { LAYOUTS_ANY = -1 };

/* Makes `lane` active. */
static inline void layouts_lane(struct layouts_access *access, unsigned lane, int64_t at)
{
    access->at[lane] = at;
    access->active |= UINT32_C(1) << lane;
}

/* The same, and its elements are the logical ones first, first + 1, ... (as many as it touches; fill
 * item[lane] otherwise). */
static inline void layouts_lane_items(struct layouts_access *access, unsigned lane, int64_t at, int64_t first)
{
    layouts_lane(access, lane, at);
    access->items = true;
    for (int i = 0; i < 16; i++) access->item[lane][i] = first + i;
}

/* All accesses of one kind to a region; any number of passes may be open at once. */
struct layouts_pass *layouts_begin(struct layouts_region *region, enum layouts_direction direction,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Shared memory: the accesses of this pass may take up to `wavefronts` each, because of `reason`. */
void layouts_allow_wavefronts(struct layouts_pass *pass, unsigned wavefronts, const char *reason);
/* Global memory: accesses may touch pieces of `grain` bytes instead of whole cache lines: LAYOUTS_SECTOR,
 * or less (1 = anything). */
void layouts_allow_pieces(struct layouts_pass *pass, unsigned grain, const char *reason);
void layouts_access(struct layouts_pass *pass, const struct layouts_access *access);
/* Ends the pass: each element that is not padding has been touched at least and at most so many times
 * (each lane counts). */
void layouts_end(struct layouts_pass *pass, unsigned least, unsigned most);

/* Wavefronts of one access to shared memory, and the fewest that its width and active lanes allow. */
unsigned layouts_wavefronts(const struct layouts_access *access);
unsigned layouts_fewest_wavefronts(const struct layouts_access *access);

/* ---- register assignments ---- */

/* Whether a register assignment in words is what the kernel's functions do.
 *   text      groups "physical bits <-> logical bits", as many on each side, most significant first or as
 *             written bit by bit:
 *               "simd: b1 b0 <-> k1 k0  register: r1 r0 <-> k4 row3  thread: t4..t0 <-> row2 row1 row0 k3 k2"
 *             A bit is a name and a number (k3; "lane 3" is lane3), or a name alone for its bit 0 (ReIm).
 *             Labels (words that end with a colon), commas, braces and the *s of a comment do not count;
 *             `a4..a0` is a4 a3 a2 a1 a0. Ends where no further group follows.
 *   physical  names of the physical variables, separated by spaces: "b r t w"; each of their bits from 0 to
 *             the highest one named must be in the text
 *   logical   names of the logical variables: "k row"
 *   function  the kernel's: for values of the physical variables (in the order of `physical`) those of the
 *             logical ones; bits that are not in the text must come out as 0
 * Every value of the physical variables is tried. */
typedef void layouts_function(const void *context, const unsigned *physical, unsigned *logical);
bool layouts_assignment(struct layouts *report, const char *what, const char *text, const char *physical,
                        const char *logical, layouts_function *function, const void *context);

/* The same for an assignment as it stands in a comment of a source file: `tag` is what precedes it there
 * ("a_re, a_im"; its only occurrence, or the first), `path` counts from the project's top. */
bool layouts_comment(struct layouts *report, const char *path, const char *tag, const char *physical,
                     const char *logical, layouts_function *function, const void *context);

#endif
