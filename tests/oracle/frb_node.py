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

MAGIC = 0xf4bf4b02
KEYS = {
    "version", "zone_nfreq", "zone_freq_edges", "freq_channels", "beamset", "beam_ids", "beam_positions_x",
    "beam_positions_y", "unix_ns_at_seq_0", "dt_ns_per_seq", "seq_per_frb_time_sample",
    "tel_origin_itrs_lat_deg", "tel_origin_itrs_lon_deg", "tel_grid_x_axis", "tel_grid_y_axis",
    "tel_dish_elev_axis", "tel_dish_vert_axis", "tel_dish_coelev_deg", "tel_dish_separation_x_m",
    "tel_dish_separation_y_m", "noise_variance"
}


def check_document(d):
    """What the protocol says of the document."""
    assert set(d) == KEYS, f"keys {set(d) ^ KEYS}"
    is_int = lambda x: isinstance(x, int) and not isinstance(x, bool)
    is_real = lambda x: isinstance(x, float)
    assert d["version"] == 2
    nfreq, edges = d["zone_nfreq"], d["zone_freq_edges"]
    assert all(map(is_int, nfreq)) and \
        all(map(is_real, edges)) and len(edges) == len(nfreq) + 1 and np.all(np.diff(edges) > 0)
    ch = d["freq_channels"]
    assert all(map(is_int, ch)) and len(set(ch)) == len(ch) > 0 and min(ch) >= 0 and max(ch) < sum(nfreq)
    ids = d["beam_ids"]
    assert is_int(d["beamset"]) and all(map(is_int, ids)) and len(set(ids)) == len(ids) > 0
    x, y = np.array(d["beam_positions_x"]), np.array(d["beam_positions_y"])
    assert x.shape == y.shape == (len(ids), ) and x.dtype == y.dtype == np.float64 and np.all(x * x +
                                                                                              y * y <= 1)
    assert d["unix_ns_at_seq_0"] > 0 and is_int(d["dt_ns_per_seq"]) and d["dt_ns_per_seq"] > 0
    assert is_int(d["seq_per_frb_time_sample"]) and d["seq_per_frb_time_sample"] > 0
    axes = [
        np.array(d[k])
        for k in ("tel_grid_x_axis", "tel_grid_y_axis", "tel_dish_elev_axis", "tel_dish_vert_axis")
    ]
    assert all(a.shape == (3,) and abs(a @ a - 1) < 1e-6 for a in axes)
    assert abs(axes[0] @ axes[1]) < 1e-6 and abs(axes[2] @ axes[3]) < 1e-6
    for k in ("tel_origin_itrs_lat_deg", "tel_origin_itrs_lon_deg", "tel_dish_coelev_deg",
              "tel_dish_separation_x_m", "tel_dish_separation_y_m"):
        assert is_real(d[k]), f"{k} is {d[k]!r}"
    assert d["tel_dish_separation_x_m"] > 0 and d["tel_dish_separation_y_m"] > 0
    noise = d["noise_variance"]
    assert is_real(noise) or len(noise) == len(nfreq)


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
        d = yaml.safe_load(text[:-1].decode())
        check_document(d)
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
