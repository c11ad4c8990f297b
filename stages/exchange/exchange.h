/* exchange.h - the stage: blocks of the output that are being put together, and the way that data take. */
#ifndef BEAMRING_STAGES_EXCHANGE_EXCHANGE_H
#define BEAMRING_STAGES_EXCHANGE_EXCHANGE_H

#include "stages/exchange/plan.h"

enum { MAX_FRAMES = 8, MAX_PIECES = 16 };

/* Base samples [first, end). */
struct piece {
    uint64_t first, end;
};

/* The part of one block that one rank has. */
struct cover {
    unsigned count;
    struct piece piece[MAX_PIECES];
};

/* A frame of the output. Until it is complete its memory is that of a full frame. */
struct open {
    uint64_t block;
    struct br_frame *frame;
    bool marked;      /* its validity is written */
    bool begun, held; /* its data are on their way; since an earlier call of process */
    unsigned pending; /* messages that are still to come for it */
    struct cover *of; /* [ranks] */
};

struct exchange;

/* How data go from rank to rank: through the host's memory by MPI, from GPU to GPU by NCCL. */
struct way {
    int (*start)(struct br_stage *stage, struct exchange *x);
    void (*memory)(struct br_stage *stage, const struct exchange *x, struct br_memory *memory);
    /* Whether a frame could be sent, or one of `from` received, right now. */
    bool (*can_send)(struct exchange *x);
    bool (*can_receive)(struct exchange *x, unsigned from, const struct piece *piece);
    /* Begins. The frame may go when `send` has returned, which makes the copies; a receive counts in
     * open->pending. */
    int (*send)(struct br_stage *stage, struct exchange *x, const struct br_frame *in);
    int (*receive)(struct br_stage *stage, struct exchange *x, unsigned from, struct open *open,
                   const struct piece *piece);
    /* Notices what has arrived. */
    int (*collect)(struct br_stage *stage, struct exchange *x);
    /* All of the block is known, and of those before it: lets its data go. Positive: done; 0: not now, though
     * the oldest block always can. NULL: nothing is to be done then. */
    int (*begin)(struct br_stage *stage, struct exchange *x, const struct open *open);
    /* The oldest block is known in full, and has begun: what is left to do for it; open->pending when that is
     * better done in a later call. */
    int (*settle)(struct br_stage *stage, struct exchange *x, struct open *open);
    bool (*idle)(struct exchange *x); /* nothing is on its way */
    void (*stop)(struct br_stage *stage, struct exchange *x);
};
extern const struct way host_way, nccl_way;

struct exchange {
    const char *to; /* parameters */
    struct br_ints shares;
    int64_t frames;
    bool holes;

    struct plan plan;
    struct copies copies; /* that are still to be made */
    const struct way *way;
    void *carrier; /* the way's own */
    struct open open[MAX_FRAMES];
    unsigned nopen;
    uint64_t next;      /* the block behind the last one that was opened */
    uint64_t *reached;  /* [ranks] base sample behind the last piece of each that was taken */
    bool *ended;        /* [ranks] */
    uint8_t *cells;     /* validity of one frame of any rank */
    void *scratch;      /* a frame of the output, where frames are */
    uint8_t *cell_copy; /* its validity */
    void *packed;       /* validity for the others */
    const char **wait_text;
    bool posted; /* the current input frame's header */
    bool torn;   /* it is one piece too many of its block: nobody hears of it */
    uint64_t own_block;
    unsigned own_pieces; /* of that block, that were announced */
    bool told_end;
};

/* A frame that spans [first, end) of `rank` belongs to this open block: copies of validity, and what is known
 * of it. `valid` NULL: all is valid. */
void block_cover(struct exchange *x, struct open *open, unsigned rank, const struct piece *piece,
                 const uint8_t *valid);

/* Marks what no rank had, cuts the frame to what any had, and counts what it gained. Status. */
int block_close(struct br_stage *stage, struct exchange *x, struct open *open);

/* Validity as it travels: runs of equal bytes, or as it is. Returns the bytes written to `to`, at most
 * `cells` + 1. */
size_t validity_pack(const uint8_t *valid, size_t cells, uint8_t *to);
/* False when it is not `cells` of them. */
bool validity_unpack(const uint8_t *packed, size_t bytes, uint8_t *valid, size_t cells);

/* First base sample of a block. */
static inline uint64_t block_begin(const struct exchange *x, uint64_t block)
{
    return block * x->plan.all.frame_samples;
}

/* The time step of the block at which a piece begins, in a part of steps of `downsample`. */
static inline size_t block_step(uint64_t begin, const struct piece *piece, unsigned downsample)
{
    return (size_t)(piece->first / downsample - begin / downsample);
}

#endif
