"""Edges of the wires: blocks of one value or of none, noise zone by zone, addresses that cannot be used."""
import json
import os
import socket
import subprocess

import numpy as np
import yaml

import harness
from files_common import write
from kotekan_beams import (
    COARSE, on_the_wire, other, RECEIVED, receiver as kotekan_receiver, stored)
from wires_common import (
    check_l0, document, EPOCH, frb_receiver, free_port, head, l0_head, l0_packets, QUANTIZED,
    random_minichunks, recorded_levels, recordings, STEP)
from wires_frb import check_minichunks
from wires_l0 import l0_receiver
import chime_l0  # noqa: E402
import frb_node  # noqa: E402

UP, STEPS, DOWN = 2, 16, 384


def field(first=0, duration=0.03):
    """A pipeline of the electric field alone."""
    return head(first, duration).split("  - {stage: frb_grid")[0]


def intensities(d, j, valid, first):
    """J f16 [freq][time][beam] as a recording: coarse channels 12, 11, 10, ascending, two fine ones each."""
    F, T, B = j.shape
    mhz = [800 - 0.390625 * (12.5 - (f + 0.5) / UP) for f in range(F)]
    keys = {
        "HEADER": "DADA", "HDR_SIZE": 4096, "DTYPE": "f16", "AXES": "freq,time,beam", "SHAPE": f"{F},0,{B}",
        "FRAME_SAMPLES": T * DOWN, "SAMPLE0": first * DOWN, "SAMPLE_NS": 2560, "EPOCH_NS": EPOCH,
        "FREQ_MHZ": ",".join(map(repr, mhz)), "WIDTH_MHZ": 0.390625 / UP, "NZONES": 1,
        "ZONE_0": f"0,{F},{UP},{DOWN},0", "SCALE": 1
    }
    write(
        d, "j.dada",
        "".join(f"{k} {v}\n"
                for k, v in keys.items()).encode().ljust(4096, b"\0") + j.astype(np.float16).tobytes())
    with open(os.path.join(d, "j.dada.gaps"), "w") as f:
        for c, t in np.argwhere(~valid):
            f.write(f"{(first + t) * DOWN} {DOWN} {c} 1 0\n")


def test_l0_blocks():
    """Constant blocks, two values, one valid sample, none, float16's largest values, ones that differ in the
    last bit."""
    rng = np.random.default_rng(4)
    with harness.scratch() as d:
        F, blocks, B = 3 * UP, 10, 3
        j = rng.normal(0, 10, (F, blocks * STEPS, B)).astype(np.float16)
        valid = rng.random((F, blocks * STEPS)) < 0.9
        at = lambda n: slice(n * STEPS, (n + 1) * STEPS)
        j[:, at(1)] = 7.25
        j[:, at(2)] = 0
        j[:, at(3)] = np.where(rng.random(j[:, at(3)].shape) < 0.5, -3, 5)
        valid[:, at(4)] = False
        valid[2:4, at(5)] = False  # a whole coarse channel
        valid[:, at(6)] = False
        valid[:, 6 * STEPS + 3] = True
        j[:, at(7)] = np.where(rng.random(j[:, at(7)].shape) < 0.5, -65504, 65504)
        j[:, at(8)] = np.where(rng.random(j[:, at(8)].shape) < 0.5, np.float16(1000), np.float16(1000.5))
        j[:, at(9)] = -0.0
        intensities(d, j, valid, 100 * STEPS)
        receiver = chime_l0.Receiver()
        harness.run(
            d, f"""
pipeline:
  - {{stage: replay, files: j.dada, out: j}}
  - {{stage: packetize, in: j, format: chime-l0, rate: 1e7,
       destinations: [{{address: "{receiver.address}"}}]}}
""")
        seen = set()
        for p in receiver.finish():
            n = p["count"] // (DOWN * STEPS) - 100
            for b, beam in enumerate(p["beams"]):
                for f, coarse in enumerate(p["coarse"]):
                    rows = slice((12 - coarse) * UP, (13 - coarse) * UP)
                    x, ok = j[rows, at(n), beam][::-1].astype(np.float32), valid[rows, at(n)][::-1]
                    data, scale, offset = chime_l0.quantize(x, ok)
                    assert np.array_equal(
                        p["data"][b, f],
                        data) and p["scale"][b, f] == scale and p["offset"][b, f] == offset, (n, beam, coarse)
                    assert np.isfinite(p["scale"][b, f]) and np.isfinite(p["offset"][b, f])
                    assert np.array_equal(data == 0, ~ok) and not (data == 255).any()
                    if n in (1, 2, 9):
                        assert p["scale"][b, f] == 0 and (p["offset"][b, f] == x[ok]).all()
                    if not ok.any():
                        assert p["scale"][b, f] == 0 and p["offset"][b, f] == 0
                    seen.add((n, beam, coarse))
        assert {(n, b, c) for n in range(blocks) if n != 4 for b in range(B)
                for c in (10, 11, 12)} <= seen, sorted(seen)[:20]


def test_noise_of_zones():
    """A variance for each frequency zone of the whole band, of which the stream has a part."""
    with harness.scratch() as d:
        receiver = frb_node.Receiver()
        harness.run(
            d,
            head(1000) + QUANTIZED + f"""
  - stage: packetize
    in: q
    format: frb-node
    idle_s: 0.2
    noise_variance: [4, 0.25, 9]
    zones: {{nfreq: [2, 1, 5], edges_mhz: [{600.09765625 - 0.09765625}, {600.09765625 + 1.5 * 0.1953125},
      {600.09765625 + 2.5 * 0.1953125}, 700]}}
    destinations: [{{address: "{receiver.address}"}}]
""")
        (doc, _, chunks), = receiver.finish()
        assert doc["noise_variance"] == [4, 0.25, 9] and \
            doc["zone_nfreq"] == [2, 1, 5
        ] and doc["freq_channels"] == [0, 1, 2]
        check_minichunks(chunks, recorded_levels(os.path.join(d, "q_000000.dada")), slice(0, 8),
                         noise=np.array([4, 4, 0.25], np.float32))


def refused(d, text, word, status):
    result = harness.run(d, text, status=status)
    assert word in result.err, (word, result)


RECEIVERS = {
    "frb-node": (socket.SOCK_STREAM, "", "document: d.yaml"),
    "chime-l0": (socket.SOCK_DGRAM, f"stream: {{epoch_ns: {EPOCH}}}\n",
                 "beams: {count: 4}, channels: {count: 6}"),
    "kotekan": (
        socket.SOCK_STREAM,
        "telescope: {name: t, grid: {m: 1, n: 1}, spacing_m: {m: 1, n: 1}, dishes: [[0, 0]], latitude_deg: "
        "0, longitude_deg: 0}\n"
        f"stream: {{epoch_ns: {EPOCH}, sample_ns: 5120, freq_mhz: [600]}}\n", "frame_samples: 16")
}


def test_addresses_of_receivers():
    with harness.scratch() as d:
        yaml.safe_dump(document(), open(os.path.join(d, "d.yaml"), "w"))
        for name, (kind, stream, more) in RECEIVERS.items():
            text = lambda address: f"""{stream}
pipeline:
  - {{stage: receive, format: {name}, address: "{address}", {more}, idle_s: 0.1, out: q}}
  - {{stage: record, in: q, directory: ., prefix: r}}
"""
            with socket.socket(socket.AF_INET, kind) as taken:
                taken.bind(("127.0.0.1", 0))
                if kind == socket.SOCK_STREAM:
                    taken.listen()
                port = taken.getsockname()[1]
                refused(d, text(f"127.0.0.1:{port}"), "in use", 1)
                for args in ([name, f"127.0.0.1:{port}", "--directory", "."],):
                    if name == "kotekan":
                        continue
                    args += ["--beams", 4, "--channels", 6, "--nupfreq", 2, "--epoch-ns", EPOCH
                             ] if name == "chime-l0" else ["--idle", 1]
                    result = harness.beamring("receive", *args, cwd=d)
                    assert result.status == 1 and "in use" in result.err, result
            refused(d, text("no.such.host.invalid:5000"), "no.such.host.invalid", 1)
            refused(d, text("192.0.2.1:5000"), "192.0.2.1", 1)  # an address of somebody else's
            for bad in ("nowhere", "127.0.0.1:", "127.0.0.1:0x5", "127.0.0.1:65536", ":", "127.0.0.1:-1"):
                refused(d, text(bad), "address", 2)


def test_addresses_of_senders():
    with harness.scratch() as d:
        q = head() + "  - {stage: quantize, in: j, out: q, bits: 4, block: 256}\n"
        for name, text, in_ in (("frb-node", q, "q"), ("chime-l0", l0_head(), "j"), ("kotekan", field(),
                                                                                     "e")):
            to = lambda more: text + f"  - {{stage: packetize, in: {in_}, format: {name}, {more}}}\n"
            refused(d, to('destinations: [{address: "no.such.host.invalid:1"}]'), "no.such.host.invalid", 1)
            for bad in ("nowhere", "127.0.0.1:65536", "127.0.0.1:"):
                refused(d, to(f'destinations: [{{address: "{bad}"}}]'), "not an address", 2)
            refused(d, to("destinations: []"), "destinations", 2)
        many = "destinations: [" + ", ".join(f'{{address: "127.0.0.1:{p}"}}' for p in range(5000, 5010)) + "]"
        refused(d,
                l0_head() + f"  - {{stage: packetize, in: j, format: chime-l0, {many}}}\n",
                "at most one per beam", 2)
        refused(
            d,
            field() +
            '  - {stage: packetize, in: e, format: kotekan, destinations: [{address: "127.0.0.1:9", beams: '
            '3}]}\n',
            "beams", 2)
        # nobody there, and the user wants to know
        refused(
            d,
            field(0, 0.01) +
            '  - {stage: packetize, in: e, format: kotekan, reconnect: false, connect_s: 0.2, destinations: '
            '[{address: "127.0.0.1:9"}]}\n', "could not be reached within connect_s", 1)


def test_kotekan_sender():
    """A kotekan node that resets in mid-frame, and one that stops reading: the sender goes on, and counts
    what they miss. One that resets in its first frame, as it does when it expects another size, has accepted
    nothing: that is a failure."""
    with harness.scratch() as d:
        for what in ("reset", "deaf"):
            listener = socket.create_server(("127.0.0.1", 0))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listener.settimeout(20)
            port = listener.getsockname()[1]
            with open(os.path.join(d, "p.yaml"), "w") as f:
                f.write(
                    field(0, 0.3) +
                    f"  - {{stage: packetize, in: e, format: kotekan, retry_s: 100, stall_s: 0.3, close_s: "
                    f"0.3, idle_s: 0.1, "
                    f"destinations: [{{address: \"127.0.0.1:{port}\"}}]}}\n")
            process = subprocess.Popen(
                [os.path.abspath(harness.PROGRAM), "run", "p.yaml", "--stats", "s.json"], cwd=d,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            sock, _ = listener.accept()
            sock.settimeout(20)
            got = 0
            while got < 30000:  # into the first frame
                got += len(sock.recv(30000 - got)) or 10**9
            assert got == 30000
            listener.close()
            if what == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.close()
            err = process.communicate(timeout=60)[1]
            sock.close()
            assert process.returncode == (what == "reset") and f"127.0.0.1:{port}" in err, (what, err)
            assert ("never accepted anything" in err) == (what == "reset"), (what, err)
            stats = json.load(open(os.path.join(d, "s.json")))
            (stage,) = [s for s in stats["stages"] if s["name"] == "packetize"]
            assert stats["balanced"] and stage["lost"]["no_destination"] > 0, (what, stage)


def not_finite(stage):
    return stage["counted"]["values"]["not finite"]


def test_not_finite_files():
    """NaN and infinities in f16 and f32 intensities, behind `replay`: as if .gaps said that they are missing,
    in levels and in filterbank files. And in the scales of recorded levels."""
    rng = np.random.default_rng(8)
    bad = [(0, 70, 1, np.nan), (3, 200, 0, np.inf), (3, 900, 2, -np.inf), (5, 0, 2, np.nan)]
    F, T, B = 3 * UP, 64 * STEPS, 3
    clean = rng.normal(10, 2, (F, T, B)).astype(np.float16)
    j, valid = clean.copy(), np.ones((F, T), bool)
    for f, t, b, value in bad:
        j[f, t, b], valid[f, t] = value, False
    text = """
pipeline:
  - {stage: replay, files: j.dada, out: j}
  - {stage: quantize, in: j, out: q, bits: 8, block: 64, statistics: slow, calibration_s: 0.3}
  - {stage: record, in: q, directory: OUT, prefix: q}
  - {stage: filterbank, in: j, directory: OUT, prefix: f}
"""
    with harness.scratch() as d:
        intensities(d, clean, valid, T)
        harness.run(d, text.replace("OUT", "want"))
        os.remove(os.path.join(d, "j.dada.gaps"))
        for dtype in ("f16", "f32"):
            intensities(d, j, np.ones_like(valid), T)
            os.remove(os.path.join(d, "j.dada.gaps"))
            if dtype == "f32":
                head = open(os.path.join(d, "j.dada"), "rb").read(4096).replace(b"DTYPE f16", b"DTYPE f32")
                write(d, "j.dada", head + j.astype(np.float32).tobytes())
            more = text if dtype == "f16" else "\n".join(x for x in text.splitlines()
                                                         if "quantize" not in x and "record" not in x)
            result = harness.run(d, more.replace("OUT", dtype), "--stats", "s.json")
            assert "not finite" in result.err, result
            stages = {s["name"]: s for s in json.load(open(os.path.join(d, "s.json")))["stages"]}
            assert not_finite(stages["replay"]) == len(bad), stages["replay"]
            names = sorted(os.listdir(os.path.join(d, dtype)))
            assert any(n.endswith(".fil") for n in names), names
            for n in names:
                got, want = (open(os.path.join(d, x, n), "rb").read() for x in (dtype, "want"))
                assert got == want, (dtype, n)
        # of one beam in one channel the scale, of another the offset
        path = os.path.join(d, "f16", "q_000000.dada")
        raw = bytearray(open(path, "rb").read())
        frames = recorded_levels(path)
        size, per = harness.header(path)[1], B * F * 64 + B * F * 8
        for n, at in ((0, 2 * 4), (1, 2 * (F + 2) + 1)):
            where = size + n * per + B * F * 64 + 4 * at
            raw[where:where + 4] = np.float32(np.nan if n == 0 else -np.inf).tobytes()
        open(path, "wb").write(raw)
        harness.run(d, """
pipeline:
  - {stage: replay, files: "f16/q_000000.dada", out: q}
  - {stage: record, in: q, directory: ., prefix: again}
""")
        again = recorded_levels(os.path.join(d, "again_000000.dada"))
        for n, (b, f) in enumerate([(0, 4), (1, 2)]):
            frames[n][1][b, f], frames[n][2][b, f] = 0, 0
        for x, y in zip(again, frames):
            assert np.array_equal(x[1], y[1]) and np.array_equal(x[2], y[2])


def test_not_finite_wires():
    """The same in the scale or offset of a minichunk and of a packet, and in kotekan's arrays of floats."""
    rng = np.random.default_rng(9)
    with harness.scratch() as d:
        port = free_port()
        levels, side = random_minichunks(rng, 3, 2, 3, masked=0)
        run = frb_receiver(d, port, document())
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(frb_node.hello(document()))
            for n in range(3):
                sent = side[n].copy()
                if n == 1:
                    sent[0, 2, 0], sent[1, 1, 1] = np.nan, np.inf
                s.sendall(frb_node.minichunk(n * STEP, sent, levels[n]))
        stats = run.finish()
        assert not_finite(stats["receive"]) == 2
        for n, (_, x, y) in enumerate(recordings(d)):
            want, scale = levels[n].copy(), side[n].copy()
            if n == 1:
                for at in ((0, 2), (1, 1)):
                    want[at], scale[at] = -8, 0
            assert np.array_equal(x, want) and np.array_equal(y, scale)
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        packets, data, scale, offset = l0_packets(rng, 4)
        run = l0_receiver(d, port)
        bad = {(1, 0, 0): np.inf, (2, 2, 3): np.nan}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            for n, b, c, packet in packets:
                if (n, b, c) in bad:  # the scale of one beam and channel: of two fine ones
                    packet = packet.replace(scale[n, b + 1, c + 2].tobytes(),
                                            np.float32(bad[n, b, c]).tobytes())
                    data[n, b + 1, c + 2] = scale[n, b + 1, c + 2] = offset[n, b + 1, c + 2] = 0
                s.send(packet)
        assert not_finite(run.finish()["receive"]) == 4
        check_l0(d, {(n, b, c) for n, b, c, _ in packets}, data, scale, offset)
    with harness.scratch() as d:
        port = free_port()
        array = rng.normal(size=(6, 16, 9)).astype(np.float16)
        array[1, 3, 5], array[4, 9, 0], array[4, 9, 8] = np.nan, -np.inf, np.inf
        run = kotekan_receiver(d, port, RECEIVED["FTB"], 6, 48)
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(
                on_the_wire(
                    other.kotekan_array(array, ["F", "T", "B"], COARSE, 696, "float16", upchan=2,
                                        downsampling=6, half=5)))
        assert not_finite(run.finish()["receive"]) == 2  # a cell counts once
        got, valid, _, _ = stored(d, "freq,time,beam", 6)
        assert np.argwhere(~valid).tolist() == [[3, 1], [9, 4]]
        good = valid.all(axis=1)
        assert np.array_equal(got[:, good], array[:, good]) and np.isfinite(got).all()


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
