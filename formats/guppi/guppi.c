#include "formats/guppi/guppi.h"

#include "formats/common/hints.h"
#include "formats/common/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BLOCK ((uint64_t)1 << 36)
#define NS_PER_DAY INT64_C(86400000000000)
enum { MOST_CHANNELS = 1 << 20, MJD_OF_1970 = 40587 };

struct parse {
    const char *file, *text;
    uint64_t offset;
    size_t cards;
    struct br_error *error;
};

/* --- cards --------------------------------------------------------------------------------------- */

static bool is_key(const char *card)
{
    size_t n = 0;
    while (n < 8 && (isalnum((unsigned char)card[n]) || card[n] == '_' || card[n] == '-')) n++;
    if (n == 0) return false;
    for (size_t i = n; i < 8; i++)
        if (card[i] != ' ') return false;
    return true;
}

/* The rest of a card that the end of the file cut. */
static bool may_begin_card(const char *card, size_t length)
{
    static const char *const comments[] = {"COMMENT ", "HISTORY ", "CONTINUE", "HIERARCH", "        ", NULL};
    char whole[9] = "A       ";
    if (length >= 3 && memcmp(card, "END", 3) == 0 && (length == 3 || card[3] == ' ' || card[3] == '\0'))
        return true;
    memcpy(whole, card, length < 8 ? length : 8);
    if (length <= 8) return is_key(whole) || strspn(whole, " ") == 8 || length == 0;
    for (size_t i = 0; comments[i] != NULL; i++)
        if (memcmp(card, comments[i], 8) == 0) return true;
    return is_key(whole) && card[8] == '=';
}

bool guppi_probe(const void *start, size_t length)
{
    const char *text = start;
    return length >= 2 * GUPPI_CARD && is_key(text) && text[8] == '=' && is_key(text + GUPPI_CARD) &&
           (text[GUPPI_CARD + 8] == '=' || memcmp(text + GUPPI_CARD, "END ", 4) == 0);
}

/* The card of a key from the `from`th on, or NULL. */
static const char *card_of(const struct parse *p, const char *key, size_t from)
{
    size_t n = strlen(key);
    for (size_t i = from; i < p->cards; i++) {
        const char *card = p->text + i * GUPPI_CARD;
        if (memcmp(card, key, n) == 0 && (n == 8 || card[n] == ' ') && card[8] == '=') return card;
    }
    return NULL;
}

static bool holds_text(const char *card)
{
    static const char *const keys[] = {"SRC_NAME", "TELESCOP", "BACKEND ", "PKTFMT  ", NULL};
    for (size_t i = 0; keys[i] != NULL; i++)
        if (memcmp(card, keys[i], 8) == 0) return true;
    return false;
}

/* A number as FITS has it, with a sign and, in double precision, with a D before the exponent. */
static void write_as_in_c(char *value)
{
    size_t digits = strspn(value + (value[0] == '+' || value[0] == '-'), "0123456789.") +
                    (value[0] == '+' || value[0] == '-');
    if (value[digits] == 'D' || value[digits] == 'd') value[digits] = 'E';
    if (value[0] == '+') memmove(value, value + 1, strlen(value));
}

/* A card's value without quotes, comment and blanks around it, into a buffer of GUPPI_VALUE. */
static void value_in(const char *card, char *value)
{
    size_t from = 9, to = GUPPI_CARD;
    while (from < to && card[from] == ' ') from++;
    if (from < to && card[from] == '\'') {
        const char *end = memchr(card + from + 1, '\'', to - from - 1);
        while (end != NULL && end + 2 < card + to && end[1] == '\'') /* '' is a quote in the text */
            end = memchr(end + 2, '\'', (size_t)(card + to - end - 2));
        from++;
        if (end != NULL) to = (size_t)(end - card);
    } else {
        const char *end = memchr(card + from, '/', to - from);
        if (end != NULL) to = (size_t)(end - card);
    }
    while (to > from && card[to - 1] == ' ') to--;
    size_t length = to - from < GUPPI_VALUE ? to - from : GUPPI_VALUE - 1;
    memcpy(value, card + from, length);
    value[length] = '\0';
    for (size_t c = 0; c < length; c++) /* zero bytes too: 24\0 0 is not 24 */
        if (!isprint((unsigned char)value[c])) value[c] = '?';
    if (!holds_text(card)) write_as_in_c(value);
}

/* The value of a key; false when there is none. */
static bool value_of(const struct parse *p, const char *key, char *value)
{
    const char *card = card_of(p, key, 0);
    if (card != NULL) value_in(card, value);
    return card != NULL;
}

/* A key with two values: some readers take the first, others the last one. */
static int check_twice(const struct parse *p)
{
    static const char *const keys[] = {"BLOCSIZE", "OBSNCHAN", "NPOL",     "NBITS",    "NANTS",
                                       "OVERLAP",  "PKTFMT",   "TBIN",     "OBSBW",    "OBSFREQ",
                                       "PKTIDX",   "PIPERBLK", "PKTSIZE",  "STT_IMJD", "STT_SMJD",
                                       "STT_OFFS", "DIRECTIO", "PKTSTART", "SYNCTIME", NULL};
    char one[GUPPI_VALUE], other[GUPPI_VALUE];
    for (size_t i = 0; keys[i] != NULL; i++) {
        if (!value_of(p, keys[i], one)) continue;
        const char *card = card_of(p, keys[i], 0);
        while ((card = card_of(p, keys[i], (size_t)(card - p->text) / GUPPI_CARD + 1)) != NULL) {
            value_in(card, other);
            if (strcmp(one, other) != 0)
                return br_fail(p->error, BR_E_FORMAT,
                               "%s: the GUPPI header at byte %llu has %s = '%s' and %s = '%s'; expected one "
                               "value",
                               p->file, (unsigned long long)p->offset, keys[i], one, keys[i], other);
        }
    }
    return BR_OK;
}

static int bad(const struct parse *p, const char *key, const char *value, const char *expected)
{
    return br_fail(p->error, BR_E_FORMAT, "%s: the GUPPI header at byte %llu has %s = '%s'; expected %s",
                   p->file, (unsigned long long)p->offset, key, value, expected);
}

/* 1: there and good, 0: absent, negative: an error. */
static int get_count(const struct parse *p, const char *key, uint64_t min, uint64_t max, uint64_t *out)
{
    char value[GUPPI_VALUE], expected[80];
    if (!value_of(p, key, value)) return 0;
    double real = -1;
    char *point = strchr(value, '.'); /* some write whole numbers as reals: 45296.0, 4.5296D+04 */
    if (point != NULL && point > value && point[1 + strspn(point + 1, "0")] == '\0') *point = '\0';
    bool good = text_u64(value, out) == 0;
    if (!good && text_real(value, &real) == 0 && real >= 0 && real < 0x1p53 && real == floor(real)) {
        *out = (uint64_t)real;
        good = true;
    }
    if (good && *out >= min && *out <= max) return 1;
    snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)min,
             (unsigned long long)max);
    return bad(p, key, value, expected);
}

static int get_real(const struct parse *p, const char *key, double *out)
{
    char value[GUPPI_VALUE];
    if (!value_of(p, key, value)) return 0;
    return text_real(value, out) == 0 ? 1 : bad(p, key, value, "a number");
}

static int need(const struct parse *p, const char *key, int found)
{
    if (found != 0) return found < 0 ? found : BR_OK;
    return br_fail(p->error, BR_E_FORMAT, "%s: the GUPPI header at byte %llu has no %s", p->file,
                   (unsigned long long)p->offset, key);
}

/* --- meaning ------------------------------------------------------------------------------------- */

/* PKTFMT says what the packets were, and so how a block lies: those of GBT, Green Bank's and Parkes'
 * successors put one channel after the other. */
static int get_layout(const struct parse *p, struct guppi_header *h)
{
    static const char *const channels_first[] = {"1SFA", "ATASNAPV", NULL};
    char value[GUPPI_VALUE];
    if (!value_of(p, "PKTFMT", value)) return BR_OK;
    h->time_first = strcmp(value, "SIMPLE") == 0;
    if (h->time_first && h->nants > 1)
        return bad(p, "NANTS", "above 1", "1 where PKTFMT is SIMPLE: nothing says where its antennas lie");
    for (size_t i = 0; channels_first[i] != NULL; i++)
        if (strcmp(value, channels_first[i]) == 0) return BR_OK;
    return h->time_first
               ? BR_OK
               : bad(p, "PKTFMT", value,
                     "1SFA or ATASNAPV (channel after channel in a block), or SIMPLE (sample after sample)");
}

static int get_shape(const struct parse *p, struct guppi_header *h)
{
    uint64_t nchan = 0, npol = 0, nbits = 0, nants = 1;
    int status = need(p, "BLOCSIZE", get_count(p, "BLOCSIZE", 1, MOST_BLOCK, &h->blocsize));
    if (status == BR_OK) status = need(p, "OBSNCHAN", get_count(p, "OBSNCHAN", 1, MOST_CHANNELS, &nchan));
    if (status == BR_OK) status = need(p, "NPOL", get_count(p, "NPOL", 1, 4, &npol));
    if (status == BR_OK) status = need(p, "NBITS", get_count(p, "NBITS", 1, 64, &nbits));
    if (status == BR_OK && get_count(p, "NANTS", 1, MOST_CHANNELS, &nants) < 0) status = BR_E_FORMAT;
    if (status != BR_OK) return status;
    char value[GUPPI_VALUE] = "";
    if (nbits != 8) {
        value_of(p, "NBITS", value);
        return bad(p, "NBITS", value, "8: only complex samples of 8 + 8 bits are read");
    }
    if (npol == 3) return bad(p, "NPOL", "3", "1, 2 or 4 (2 polarisations, real and imaginary)");
    h->npol = npol == 1 ? 1 : 2;
    h->npol_open = npol == 2;
    h->nants = (size_t)nants;
    value_of(p, "OBSNCHAN", value);
    if (nchan % nants != 0) return bad(p, "OBSNCHAN", value, "a multiple of NANTS");
    h->nchan = (size_t)(nchan / nants);
    uint64_t sample = 2 * nchan * h->npol;
    value_of(p, "BLOCSIZE", value);
    if (h->blocsize % sample != 0)
        return bad(p, "BLOCSIZE", value, "a multiple of 2 x OBSNCHAN x polarisations, whole samples");
    h->samples = h->blocsize / sample;
    if (get_count(p, "OVERLAP", 0, UINT64_MAX, &h->overlap) < 0) return BR_E_FORMAT;
    value_of(p, "OVERLAP", value);
    if (h->overlap >= h->samples) return bad(p, "OVERLAP", value, "fewer samples than the block has");
    return get_layout(p, h);
}

/* TBIN is a rounded decimal; the band's channel width, when it says the same, is exact. */
static int get_sample_time(const struct parse *p, struct guppi_header *h)
{
    char value[GUPPI_VALUE], text[64];
    double tbin = 0;
    int found = get_real(p, "TBIN", &tbin);
    if (found < 0) return found;
    value_of(p, "TBIN", value);
    if (found > 0 && !(tbin >= 1e-9 && tbin <= 1)) return bad(p, "TBIN", value, "the seconds of a sample");
    int status = need(p, "OBSBW", get_real(p, "OBSBW", &h->obsbw_mhz));
    if (status == BR_OK) status = need(p, "OBSFREQ", get_real(p, "OBSFREQ", &h->obsfreq_mhz));
    if (status != BR_OK) return status;
    if (!(fabs(h->obsbw_mhz) > 1e-6 && fabs(h->obsbw_mhz) < 1e6)) {
        value_of(p, "OBSBW", value);
        return bad(p, "OBSBW", value, "the band's width in MHz, not 0");
    }
    if (!(h->obsfreq_mhz > fabs(h->obsbw_mhz) / 2 && h->obsfreq_mhz < 1e7)) {
        value_of(p, "OBSFREQ", value);
        return bad(p, "OBSFREQ", value, "the band's centre in MHz, all of the band above 0");
    }
    char freq[GUPPI_VALUE];
    value_of(p, "OBSFREQ", freq);
    value_of(p, "OBSBW", value);
    double channel = fabs(h->obsbw_mhz) / (double)h->nchan;
    h->freq_precision_mhz = fmin(hints_precision(freq) + hints_precision(value), 1e-2 * channel);
    double critical_ns = 1e3 * (double)h->nchan / fabs(h->obsbw_mhz);
    struct br_rational bw;
    struct br_error none = {0};
    value_of(p, "OBSBW", value);
    if (found > 0) {
        char text_tbin[GUPPI_VALUE];
        value_of(p, "TBIN", text_tbin);
        h->sample_precision_ns = fmin(1e9 * hints_precision(text_tbin), 1e-4 * 1e9 * tbin);
    }
    const char *digits = value[0] == '-' || value[0] == '+' ? value + 1 : value;
    if ((found == 0 || fabs(tbin * 1e9 / critical_ns - 1) < 1e-6) &&
        br_rational_parse(digits, &bw, &none) == BR_OK && bw.den < INT64_MAX / 1000 / (int64_t)h->nchan) {
        snprintf(text, sizeof text, "%lld/%lld", (long long)(1000 * (int64_t)h->nchan * bw.den),
                 (long long)bw.num);
        if (br_rational_parse(text, &h->sample_ns, &none) == BR_OK) return BR_OK;
    }
    snprintf(text, sizeof text, "%.9f", found > 0 ? tbin * 1e9 : critical_ns);
    if (br_rational_parse(text, &h->sample_ns, p->error) == BR_OK) return BR_OK;
    br_error_context(p->error, "%s: TBIN", p->file);
    return BR_E_FORMAT;
}

static int get_times(const struct parse *p, struct guppi_header *h)
{
    char value[GUPPI_VALUE] = "";
    uint64_t day = 0, second = 0;
    double offset = 0, sync = 0;
    int found = get_count(p, "PKTIDX", 0, (uint64_t)1 << 60, &h->pktidx);
    if (found < 0) return found;
    h->have_pktidx = found > 0;
    if (get_count(p, "PIPERBLK", 1, (uint64_t)1 << 40, &h->piperblk) < 0) return BR_E_FORMAT;
    if (get_count(p, "PKTSIZE", 0, (uint64_t)1 << 30, &h->pktsize) < 0) return BR_E_FORMAT;
    found = get_count(p, "PKTSTART", 0, (uint64_t)1 << 60, &h->pktstart);
    if (found < 0) return found;
    h->have_pktstart = found > 0;
    found = get_real(p, "SYNCTIME", &sync);
    if (found < 0) return found;
    h->have_synctime = found > 0 && sync > 0 && sync < 4e9; /* 0 where nobody set it */
    h->synctime_ns = h->have_synctime ? llround(sync * 1e6) * 1000 : 0;
    int has_day = get_count(p, "STT_IMJD", 0, 100000, &day);
    int has_second = get_count(p, "STT_SMJD", 0, 86400, &second);
    int has_offset = get_real(p, "STT_OFFS", &offset);
    if (has_day < 0 || has_second < 0 || has_offset < 0) return BR_E_FORMAT;
    value_of(p, "STT_OFFS", value);
    if (has_offset > 0 && !(offset > -1 && offset < 1))
        return bad(p, "STT_OFFS", value, "a fraction of a second");
    h->have_epoch = has_day > 0 && has_second > 0;
    h->epoch_precision_ns = has_offset > 0 ? (int64_t)fmin(1e9 * hints_precision(value), 1e9) : 1000000000;
    h->epoch_ns = ((int64_t)day - MJD_OF_1970) * NS_PER_DAY + (int64_t)second * 1000000000 +
                  (int64_t)llround(offset * 1e9);
    return BR_OK;
}

int guppi_parse(struct guppi_header *h, const char *file, uint64_t offset, const char *text, size_t length,
                struct br_error *error)
{
    struct parse p = {file, text, offset, 0, error};
    memset(h, 0, sizeof *h);
    for (;; p.cards++) {
        const char *card = text + p.cards * GUPPI_CARD;
        if (p.cards > GUPPI_MAX_CARDS)
            return br_fail(error, BR_E_FORMAT, "%s: the GUPPI header at byte %llu has no END card", file,
                           (unsigned long long)offset);
        size_t left = length - p.cards * GUPPI_CARD;
        bool whole = left >= GUPPI_CARD;
        if (whole && memcmp(card, "END", 3) == 0 && (card[3] == ' ' || card[3] == '\0')) break;
        if (!may_begin_card(card, left))
            return br_fail(error, BR_E_FORMAT,
                           "%s: the bytes at %llu are not a card of a GUPPI header (\"KEY     = value\")",
                           file, (unsigned long long)(offset + p.cards * GUPPI_CARD));
        if (!whole) return 1;
    }
    uint64_t direct = 0;
    if (check_twice(&p) != BR_OK) return BR_E_FORMAT;
    if (get_count(&p, "DIRECTIO", 0, 1, &direct) < 0) return BR_E_FORMAT;
    h->header_bytes = (p.cards + 1) * GUPPI_CARD;
    if (direct) h->header_bytes = (h->header_bytes + GUPPI_ALIGN - 1) / GUPPI_ALIGN * GUPPI_ALIGN;
    int status = get_shape(&p, h);
    if (status == BR_OK) status = get_sample_time(&p, h);
    if (status == BR_OK) status = get_times(&p, h);
    if (status != BR_OK) return status;
    value_of(&p, "SRC_NAME", h->source);
    value_of(&p, "TELESCOP", h->telescope);
    value_of(&p, "BACKEND", h->backend);
    return BR_OK;
}

uint64_t guppi_packets(const struct guppi_header *h)
{
    if (h->piperblk > 0 || h->samples == 0) return h->piperblk;
    uint64_t bytes = (h->samples - h->overlap) * (h->blocsize / h->samples);
    return h->pktsize > 0 && bytes % h->pktsize == 0 ? bytes / h->pktsize : 0;
}

void guppi_one_pol(struct guppi_header *h)
{
    h->npol_open = false;
    h->npol = 1;
    h->samples *= 2;
}

int guppi_first(const struct guppi_header *h, uint64_t number, uint64_t *first)
{
    uint64_t packets = guppi_packets(h), step = h->samples - h->overlap;
    if (!h->have_pktidx || packets == 0) {
        *first = number * step;
        return 0;
    }
    __uint128_t scaled = (__uint128_t)h->pktidx * step;
    if (scaled % packets != 0 || scaled / packets > (__uint128_t)1 << 61) return -1;
    *first = (uint64_t)(scaled / packets);
    return 0;
}

/* --- writing ------------------------------------------------------------------------------------- */

static void put_card(struct guppi_writer *w, const char *text)
{
    size_t n = strlen(text);
    if (w->used + GUPPI_CARD <= w->capacity) {
        memset(w->text + w->used, ' ', GUPPI_CARD);
        memcpy(w->text + w->used, text, n < GUPPI_CARD ? n : GUPPI_CARD);
    }
    w->used += GUPPI_CARD;
}

void guppi_put_text(struct guppi_writer *w, const char *key, const char *value)
{
    char card[GUPPI_CARD + 1];
    snprintf(card, sizeof card, "%-8s= '%-8.60s'", key, value);
    put_card(w, card);
}

void guppi_put_int(struct guppi_writer *w, const char *key, int64_t value)
{
    char card[GUPPI_CARD + 1];
    snprintf(card, sizeof card, "%-8s= %20lld", key, (long long)value);
    put_card(w, card);
}

void guppi_put_real(struct guppi_writer *w, const char *key, double value)
{
    char card[GUPPI_CARD + 1], number[TEXT_REAL];
    text_real_format(number, value);
    snprintf(card, sizeof card, "%-8s= %20s", key, number);
    put_card(w, card);
}

bool guppi_finish(struct guppi_writer *w, bool align)
{
    put_card(w, "END");
    size_t padded = align ? (w->used + GUPPI_ALIGN - 1) / GUPPI_ALIGN * GUPPI_ALIGN : w->used;
    if (padded <= w->capacity) memset(w->text + w->used, ' ', padded - w->used);
    w->used = padded;
    return padded <= w->capacity;
}
