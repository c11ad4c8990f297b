/* param.h - a stage's parameters as data: a schema. It is used to check YAML, to fill in the stage's struct
 * and to write the reference.
 *
 * Each parameter names the field of the stage's struct that receives it. The loader checks type, range and
 * choice of a value, then writes the field. If the user did not give the key, it parses `def` by the same
 * rules. Strings, lists and maps point into the pipeline's arena and live as long as the stage. */
#ifndef BEAMRING_RUNTIME_PARAM_H
#define BEAMRING_RUNTIME_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The comment at each type gives the C type of the receiving field. */
enum br_param_type {
    BR_P_BOOL,     /* bool */
    BR_P_INT,      /* int64_t */
    BR_P_REAL,     /* double; NAN if absent without default */
    BR_P_STRING,   /* const char *; NULL if absent without default */
    BR_P_CHOICE,   /* const char *, one of `choices` */
    BR_P_PATH,     /* const char *; relative paths are relative to the working directory */
    BR_P_RATIONAL, /* struct br_rational (buffers/stream.h); {0, 0} if absent without default */
    BR_P_INTS,     /* struct br_ints; a single value is a list of one */
    BR_P_REALS,    /* struct br_reals; likewise */
    BR_P_STRINGS,  /* struct br_strings; likewise */
    BR_P_MAP,      /* a pointer to a struct described by `fields`; NULL if absent */
    BR_P_MAPS      /* struct br_maps: a list of such structs */
};

struct br_ints {
    size_t count;
    const int64_t *value;
};
struct br_reals {
    size_t count;
    const double *value;
};
struct br_strings {
    size_t count;
    const char *const *value;
};
struct br_maps {
    size_t count;
    const void *value; /* an array of `count` structs of `size` bytes */
};

struct br_param {
    const char *name; /* the YAML key; NULL ends a schema */
    enum br_param_type type;
    size_t offset;    /* offsetof(struct of the stage, field) */
    const char *help; /* one line, without a full stop */
    const char *unit; /* "MHz", "samples"; NULL if none */
    const char *def;  /* default, as a user would write it in YAML; NULL: absent */
    bool required;
    double min, max;               /* inclusive, for numbers and their lists; both 0: any */
    size_t min_count, max_count;   /* for lists; both 0: any */
    const char *const *choices;    /* NULL-terminated, for BR_P_CHOICE */
    const struct br_param *fields; /* for BR_P_MAP and BR_P_MAPS */
    size_t size;                   /* size of the struct that `fields` describes */
    /* For BR_P_INTS and BR_P_REALS: each item is a list of this many numbers, such as [x, y]. The field
     * receives the numbers of all items one after another. 0: each item is a number. */
    size_t group;
    /* For a stage that supports several formats (its parameter `format`): the names of the formats that have
     * this parameter, separated by spaces; NULL: all. The reference prints them. br_check_format refuses the
     * parameter for other formats. */
    const char *formats;
};

/* One entry of a schema: the YAML key, its type, the struct and the field that receives it, the help text,
 * then any other fields of struct br_param:
 * BR_PARAM("taps", BR_P_INT, struct filter, taps, "length of the filter", .min = 1, .max = 32). */
#define BR_PARAM(KEY, TYPE, STRUCT, FIELD, ...)                                                              \
    {                                                                                                        \
        .name = (KEY), .type = (TYPE), .offset = offsetof(STRUCT, FIELD), .help = __VA_ARGS__                \
    }

#ifdef __cplusplus
}
#endif
#endif
