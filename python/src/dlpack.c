/* dlpack.c - an array of a GPU for other packages, by the protocol of DLPack (version 0, which all take). */
#include "core.h"

#include <stdint.h>
#include <stdlib.h>

/* The two structs of dlpack.h. */
struct tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct managed {
    struct tensor tensor;
    void *context; /* the Python object whose memory it is */
    void (*deleter)(struct managed *self);
    int64_t shape[];
};

enum { DEVICE_CUDA = 2, MOST_AXES = 8 };

static void forget(struct managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DecRef(managed->context);
    PyGILState_Release(state);
    free(managed);
}

/* The destructor of a capsule that nobody has taken. */
static void destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) forget(PyCapsule_GetPointer(capsule, "dltensor"));
}

PyObject *core_dlpack(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    int device, code, bits;
    PyObject *shape, *owner;
    if (!PyArg_ParseTuple(args, "KiiiOO", &address, &device, &code, &bits, &shape, &owner)) return NULL;
    Py_ssize_t n = PyTuple_Size(shape);
    if (n < 0 || n > MOST_AXES) return NULL;
    struct managed *m = calloc(1, sizeof *m + (size_t)n * sizeof *m->shape);
    if (m == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) m->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    m->tensor = (struct tensor){.data = (void *)(uintptr_t)address,
                                .device_type = DEVICE_CUDA,
                                .device_id = device,
                                .ndim = (int32_t)n,
                                .code = (uint8_t)code,
                                .bits = (uint8_t)bits,
                                .lanes = 1,
                                .shape = m->shape};
    m->context = owner;
    m->deleter = forget;
    Py_IncRef(owner);
    PyObject *capsule = PyErr_Occurred() ? NULL : PyCapsule_New(m, "dltensor", destroy);
    if (capsule == NULL) forget(m);
    return capsule;
}
