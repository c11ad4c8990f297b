"""kotekan's bufferSend with chordMetadata, from its description and not from the C: every frame is u32
metadata bytes, u32 frame bytes, the metadata struct (21120 bytes), the array."""
import socket
import struct
import threading

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
        "half": struct.unpack_from(f"<{nfreq}q", m, 8832), "offset": offset,
        "steps_of": struct.unpack_from(f"<{nfreq}i", m,
                                       17024), "array_offset": struct.unpack_from("<q", m, 368)[0],
        "name": text(16), "type": type_, "dims": dims, "strides": strides, "nfreq": nfreq,
        "counter": struct.unpack_from("<i", m, 12)[0], "coarse": struct.unpack_from(f"<{nfreq}i", m, 636),
        "upchan": struct.unpack_from(f"<{nfreq}i", m, 4732), "downsample": down,
        "first": down * offset + (half // 2 if down == 1 else 0)
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


# Assertions of the stages in kotekan's branch for CHORD about their input frames: type, dimensions.
STAGES = {
    "E": (INT4P4CHIME, "T F P D"), "Ebar": (INT4P4CHIME, "Tbar Fbar P D"),
    "I": (FLOAT16, "Ttilde Fbar beamQ beamP"), "I2": (FLOAT16, "R Fbar Ttilde"), "J": (INT4P4, "B F P T")
}
BYTES = {INT4P4: 1, INT4P4CHIME: 1, FLOAT16: 2}


def values(type_, raw, shape):
    """The frame's numbers, complex ones as such."""
    if type_ == FLOAT16:
        return np.frombuffer(raw, "<f2").reshape(shape)
    b = np.frombuffer(raw, np.uint8).reshape(shape)
    if type_ == INT4P4CHIME:
        return (b >> 4).astype(int) - 8 + 1j * ((b & 15).astype(int) - 8)
    return ((b & 15).astype(np.int8) ^ 8) - 8 + 1j * (((b >> 4).astype(np.int8) ^ 8) - 8)


class Peer(threading.Thread):
    """A buffer of kotekan's behind bufferRecv and the stage that takes `array`: whatever it would assert is
    asserted. `lengths` are those of all dimensions but time and frequency, by name; `upchan`, `step`, `half`
    what every channel must say. self.got: [(metadata, values in their order)]."""

    def __init__(self, array, lengths, nfreq, fine=1, upchan=1, step=1, half=0, type_=None):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.array, self.lengths, self.nfreq, self.fine = array, lengths, nfreq, fine
        self.says = {"upchan": upchan, "steps_of": step, "half": half}
        self.type, dims = STAGES[array]
        self.type, self.dims = type_ or self.type, dims.split()
        self.got, self.raw, self.error = [], [], None
        self.start()

    def check(self, m, size):
        assert m["name"] == self.array and m["type"] == self.type, m
        assert [n for n, _ in m["dims"]] == self.dims and len(m["dims"]) < 10, m["dims"]
        lengths, stride = dict(m["dims"]), 1
        for (_, n), s in reversed(list(zip(m["dims"], m["strides"]))):
            assert s == stride and n > 0
            stride *= n
        assert m["array_offset"] == 0 and size == stride * BYTES[self.type]
        assert m["nfreq"] == self.nfreq < 1024
        assert next(n for d, n in lengths.items() if d[0] == "F") == self.nfreq * self.fine
        assert {d: lengths[d] for d in self.lengths} == self.lengths
        for key, value in self.says.items():
            assert set(m[key]) == {value}, (key, m[key], value)
        steps = next(n for d, n in lengths.items() if d[0] == "T")
        assert m["offset"] >= 0 and m["offset"] % steps == 0
        if self.got:
            last = self.got[-1][0]
            assert m["dims"] == last["dims"] and m["coarse"] == last["coarse"], "the buffer has one size"
            assert m["offset"] == last["offset"] + steps and m["counter"] == last["counter"] + 1
        return [n for _, n in m["dims"]]

    def run(self):
        try:
            with self.listener.accept()[0] as s:
                while head := take(s, 8):
                    a, b = struct.unpack("<II", head)
                    assert a == SIZE, a
                    m, data = take(s, a), take(s, b)
                    assert len(m) == a and len(data) == b, "cut within a frame"
                    parsed = parse(m)
                    shape = self.check(parsed, b)
                    self.got.append((parsed, values(self.type, data, shape)))
                    self.raw.append((m, data))
        except Exception as error:  # shown by finish
            self.error = error
        self.listener.close()

    def finish(self, timeout=30):
        self.join(timeout)
        assert not self.is_alive(), f"{self.array}: still waiting"
        if self.error:
            raise AssertionError(f"{self.array}: {self.error!r}") from self.error
        return self.got
