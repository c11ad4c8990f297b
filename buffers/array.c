#include "buffers/array.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *const field_axes[] = {"time", "freq",  "pol",   "dish",   "input",
                                         "beam", "gridp", "gridq", "moment", "baseline"};

static bool is_field_axis(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof field_axes / sizeof *field_axes; i++)
        if (strlen(field_axes[i]) == length && memcmp(field_axes[i], name, length) == 0) return true;
    return false;
}

/* False when the bytes do not fit in size_t. Zero lengths count as 1, so that no order of axes hides an
 * overflow. */
static bool fits(const struct br_array *array)
{
    size_t n = br_dtype_bits(array->dtype);
    for (unsigned i = 0; i < array->naxes; i++)
        if (array->axis[i].length > 0 && __builtin_mul_overflow(n, array->axis[i].length, &n)) return false;
    return n <= SIZE_MAX - 7;
}

int br_array_init(struct br_array *array, enum br_dtype dtype, const char *axes, const size_t *lengths,
                  struct br_error *error)
{
    memset(array, 0, sizeof *array);
    struct br_array made = {.dtype = dtype};
    if (br_dtype_bits(dtype) == 0)
        return br_fail(error, BR_E_INVALID, "%d is not an element type", (int)dtype);
    for (const char *at = axes;;) {
        size_t length = strcspn(at, ",");
        if (made.naxes == BR_MAX_AXES)
            return br_fail(error, BR_E_INVALID, "'%s' has more than %d axes", axes, BR_MAX_AXES);
        if (length == 0) return br_fail(error, BR_E_INVALID, "an axis of '%s' has no name", axes);
        if (!is_field_axis(at, length))
            return br_fail(
                error, BR_E_INVALID,
                "'%.*s' is not an axis; expected time, freq, pol, dish, input, beam, gridp or gridq",
                (int)length, at);
        struct br_axis *axis = &made.axis[made.naxes];
        memcpy(axis->name, at, length);
        axis->length = lengths[made.naxes];
        if (br_array_axis(&made, axis->name) >= 0)
            return br_fail(error, BR_E_INVALID, "the axis '%s' stands twice in '%s'", axis->name, axes);
        made.naxes++;
        if (at[length] == '\0') break;
        at += length + 1;
    }
    if (!fits(&made)) {
        char text[160];
        return br_fail(error, BR_E_INVALID, "%s is larger than any memory",
                       br_array_format(&made, text, sizeof text));
    }
    *array = made;
    return BR_OK;
}

int br_array_axis(const struct br_array *array, const char *name)
{
    for (unsigned i = 0; i < array->naxes; i++)
        if (strcmp(array->axis[i].name, name) == 0) return (int)i;
    return -1;
}

size_t br_array_length(const struct br_array *array, const char *name)
{
    int axis = br_array_axis(array, name);
    return axis < 0 ? 1 : array->axis[axis].length;
}

size_t br_array_elements(const struct br_array *array)
{
    if (array->naxes == 0) return 0;
    size_t n = 1;
    for (unsigned i = 0; i < array->naxes; i++) n *= array->axis[i].length;
    return n;
}

size_t br_array_bytes(const struct br_array *array)
{
    size_t n = br_array_elements(array), bits = br_dtype_bits(array->dtype);
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

bool br_array_equal(const struct br_array *a, const struct br_array *b)
{
    if (a->naxes != b->naxes) return false;
    if (a->naxes > 0 && a->dtype != b->dtype) return false;
    for (unsigned i = 0; i < a->naxes; i++)
        if (strcmp(a->axis[i].name, b->axis[i].name) != 0 || a->axis[i].length != b->axis[i].length)
            return false;
    return true;
}

const char *br_array_format(const struct br_array *array, char *text, size_t size)
{
    if (size == 0) return text;
    int used = snprintf(text, size, "%s", array->naxes == 0 ? "nothing" : br_dtype_name(array->dtype));
    for (unsigned i = 0; i < array->naxes && used >= 0 && (size_t)used < size; i++) {
        int more = snprintf(text + used, size - (size_t)used, "%s[%s %zu]", i == 0 ? " " : "",
                            array->axis[i].name, array->axis[i].length);
        if (more < 0) break;
        used += more;
    }
    return text;
}
