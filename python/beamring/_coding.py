"""Elements as they are stored (dtype of a stream) and as numbers."""

import numpy as np

from . import _core

#: dtype of a stream -> (NumPy type of a stored item, items of it an element, complex)
STORED = {
    "int4x2": (np.dtype("u1"), 1, True),
    "int8x2": (np.dtype("i1"), 2, True),
    "int8": (np.dtype("i1"), 1, False),
    "uint8": (np.dtype("u1"), 1, False),
    "int4": (np.dtype("u1"), 0.5, False),
    "f16": (np.dtype("<f2"), 1, False),
    "f32": (np.dtype("<f4"), 1, False),
    "uint32": (np.dtype("<u4"), 1, False),
    "int32x2": (np.dtype("<i4"), 2, True),
}


def bytes_of(dtype, shape):
    """Bytes of an array of a stream's dtype; an odd number of 4-bit elements is rounded up."""
    item, items, _ = STORED[dtype]
    count = 1
    for n in shape:
        count *= int(n)
    return -(-int(count * items * 2) * item.itemsize // 2)


def stored_shape(dtype, shape):
    """The shape of the NumPy array that holds `shape` elements: a pair is a last axis of 2, int4 is flat
    bytes."""
    items = STORED[dtype][1]
    if items == 2:
        return tuple(shape) + (2,)
    return tuple(shape) if items == 1 else (bytes_of(dtype, shape),)


def decode(stored, dtype, shape=None, out=None):
    """Numbers from stored elements.

    stored: an array as `Frame.data` or `Recording.raw` has it; dtype: the stream's, such as "int4x2";
    shape: of the elements, needed for "int4" only (two elements a byte).
    Returns complex64 for complex types, else float32, of the elements' shape.  The values are those that are
    stored: multiply by the stream's `scale` for physical ones.  Raises ValueError for an unknown dtype.
    """
    if dtype not in STORED:
        raise ValueError(f"there is no dtype '{dtype}'; expected one of {', '.join(STORED)}")
    item, items, is_complex = STORED[dtype]
    stored = np.asarray(stored)
    if shape is None:
        if items == 0.5:
            raise ValueError("decode: int4 needs the shape, because two elements share a byte")
        shape = stored.shape[:-1] if items == 2 else stored.shape
    if out is None:
        out = np.empty(shape, np.complex64 if is_complex else np.float32)
    if item.itemsize > 1 or (out.dtype == np.float32 and not out.flags.c_contiguous):
        plain = stored.astype(np.float32)
        out[...] = plain[..., 0] + 1j * plain[..., 1] if items == 2 else plain
        return out
    source = np.ascontiguousarray(stored).view(item)
    if source.size == 0:
        return out
    kind = "nibbles" if dtype in ("int4x2", "int4") else "bytes"
    whole = (
        out
        if out.flags.c_contiguous and items != 0.5
        else np.empty(source.size * (2 if kind == "nibbles" else 1), np.float32)
    )
    if dtype == "uint8":
        return np.copyto(out, source.reshape(shape)) or out
    _core.decode(kind, source.ctypes.data, whole.ctypes.data, source.size)
    if whole is not out:
        flat = whole.view(np.complex64) if is_complex else whole
        out[...] = flat[: out.size].reshape(shape)
    return out


def encode(values, dtype):
    """Stored elements from numbers, rounded to nearest and clamped: the inverse of `decode`.

    4-bit values are clamped to [-7, 7], because -8 means "missing" in products.
    """
    item, items, is_complex = STORED[dtype]
    values = np.asarray(values)
    if is_complex:
        values = np.stack([values.real, values.imag], -1)
    if item.kind == "f":
        return values.astype(item)
    limits = (-7, 7) if dtype in ("int4x2", "int4") else (np.iinfo(item).min, np.iinfo(item).max)
    whole = np.clip(np.rint(values), *limits)
    if dtype == "int4x2":
        nibbles = whole.astype(np.int8).view(np.uint8) & 15
        return nibbles[..., 0] | nibbles[..., 1] << 4
    if dtype == "int4":
        nibbles = np.append(
            whole.astype(np.int8).reshape(-1).view(np.uint8) & 15, np.zeros(whole.size % 2, np.uint8)
        )
        return nibbles[0::2] | nibbles[1::2] << 4
    return whole.astype(item)
