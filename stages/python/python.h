/* python.h - what the plugin and the Python package agree on. */
#ifndef BEAMRING_STAGES_PYTHON_PYTHON_H
#define BEAMRING_STAGES_PYTHON_PYTHON_H

#include "runtime/stage.h"
#include "stages/common/stage/export.h"

/* The parameters that every stage in Python has; a class adds its own behind them. */
struct python_params {
    const char *script, *class_name;
    double timeout_s;
};

#define PYTHON_PARAMS                                                                                        \
    PARAM(PATH, struct python_params, script,                                                                \
          "file that defines the class; default: the Python program that runs the pipeline defines it"),     \
        BR_PARAM("class", BR_P_STRING, struct python_params, class_name,                                     \
                 "its name; default: the only one of the script"),                                           \
        PARAM(REAL, struct python_params, timeout_s,                                                         \
              "a call of `process` that takes longer ends the run; 0: never", .unit = "s", .def = "30",      \
              .max = 1e9)

/* The capsule in the package that holds a python_specialize: br_stage_type.specialize of python/src/stage.c.
 */
#define PYTHON_CAPSULE "beamring._core.specialize"
typedef int python_specialize(struct br_stage *stage, const void *self, const struct br_stage_type **type);

#endif
