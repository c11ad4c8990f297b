/* decode.c - elements of 4 and 8 bits as float32: complex ones as pairs. */
#include "core.h"

#include <stdint.h>
#include <string.h>

/* Both nibbles of a byte, in two's complement, the low one first. */
static void decode_nibbles(const uint8_t *from, float *to, size_t bytes)
{
    static _Thread_local float table[256][2];
    if (table[1][0] == 0)
        for (int b = 0; b < 256; b++) {
            table[b][0] = (float)(((b & 15) ^ 8) - 8);
            table[b][1] = (float)(((b >> 4) ^ 8) - 8);
        }
    for (size_t i = 0; i < bytes; i++) memcpy(to + 2 * i, table[from[i]], sizeof table[0]);
}

static void decode_bytes(const int8_t *from, float *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
}

PyObject *core_decode(PyObject *module, PyObject *args)
{
    (void)module;
    const char *kind;
    unsigned long long source, destination, bytes;
    if (!PyArg_ParseTuple(args, "sKKK", &kind, &source, &destination, &bytes)) return NULL;
    const void *from = (const void *)(uintptr_t)source;
    float *to = (float *)(uintptr_t)destination;
    Py_BEGIN_ALLOW_THREADS;
    if (strcmp(kind, "nibbles") == 0)
        decode_nibbles(from, to, bytes);
    else
        decode_bytes(from, to, bytes);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
