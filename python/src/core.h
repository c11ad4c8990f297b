/* core.h - what the files of the extension share. All of it is in the limited API of Python 3.10. */
#ifndef BEAMRING_PYTHON_SRC_CORE_H
#define BEAMRING_PYTHON_SRC_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* decode.c: decode(kind, source, destination, elements), with addresses of contiguous memory. */
PyObject *core_decode(PyObject *module, PyObject *args);

/* dlpack.c: dlpack(address, device, code, bits, shape, owner) -> a capsule "dltensor". */
PyObject *core_dlpack(PyObject *module, PyObject *args);

/* stage.c: the functions that a stage in Python may call, and the capsule for the plugin. */
PyObject *core_stage_say(PyObject *module, PyObject *args);
PyObject *core_stage_ask(PyObject *module, PyObject *args);
PyObject *core_stage_capsule(void);

/* run.c */
PyObject *core_check(PyObject *module, PyObject *args);
PyObject *core_run_open(PyObject *module, PyObject *args);
PyObject *core_run(PyObject *module, PyObject *args);
PyObject *core_run_stop(PyObject *module, PyObject *args);
PyObject *core_run_progress(PyObject *module, PyObject *args);

#endif
