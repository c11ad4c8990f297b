#include "formats/common/axis_order.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char letters[] = "TFPA";
static const struct {
    const char *word;
    unsigned char axis;
} words[] = {{"time", AXIS_T}, {"freq", AXIS_F},    {"frequency", AXIS_F}, {"pol", AXIS_P},
             {"dish", AXIS_A}, {"antenna", AXIS_A}, {"ant", AXIS_A}};

/* The axis that `n` characters name, or -1. */
static int named(const char *text, size_t n)
{
    const char *letter = n == 1 ? strchr(letters, toupper((unsigned char)*text)) : NULL;
    if (letter != NULL) return (int)(letter - letters);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, text, n) == 0) return words[i].axis;
    return -1;
}

/* The number behind a colon, at most 2^31; 0 when it is none. */
static uint64_t heap_samples(const char **at)
{
    uint64_t value = 0;
    for (; isdigit((unsigned char)**at) && value < UINT64_C(1) << 31; (*at)++)
        value = 10 * value + (uint64_t)(**at - '0');
    return value <= UINT64_C(1) << 31 ? value : 0;
}

int axis_order_parse(const char *text, struct axis_order *order, const char **why)
{
    const char *ignored;
    bool with_words = strchr(text, ',') != NULL;
    bool seen[AXIS_COUNT] = {false};
    if (why == NULL) why = &ignored;
    memset(order, 0, sizeof *order);
    if (!with_words) /* one word alone, or letters */
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            with_words = with_words || strcmp(text, words[i].word) == 0;
    for (const char *at = text; *at != '\0';) {
        while (*at == ' ') at++;
        size_t n = with_words ? strcspn(at, ",: ") : 1;
        int axis = n > 0 ? named(at, n) : -1;
        *why = "it names something else than T, F, P, A (time, freq, pol, dish)";
        if (axis < 0) return -1;
        at += n;
        uint64_t heap = 0;
        if (*at == ':') {
            at++;
            heap = heap_samples(&at);
            *why = "a number of samples from 1 to 2^31 may stand behind time, and only there";
            if (heap == 0 || axis != AXIS_T) return -1;
        }
        if (axis == AXIS_T && heap > 0 && seen[AXIS_T] && order->heap == 0 && order->axis[0] == AXIS_T) {
            order->naxes--; /* the first one was that of the heaps, which follow each other */
            memmove(order->axis, order->axis + 1, order->naxes);
            seen[AXIS_T] = false;
        }
        if (axis == AXIS_T && seen[AXIS_T] && order->heap == 0) {
            *why = "it has time twice, and does not say how many samples the inner one has (time:256)";
            return -1;
        }
        *why = "it names an axis twice";
        if (seen[axis]) return -1;
        seen[axis] = true;
        order->axis[order->naxes++] = (unsigned char)axis;
        if (heap > 0) order->heap = heap;
        while (*at == ' ') at++;
        if (*at == ',') at++;
    }
    *why = "it does not name the time";
    return seen[AXIS_T] ? 0 : -1;
}

int axis_order_lacks(const struct axis_order *order, const size_t length[AXIS_COUNT])
{
    for (int axis = AXIS_F; axis < AXIS_COUNT; axis++) {
        bool has = length[axis] == 1;
        for (unsigned i = 0; i < order->naxes; i++) has = has || order->axis[i] == axis;
        if (!has) return axis;
    }
    return -1;
}

/* The axes of more than one element; returns their number. */
static unsigned real_axes(const struct axis_order *order, const size_t length[AXIS_COUNT],
                          unsigned char axis[AXIS_COUNT])
{
    unsigned n = 0;
    for (unsigned i = 0; i < order->naxes; i++)
        if (order->axis[i] == AXIS_T || length[order->axis[i]] > 1) axis[n++] = order->axis[i];
    return n;
}

bool axis_order_time_slowest(const struct axis_order *order, const size_t length[AXIS_COUNT])
{
    unsigned char axis[AXIS_COUNT];
    return real_axes(order, length, axis) > 0 && axis[0] == AXIS_T;
}

bool axis_order_same(const struct axis_order *a, const struct axis_order *b, const size_t length[AXIS_COUNT])
{
    unsigned char x[AXIS_COUNT], y[AXIS_COUNT];
    unsigned n = real_axes(a, length, x);
    if (n != real_axes(b, length, y) || memcmp(x, y, n) != 0) return false;
    return x[0] == AXIS_T || a->heap == b->heap; /* heaps of whole samples lie as samples do */
}

void axis_order_strides(const struct axis_order *order, const size_t length[AXIS_COUNT], size_t element_bytes,
                        uint64_t stride[AXIS_COUNT])
{
    uint64_t bytes = element_bytes;
    for (int axis = 0; axis < AXIS_COUNT; axis++) stride[axis] = 0;
    for (unsigned i = order->naxes; i-- > 0;) {
        stride[order->axis[i]] = bytes;
        bytes *= length[order->axis[i]];
    }
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if (stride[axis] == 0) stride[axis] = bytes; /* of length 1 */
}

char *axis_order_format(const struct axis_order *order, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < order->naxes && used < size; i++) {
        bool heaps = order->axis[i] == AXIS_T && order->heap > 0;
        used += (size_t)snprintf(text + used, size - used, "%c", letters[order->axis[i]]);
        if (heaps && used < size)
            used += (size_t)snprintf(text + used, size - used, ":%" PRIu64, order->heap);
    }
    return text;
}
