/* header.c - see header.h. */
#include "formats/packets/header.h"

#include <string.h>

/* SPEAD-64-48: magic, version, bytes of an item's id and address; then a number of items of 8 bytes. */
enum { SPEAD_HEAD = 8, SPEAD_ITEM = 8, SPEAD_ID_MASK = 0x7fff };
static const uint8_t spead_magic[4] = {0x53, 0x04, 0x02, 0x06};
static const uint64_t spead_value = 0xffffffffffff;

static inline uint64_t load(const uint8_t *bytes, unsigned n, bool little)
{
    uint64_t word = 0;
    if (n == 8) {
        memcpy(&word, bytes, 8);
        return little ? word : __builtin_bswap64(word);
    }
    if (little)
        for (unsigned i = n; i-- > 0;) word = word << 8 | bytes[i];
    else
        for (unsigned i = 0; i < n; i++) word = word << 8 | bytes[i];
    return word;
}

static void store(uint8_t *bytes, unsigned n, bool little, uint64_t word)
{
    for (unsigned i = 0; i < n; i++) bytes[little ? i : n - 1 - i] |= (uint8_t)(word >> 8 * i);
}

static inline uint64_t mask_of(unsigned bits)
{
    return bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
}

/* The value of a SPEAD item, of `n`. Malformed when it is there as what it is not (a pointer for a value), or
 * twice, with two values; foreign when it is not there. */
static enum packet_verdict find_item(const uint8_t *items, size_t n, const struct packet_field *f,
                                     uint64_t *value)
{
    uint64_t found = 0;
    bool there = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t item = load(items + SPEAD_ITEM * i, 8, false);
        if ((item >> 48 & SPEAD_ID_MASK) != f->item) continue;
        if (there && item != found) return PACKET_MALFORMED;
        there = true;
        found = item;
    }
    if (!there) return PACKET_FOREIGN;
    *value = found & spead_value;
    return f->pointer == (found >> 63 == 0) ? PACKET_GOOD : PACKET_MALFORMED;
}

static int64_t evaluate(const struct packet_form *form, const uint64_t *value)
{
    uint64_t sum = (uint64_t)form->base; /* modulo 2^64, as counters are */
    for (unsigned i = 0; i < form->nterms; i++)
        sum += (uint64_t)form->term[i].times * value[form->term[i].field];
    return (int64_t)sum;
}

enum packet_verdict packet_header_read(const struct packet_description *packet, const uint8_t *bytes,
                                       size_t length, struct packet_header *header)
{
    uint64_t value[PACKET_MAX_FIELDS];
    size_t items = 0;
    *header = (struct packet_header){0};
    enum packet_verdict verdict = PACKET_GOOD;
    if (packet->spead) {
        if (length < SPEAD_HEAD || memcmp(bytes, spead_magic, sizeof spead_magic) != 0) return PACKET_FOREIGN;
        items = load(bytes + 6, 2, false);
        if (SPEAD_HEAD + SPEAD_ITEM * items > length) return PACKET_MALFORMED;
    }
    for (unsigned i = 0; i < packet->nfields; i++) {
        const struct packet_field *f = &packet->field[i];
        uint64_t word = 0;
        if (packet->spead) {
            enum packet_verdict found = find_item(bytes + SPEAD_HEAD, items, f, &word);
            if (found == PACKET_FOREIGN) return found;
            if (found == PACKET_MALFORMED) verdict = found;
        } else {
            if (f->offset + f->bytes > length) {
                /* Cut off. With this protocol's constants so far it is one of its packets. */
                return i > 0 && packet->field[0].has_equals ? PACKET_MALFORMED : PACKET_FOREIGN;
            }
            word = load(bytes + f->offset, f->bytes, f->little);
        }
        uint64_t number = word >> f->shift & mask_of(f->bits);
        if (f->lost_if != 0 && (number & f->lost_if) != 0 && verdict == PACKET_GOOD) verdict = PACKET_FLAGGED;
        if (f->divide > 1) {
            if (number % f->divide != 0) verdict = PACKET_MALFORMED;
            number /= f->divide;
        }
        if (f->has_equals && number != f->equals) return PACKET_FOREIGN;
        if (f->has_expect && number != f->expect) verdict = PACKET_MALFORMED;
        value[i] = number;
    }
    header->counter = packet_remainder((uint64_t)evaluate(&packet->sequence, value), packet->sequence_period);
    header->source = evaluate(&packet->source, value);
    header->stream = evaluate(&packet->stream, value);
    header->named = true;
    size_t offset = packet->spead ? SPEAD_HEAD + SPEAD_ITEM * items : packet->payload_offset;
    size_t expected = packet->spead ? offset + packet->payload_bytes : packet->bytes;
    if (length != expected) verdict = PACKET_MALFORMED;
    if (verdict != PACKET_MALFORMED) header->payload = bytes + offset;
    return verdict;
}

uint64_t packet_sequence_period(const struct packet_description *p)
{
    const struct packet_form *form = &p->sequence;
    unsigned top = 0;
    __uint128_t below = 0, most = (__uint128_t)1 << 63;
    for (unsigned i = 1; i < form->nterms; i++)
        if (form->term[i].times > form->term[top].times) top = i;
    for (unsigned i = 0; i < form->nterms; i++) {
        const struct packet_field *f = &p->field[form->term[i].field];
        if (form->term[i].times <= 0) return 0;
        __uint128_t values = ((__uint128_t)1 << f->bits) / f->divide;
        if (i != top) below += (values - 1) * (__uint128_t)form->term[i].times;
    }
    if (form->nterms == 0 || below >= (__uint128_t)form->term[top].times) return 0;
    const struct packet_field *f = &p->field[form->term[top].field];
    __uint128_t values = (__uint128_t)1 << f->bits;
    if (values % f->divide != 0) return 0;
    values /= f->divide;
    return values < most / (__uint128_t)form->term[top].times
               ? (uint64_t)values * (uint64_t)form->term[top].times
               : 0;
}

/* --- writing ----------------------------------------------------------------------------------- */

size_t packet_header_length(const struct packet_description *packet)
{
    return packet->spead ? SPEAD_HEAD + SPEAD_ITEM * packet->nfields + packet->payload_bytes : packet->bytes;
}

/* Shares a number out among the fields of a form, the largest factor first. */
static bool share(const struct packet_description *packet, const struct packet_form *form, uint64_t number,
                  uint64_t *value)
{
    bool used[PACKET_MAX_TERMS] = {false};
    number -= (uint64_t)form->base;
    for (unsigned n = 0; n < form->nterms; n++) {
        unsigned most = PACKET_MAX_TERMS;
        for (unsigned i = 0; i < form->nterms; i++)
            if (!used[i] && (most == PACKET_MAX_TERMS || form->term[i].times > form->term[most].times))
                most = i;
        const struct packet_term *term = &form->term[most];
        const struct packet_field *field = &packet->field[term->field];
        used[most] = true;
        if (term->times <= 0) return false;
        uint64_t share = number / (uint64_t)term->times, limit = mask_of(field->bits) / field->divide;
        if (share > limit) share = limit;
        value[term->field] = share;
        number -= share * (uint64_t)term->times;
    }
    return number == 0;
}

int packet_header_write(const struct packet_description *packet, const struct packet_header *header,
                        uint8_t *bytes, uint8_t **payload, struct br_error *error)
{
    uint64_t value[PACKET_MAX_FIELDS] = {0};
    size_t length = packet_header_length(packet);
    for (unsigned i = 0; i < packet->nfields; i++) {
        const struct packet_field *f = &packet->field[i];
        value[i] = f->has_equals ? f->equals : f->has_expect ? f->expect : 0;
    }
    uint64_t counter = packet_remainder(header->counter, packet->sequence_period);
    if (!share(packet, &packet->sequence, counter, value))
        return br_fail(error, BR_E_INVALID, "the fields of %s cannot hold the sequence number %llu",
                       packet->name, (unsigned long long)counter);
    if (!share(packet, &packet->source, (uint64_t)header->source, value))
        return br_fail(error, BR_E_INVALID, "the fields of %s cannot hold source %lld", packet->name,
                       (long long)header->source);
    if (!share(packet, &packet->stream, (uint64_t)header->stream, value))
        return br_fail(error, BR_E_INVALID, "the fields of %s cannot hold stream %lld", packet->name,
                       (long long)header->stream);
    memset(bytes, 0, packet->spead ? length - packet->payload_bytes : length);
    if (packet->spead) {
        memcpy(bytes, spead_magic, sizeof spead_magic);
        store(bytes + 6, 2, false, packet->nfields);
    }
    for (unsigned i = 0; i < packet->nfields; i++) {
        const struct packet_field *f = &packet->field[i];
        uint64_t number = (value[i] * f->divide & mask_of(f->bits)) << f->shift;
        if (packet->spead) {
            uint64_t immediate = f->pointer ? 0 : (uint64_t)1 << 63;
            store(bytes + SPEAD_HEAD + SPEAD_ITEM * i, 8, false,
                  immediate | (uint64_t)f->item << 48 | number);
        } else {
            store(bytes + f->offset, f->bytes, f->little, number);
        }
    }
    *payload = bytes + (packet->spead ? SPEAD_HEAD + SPEAD_ITEM * packet->nfields : packet->payload_offset);
    return BR_OK;
}
