/* stage.c - the stage `python`: its callbacks call the functions of beamring/_host.py. See stages/python/.
 *
 * A frame is handed over as a tuple (first, samples, complete, data, validity, side): memoryviews of the
 * queue's own memory, or on a GPU the address of the data. The interpreter's lock is held in the callbacks
 * only. Where a function of _host.py returns a text, the callback has failed, and the text says why. */
#include "core.h"

#include "runtime/embed.h"
#include "stages/python/python.h"

#include <stddef.h>
#include <string.h>

/* The parameters of a stage: those of every class, then those of this one (`params` of the descriptor). The
 * object is found by this struct's address, which _host.py knows it by. */
struct self {
    struct python_params of_all;
    PyObject *process; /* borrowed: the method of _host.py's object; NULL until start */
};

enum { MOST_PARAMS = 64, OWN_OFFSET = 64, FIELD_BYTES = 16 };

static PyObject *call_host(const char *name, const char *format, ...)
{
    PyObject *host = PyImport_ImportModule("beamring._host"), *result = NULL;
    PyObject *function = host != NULL ? PyObject_GetAttrString(host, name) : NULL;
    va_list list;
    va_start(list, format);
    PyObject *args = function != NULL ? Py_VaBuildValue(format, list) : NULL;
    va_end(list);
    if (args != NULL) result = PyObject_CallObject(function, args);
    Py_XDECREF(args);
    Py_XDECREF(function);
    Py_XDECREF(host);
    return result;
}

/* The message of a failed call, and the end of `result`. `param` is where the file is to blame; NULL: the
 * stage runs. */
static int fail(struct br_stage *stage, const char *param, PyObject *result)
{
    const char *text =
        result != NULL && PyUnicode_Check(result) ? PyUnicode_AsUTF8AndSize(result, NULL) : NULL;
    PyObject *type = NULL, *value = NULL, *trace = NULL, *shown = NULL;
    if (text == NULL) {
        PyErr_Fetch(&type, &value, &trace);
        shown = value != NULL ? PyObject_Str(value) : NULL;
        text = shown != NULL ? PyUnicode_AsUTF8AndSize(shown, NULL) : NULL;
        PyErr_Clear();
    }
    if (text == NULL) text = "it gave no reason";
    int status = param != NULL ? br_stage_fail_at(stage, param, "%s", text)
                               : br_stage_fail(stage, BR_E_INVALID, "%s", text);
    Py_XDECREF(shown);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(result);
    return status;
}

/* --- parameters --- */

static char *copy_text(struct br_stage *stage, PyObject *tuple, Py_ssize_t i)
{
    PyObject *item = PyTuple_GetItem(tuple, i);
    const char *text = item != NULL && item != Py_None ? PyUnicode_AsUTF8AndSize(item, NULL) : NULL;
    return text != NULL ? strcpy(br_stage_alloc(stage, strlen(text) + 1), text) : NULL;
}

static const char *const *copy_texts(struct br_stage *stage, PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
    const char **list = n > 0 ? br_stage_alloc(stage, ((size_t)n + 1) * sizeof *list) : NULL;
    for (Py_ssize_t i = 0; i < n; i++) list[i] = copy_text(stage, tuple, i);
    return list;
}

/* (name, type, help, unit, default, required, min, max, choices) */
static struct br_param param_of(struct br_stage *stage, PyObject *tuple, size_t offset)
{
    return (struct br_param){.name = copy_text(stage, tuple, 0),
                             .type = (enum br_param_type)PyLong_AsLong(PyTuple_GetItem(tuple, 1)),
                             .offset = offset,
                             .help = copy_text(stage, tuple, 2),
                             .unit = copy_text(stage, tuple, 3),
                             .def = copy_text(stage, tuple, 4),
                             .required = PyObject_IsTrue(PyTuple_GetItem(tuple, 5)) == 1,
                             .min = PyFloat_AsDouble(PyTuple_GetItem(tuple, 6)),
                             .max = PyFloat_AsDouble(PyTuple_GetItem(tuple, 7)),
                             .choices = copy_texts(stage, PyTuple_GetItem(tuple, 8))};
}

static const struct br_port *ports_of(struct br_stage *stage, PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    struct br_port *port = n > 0 ? br_stage_alloc(stage, ((size_t)n + 1) * sizeof *port) : NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        port[i] = (struct br_port){copy_text(stage, PyTuple_GetItem(tuple, i), 0),
                                   copy_text(stage, PyTuple_GetItem(tuple, i), 1)};
    return port;
}

static PyObject *list_of(const void *field, enum br_param_type type)
{
    const struct br_ints *ints = field;
    const struct br_reals *reals = field;
    const struct br_strings *strings = field;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < ints->count; i++) { /* all three begin with their length */
        PyObject *item = type == BR_P_INTS    ? PyLong_FromLongLong(ints->value[i])
                         : type == BR_P_REALS ? PyFloat_FromDouble(reals->value[i])
                                              : PyUnicode_FromString(strings->value[i]);
        if (item != NULL) PyList_Append(list, item);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *value_of(const struct br_param *param, const void *self)
{
    const void *field = (const char *)self + param->offset;
    switch (param->type) {
    case BR_P_BOOL:
        return PyBool_FromLong(*(const bool *)field);
    case BR_P_INT:
        return PyLong_FromLongLong(*(const int64_t *)field);
    case BR_P_REAL:
        return PyFloat_FromDouble(*(const double *)field);
    case BR_P_INTS:
    case BR_P_REALS:
    case BR_P_STRINGS:
        return list_of(field, param->type);
    default:
        return *(const char *const *)field != NULL ? PyUnicode_FromString(*(const char *const *)field)
                                                   : Py_BuildValue("");
    }
}

/* The values of the class's own parameters; the descriptor is not at hand in configure, so that _host.py
 * tells their number and types again. */
static PyObject *values_of(const void *self, PyObject *types)
{
    PyObject *values = PyList_New(0);
    for (Py_ssize_t i = 0; values != NULL && i < PyTuple_Size(types); i++) {
        struct br_param param = {.type = (enum br_param_type)PyLong_AsLong(PyTuple_GetItem(types, i)),
                                 .offset = OWN_OFFSET + (size_t)i * FIELD_BYTES};
        PyObject *value = value_of(&param, self);
        if (value != NULL) PyList_Append(values, value);
        Py_XDECREF(value);
    }
    return values;
}

/* --- callbacks --- */

/* The parameters before the class is known: script and class. */
static PyObject *ask_class(const struct python_params *p, const char *function)
{
    return call_host(function, "(zz)", p->script, p->class_name);
}

static int configure(struct br_stage *stage, void *self)
{
    PyGILState_STATE state = PyGILState_Ensure();
    const struct self *s = self;
    PyObject *inputs = PyList_New(0), *types = ask_class(&s->of_all, "types_of"), *values = NULL,
             *result = NULL;
    int status = BR_OK;
    const struct br_stream *in;
    for (unsigned i = 0; i < BR_MAX_PORTS && (in = br_stage_input(stage, i)) != NULL; i++) {
        char *text = br_stream_json(in);
        PyObject *one = text != NULL ? PyUnicode_FromString(text) : NULL;
        if (one != NULL) PyList_Append(inputs, one);
        Py_XDECREF(one);
        free(text);
    }
    if (types != NULL) values = values_of(self, types);
    if (values != NULL)
        result = call_host("configure", "(KKzzOOsid)", (unsigned long long)(uintptr_t)self,
                           (unsigned long long)(uintptr_t)stage, s->of_all.script, s->of_all.class_name,
                           values, inputs, br_stage_name(stage), br_stage_device(stage), s->of_all.timeout_s);
    if (result == NULL || PyUnicode_Check(result)) {
        status = fail(stage, s->of_all.script != NULL ? "script" : "class", result);
        result = NULL;
    }
    for (Py_ssize_t i = 0; status == BR_OK && i < PyTuple_Size(result); i++) {
        struct br_error error = {0};
        status = br_stream_from_json(stage, (unsigned)i,
                                     PyUnicode_AsUTF8AndSize(PyTuple_GetItem(result, i), NULL), &error);
        if (status != BR_OK) br_stage_fail_at(stage, "class", "its output %d: %s", (int)i, error.text);
    }
    Py_XDECREF(result);
    Py_XDECREF(values);
    Py_XDECREF(types);
    Py_XDECREF(inputs);
    PyGILState_Release(state);
    return status;
}

/* Calls a function of _host.py that takes the stage's key and a number. */
static int simple(struct br_stage *stage, void *self, const char *function, unsigned long long number)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = call_host(function, "(KK)", (unsigned long long)(uintptr_t)self, number);
    int status = BR_OK;
    if (result == NULL || PyUnicode_Check(result))
        status = fail(stage, NULL, result);
    else if (strcmp(function, "start") == 0)
        ((struct self *)self)->process = result; /* _host.py holds it, too, until stop */
    if (status == BR_OK) Py_DECREF(result);
    PyGILState_Release(state);
    return status;
}

static int start(struct br_stage *stage, void *self)
{
    return simple(stage, self, "start", (unsigned long long)(uintptr_t)br_stage_stream(stage));
}

static int stop(struct br_stage *stage, void *self)
{
    return simple(stage, self, "stop", 0);
}

/* PyBUF_READ and PyBUF_WRITE, which the headers name for Python 3.11 on only. */
enum { MEMORY_READ = 0x100, MEMORY_WRITE = 0x200 };

static PyObject *memory(void *data, size_t bytes, bool writable, int device)
{
    if (data == NULL || bytes == 0) return Py_BuildValue("");
    if (device >= 0) return PyLong_FromUnsignedLongLong((uintptr_t)data);
    return PyMemoryView_FromMemory(data, (Py_ssize_t)bytes, writable ? MEMORY_WRITE : MEMORY_READ);
}

/* An output may still become longer: all of its slot is handed over. */
static PyObject *frame_tuple(const struct br_stream *stream, const struct br_frame *f, bool writable,
                             int device)
{
    if (f == NULL || stream == NULL) return Py_BuildValue("");
    size_t bytes = writable ? br_stream_max_bytes(stream) : br_frame_bytes(stream, f);
    size_t cells = writable ? br_stream_max_validity(stream) : br_frame_cells(stream, f);
    return Py_BuildValue("(KKONNN)", (unsigned long long)f->first, (unsigned long long)f->samples,
                         f->complete ? Py_True : Py_False, memory(f->data, bytes, writable, device),
                         memory(f->valid, writable || !f->complete ? cells : 0, writable, -1),
                         memory(f->side, br_array_bytes(&stream->side), writable, device));
}

static PyObject *frames(struct br_stage *stage, const struct br_io *io, bool outputs)
{
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; list != NULL && i < BR_MAX_PORTS; i++) {
        const struct br_stream *stream = outputs ? br_stage_output(stage, i) : br_stage_input(stage, i);
        if (stream == NULL) break;
        PyObject *one =
            frame_tuple(stream, outputs ? io->out[i] : io->in[i], outputs, br_stage_device(stage));
        if (one != NULL) PyList_Append(list, one);
        Py_XDECREF(one);
    }
    return list;
}

/* result: (bits, ((first, samples, complete), ...)) */
static int take_result(struct br_stage *stage, const struct br_io *io, PyObject *result)
{
    long bits = PyLong_AsLong(PyTuple_GetItem(result, 0));
    PyObject *outs = PyTuple_GetItem(result, 1);
    for (Py_ssize_t i = 0; (bits & BR_PRODUCED) != 0 && i < PyTuple_Size(outs); i++) {
        struct br_frame *out = io->out[i];
        PyObject *one = PyTuple_GetItem(outs, i);
        if (out == NULL || one == Py_None) continue;
        out->first = PyLong_AsUnsignedLongLong(PyTuple_GetItem(one, 0));
        out->samples = PyLong_AsUnsignedLongLong(PyTuple_GetItem(one, 1));
        out->complete = PyObject_IsTrue(PyTuple_GetItem(one, 2)) == 1;
        out->missing = 0;
        if (!out->complete && out->samples > 0 &&
            out->samples <= br_stage_output(stage, (unsigned)i)->frame_samples)
            br_frame_close_validity(br_stage_output(stage, (unsigned)i), out);
    }
    return (int)bits;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    const struct self *s = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *ins = frames(stage, io, false), *outs = frames(stage, io, true);
    PyObject *result =
        ins != NULL && outs != NULL ? PyObject_CallFunctionObjArgs(s->process, ins, outs, NULL) : NULL;
    Py_XDECREF(ins);
    Py_XDECREF(outs);
    int bits;
    if (result == NULL || PyUnicode_Check(result)) {
        bits = fail(stage, NULL, result);
    } else {
        bits = take_result(stage, io, result);
        Py_DECREF(result);
    }
    PyGILState_Release(state);
    return bits;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = call_host("commit", "(KKK)", (unsigned long long)(uintptr_t)self,
                                 (unsigned long long)(uintptr_t)fresh, (unsigned long long)sample);
    if (result == NULL) PyErr_Clear();
    Py_XDECREF(result);
    PyGILState_Release(state);
}

static void discard(struct br_stage *stage, void *fresh)
{
    simple(stage, fresh, "stop", 0);
}

/* --- the descriptor of a class --- */

/* spec: (name, summary, description, params, inputs, outputs, updates, gpu) */
static const struct br_stage_type *type_of(struct br_stage *stage, PyObject *spec)
{
    static const struct br_param base[] = {PYTHON_PARAMS};
    enum { BASE = sizeof base / sizeof *base };
    _Static_assert(sizeof(struct self) <= OWN_OFFSET, "the class's own parameters stand behind it");
    struct br_stage_type *type = br_stage_alloc(stage, sizeof *type);
    PyObject *own = PyTuple_GetItem(spec, 3);
    size_t n = (size_t)PyTuple_Size(own);
    struct br_param *params = br_stage_alloc(stage, (BASE + n + 1) * sizeof *params);
    memcpy(params, base, sizeof base);
    for (size_t i = 0; i < n; i++)
        params[BASE + i] = param_of(stage, PyTuple_GetItem(own, (Py_ssize_t)i), OWN_OFFSET + i * FIELD_BYTES);
    *type =
        (struct br_stage_type){.abi_version = BR_ABI_VERSION,
                               .type_size = sizeof *type,
                               .name = copy_text(stage, spec, 0),
                               .summary = copy_text(stage, spec, 1),
                               .description = copy_text(stage, spec, 2),
                               .params = params,
                               .inputs = ports_of(stage, PyTuple_GetItem(spec, 4)),
                               .outputs = ports_of(stage, PyTuple_GetItem(spec, 5)),
                               .flags = PyObject_IsTrue(PyTuple_GetItem(spec, 7)) == 1 ? BR_STAGE_CUDA : 0,
                               .size = OWN_OFFSET + n * FIELD_BYTES,
                               .configure = configure,
                               .start = start,
                               .process = process,
                               .stop = stop,
                               .updates = copy_texts(stage, PyTuple_GetItem(spec, 6))};
    if (type->updates != NULL) {
        type->commit = commit;
        type->discard = discard;
    }
    return type;
}

static int specialize(struct br_stage *stage, const void *self, const struct br_stage_type **type)
{
    const struct python_params *p = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *spec = ask_class(p, "spec_of");
    int status = BR_OK;
    if (spec == NULL || PyUnicode_Check(spec)) {
        status = fail(stage, p->script != NULL ? "script" : "class", spec);
    } else {
        *type = type_of(stage, spec);
        Py_DECREF(spec);
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return status;
}

PyObject *core_stage_capsule(void)
{
    python_specialize *function = specialize;
    void *pointer;
    memcpy(&pointer, &function, sizeof pointer);
    return PyCapsule_New(pointer, PYTHON_CAPSULE, NULL);
}

/* --- for stages --- */

PyObject *core_stage_say(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    const char *kind, *text;
    if (!PyArg_ParseTuple(args, "Ksz", &address, &kind, &text)) return NULL;
    struct br_stage *stage = (struct br_stage *)(uintptr_t)address;
    if (strcmp(kind, "note") == 0)
        br_stage_note(stage, "%s", text != NULL ? text : "");
    else if (strcmp(kind, "warn") == 0)
        br_stage_warn(stage, "%s", text != NULL ? text : "");
    else
        br_stage_trouble(stage, text);
    Py_RETURN_NONE;
}

PyObject *core_stage_ask(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    const char *what;
    if (!PyArg_ParseTuple(args, "Ks", &address, &what)) return NULL;
    struct br_stage *stage = (struct br_stage *)(uintptr_t)address;
    if (strcmp(what, "keep_memory") == 0) br_stage_keep_memory(stage);
    return PyBool_FromLong(br_stage_stopping(stage));
}
