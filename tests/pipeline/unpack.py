"""Packets of every F-engine to the electric field: what `unpack` makes of capture files, of a network, and of
sources listed in another order is what the F-engine had, zero and marked where packets did not come; and its
sums of powers are sums over what came."""
import concurrent.futures
import glob
import os
import re
import socket

import numpy as np

import harness
from capture_common import free_port, ip_udp, LINKS, packets, share_of, write_pcap
from wires_common import Running

FRAME = {
    "chord-crs": 64, "chime-ice": 16, "casm-snap": 16, "lwa-snap2": 16, "ata-snap": 64, "dsa110-snap": 16,
    "spead": 1024
}
OFFSET = ("chord-crs", "chime-ice")
# Not in the description: the coding, and how inputs divide into polarisations.
REPLAY = {
    "ata-snap": "values: twos_complement, real: low,", "dsa110-snap": "values: offset_binary, real: low,"
}
UNPACK = {"chord-crs": "pols: 1,", "chime-ice": "pols: 2,", "casm-snap": "pols: 2, order: dish_pol,",
          "lwa-snap2": "pols: 2, order: dish_pol,"}


def positions(fengine):
    """pol x dishes + dish of every input: from the makers' tables."""
    n = len(fengine.sources) * fengine.i
    i = np.arange(n)
    if fengine.name == "chord-crs":
        return i, 1
    return (i if fengine.name == "chime-ice" else i % 2 * (n // 2) + i // 2), 2


def field(fengine, raw):
    """Complex E[time][channel][pol][dish] of the bytes of the wire."""
    high, low = (raw >> 4).astype(int), (raw & 15).astype(int)
    if fengine.name in OFFSET or "offset" in REPLAY.get(fengine.name, ""):
        high, low = high - 8, low - 8
    else:
        high, low = (high ^ 8) - 8, (low ^ 8) - 8
    e = low + 1j * high if fengine.name in REPLAY else high + 1j * low
    at, pols = positions(fengine)
    out = np.zeros_like(e)
    out[:, :, at] = e
    return out.reshape(*raw.shape[:2], pols, -1)


def read(directory, prefix):
    path, = glob.glob(os.path.join(directory, prefix + "*.dada"))
    keys, size = harness.header(path)
    shape = [int(n) for n in keys["SHAPE"].split(",")]
    data = np.fromfile(path, {"int4x2": np.uint8, "uint32": "<u4"}[keys["DTYPE"]],
                       offset=size).reshape(-1, *shape[1:])
    down = int(keys.get("DOWNSAMPLE", 1))
    valid = harness.read_gaps(path, int(keys["SAMPLE0"]) // down, len(data), shape[1], down)
    return (harness.unpack(data) if keys["DTYPE"] == "int4x2" else data.astype(np.int64)), valid, keys


def lose(fengine, raw, rng, loss):
    """(packets that came, came[time][channel][input]); the last one always does."""
    came, sent = np.ones(raw.shape, bool), []
    ids = fengine.channel_ids()
    for source, stream, sample, packet in fengine.packets(raw):
        if rng.random() < loss and sample + fengine.t < len(raw):
            at = fengine.sources.index(source) * fengine.i
            came[np.ix_(range(sample, sample + fengine.t), [ids.index(c) for c in fengine.channels(stream)],
                        range(at, at + fengine.i))] = False
        else:
            sent.append(packet)
    return sent, came


def check_sums(e, came, powers, share, got_share, block):
    power = np.rint(abs(e) ** 2).astype(np.int64)
    starts = np.arange(0, len(e), block)
    want = np.stack([np.add.reduceat(x, starts, axis=0) for x in (came.astype(np.int64), power, power**2)],
                    axis=2)
    assert np.array_equal(powers, want)
    mean = np.add.reduceat(share.astype(np.int64), starts, axis=0) / (255 * block)
    assert np.array_equal(got_share, share_of(mean))


def test_every_order_of_axes():
    for fengine in packets.ALL:
        with harness.scratch() as d:
            fs, rng = FRAME[fengine.name], np.random.default_rng(5)
            raw = rng.integers(0, 256, fengine.shape(2 * fs + fs // 2 + (fs // 4 if fs > 512 else fengine.t)),
                               np.uint8)
            sent, came = lose(fengine, raw, rng, 0.1)
            write_pcap(os.path.join(d, "a.cap"), 1, [LINKS["ethernet"][1](ip_udp(p)) for p in sent])
            harness.run(
                d, f"""
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {{first: 400, step: 0.1,
  count: {len(fengine.channel_ids())}}}}}
pipeline:
  - {{stage: replay, files: a.cap, packet: {fengine.name}, sources: {list(fengine.sources)},
       streams: {list(fengine.streams)},
     frame_samples: {fs}, {REPLAY.get(fengine.name, "")} out: packets}}
  - {{stage: unpack, in: packets, {UNPACK.get(fengine.name, "")} sums: {fs // 4}, threads: 3, out: [e, s]}}
  - {{stage: record, name: re, in: e, directory: ., prefix: e}}
  - {{stage: record, name: rs, in: s, directory: ., prefix: s}}
""")
            at, pols = positions(fengine)
            there = np.zeros(raw.shape, bool)
            there[:, :, at] = came
            there = there.reshape(*raw.shape[:2], pols, -1)
            e, valid, keys = read(d, "e")
            want = field(fengine, raw) * there
            assert keys["SAMPLE0"] == "0" and np.array_equal(e, want), fengine.name
            assert np.array_equal(valid, share_of(came.mean(axis=2))), fengine.name
            powers, share, _ = read(d, "s")
            check_sums(want, there, powers, valid, share, fs // 4)


def test_boards_in_another_order():
    """The order of the sources is the permutation of the boards; `positions` places single inputs, and leaves
    some out."""
    fengine = packets.ChordCrs()
    order = (2, 0, 1)
    with harness.scratch() as d:
        rng = np.random.default_rng(6)
        raw = rng.integers(0, 256, fengine.shape(128), np.uint8)
        write_pcap(os.path.join(d, "a.cap"), 101,
                   [LINKS["raw"][1](ip_udp(p)) for *_, p in fengine.packets(raw)])
        places = rng.permutation(30)[:24] - 3  # some of 27 positions, some nowhere
        places[places >= 24] = -1
        places = np.where(places < 0, -1, places)
        run = """
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120}
pipeline:
  - {stage: replay, files: a.cap, packet: chord-crs, sources: %s, streams: [3, 19], frame_samples: 64,
       out: packets}
  - {stage: unpack, in: packets, out: e, %s}
  - {stage: record, in: e, directory: ., prefix: e, overwrite: true}
"""
        harness.run(d, run % (list(order), "pols: 1"))
        e, *_ = read(d, "e")
        at = [8 * fengine.sources.index(s) + k for s in order for k in range(8)]
        want = field(fengine, raw)[:, :, 0]
        assert np.array_equal(e[:, :, 0], want[:, :, at])
        harness.run(d, run % (list(fengine.sources), f"pols: 2, positions: {list(map(int, places))}"))
        e, *_ = read(d, "e")
        placed = np.zeros(want.shape, complex)
        for i, to in enumerate(places):
            if to >= 0:
                placed[:, :, to] = want[:, :, i]
        assert np.array_equal(e.reshape(want.shape), placed) and (places >= 0).sum() < 24


def send_and_unpack(fengine):
    """simulate -> packetize as this F-engine -> capture -> unpack: the field that was simulated."""
    fs, pols = FRAME[fengine.name], positions(fengine)[1] if fengine.name != "chord-crs" else 2
    dishes = len(fengine.sources) * fengine.i // pols
    sideband = "lower" if fengine.name in ("chime-ice", "casm-snap") else "upper"
    telescope = f"""
telescope: {{name: test, grid: {{m: 1, n: {dishes}}}, spacing_m: {{m: 1, n: 1}}, latitude_deg: 0,
  longitude_deg: 0, dishes: {[[0, k] for k in range(dishes)]}}}
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, npol: {pols}, sideband: {sideband},
  freq_mhz: {{first: 400, step: 0.1, count: {len(fengine.channel_ids())}}}}}
pipeline:
"""
    packet = f"packet: {fengine.name}, sources: {list(fengine.sources)}, streams: {list(fengine.streams)}, " \
        "values: offset_binary, real: low"
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        node = Running(d, f"""{telescope}
  - {{stage: capture, {packet}, addresses: "127.0.0.1:{port}", frame_samples: {fs}, open: 4, start_sample: 0,
     out: packets}}
  - {{stage: unpack, in: packets, out: got}}
  - {{stage: record, in: got, directory: ., prefix: got}}
""", name="node.yaml")
        said = harness.run(d, f"""{telescope}
  - {{stage: simulate, out: e, seed: 3, frame_samples: {fs}, samples: {4 * fs}}}
  - {{stage: record, in: e, directory: ., prefix: sent}}
  - {{stage: packetize, in: e, format: packets, {packet},
     destinations: [{{address: "127.0.0.1:{port}"}}], speed: {4 * fs * 5.12e-6 / 0.4}}}
""", name="send.yaml")
        node.finish_after(int(re.search(r"(\d+) packets sent", said.err).group(1)))
        sent, got = read(d, "sent"), read(d, "got")
        assert len(got[0]) == len(sent[0]) and (got[1] == 255).all(), (fengine.name, node.text())
        assert np.array_equal(got[0], sent[0]), fengine.name


def test_a_network_between():
    with concurrent.futures.ThreadPoolExecutor(len(packets.ALL)) as pool:
        for done in [pool.submit(send_and_unpack, fengine) for fengine in packets.ALL]:
            done.result()


def test_mistakes():
    with harness.scratch() as d:
        head = """
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120%s}
pipeline:
  - {stage: replay, files: a.cap, packet: %s, frame_samples: 256, %s out: packets}
  - {stage: unpack, in: packets, %s}
  - {stage: record, in: e, directory: ., prefix: e}
%s"""
        write_pcap(os.path.join(d, "a.cap"), 1, [])
        both = "  - {stage: record, name: r, in: s, directory: ., prefix: s}"
        crs, lwa = ("", "chord-crs", ""), ("", "lwa-snap2", "streams: [0],")
        spead = (", freq_mhz: {first: 400, step: 1, count: 16}", "spead", "sources: [1], streams: [0],")
        for packet, unpack, more, says in ((crs, "out: e", "", "`pols: 2` for 64 dishes"),
                                           (crs, "out: e, pols: 3", "",
                                                                                "give `positions`"),
                                           (crs, "out: e, pols: 2, sums: 64", "", "no output for them"),
                                           (crs, "out: [e, s], pols: 2", both,
                                            "give `sums`"), (crs, "out: [e, s], pols: 2, sums: 24", both,
                                                             "not a multiple of a packet's 16 samples"),
                                           (crs, "out: e, pols: 2, positions: [0, 1]", "",
                                            "expected one for each of 128 inputs"),
                                           (crs, f"out: e, pols: 2, positions: {[0] * 128}", "",
                                            "both go to position 0"),
                                           (crs, f"out: e, pols: 2, positions: {[-1] * 128}", "",
                                            "no input has a position"),
                                           (crs, f"out: e, pols: 2, positions: {list(range(1, 129))}", "",
                                            "goes to position 128"), (spead, "out: e, order: dish_pol", "",
                                                                      "say themselves"),
                                           (spead, "out: e, pols: 1", "",
                                            "the packets have 2"), (lwa, "out: [e, s, x], pols: 2, sums: 16",
                                                                    both, "1 to 2 queue names")):
            result = harness.run(d, head % (*packet, unpack, more), status=2, command="check")
            assert says in result.err and "pipeline.yaml:" in result.err, (says, result)
        result = harness.run(d, """
include: %s/telescopes/pathfinder.yaml
stream: {sample_ns: 5120, freq_mhz: {first: 400, step: 0.1, count: 2}}
pipeline:
  - {stage: simulate, out: e, duration_s: 0.01}
  - {stage: unpack, in: e, out: f}
  - {stage: record, in: f, directory: ., prefix: e}
""" % harness.CONFIG, status=2, command="check")
        assert "needs packets as received" in result.err, result


if __name__ == "__main__":
    harness.main(
        [test_every_order_of_axes, test_boards_in_another_order, test_a_network_between, test_mistakes])
