"""Beams that follow the sky: in every interval the output is, bit for bit, that of a pipeline whose beams
stand still where `beamring beams` says that they are in its middle, whatever the frames and threads; a GPU
forms the CPU's beams, and a live node those of its recording; below the horizon they are missing and counted;
new lists of directions hold from a sample on; mistakes. Where the sky is, astropy says
(tests/oracle/apparent_readers.py)."""
import json
import os

import numpy as np

import harness
from control_common import Node
from small import at, one

EPOCH_NS = 1700000000000000000
SAMPLE_NS = 20000000  # 20 ms, so that the sky moves
SAMPLES, EVERY = 1600, 480
TELESCOPE = """
telescope: {name: f, grid: {m: 8, n: 8}, spacing_m: {m: 8.5, n: 6.3}, latitude_deg: 49.3,
  longitude_deg: -119.6,
  dishes: [[0, 0], [0, 4], [0, 7], [2, 1], [3, 3], [4, 0], [5, 5], [7, 2]]%s}
"""
STREAM = f"""
stream: {{freq_mhz: {{first: 400, step: 0.2, count: 3}}, sample_ns: {SAMPLE_NS}, epoch_ns: {EPOCH_NS}}}
"""
CRAB, LOW = "{radec: [05:34:31.9, +22:00:52], name: crab}", "{radec: [299.868, 40.734]}"
EVERY_S = EVERY * SAMPLE_NS * 1e-9
LIST = f"{{towards: [{LOW}, {{name: sun}}, {{xy: [0.1, -0.2]}}, {{azel: [200, 60]}}], every_s: {EVERY_S}}}"
GRID = f"{{grid: [3, 2], spacing_deg: 2, around: {LOW}, every_s: {EVERY_S}}}"
FINE = "stage: upchannelize, in: field, out: fine, factor: 16"
BASEBAND = (1, ["stage: baseband_beamform, name: s, in: field, out: beams, shift: 9, beams: {}"])
BYTES = (1, ["stage: baseband_beamform, name: s, in: field, out: beams, bits: 8, shift: 5, beams: {}"])
POWER = (40, ["stage: power_beams, name: s, in: field, out: beams, integrate: 40, incoherent: subtract, "
              "beams: {}"])
FRB = (48, [FINE, "stage: frb_grid, in: fine, out: image, integrate: 48",
            "stage: frb_beams, name: s, in: image, out: beams, beams: {}"])


def text(stages, beams, name, frame=256, threads=1, updates="", telescope="", device=""):
    out = device + TELESCOPE % telescope + (f"updates: [{updates}]\n" if updates else "") + f"""
threads: {threads}
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
"""
    for stage in stages[:-1]:
        out += f"  - {{{stage}}}\n"
    out += f"  - {{{stages[-1].format(beams)}}}\n"
    return out + f"  - {{stage: record, in: beams, directory: {name}, prefix: out}}\n"


def record(d, sources=f"{{radec: [299.868, 40.734], flux: 1}}", samples=SAMPLES, epoch=EPOCH_NS,
           sample_ns=SAMPLE_NS):
    stream = STREAM.replace(str(EPOCH_NS), str(epoch)).replace(str(SAMPLE_NS), str(sample_ns))
    harness.run(d, TELESCOPE % "" + stream + f"""
pipeline:
  - {{stage: simulate, samples: {samples}, seed: 7, sources: [{sources}], out: field}}
  - {{stage: record, in: field, directory: ., prefix: field}}
""", name="simulate.yaml")


def run(d, name, stages, beams, status=0, **more):
    os.mkdir(os.path.join(d, name))
    result = harness.run(d, text(stages, beams, name, **more), "--stats", f"{name}.json", status=status)
    if status != 0:
        return result
    return beams_of(d, name), result


def beams_of(d, name, prefix="out"):
    """[time][beam]... of a recording of one file."""
    data, _, keys, _ = harness.read_frames(one(os.path.join(d, name), prefix + "_*.dada"))
    data = np.moveaxis(data, keys["AXES"].split(",").index("time"), 0)
    return np.moveaxis(data, keys["AXES"].replace("time,", "").split(",").index("beam") + 1, 1)


def places(d, ns):
    """[[x, y], ...] of the pipeline that ran last, to the last bit."""
    told = harness.beamring("beams", "pipeline.yaml", "--json", "--at", f"time:{ns}", cwd=d)
    return [[b["x"], b["y"]] for b in json.loads(told.out)["s"]["beams"]]


def test_intervals():
    with harness.scratch() as d:
        record(d)
        cases = ((BASEBAND, LIST), (BYTES, LIST), (POWER, LIST), (FRB, LIST), (FRB, GRID))
        for i, ((step, stages), beams) in enumerate(cases):
            got = [run(d, f"g{i}{j}", stages, beams, frame=frame, threads=threads)[0]
                   for j, (frame, threads) in enumerate(((256, 1), (976, 3)))]
            assert np.array_equal(*got), stages
            before = None
            for k in range(-(-SAMPLES // EVERY)):
                harness.run(d, text(stages, beams, "x"), command="check")
                there = places(d, EPOCH_NS + (2 * k + 1) * EVERY * SAMPLE_NS // 2)
                assert len(there) == got[0].shape[1] and there != before
                still, _ = run(d, f"s{i}{k}", stages, f"{{directions: {there}}}")
                steps = np.arange(len(still)) * step // EVERY == k
                # A list of beams is not a grid, whose products are rounded otherwise.
                wanted = still[steps].astype(float)
                far = abs(got[0][steps] - wanted).max() / abs(wanted).max()
                assert far < 2e-3 if beams == GRID else far == 0, (stages, k, far)
                assert before is None or not np.array_equal(got[0][steps], last[steps]), (stages, k)
                before, last = there, still


def counted(d, name):
    stats = json.load(open(os.path.join(d, f"{name}.json")))
    stage = next(s for s in stats["stages"] if s["name"] == "s")
    return stage


def test_below():
    """A source that sets: its beam is missing from then on, and all others are as they were."""
    with harness.scratch() as d:
        record(d)
        harness.run(d, text(BASEBAND[1], f"{{towards: [{CRAB}]}}", "x"), command="check")

        def up(minute):
            return places(d, EPOCH_NS + minute * 60 * 10**9)[0][0] is not None

        below = next(m for m in range(60, 1440, 60) if up(m - 60) and not up(m))
        above = below - 60
        while below - above > 1:
            middle = (above + below) // 2
            above, below = (middle, below) if up(middle) else (above, middle)
        for old in os.listdir(d):
            if old.startswith("field"):
                os.remove(os.path.join(d, old))
        epoch = EPOCH_NS + (above * 60 - 20) * 10**9
        record(d, "{radec: [83.6329, 22.0144], flux: 50}", samples=4500, epoch=epoch)
        beams = f"{{towards: [{{azel: [0, 80]}}, {CRAB}, {{azel: [0, 85]}}, {LOW}], every_s: 5}}"
        for i, (step, stages) in enumerate((BASEBAND, BYTES, POWER)):
            got, result = run(d, f"b{i}", stages, beams)
            missing = 0x88 if i == 0 else -128 if i == 1 else 0
            gone = (got.reshape(len(got), 4, -1) == missing).all(2)
            first = np.argmax(gone[:, 1])
            assert 900 < first * step < 4100 and first * step % 250 < step, first
            assert gone[first:, 1].all() and not gone[:, [0, 2]].any(), first
            assert result.err.count("below the horizon at") == 1, result
            seen = counted(d, f"b{i}")
            seen = counted(d, f"b{i}")["counted"]["beams"]["below_horizon"]
            assert abs(seen - (4500 - first * step)) <= 2 * step, (seen, first)


def test_updates():
    """A list that is followed takes the place of beams that stand still from a sample on, and the reverse."""
    follows, stands = LIST, "{directions: [[0, 0], [0.1, 0], [0, 0.1], [0.2, 0.2]]}"
    with harness.scratch() as d:
        record(d)
        for i, (step, stages) in enumerate((BASEBAND, POWER, FRB)):
            one, two = run(d, f"a{i}", stages, follows)[0], run(d, f"b{i}", stages, stands)[0]
            for name, before, after, a, b in (("c", follows, stands, one, two),
                                              ("d", stands, follows, two, one)):
                got, _ = run(d, f"{name}{i}", stages, before, updates=at(777, f"beams: {after}"))
                cut = -(-777 // step)
                assert np.array_equal(got[:cut], a[:cut]), (stages, name)
                assert np.array_equal(got[cut:], b[cut:]), (stages, name)


def alike(got, want, stage):
    """Bits on any device, but for the sums of frb_beams, whose order differs."""
    far = abs(got.astype(float) - want).max() / abs(want.astype(float)).max()
    assert got.shape == want.shape and far < (2e-3 if stage == "frb" else 1e-30), (stage, far)


def test_device():
    """A GPU forms the beams that the CPU forms."""
    with harness.scratch() as d:
        record(d)
        for i, (_, stages) in enumerate((BASEBAND, BYTES, POWER, FRB)):
            update = at(777, f"beams: {LIST.replace('azel: [200, 60]', 'name: moon')}")
            got, _ = run(d, f"g{i}", stages, LIST, updates=update)
            want, _ = run(d, f"c{i}", stages, LIST, updates=update, device="device: cpu\n")
            alike(got, want, "frb" if i == 3 else stages)


LIVE = """device: %s
%s%s
pipeline:
  - {stage: replay, files: field*.dada, out: field, frame_samples: 128, %s}
  - {stage: baseband_beamform, name: voltage, in: field, out: v, shift: 9, beams: BEAMS}
  - {stage: record, name: rv, in: v, directory: DIR, prefix: voltage}
  - {stage: power_beams, name: power, in: field, out: p, integrate: 40, beams: BEAMS}
  - {stage: record, name: rp, in: p, directory: DIR, prefix: power}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, name: frb, in: grid, out: f, beams: BEAMS}
  - {stage: record, name: rf, in: f, directory: DIR, prefix: frb}
"""


def test_live():
    """A node in real time whose beams follow, and are then given other sources to follow, loses nothing: its
    beams are those of the recording that it plays, made on the CPU as fast as it goes."""
    lists = [beams.replace(f"every_s: {EVERY_S}", "every_s: 0.1") for beams in
             (LIST, LIST.replace(LOW, "{name: moon}").replace("[200, 60]", "[20, 50]"))]
    stages = ("voltage", "power", "frb")

    def live(device, source, name, updates=""):
        return (LIVE % (device, TELESCOPE % "", updates, source)).replace("BEAMS", lists[0]) \
            .replace("DIR", name)

    with harness.scratch() as d:
        record(d, epoch=EPOCH_NS, sample_ns=1000000)
        os.mkdir(os.path.join(d, "live"))
        n = Node(d, live(harness.DEVICE, "loop: 0, realtime: true", "live"))
        try:
            stage = f"{{beams: {lists[1]}}}"
            values = ", ".join(f"{s}: {stage}" for s in stages)
            body = f"{{id: other, at: now, stages: {{{values}}}}}"
            n.wait_until(lambda s: (s["newest"] or {}).get("sample", 0) > 500, what="a few intervals")
            answer = n.post("/v1/update", body)
            assert answer.code == 202, answer.text
            n.wait_until(lambda s: s["updates"]["states"].get("applied") == 1, what="the update")
            held = answer.json["sample"]
            n.wait_until(lambda s: s["newest"]["sample"] > held + 500, what="more intervals")
            n.wait_until(lambda s: "positions" in n.get("/v1/preview?queue=p").json, what="a preview")
            assert n.get("/v1/preview?queue=p").json["positions"] is None  # those that follow have none
            n.end()
        finally:
            n.process.kill()
        got = {s: beams_of(d, "live", s) for s in stages}
        loops = -(-len(got["voltage"]) // SAMPLES)
        os.mkdir(os.path.join(d, "file"))
        update = f"updates: [{{at: {{sample: {held}}}, stages: {{{values}}}}}]"
        harness.run(d, live("cpu", f"loop: {loops}", "file", update))
        for s in stages:
            want = beams_of(d, "file", s)
            last = len(got[s]) - 1  # the last one may lack samples
            assert last > held // 48 and not np.array_equal(want[:last, 0], want[:last, 3]), s
            alike(got[s][:last], want[:last], s)


def test_mistakes():
    site = "latitude_deg: 49.3,\n  longitude_deg: -119.6,"
    with harness.scratch() as d:
        with open(os.path.join(d, "bad.all"), "w", encoding="ascii") as f:
            f.write("not of the IERS\n")
        with open(os.path.join(d, "cut.all"), "w", encoding="ascii") as f:
            day = "73 1 2 %8.2f I  0.120733 0.009786  0.136966 0.015902  I 0.8084178 0.0002710\n"
            f.write(day % 41684 + day % 41685 + (day % 41686)[:63])
        with open(os.path.join(d, "gap.all"), "w", encoding="ascii") as f:
            f.write(day % 41684 + day % 41686)
        record(d, samples=256)
        for i, (beams, words, telescope) in enumerate((
            ("{towards: [{radec: [1, 2], name: a}, {name: mars}]}", "towards[1]: 'mars' is not a source", ""),
            ("{towards: [{radec: [1, 91]}]}", "a declination of -90 to 90", ""),
            ("{towards: [{radec: [25:00:00, 1]}]}", "0 to 360 degrees (24 h)", ""),
            ("{towards: [{radec: [5h34m, 22]}]}", "with colons", ""),
            ("{towards: [{radec: ['1e1:00:00', 22]}]}", "with colons", ""),
            ("{towards: [{radec: ['0x5:00:00', 22]}]}", "with colons", ""),
            ("{towards: [{radec: ['05:34.5:10', 22]}]}", "with colons", ""),
            ("{towards: [{azel: [10, -5]}]}", "an altitude of 0, the horizon, to 90", ""),
            ("{towards: [{xy: [0.9, 0.9]}]}", "below the horizon", ""),
            ("{towards: [{xy: [0, 0], azel: [0, 90]}]}", "more than one of xy, azel", ""),
            ("{towards: [{}]}", "none of xy, azel", ""),
            ("{towards: [{radec: [10, -60]}]}", "never rises above the horizon at latitude 49.3", ""),
            ("{towards: [{radec: [10, 20]}], rates: [[0, 0]]}", "rates go with directions", ""),
            ("{towards: [{radec: [10, 20]}], follow: false}", "follow: false needs reference_ns", ""),
            ("{towards: [{name: sun}], follow: false, reference_ns: 1700030000000000000}", "at reference_ns",
             ""),
            ("{directions: [[0, 0]], around: {name: sun}}", "around goes with grid", ""),
            ("{grid: [2, 2], spacing_deg: 1, around: {name: sun}, center: [3, 0]}",
             "both of around and center", ""),
            ("{towards: [{name: sun}]}", "add latitude_deg and longitude_deg", None),
            ("{towards: [{name: sun}]}", "cannot open", ", eop: none.all"),
            ("{towards: [{name: sun}]}", "bad.all:1: columns 8 to 15 do not hold", ", eop: bad.all"),
            ("{towards: [{name: sun}]}", "cut.all:3: columns 59 to 68", ", eop: cut.all"),
            ("{towards: [{name: sun}]}", "gap.all:2: MJD 41686.00 follows 41684", ", eop: gap.all"))):
            pipeline = text(BASEBAND[1], beams, f"m{i}", telescope=telescope or "")
            pipeline = pipeline.replace(site, "") if telescope is None else pipeline
            result = harness.run(d, pipeline, command="check", status=2)
            assert words in result.err and "pipeline.yaml:" in result.err, (beams, result.err)
        pipeline = text(BASEBAND[1], "{towards: [{name: sun}]}", "y")
        result = harness.run(d, pipeline, "--at", "noon", command="beams", status=2)
        assert "--at 'noon': expected a UTC" in result.err, result


if __name__ == "__main__":
    harness.main([test_intervals, test_below, test_updates, test_live, test_mistakes] +
                 [test_device] * (harness.DEVICE != "cpu"))
