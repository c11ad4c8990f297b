/* run.c - pipelines in this process; see runtime/embed.h. The interpreter's lock is not held meanwhile. */
#include "core.h"

#include "runtime/embed.h"

#include <stdlib.h>
#include <unistd.h>

#define RUN "beamring run"

/* After a fork the threads of a pipeline are in the parent only. */
struct run {
    struct br_embed *embed;
    pid_t pid;
};

/* The strings of a sequence; they live as long as it. NULL with an exception. */
static const char **texts_of(PyObject *list, size_t *count)
{
    Py_ssize_t n = PyList_Size(list);
    const char **text = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *text);
    if (text == NULL && n >= 0) PyErr_NoMemory();
    for (Py_ssize_t i = 0; text != NULL && i < n; i++) {
        text[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (text[i] != NULL) continue;
        PyMem_Free(text);
        return NULL;
    }
    *count = (size_t)n;
    return text;
}

static struct run *run_of(PyObject *capsule)
{
    struct run *run = PyCapsule_GetPointer(capsule, RUN);
    if (run == NULL || run->pid == getpid()) return run;
    PyErr_SetString(PyExc_RuntimeError, "this pipeline belongs to the process that has forked this one; make "
                                        "another one here");
    return NULL;
}

static PyObject *go(PyObject *args, PyObject *capsule, const char *format)
{
    struct br_embed_source source = {0};
    PyObject *list;
    struct run *run = NULL;
    int status;
    if (!PyArg_ParseTuple(args, format, &source.name, &source.text, &source.more, &list, &source.log_fd,
                          &source.errors_fd, &source.report_fd))
        return NULL;
    if (capsule != NULL && (run = run_of(capsule)) == NULL) return NULL;
    const char **set = texts_of(list, &source.nset);
    if (set == NULL) return NULL;
    source.set = set;
    Py_BEGIN_ALLOW_THREADS;
    status = run != NULL ? br_embed_run(run->embed, &source) : br_embed_check(&source);
    Py_END_ALLOW_THREADS;
    PyMem_Free(set);
    return PyLong_FromLong(status);
}

PyObject *core_check(PyObject *module, PyObject *args)
{
    (void)module;
    return go(args, NULL, "szzOiii");
}

static void close_run(PyObject *capsule)
{
    struct run *run = PyCapsule_GetPointer(capsule, RUN);
    if (run->pid == getpid()) br_embed_destroy(run->embed);
    free(run);
}

PyObject *core_run_open(PyObject *module, PyObject *args)
{
    (void)module, (void)args;
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL) return PyErr_NoMemory();
    *run = (struct run){br_embed_create(), getpid()};
    PyObject *capsule = run->embed != NULL ? PyCapsule_New(run, RUN, close_run) : PyErr_NoMemory();
    if (capsule == NULL) {
        br_embed_destroy(run->embed);
        free(run);
    }
    return capsule;
}

PyObject *core_run(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    PyObject *result = rest != NULL ? go(rest, PyTuple_GetItem(args, 0), "szzOiii") : NULL;
    Py_XDECREF(rest);
    return result;
}

PyObject *core_run_stop(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule;
    int abort;
    if (!PyArg_ParseTuple(args, "Op", &capsule, &abort)) return NULL;
    struct run *run = run_of(capsule);
    if (run == NULL) return NULL;
    br_embed_stop(run->embed, abort);
    Py_RETURN_NONE;
}

PyObject *core_run_progress(PyObject *module, PyObject *args)
{
    (void)module;
    char text[512];
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O", &capsule)) return NULL;
    struct run *run = run_of(capsule);
    if (run == NULL) return NULL;
    br_embed_progress(run->embed, text, sizeof text);
    return PyUnicode_FromString(text);
}
