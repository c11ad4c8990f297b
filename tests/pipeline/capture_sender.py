"""A simulated F-engine with the accidents of networks, through capture: every packet is in one counter, what
survives is what was simulated, and what does not is marked."""
import os
import re
import socket

import numpy as np

import harness
from capture_common import capture, counters, free_port, packets, recorded, Running, share_of


class Crs(packets.ChordCrs):
    """A node of the pathfinder, with two of its streams."""
    sources, streams = (0, 2, 4, 6, 8, 10, 12, 15, 1, 3, 5, 7, 9, 11, 13, 14), (3, 19)


def send(directory, port, faults, duration=0.02, speed=0.02, more=""):
    """Simulates, records, and sends it; the field E[time][channel][input] as bytes of CRS, and the counters
    of the sender."""
    channels = len(Crs().channel_ids())
    result = harness.run(
        directory, f"""
include: {harness.CONFIG}/telescopes/pathfinder.yaml
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {{first: 400, step: 0.1,
  count: {channels}}}}}
pipeline:
  - {{stage: simulate, out: e, seed: 3, frame_samples: 1024, duration_s: {duration}}}
  - {{stage: record, in: e, directory: ., prefix: e}}
  - stage: packetize
    in: e
    format: packets
    packet: chord-crs
    streams: {list(Crs.streams)}
    destinations: [{{address: "127.0.0.1:{port}"}}]
    speed: {speed}
    {faults}
""", name="send.yaml")
    path = os.path.join(directory, "e_000000.dada")
    keys, size = harness.header(path)
    raw = np.fromfile(path, np.uint8, offset=size).reshape(-1, *map(int, keys["SHAPE"].split(",")[1:]))
    raw = (raw << 4 | raw >> 4) ^ 0x88  # from two's complement, the real part in the low nibble
    names = ("sent", "left out", "twice", "malformed", "flipped")
    sent = {}
    for line in result.err.splitlines():
        m = re.search(r"packetize: source (\d+): (.*)", line)
        if m:
            sent[int(m.group(1))] = {
                k: int(n) for n, k in re.findall(r"(\d+) (" + "|".join(names) + ")", m.group(2))
            }
    return raw.reshape(*raw.shape[:2], -1), sent, result.err


def all_sent(text):
    """How many packets the sender says it has sent."""
    return sum(int(re.search(rf"packetize: .* packets sent.*", text).group().split(word)[0].split()[-1])
               for word in (" packets sent", " twice", " foreign"))


def check(faults, frame_samples=1024, reordered=False):
    fengine = Crs()
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, frame_samples, "start_sample: 0", "sample_ns: 5120")
        raw, sent, text = send(d, port, faults)
        run.finish_after(all_sent(text))
        got, there, share, first = recorded(d, fengine, frame_samples)
        by_source, total = counters(run.text())
        assert first == 0 and total["kernel"] == 0, run.text()
        assert np.array_equal(got[there], raw[:len(got)][there])
        assert np.array_equal(share, share_of(there.mean(axis=2)))
        return raw, got, there, share, sent, by_source, total, run.text(), text


def test_without_faults():
    raw, got, there, *_ = check("")
    assert len(got) == len(raw) // 16 * 16 and there.all()


def test_every_packet_is_in_one_counter():
    for loss, burst in ((1e-3, 1), (1e-1, 5)):
        faults = (f"faults: {{loss: {loss}, burst: {burst}, duplicate: 0.02, malformed: 0.02, foreign: 0.02, "
                  "reorder: 24}")
        raw, got, there, share, sent, by_source, total, text, said = check(faults)
        assert min(total[k] for k in ("malformed", "duplicate", "never came", "foreign")) > 0, text
        for s, n in sent.items():
            c = by_source[s]
            # A packet whose twin was cut off is there once; one that was cut off itself is missing.
            assert c["accepted"] + c["duplicate"] + c["malformed"] + c["late"] == n["sent"] + n["twice"], (
                s, n, c, text)
            lost = sum(c[k] for k in ("late", "stray", "no_frame", "behind"))
            assert c["malformed"] == n["malformed"] and lost == 0, (s, n, c, text)
            # The twin of a packet that was cut off makes up for it, and the last few may lie behind the end.
            assert n["left out"] - n["twice"] <= c["never came"] <= n["left out"], (s, n, c)
        foreign = int(re.search(r"(\d+) foreign", said).group(1))
        assert by_source[None]["foreign"] == foreign, text


def test_a_board_and_a_stream_drop_out():
    raw, got, there, share, sent, by_source, total, *_ = check(
        "faults: {silent_sources: [6], silent_streams: [], silent_from_s: 0.006, silent_to_s: 0.012}")
    t = np.arange(len(got)) // 16 * 16 * 5.12e-6
    silent = (t >= 0.006 - 1e-9) & (t < 0.012 - 1e-9)
    slot = Crs.sources.index(6)
    assert not there[silent][:, :, 8 * slot:8 * slot + 8].any() and there[~silent].all()
    assert (share[silent] == share_of(np.array(15 / 16))).all() and (share[~silent] == 255).all()
    raw, got, there, share, *_ = check("faults: {silent_streams: [19]}")
    ids = np.array(Crs().channel_ids())
    gone = (ids - 1536) % 128 == 19
    assert not there[:, gone].any() and there[:, ~gone].all() and (share[:, gone]
                                                                   == 0).all() and (share[:, ~gone]
                                                                                    == 255).all()


def test_which_source_was_missing():
    """`record: {format: sources}`: spans of base samples by source and stream, and by source alone."""
    fengine = Crs()
    lacking = "\n  - {stage: record, name: l, in: packets, format: sources, prefix: lacking}"
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, 1024, "start_sample: 0", "sample_ns: 5120",
                      extra=lacking)
        *_, text = send(d, port,
                        "faults: {silent_sources: [6], silent_from_s: 0.006, silent_to_s: 0.012, loss: 0.02}")
        run.finish_after(all_sent(text))
        got, there, share, first = recorded(d, fengine, 1024)
        with open(os.path.join(d, "lacking_0000000.sources")) as f:
            text = f.read().splitlines()
        assert text[0][0] == "#" and text[-1] == f"# samples {first} to {first + len(got)}", text
        lines = [text[0].split(), *(line.split() for line in text[1:-1])]
        told = np.zeros(there.shape, bool)
        ids = np.array(fengine.channel_ids())
        for at, count, source, *stream in lines[1:]:
            place = 8 * fengine.sources.index(int(source)) if source != "all" else 0
            inputs = slice(place, place + 8 if source != "all" else None)
            channels = (ids - 1536) % 128 == int(stream[0]) if stream else np.ones(len(ids), bool)
            told[int(at):int(at) + int(count), channels, inputs] = True
        assert np.array_equal(told, ~there) and told.any(), lines
        silent = [line for line in lines[1:] if line[2] == "6" and int(line[1]) > 1000]
        assert len(silent) == 1 and len(silent[0]) == 3, lines  # as a whole, in one line


def test_flipped_bits_of_headers_do_no_harm():
    """A header that lies may put its own samples where they do not belong, if the numbers are possible;
    nothing else."""
    fengine = Crs()
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, 1024, "start_sample: 0", "sample_ns: 5120")
        raw, sent, said = send(d, port, "faults: {flip: 0.05}")
        run.finish_after(all_sent(said))
        got, there, share, first = recorded(d, fengine, 1024)
        by_source, total = counters(run.text())
        flipped = sum(n["flipped"] for n in sent.values())
        assert flipped > 50 and total["resets"] == 0
        reasons = ("accepted", "late", "duplicate", "foreign", "malformed", "stray", "no_frame", "behind")
        assert sum(total[r] for r in reasons) == total["packets"]
        n = min(len(got), len(raw))
        wrong = ((got[:n] != raw[:n]) & there[:n]).mean()
        assert wrong < 0.01 and there[:n].mean() > 0.93, (there.mean(), wrong)


def test_any_board_that_unpack_can_sort():
    """unpack restores what packetize sends with the same order or positions; an input
    that is not a dish sends zeros."""
    rng = np.random.default_rng(11)
    places = np.concatenate([rng.permutation(22), [-1, -1]])
    rng.shuffle(places)
    for dishes, sorting in ((12, "order: dish_pol"), (11, f"positions: {places.tolist()}")):
        head = f"""
telescope: {{name: t, grid: {{m: 1, n: 12}}, spacing_m: {{m: 8, n: 6}},
  dishes: {[[0, i] for i in range(dishes)]}}}
stream: {{epoch_ns: 1700000000000000000, freq_mhz: {{first: 500, step: -0.030517578125, count: 512}},
  sideband: lower, sample_ns: 32768}}
pipeline:
"""
        with harness.scratch() as d:
            port = free_port(socket.SOCK_DGRAM)
            run = Running(d, head + f"""
  - {{stage: capture, packet: casm-snap, addresses: "127.0.0.1:{port}", sources: [5, 2], streams: [0],
     frame_samples: 128, start_sample: 0, out: packets}}
  - {{stage: unpack, in: packets, pols: 2, {sorting}, out: e}}
  - {{stage: record, in: e, prefix: got}}
""", name="capture.yaml")
            send = head + f"""
  - {{stage: simulate, out: e, seed: 3, frame_samples: 128, samples: 256}}
  - {{stage: record, in: e, prefix: sent}}
  - {{stage: packetize, in: e, format: packets, packet: casm-snap, sources: [5, 2], streams: [0], {sorting},
     destinations: [{{address: "127.0.0.1:{port}"}}], speed: 0.02}}
"""
            run.finish_after(all_sent(harness.run(d, send, name="send.yaml").err))
            sent, got = (harness.read_e(os.path.join(d, f"{name}_000000.dada")) for name in ("sent", "got"))
            n = len(got[0])
            assert n >= 200 and got[1].mean() > 0.9 and np.array_equal(
                got[0], sent[0][:n] * got[1][:, :, None, None]), (n, got[1].mean())
            for wrong, words in (("positions: [0, 1]", "expected one for each of 24 inputs"),
                                 (f"positions: {[3] * 24}", "inputs 0 and 1 both go to position 3"),
                                 (f"positions: {[2 * dishes] + [-1] * 23}", f"2 polarisations x {dishes}"),
                                 (f"order: dish_pol, positions: {[-1] * 24}", "already where every input")):
                said = harness.run(d, send.replace(sorting, wrong), command="check", status=2).err
                assert words in said, said


if __name__ == "__main__":
    harness.main([
        test_without_faults, test_every_packet_is_in_one_counter, test_a_board_and_a_stream_drop_out,
        test_flipped_bits_of_headers_do_no_harm, test_which_source_was_missing,
        test_any_board_that_unpack_can_sort
    ])
