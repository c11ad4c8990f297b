"""The FRB-node protocol, version 2, from its description and not from the C: a receiver and a sender to test
with.

    u32 magic, u32 flags, i32 L, L bytes of YAML ending in 0; then minichunks of 256 samples:
    u32 magic, u64 seq, f16 [beam][freq][2] = {scale, offset}, int4 [beam][freq][256], even sample in the low
    nibble, -8 masked
"""
import socket
import struct
import threading

import numpy as np
import yaml

import frb_document

MAGIC = 0xf4bf4b02


def frequencies(d):
    """Centre of every channel that is sent, MHz."""
    every = np.concatenate([
        lo + (np.arange(n) + 0.5) * (hi - lo) / n
        for n, lo, hi in zip(d["zone_nfreq"], d["zone_freq_edges"][:-1], d["zone_freq_edges"][1:])
    ])
    return every[d["freq_channels"]]


def unpack(raw):
    """[..., 128] bytes -> [..., 256] levels."""
    low = ((raw & 15).astype(np.int8) ^ 8) - 8
    high = ((raw >> 4).astype(np.int8) ^ 8) - 8
    return np.stack([low, high], axis=-1).reshape(*raw.shape[:-1], -1)


def pack(levels):
    levels = np.asarray(levels)
    return ((levels[..., 0::2] & 15) | (levels[..., 1::2] & 15) << 4).astype(np.uint8)


def minichunk(seq, scale_offset, levels):
    return struct.pack("<IQ", MAGIC, seq) + np.asarray(scale_offset, "<f2").tobytes() + pack(levels).tobytes()


def hello(document, flags=0):
    text = (document if isinstance(document, str) else yaml.safe_dump(
        document, default_flow_style=None)).encode() + b"\0"
    return struct.pack("<IIi", MAGIC, flags, len(text)) + text


class Receiver(threading.Thread):
    """Takes `connections` connections, one after the other, each to its end. self.got: list of (document,
    flags, [(seq, f16 [beam][freq][2], levels [beam][freq][256])]). `behave(self, sock, index)` may misbehave
    instead."""

    def __init__(self, connections=1, behave=None, port=0, cut_after=None):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections, self.behave, self.got, self.error = connections, behave, [], None
        self.cut_after = cut_after or {}
        self.start()

    def take(self, sock, n):
        data = bytearray()
        while len(data) < n:
            more = sock.recv(min(n - len(data), 1 << 20))
            if not more:
                return bytes(data)
            data += more
        return bytes(data)

    def one(self, sock, index):
        magic, flags, length = struct.unpack("<IIi", self.take(sock, 12))
        assert magic == MAGIC and flags & ~1 == 0 and 0 < length <= 1 << 20, (hex(magic), flags, length)
        text = self.take(sock, length)
        assert len(text) == length and text[-1] == 0 and b"\0" not in text[:-1]
        d = frb_document.read(text[:-1])
        assert yaml.safe_load(text[:-1]) == d, "readers that know numbers by their point read something else"
        chunks = []
        self.got.append((d, flags, chunks))
        nb, nf = len(d["beam_ids"]), len(d["freq_channels"])
        last = -1
        while head := self.take(sock, 12):
            assert len(head) == 12, "the connection ended within a header"
            magic, seq = struct.unpack("<IQ", head)
            assert magic == MAGIC and seq > last and \
                seq % (256 * d["seq_per_frb_time_sample"]) == 0, (hex(magic), seq, last)
            last = seq
            body = self.take(sock, 132 * nb * nf)
            assert len(body) == 132 * nb * nf, "the connection ended within a minichunk"
            side = np.frombuffer(body, "<f2", 2 * nb * nf).reshape(nb, nf, 2)
            levels = unpack(np.frombuffer(body, np.uint8, offset=4 * nb * nf).reshape(nb, nf, 128))
            chunks.append((seq, side, levels))
            if flags & 1:
                sock.sendall(b"\1")
            if len(chunks) == self.cut_after.get(index):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return

    def run(self):
        try:
            for index in range(self.connections):
                sock, _ = self.listener.accept()
                with sock:
                    (self.behave or Receiver.one)(self, sock, index)
        except Exception as error:  # shown by join_all
            self.error = error
        self.listener.close()

    def finish(self, timeout=20):
        self.join(timeout)
        assert not self.is_alive(), "the receiver is still waiting"
        if self.error:
            raise AssertionError(f"receiver: {self.error!r}") from self.error
        return self.got
