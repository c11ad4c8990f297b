"""CHIME's L0 packets, versions 1 and 2, from their description and not from the C: encoder, decoder,
quantizer."""
import socket
import struct
import threading

import numpy as np

TOP, WIDTH = 800.0, 0.390625


def frequencies(coarse_ids, nupfreq):
    """MHz [coarse][up]; everything descends."""
    coarse = TOP - WIDTH * np.asarray(coarse_ids, float)[:, None]
    return coarse + WIDTH / 2 - WIDTH / nupfreq * (np.arange(nupfreq) + 0.5)


def quantize(x, valid):
    """x f32 [..., up, time], valid of the same shape -> bytes, scale, offset of each [up][time] block; all in
    float32."""
    x = np.asarray(x, np.float32)
    big = np.float32(np.inf)
    low = np.where(valid, x, big).min(axis=(-2, -1))
    high = np.where(valid, x, -big).max(axis=(-2, -1))
    any_ = valid.any(axis=(-2, -1))
    scale = np.where(any_ & (high > low),
                     (np.where(any_, high, 0) - np.where(any_, low, 0)) / np.float32(253),
                     0).astype(np.float32)
    offset = np.where(any_, np.where(any_, low, 0) - scale, 0).astype(np.float32)
    divisor = np.where(scale > 0, scale, 1).astype(np.float32)
    level = np.rint((np.where(valid, x, 0) - offset[..., None, None]) / divisor[..., None, None])
    level = np.clip(level, 1, 254).astype(np.uint8)
    return np.where(valid, level, 0).astype(np.uint8), scale, offset


def encode(version, counts, frame0_ns, count, beam_ids, coarse_ids, scale, offset, data):
    """data u8 [beam][coarse][up][time]"""
    nb, nf, nu, nt = data.shape
    head = struct.pack("<IhH", version, data.size, counts)
    if version == 2:
        head += struct.pack("<Q", frame0_ns)
    head += struct.pack("<QHHHH", count, nb, nf, nu, nt)
    return (head + np.asarray(beam_ids, "<u2").tobytes() + np.asarray(coarse_ids, "<u2").tobytes() +
            np.asarray(scale, "<f4").tobytes() + np.asarray(offset, "<f4").tobytes() +
            np.ascontiguousarray(data, np.uint8).tobytes())


def decode(packet):
    version, nbytes, counts = struct.unpack_from("<IhH", packet)
    assert version in (1, 2)
    at, frame0 = 8, None
    if version == 2:
        frame0, = struct.unpack_from("<Q", packet, at)
        at += 8
    count, nb, nf, nu, nt = struct.unpack_from("<QHHHH", packet, at)
    at += 16
    beams = np.frombuffer(packet, "<u2", nb, at)
    at += 2 * nb
    coarse = np.frombuffer(packet, "<u2", nf, at)
    at += 2 * nf
    scale = np.frombuffer(packet, "<f4", nb * nf, at).reshape(nb, nf)
    at += 4 * nb * nf
    offset = np.frombuffer(packet, "<f4", nb * nf, at).reshape(nb, nf)
    at += 4 * nb * nf
    assert nbytes == nb * nf * nu * nt and len(packet) == at + nbytes and len(packet) <= 8910
    assert nu <= 64 and nt <= 1024 and nt & (nt - 1) == 0 and count % (counts * nt) == 0
    data = np.frombuffer(packet, np.uint8, nbytes, at).reshape(nb, nf, nu, nt)
    return {
        "version": version, "counts": counts, "frame0_ns": frame0, "count": count, "beams": beams,
        "coarse": coarse, "scale": scale, "offset": offset, "data": data
    }


class Receiver(threading.Thread):
    """Collects packets until finish(), when the sender has ended: what it has sent waits in the socket.
    self.stamps: when they were sent, by the kernel's clock (on the loopback), ns."""

    def __init__(self):
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        self.sock.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self.sock.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.sock.getsockname()[1]
        self.sock.settimeout(0.05)
        self.packets, self.stamps, self.ended = [], [], False
        self.start()

    def run(self):
        while True:
            last = self.ended
            try:
                packet, extra, _, _ = self.sock.recvmsg(65536, 64)
            except socket.timeout:
                if last:
                    break
                continue
            self.packets.append(packet)
            self.stamps += [
                int(s) * 10**9 + int(ns) for _, _, data in extra for s, ns in [struct.unpack("qq", data)]
            ]
        self.sock.close()

    def finish(self):
        self.ended = True
        self.join(60)
        return [decode(p) for p in self.packets]
