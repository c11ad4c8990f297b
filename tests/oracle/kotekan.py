"""kotekan's bufferSend with chordMetadata, from its description and not from the C: every frame is u32
metadata bytes, u32 frame bytes, the metadata struct (21120 bytes), the array."""
import struct

import numpy as np

SIZE = 21120
INT4P4, INT4P4CHIME, FLOAT16 = 6, 7, 12


def metadata(name, type_, dims, first, nfreq, counter=0, downsample=1, coarse=None):
    """dims: [(name, length)], slowest first. `first` is the F-engine's sample of the first time step, a
    multiple of downsample."""
    m = bytearray(SIZE)
    struct.pack_into("<iiii", m, 0, 10, 20, 1024, counter)
    m[16:16 + len(name)] = name.encode()
    struct.pack_into("<ii", m, 36, type_, len(dims))
    stride = 1
    for i in reversed(range(len(dims))):
        struct.pack_into("<i", m, 44 + 4 * i, dims[i][1])
        m[84 + 20 * i:84 + 20 * i + len(dims[i][0])] = dims[i][0].encode()
        struct.pack_into("<q", m, 288 + 8 * i, stride)
        stride *= dims[i][1]
    struct.pack_into("<qi", m, 368, 0, 0)
    struct.pack_into("<q", m, 624, first // downsample)
    struct.pack_into("<i", m, 632, nfreq)
    for f in range(nfreq):
        struct.pack_into("<i", m, 636 + 4 * f, (coarse or range(nfreq))[f])
        struct.pack_into("<i", m, 4732 + 4 * f, 1)
        struct.pack_into("<q", m, 8832 + 8 * f, downsample - 1)
        struct.pack_into("<i", m, 17024 + 4 * f, downsample)
    return bytes(m)


def parse(m):
    assert len(m) == SIZE and struct.unpack_from("<iii", m) == (10, 20, 1024)
    text = lambda at: m[at:at + 20].split(b"\0")[0].decode()
    type_, n = struct.unpack_from("<ii", m, 36)
    dims = [(text(84 + 20 * i), struct.unpack_from("<i", m, 44 + 4 * i)[0]) for i in range(n)]
    strides = struct.unpack_from(f"<{n}q", m, 288)
    nfreq, = struct.unpack_from("<i", m, 632)
    half, = struct.unpack_from("<q", m, 8832)
    down, = struct.unpack_from("<i", m, 17024)
    offset, = struct.unpack_from("<q", m, 624)
    return {
        "name": text(16), "type": type_, "dims": dims, "strides": strides, "nfreq": nfreq,
        "counter": struct.unpack_from("<i", m, 12)[0], "coarse": struct.unpack_from(f"<{nfreq}i", m, 636),
        "upchan": struct.unpack_from(f"<{nfreq}i", m, 4732), "downsample": down,
        "first": down * offset + (half - (down - 1)) // 2
    }


def frame(meta, data):
    data = np.ascontiguousarray(data).tobytes()
    return struct.pack("<II", len(meta), len(data)) + meta + data


def take(sock, n):
    data = bytearray()
    while len(data) < n and (more := sock.recv(n - len(data))):
        data += more
    return bytes(data)


def receive(sock):
    """All frames of a connection: [(metadata, bytes)]."""
    frames = []
    while head := take(sock, 8):
        a, b = struct.unpack("<II", head)
        assert a == SIZE, a
        m, data = take(sock, a), take(sock, b)
        assert len(m) == a and len(data) == b, "cut within a frame"
        frames.append((parse(m), data))
    return frames
