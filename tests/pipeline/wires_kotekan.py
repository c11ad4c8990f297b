"""The links with kotekan, both ways."""
import contextlib
import os
import socket
import struct
import threading
import time

import numpy as np

import harness
from wires_common import BEAMS, CONFIG, EPOCH, free_port, head, Running, turned_away
import kotekan  # noqa: E402
FIELD = (3, 2, 64)  # channels, polarisations, dishes of the pathfinder


def kotekan_receiver(directory, port, more="until_closed: true", frame=256):
    return Running(directory, f"""
include: {CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: {{first: 600, step: 0.1953125, count: 3}}}}
pipeline:
  - {{stage: receive, format: kotekan, address: "127.0.0.1:{port}", frame_samples: {frame}, {more}, out: e}}
  - {{stage: record, in: e, directory: ., prefix: r, overwrite: true}}
""")


def field_metadata(first, steps, type_=kotekan.INT4P4, dims=None):
    dims = dims or [("T", steps), ("F", 3), ("P", 2), ("D", 64)]
    return kotekan.metadata("E", type_, dims, first, 3)


def test_kotekan_receive():
    """Frames of any length that begin anywhere, an overlap, a gap, one that comes twice, both codings, a
    whole missing CHIME cell."""
    rng = np.random.default_rng(5)
    with harness.scratch() as d:
        port = free_port()
        raw = rng.integers(0, 256, (2000, *FIELD)).astype(np.uint8)
        run = kotekan_receiver(d, port)
        known = np.zeros(2000, bool)
        with socket.create_connection(("127.0.0.1", port)) as s:
            for at, n in ((7, 300), (307, 100), (400, 120), (307, 50), (600, 500), (1100, 900)):
                s.sendall(kotekan.frame(field_metadata(10000 + at, n), raw[at:at + n]))
                known[at:at + n] = True
        run.finish()
        e, valid, first, keys = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert first == 10007 and int(keys["EPOCH_NS"]) == EPOCH
        want = harness.unpack(raw[7:]) * known[7:, None, None, None]
        assert np.array_equal(valid.any(axis=1), known[7:]) and np.array_equal(e, want)
        assert run.counts()["duplicate"] + run.counts()["late"] == 1 and \
            run.counts()["missing"] == 80, run.counts()
    with harness.scratch() as d:  # CHIME's coding: offset binary, real part high, 0 is missing
        port = free_port()
        chime = rng.integers(1, 256, (512, *FIELD)).astype(np.uint8)
        chime[100:110, 1] = 0
        run = kotekan_receiver(d, port)
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(kotekan.frame(field_metadata(256, 512, kotekan.INT4P4CHIME), chime))
        run.finish()
        e, valid, first, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        want = (chime >> 4).astype(int) - 8 + 1j * ((chime & 15).astype(int) - 8)
        missing = np.zeros((512, 3), bool)
        missing[100:110, 1] = True
        assert np.array_equal(valid == 0, missing) and np.array_equal(e, want * ~missing[:, :, None, None])


def test_kotekan_bad_peers():
    rng = np.random.default_rng(6)
    raw = rng.integers(0, 256, (40 * 64, *FIELD)).astype(np.uint8)
    good = field_metadata(0, 64)
    body = raw[:64].tobytes()
    bad = [(struct.pack("<II", a, b), "malformed")
           for a, b in ((0, 64 * 384), (21119, 64 * 384), (21121, 64 * 384), (2**31, 64 * 384),
                        (2**32 - 1, 64 * 384), (21120, 0), (21120, 64 * 384 + 1), (21120, 2**31),
                        (21120, 2**32 - 1), (21120, 384 * (2**32 // 384)))]
    for at, form, values in ((0, "<i", (9, -1, 2**31 - 1)), (4, "<i", (0, )), (8, "<i", (1023, )),
                             (36, "<i", (-1, 0, 1, 12, 99)), (40, "<i", (-1, 0, 3, 5, 11, 2**31 - 1)),
                             (44, "<i", (0, -64, 63, 65, 2**31 - 1)), (48, "<i", (2, 4)), (56, "<i", (63, )),
                             (84, "<i", (0, 0x58)), (288, "<q", (0, 1, -1, 2**63 - 1)), (312, "<q", (2, )),
                             (368, "<q", (1, -1)), (624, "<q", (2**62, -2**62)), (632, "<i", (1025,
                                                                                              2**31 - 1)),
                             (4732, "<i", (0, -2)), (8832, "<q", (2**62, -2**63)), (17024, "<i", (0, -2, 2))):
        for value in values:
            m = bytearray(good)
            struct.pack_into(form, m, at, value)
            bad.append((struct.pack("<II", 21120, len(body)) + bytes(m), "malformed"))
    whole = kotekan.frame(good, raw[:64])
    bad += [(whole[:n], "broken") for n in (1, 7, 8, 9, 500, 8 + 21119, 8 + 21120, len(whole) - 1)]
    with harness.scratch() as d:
        port = free_port()
        run = kotekan_receiver(d, port, "until_closed: true, handshake_s: 3, max_frame_bytes: 100000000")
        want = {"malformed": 0, "broken": 0}
        with socket.create_connection(("127.0.0.1", port)) as s, socket.create_connection(
            ("127.0.0.1", port)) as slow:
            slow.sendall(whole[:1000])
            for n in range(40):
                s.sendall(kotekan.frame(field_metadata(64 * n, 64), raw[64 * n:64 * n + 64]))
                for data, counter in bad[n::40]:
                    want[counter] += 1
                    turned_away(port, data, then_ends=counter == "broken")
            assert slow.recv(1) == b""
        run.finish()
        e, valid, first, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert first == 0 and valid.all() and np.array_equal(e, harness.unpack(raw))
        counts = run.counts()
        assert {k: counts[k]
                for k in want} == want and counts["silent"] == 1 and counts["received"] == 40, (counts, want)


def test_kotekan_too_many():
    """A seventeenth sender is refused where sixteen have sent something, counted as such and not as samples
    that were lost; the others go on. Where some have not, the oldest of these makes room: silence and
    slowness shut nobody out."""
    raw = np.random.default_rng(7).integers(0, 256, (256 + 17 * 16, *FIELD)).astype(np.uint8)
    frame = lambda at, n: kotekan.frame(field_metadata(at, n), raw[at:at + n])
    closed = lambda s: s.recv(1) == b""
    with harness.scratch() as d:
        port = free_port()
        run = kotekan_receiver(d, port, "until_closed: true, handshake_s: 1000", frame=16)
        connect = lambda: socket.create_connection(("127.0.0.1", port), timeout=20)
        strangers = [connect() for _ in range(16)]
        for s in strangers[1:]:
            s.sendall(b"\x80\x52\0"[:len(strangers) % 4])  # a part of the first number
        known = [connect()]
        known[0].sendall(frame(0, 16))
        assert closed(strangers[0])
        for n in range(1, 16):
            known.append(connect())
            known[n].sendall(frame(16 * n, 16))
            assert closed(strangers[n])
        path, until = os.path.join(d, "r_000000.dada"), time.time() + 20
        while not os.path.exists(path) or os.path.getsize(path) < 4096 + raw[:256].size:
            assert time.time() < until, "what sixteen have sent is not recorded"
            time.sleep(0.01)
        with connect() as late:
            assert closed(late)
        known[0].sendall(frame(256, 17 * 16))
        for peer in known:
            peer.close()
        stages = run.finish()
        counts = run.counts()
        assert counts["refused"] == 1 and counts["silent"] == 16 and counts["malformed"] == 0, counts
        assert "a connection was refused: there are 16 already" in run.text(), run.text()
        assert "had not sent its handshake yet" in run.text(), run.text()
        assert not any(stages["receive"]["lost"].values()), stages["receive"]
        assert harness.read_e(os.path.join(d, "r_000000.dada"))[0].shape[0] == 256 + 17 * 16


def test_kotekan_drip():
    """A handshake that comes byte by byte is over after handshake_s, however lively it is."""
    with harness.scratch() as d:
        run = kotekan_receiver(d, port := free_port(), "handshake_s: 0.5, until_closed: true")
        with socket.create_connection(("127.0.0.1", port)) as s:
            with contextlib.suppress(ConnectionError):
                for byte in kotekan.frame(field_metadata(0, 64), np.zeros((64, *FIELD), np.uint8))[:2000]:
                    s.sendall(bytes([byte]))
                    time.sleep(0.02)
                raise AssertionError("40 s were not too long")
        run.finish()
        assert "its handshake took more than 0.5 s" in run.text() and run.counts()["silent"] == 1, run.text()


def kotekan_listener():
    listener, frames = socket.create_server(("127.0.0.1", 0)), []

    def take():
        with listener.accept()[0] as s:
            frames.extend(kotekan.receive(s))
        listener.close()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return "127.0.0.1:%d" % listener.getsockname()[1], frames, thread


def test_kotekan_send():
    """E and intensity beams as kotekan gets them: whole frames only, zeros where the stream has nothing; and
    E back again."""
    with harness.scratch() as d:
        (to_e, frames_e, thread_e), (to_j, frames_j, thread_j) = kotekan_listener(), kotekan_listener()
        harness.run(
            d,
            head(1000, 0.03) + f"""
  - {{stage: record, name: rec_e, in: e, directory: ., prefix: e}}
  - {{stage: record, name: rec_j, in: j, directory: ., prefix: j}}
  - {{stage: packetize, name: send_e, in: e, format: kotekan, destinations: [{{address: "{to_e}"}}]}}
  - {{stage: packetize, name: send_j, in: j, format: kotekan, idle_s: 0.1,
       destinations: [{{address: "{to_j}"}}]}}
""")
        thread_e.join(10), thread_j.join(10)
        e, _, first, keys = harness.read_e(os.path.join(d, "e_000000.dada"))
        assert first == 1000 and [m["first"] for m, _ in frames_e] == [2048 * n for n in range(len(frames_e))]
        got = np.concatenate(
            [kotekan.values(kotekan.INT4P4CHIME, b, (2048, *FIELD)) for _, b in frames_e])
        assert np.array_equal(got[1000:1000 + len(e)],
                              e) and not got[:1000].any() and not got[1000 + len(e):].any()
        m = frames_e[1][0]
        assert m["name"] == "E" and m["type"] == kotekan.INT4P4CHIME and m["counter"] == 1 and \
            m["nfreq"] == 3 and m["downsample"] == 1
        assert m["dims"] == [("T", 2048), ("F", 3), ("P", 2), ("D", 64)] and m["strides"] == (384, 128, 64, 1)
        assert m["coarse"] == (3073, 3074, 3075), m["coarse"]
        j, first, keys, _ = harness.read_frames(os.path.join(d, "j_000000.dada"))
        m = frames_j[0][0]
        assert m["type"] == kotekan.FLOAT16 and m["downsample"] == 4 and [x for x, _ in m["dims"]
                                                                          ] == ["R", "Fbar", "Ttilde"], m
        steps = m["dims"][2][1]
        got = np.concatenate([np.frombuffer(b, np.float16).reshape(BEAMS, 3, steps) for _, b in frames_j],
                             axis=2).transpose(1, 2, 0)
        at = first - frames_j[0][0]["first"] // 4
        assert np.array_equal(got[:, at:at + j.shape[1]], j)
    with harness.scratch() as d:
        port = free_port()
        run = kotekan_receiver(d, port, frame=500)
        harness.run(d, head(1000, 0.03).split("  - {stage: frb_grid")[0] + f"""
  - {{stage: record, in: e, directory: ., prefix: e}}
  - {{stage: packetize, in: e, format: kotekan, idle_s: 0.1, destinations: [{{address: "127.0.0.1:{port}"}}]}}
""")
        run.finish()
        sent, _, a, _ = harness.read_e(os.path.join(d, "e_000000.dada"))
        got, _, b, _ = harness.read_e(os.path.join(d, "r_000000.dada"))
        assert (a, b) == (1000, 0) and np.array_equal(got[1000:1000 + len(sent)], sent)


if __name__ == "__main__":
    harness.main([
        test_kotekan_receive, test_kotekan_bad_peers, test_kotekan_too_many, test_kotekan_drip,
        test_kotekan_send
    ])
