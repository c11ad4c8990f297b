"""Loss, duplicates, disorder within the window and beyond, corrupt and broken off messages on the TCP links,
at rates from 0 to 1e-1: every sample that arrived is bit-identical, every other one is missing, and all is
counted. (chime-l0's sweep is in wires_l0.)"""
import os
import socket
import struct
import time

import numpy as np

import harness
from wires_common import document, frb_receiver, free_port, random_minichunks, recordings, STEP
from wires_kotekan import field_metadata, FIELD, kotekan_receiver
import frb_node  # noqa: E402
import kotekan  # noqa: E402

RATES = (0, 1e-4, 1e-2, 1e-1)
WINDOW = 6


class Assembly:
    """Blocks of two parts; what a window of blocks makes of them."""

    def __init__(self):
        self.tail, self.opened, self.arrived = None, {}, set()
        self.counts = {"received": 0, "late": 0, "duplicate": 0}

    def hand_on(self):
        self.tail = min(self.opened) + 1
        del self.opened[self.tail - 1]

    def take(self, n, part):
        """1 if it is new, else 0: as the acknowledgement says it."""
        self.tail = n if self.tail is None else self.tail
        if n < self.tail:
            self.counts["late"] += 1
            return 0
        while n - self.tail >= WINDOW and self.opened:
            self.hand_on()
        self.tail = max(self.tail, n - WINDOW + 1)
        if part in self.opened.setdefault(n, set()):
            self.counts["duplicate"] += 1
            return 0
        self.opened[n].add(part)
        self.arrived.add((n, part))
        self.counts["received"] += 1
        while self.tail in self.opened and len(self.opened[self.tail]) == 2:
            self.hand_on()
        return 1


class Sender:
    """A node with a part of the channels, which waits for every acknowledgement."""

    def __init__(self, port, channels):
        self.port, self.channels, self.sock = port, channels, None

    def open(self):
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.sendall(frb_node.hello(document(channels=self.channels), flags=1))
            self.last = -1
        return self.sock

    def close(self):
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_WR)
            assert self.sock.recv(1) == b""
            self.sock.close()
        self.sock = None

    def send(self, n, chunk):
        if n <= getattr(self, "last", -1) and self.sock is not None:
            self.close()  # seq may not go back on a connection
        self.open().sendall(chunk)
        self.last = n
        return self.sock.recv(1)[0]

    def send_bad(self, data):
        """Something that ends the connection."""
        s = self.open()
        s.sendall(data)
        try:
            if len(data) < 12:
                s.shutdown(socket.SHUT_WR)
            assert s.recv(1) == b""
        except ConnectionError:
            pass
        s.close()
        self.sock = None


def test_frb_node():
    blocks, own, where = 120, [(5, 2), (1, 3, 0)], [[0, 3], [2, 4, 1]]
    for k, rate in enumerate(RATES):
        rng = np.random.default_rng(30 + k)
        levels, side = random_minichunks(rng, blocks, 2, 5)
        chunk = lambda n, p: frb_node.minichunk((n + 3) * STEP, side[n][:, where[p]], levels[n][:, where[p]])
        with harness.scratch() as d:
            port = free_port()
            run = frb_receiver(d, port, document(channels=(5, 0, 1, 2, 3)),
                               f"until_closed: true, hold_s: 30, window: {WINDOW}")
            keep = socket.create_connection(("127.0.0.1", port))  # so that there is always a connection
            keep.sendall(frb_node.hello(document(channels=(5,))))
            senders, model, order, bad, broken = [Sender(port, c) for c in own], Assembly(), [], 0, 0
            for n in range(blocks):
                for p in (0, 1):
                    at = 2 * n + p
                    if n > 0 and rng.random() < rate:
                        continue  # lost
                    late = int(rng.integers(1, 6)) if n > 0 and rng.random() < rate else 0
                    late += 2 * (WINDOW + 3) if n > 0 and rng.random() < rate / 2 else 0
                    order.append((at + late + 0.5 * (late > 0), n, p, None))
                    if rng.random() < rate:
                        order.append((at + int(rng.integers(0, 5)) + 0.6, n, p, None))
                    if n > 0 and rng.random() < rate:
                        order.append((at + 0.1, n, p, "corrupt" if rng.random() < 0.5 else "broken"))
            for _, n, p, what in sorted(order, key=lambda x: x[:3]):
                if what == "corrupt":
                    senders[p].send_bad(bytes([chunk(n, p)[0] ^ 0x10]) + chunk(n, p)[1:])
                    bad += 1
                elif what == "broken":
                    senders[p].send_bad(chunk(n, p)[:7])
                    broken += 1
                else:
                    got, want = senders[p].send(n, chunk(n, p)), model.take(n, p)
                    assert got == want, (rate, n, p, got, want, model.tail)
            for s in senders:
                s.close()
            keep.close()
            run.finish()
            last = max(n for n, _ in model.arrived)
            got = {first // STEP - 3: (x, y) for first, x, y in recordings(d)}
            assert {n for n, _ in model.arrived
                    } == set(got), (rate, sorted({n for n, _ in model.arrived} ^ set(got)))
            for n, (x, y) in got.items():
                want, scale = np.full((2, 5, 256), -8, np.int8), np.zeros((2, 5, 2), np.float32)
                for p in (0, 1):
                    if (n, p) in model.arrived:
                        want[:, where[p]], scale[:, where[p]] = levels[n][:, where[p]], side[n][:, where[p]]
                assert np.array_equal(x, want) and np.array_equal(y, scale), (rate, n)
            counts = run.counts()
            missing = 5 * (last + 1) - sum(len(own[p]) for _, p in model.arrived)
            want = model.counts | {"malformed": bad, "broken": broken, "missing": missing}
            assert all(counts[name] == want[name] for name in want), (rate, counts, want)
            assert rate < 1e-1 or min(want.values()) > 0, want


def test_frb_node_again():
    """A minichunk completes two blocks, and right behind it comes one of the second block again: it is late,
    for what is complete is handed on before more is read."""
    own, where = [(5, 2), (1, 3, 0)], [[0, 3], [2, 4, 1]]
    levels, side = random_minichunks(np.random.default_rng(60), 2, 2, 5)
    chunk = lambda n, p: frb_node.minichunk((n + 3) * STEP, side[n][:, where[p]], levels[n][:, where[p]])
    with harness.scratch() as d:
        port = free_port()
        run = frb_receiver(d, port, document(channels=(5, 0, 1, 2, 3)),
                           f"until_closed: true, hold_s: 30, window: {WINDOW}")
        first, second, again = (Sender(port, own[p]) for p in (0, 1, 1))
        sent = first.send(0, chunk(0, 0)), first.send(1, chunk(1, 0)), second.send(1, chunk(1, 1))
        assert sent == (1, 1, 1), sent
        s = again.open()
        s.sendall(chunk(0, 1) + chunk(1, 1))
        assert s.recv(1) == b"\1" and s.recv(1) == b"\0"
        for sender in (first, second, again):
            sender.close()
        run.finish()
        counts, want = run.counts(), {"received": 4, "late": 1, "duplicate": 0, "missing": 0}
        assert all(counts[name] == want[name] for name in want), counts
        assert sorted(first // STEP - 3 for first, _, _ in recordings(d)) == [0, 1]


def test_kotekan():
    """Frames of 64 samples, handed on in frames of 100; what comes after its time has passed is late,
    whatever its place in line was."""
    frames, per = 150, 64
    for k, rate in enumerate(RATES):
        rng = np.random.default_rng(50 + k)
        raw = rng.integers(0, 256, (frames * per, *FIELD)).astype(np.uint8)
        one = lambda n: kotekan.frame(field_metadata(10000 + n * per, per), raw[n * per:(n + 1) * per])
        with harness.scratch() as d:
            port = free_port()
            run = kotekan_receiver(d, port, "until_closed: true, hold_s: 30", frame=100)
            keep, sock = socket.create_connection(("127.0.0.1", port)), None
            order, known, cursor, passed, bad, broken, received = [], np.zeros(frames * per,
                                                                               bool), 0, 0, 0, 0, 0
            for n in range(frames):
                if n > 0 and rng.random() < rate:
                    continue
                late = int(rng.integers(1, 20)) if n > 0 and rng.random() < rate else 0
                order.append((n + late + 0.5 * (late > 0), n, None))
                if rng.random() < rate:
                    order.append((n + int(rng.integers(0, 5)) + 0.6, n, None))
                if n > 0 and rng.random() < rate:
                    order.append((n + 0.1, n, "corrupt" if rng.random() < 0.5 else "broken"))
            for _, n, what in sorted(order, key=lambda x: x[:2]):
                sock = sock or socket.create_connection(("127.0.0.1", port))
                data = bytearray(one(n))
                if what is None:
                    sock.sendall(data)
                    received += 1
                    if n * per < cursor:
                        passed += 1
                    else:
                        known[n * per:(n + 1) * per] = True
                        cursor = (n + 1) * per
                    continue
                if what == "corrupt":
                    struct.pack_into("<i", data, 8 + int(rng.choice([0, 4, 8, 36, 40, 44, 288, 368])), -7)
                    bad += 1
                else:
                    del data[int(rng.integers(1, len(data))):]
                    broken += 1
                try:
                    sock.sendall(data)
                    if what == "broken":
                        sock.shutdown(socket.SHUT_WR)
                    assert sock.recv(1) == b""
                except ConnectionError:
                    pass
                sock.close()
                sock = None
            if sock:
                sock.close()
            keep.close()
            run.finish()
            e, valid = np.zeros((frames * per, *FIELD), complex), np.zeros(frames * per, bool)
            for name in sorted(n for n in os.listdir(d) if n.endswith(".dada")):
                part, ok, first, _ = harness.read_e(os.path.join(d, name))
                e[first - 10000:first - 10000 + len(part)] = part
                valid[first - 10000:first - 10000 + len(part)] = ok.all(axis=1)
                assert np.array_equal(ok.all(axis=1), ok.any(axis=1))
            assert np.array_equal(valid, known), (rate, np.argwhere(valid != known)[:5])
            assert np.array_equal(e, harness.unpack(raw) * known[:, None, None, None]), rate
            counts = run.counts()
            want = {
                "received": received, "malformed": bad, "broken": broken, "missing": int(
                    (~known[:cursor]).sum())
            }
            assert all(counts[name] == want[name]
                       for name in want) and counts["late"] + counts["duplicate"] == passed, (rate, counts,
                                                                                              want, passed)
            assert rate < 1e-1 or passed > 0 and min(want.values()) > 0, want


JUMP = 10**7  # minichunks or frames: months


def test_frb_node_jump():
    """seq jumps far ahead. One sender of two: it waits, and the other one loses nothing. Both, or the only
    one: they are believed at once."""
    own, where = [(5, 2), (1, 3, 0)], [[0, 3], [2, 4, 1]]
    for jumpers, senders in (((1,), (0, 1)), ((0, 1), (0, 1)), ((0,), (0,))):
        rng = np.random.default_rng(70)
        levels, side = random_minichunks(rng, 60, 2, 5)
        with harness.scratch() as d:
            port = free_port()
            run = frb_receiver(d, port, document(channels=(5, 0, 1, 2, 3)),
                               f"until_closed: true, hold_s: 30, window: {WINDOW}")
            socks = {p: socket.create_connection(("127.0.0.1", port)) for p in senders}
            for p, s in socks.items():
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY,
                             1)  # else one may lag by more than the window
                s.sendall(frb_node.hello(document(channels=own[p]), flags=1))
            for n in range(60):
                for p, s in socks.items():
                    at = n + JUMP if n >= 20 and p in jumpers else n
                    if n <= 20 or p not in jumpers or len(jumpers) == len(senders):
                        s.sendall(
                            frb_node.minichunk((at + 3) * STEP, side[n][:, where[p]], levels[n][:, where[p]]))
                for p, s in socks.items():  # in step: the next ones when these were taken
                    if n < 20 or p not in jumpers or len(jumpers) == len(senders):
                        assert s.recv(1) == b"\1", (jumpers, n, p)
            for p in sorted(socks):  # the good one first
                socks[p].close()
                time.sleep(0.3)
            run.finish()
            got = {first // STEP - 3: (x, y) for first, x, y in recordings(d)}
            counts = run.counts()
            assert counts["late"] == counts["malformed"] == counts["duplicate"] == 0, counts
            if jumpers != (0, 1):  # there, the first may wait for a moment for the second
                assert ("far ahead" in run.text()) == (jumpers == (1,)), run.text()
            for n in range(60):
                for p in senders:
                    at = n + JUMP if n >= 20 and p in jumpers else n
                    if jumpers == (1,) and p == 1 and n > 20:
                        continue
                    assert at in got and np.array_equal(got[at][0][:, where[p]],
                                                        levels[n][:, where[p]]), (jumpers, n, p, sorted(got))


def test_kotekan_jump():
    per = 64
    for jumpers, senders in (((1,), (0, 1)), ((0,), (0,))):
        raw = np.random.default_rng(71).integers(0, 256, (60 * per, *FIELD)).astype(np.uint8)
        with harness.scratch() as d:
            port = free_port()
            run = kotekan_receiver(d, port, "until_closed: true, hold_s: 30, window: 2", frame=100)
            socks = {p: socket.create_connection(("127.0.0.1", port)) for p in senders}
            for n in range(60):
                p = n % len(socks)  # they take turns
                at = n + JUMP if n >= 20 and p in jumpers else n
                if p in jumpers and len(socks) > 1 and n > 21:
                    continue
                socks[p].sendall(
                    kotekan.frame(field_metadata(10000 + at * per, per), raw[n * per:(n + 1) * per]))
                time.sleep(0.01)
            for p in sorted(socks):
                socks[p].close()
                time.sleep(0.3)
            run.finish()
            counts = run.counts()
            assert counts["late"] == counts["malformed"] == counts["duplicate"] == 0, counts
            assert ("far ahead" in run.text()) == (jumpers == (1,)), run.text()
            seen = {}
            for name in sorted(n for n in os.listdir(d) if n.endswith(".dada")):
                e, ok, first, _ = harness.read_e(os.path.join(d, name))
                seen.update({first + i: e[i] for i in range(len(e)) if ok[i].all()})
            for n in range(60):
                p = n % len(socks)
                at = n + JUMP if n >= 20 and p in jumpers else n
                if p in jumpers and len(socks) > 1 and n > 21:
                    continue
                want = harness.unpack(raw[n * per:(n + 1) * per])
                assert all(np.array_equal(seen.get(10000 + at * per + i), want[i])
                           for i in range(per)), (jumpers, n)


if __name__ == "__main__":
    harness.main([test_frb_node, test_frb_node_again, test_kotekan, test_frb_node_jump, test_kotekan_jump])
