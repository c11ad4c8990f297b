/* token_bucket.h - pacing: at most `burst` at once, `rate` per second in the long run. */
#ifndef BEAMRING_FORMATS_LINKS_TOKEN_BUCKET_H
#define BEAMRING_FORMATS_LINKS_TOKEN_BUCKET_H

#include <math.h>
#include <stdint.h>

struct token_bucket {
    double rate; /* per second; 0: no limit */
    double burst;
    double tokens; /* that may be spent now */
    uint64_t at;   /* ns, when they were counted; 0: not yet, and the bucket is full */
};

/* The number of tokens at time `now`. */
static inline double token_bucket_fill(struct token_bucket *b, uint64_t now)
{
    if (b->rate <= 0) return HUGE_VAL;
    b->tokens = b->at == 0 ? b->burst : b->tokens + b->rate * (double)(now - b->at) * 1e-9;
    if (b->tokens > b->burst) b->tokens = b->burst;
    b->at = now;
    return b->tokens;
}

/* `amount` was sent, which took until `now`. From then on no more than the rest of a burst may follow at
 * once, however long the sending took: so no span of time holds more than burst + rate x its length. */
static inline void token_bucket_spend(struct token_bucket *b, double amount, uint64_t now)
{
    if (b->rate <= 0) return;
    b->tokens += b->rate * (double)(now - b->at) * 1e-9 - amount;
    if (b->tokens > b->burst - amount) b->tokens = b->burst - amount;
    b->at = now;
}

/* When there will be `amount` (no more than burst). */
static inline uint64_t token_bucket_when(const struct token_bucket *b, double amount)
{
    if (amount > b->burst) amount = b->burst;
    return amount <= b->tokens ? b->at : b->at + (uint64_t)((amount - b->tokens) / b->rate * 1e9) + 1;
}

#endif
