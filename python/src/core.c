/* core.c - the extension of the package `beamring`: one for all Pythons from 3.10 on. */
#include "core.h"

#include <stdint.h>

static PyMethodDef methods[] = {
    {"decode", core_decode, METH_VARARGS,
     "decode(kind, source, destination, elements): 4 or 8 bits to float32"},
    {"dlpack", core_dlpack, METH_VARARGS,
     "dlpack(address, device, code, bits, shape, owner): a DLPack capsule"},
    {"say", core_stage_say, METH_VARARGS, "say(stage, kind, text): a note, warning or trouble of a stage"},
    {"ask", core_stage_ask, METH_VARARGS, "ask(stage, what): a number that a stage wants to know"},
    {"check", core_check, METH_VARARGS, "check(name, text, more, set, log, errors, report): an exit status"},
    {"open", core_run_open, METH_NOARGS, "open(): a run"},
    {"run", core_run, METH_VARARGS, "run(run, name, text, more, set, log, errors, report): an exit status"},
    {"stop", core_run_stop, METH_VARARGS, "stop(run, abort)"},
    {"progress", core_run_progress, METH_VARARGS, "progress(run): a line for people"},
    {NULL, NULL, 0, NULL}};

/* Threads of stages enter the interpreter that was there first (PyGILState); another one would mix up objects
 * of both. */
static int execute(PyObject *module)
{
    static PyInterpreterState *first;
    PyObject *capsule = NULL;
    if (first == NULL) first = PyInterpreterState_Get();
    if (first != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError,
                        "beamring works in one interpreter of a process, and another one has "
                        "imported it already; use it there, or in a process of its own");
        return -1;
    }
    capsule = core_stage_capsule();
    if (capsule == NULL) return -1;
    if (PyModule_AddObject(module, "specialize", capsule) == 0) return 0;
    Py_DECREF(capsule);
    return -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)(uintptr_t)execute}, {0, NULL}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "beamring._core",
                                        .m_doc = "The part of the package that is in C.",
                                        .m_methods = methods,
                                        .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
