"""Dumps of what has passed: every channel's window against the equation, every sample against what was
played, and all that can be asked for wrongly. The stream loses nothing by any of it."""
import glob
import json
import os
import re
import sys
import time
from fractions import Fraction

import numpy as np

import dump_common
import harness
from dump_common import EPOCH_NS, FREQ_MHZ, NUMBER, SAMPLE_NS, WIDTH_MHZ

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings  # noqa: E402
import sweep  # noqa: E402

try:
    import h5py
except ImportError:  # on a bare machine: what reads CHIME's files is left out
    h5py = None

DT = Fraction(SAMPLE_NS, 10**9)


def check_windows(document, start_sample, duration_s, dm, dm_error, ref_mhz):
    """Each window holds the exact one, and is at most a sample larger at either end (a nanosecond is the
    finest time that the program knows)."""
    for c in document["channels"]:
        begin, end = sweep.window(Fraction(start_sample) * DT, Fraction(duration_s), dm, dm_error,
                                  FREQ_MHZ[c["channel"]], WIDTH_MHZ, ref_mhz)
        first, behind = c["first_sample"], c["first_sample"] + c["samples"]
        slack = Fraction(2, 10**9)
        assert (begin - slack) / DT - 1 < first <= max(begin, 0) / DT, f"{c}: begins at {float(begin / DT)}"
        assert end / DT <= behind < (end + slack) / DT + 1, f"{c}: ends at {float(end / DT)}"


def test_windows_follow_the_sweep():
    """For reference frequencies above, within and below the band, and a negative dispersion."""
    with dump_common.dump_node(filled=1.7, halts=True) as (node, source):
        for event, (ref, dm, error) in enumerate([(800, 30, 0.5), (400, 30, 0.5), (600, 20, 0), (1500, 10, 1),
                                                  (600, -15, 2.5), (600, 0, 3), (350.125, 0, 0)]):
            start = node.newest() - 300000
            node.dump(id=event, start={"sample": start}, duration_s=0.05, dm=dm, dm_error=error,
                      freq_ref_mhz=ref)
            document = node.wait_for(event)
            assert document["state"] in ("done", "empty"), document
            check_windows(document, start, Fraction(5, 100), dm, error, ref)
            dump_common.check_dada(node.directory, document, source)
            assert document["pinned_after_seconds"] < 5
        start_ns = EPOCH_NS + (node.newest() - 100000) * SAMPLE_NS + 1234
        node.dump(id=100, start={"time_ns": start_ns}, duration_ns=999)
        document = node.wait_for(100)
        check_windows(document, Fraction(start_ns - EPOCH_NS, SAMPLE_NS), Fraction(999, 10**9), 0, 0, 400)
        dump_common.check_dada(node.directory, document, source)
        dump_common.check_live(node, source)


def test_what_is_dumped_is_replayed():
    """All files of an event are one recording to `replay`, with what each lacks missing; in both formats."""
    with dump_common.dump_node(halts=True) as (node, source):
        kept = node.dump(id=1, start="earliest", samples=1)["first_sample"]
        ask = dict(start={"sample": kept + 200000}, duration_s=0.03, dm=20, dm_error=1, freq_ref_mhz=650)
        node.dump(id=2, **ask)
        node.dump(id=3, format="chime", directory="of/chime", **ask)
        node.dump(id=4, format="chime", dishes=[3, 1], channels=[1, 2], **ask)
        node.dump(id=5, dishes=[2], freq_mhz=[500, 700], **ask)
        done = {i: node.wait_for(i) for i in range(2, 6)}
        assert all(d["state"] == "done" for d in done.values()), done
        dump_common.check_dada(node.directory, done[2], source)
        dump_common.check_dada(node.directory, done[5], source, [2])
        only = os.path.join(node.directory, done[5]["directory"], done[5]["channels"][0]["file"])
        assert harness.header(only)[0]["GRID_CELLS"] == "1,0"  # that of dish 2
        assert [c["channel"] for c in done[5]["channels"]] == [1, 2]
        for event, dishes in ((3, [0, 1, 2, 3]), (4, [3, 1])):
            for c in done[event]["channels"]:
                path = os.path.join(node.directory, done[event]["directory"], c["file"])
                assert os.path.basename(path) == f"baseband_{event}_{NUMBER[c['channel']]}.h5"
                with h5py.File(path) as f:
                    want, valid = dump_common.expected(source, c["first_sample"],
                                                       c["first_sample"] + c["samples"], c["channel"], dishes)
                    e = harness.unpack(want).reshape(len(want), -1)
                    assert (recordings.unpack_chime(f["baseband"][:]) == e * valid[:, None]).all(), path
                    assert (f["baseband"][:][~valid] == 0).all() and (f["baseband"][:][valid] != 0).all()
                    a = f.attrs
                    assert (a["event_id"], a["freq_id"], a["freq"]) == (event, NUMBER[c["channel"]],
                                                                        c["freq_mhz"])
                    assert a["time0_fpga_count"] == c["first_sample"] and a["delta_time"] == 2.56e-6
                    when = Fraction(a["time0_ctime"]) + Fraction(a["time0_ctime_offset"])
                    exact = Fraction(EPOCH_NS + c["first_sample"] * SAMPLE_NS, 10**9)
                    assert abs(when - exact) < Fraction(1, 10**9)
                    assert list(f["index_map/input"]) == [p * 4 + d for p in (0, 1) for d in dishes]
        node.end(130)
        for files, more in (("dumps/baseband_2_*.dada", ""), ("dumps/of/chime/*.h5", "stream: {npol: 2}\n")):
            harness.run(node.directory, dump_common.TELESCOPE + more + f"""
pipeline:
  - {{stage: replay, files: '{files}', out: e}}
  - {{stage: record, in: e, prefix: again, overwrite: true}}
""")
            keys, size = harness.header(os.path.join(node.directory, "again_000000.dada"))
            path = os.path.join(node.directory, "again_000000.dada")
            raw = np.fromfile(path, np.uint8, offset=size).reshape(-1, 4, 2, 4)
            first = int(keys["SAMPLE0"])
            valid = harness.read_gaps(path, first, len(raw), 4, 1) == 255
            order = [FREQ_MHZ.index(f) for f in (float(x) for x in keys["FREQ_MHZ"].split(","))]
            for c in done[2]["channels"]:
                k = order.index(c["channel"])
                begin, end = c["first_sample"], c["first_sample"] + c["samples"]
                want, good = dump_common.expected(source, begin, end, c["channel"])
                assert (valid[begin - first:end - first, k] == good).all()
                assert (raw[begin - first:end - first, k][good] == want[good]).all()
                outside = np.r_[0:begin - first, end - first:len(raw)]
                assert not valid[outside, k].any(), "outside of its window a channel is missing"


def test_the_future_and_the_past():
    """A dump waits for what is to come; what has gone in part is marked; what is far is refused."""
    with dump_common.dump_node(filled=1.7, halts=True) as (node, source):
        now = node.newest()
        node.dump(id=1, start={"sample": now + 100000}, samples=20000)
        node.dump(id=2, start={"sample": now + 50000}, samples=200000)
        node.dump(id=3, start={"sample": now + 390625 * 60}, samples=1000)
        kept = node.dump(id=4, start="earliest", samples=1000)["first_sample"]
        node.dump(id=5, start={"sample": max(kept - 5000, 0)}, samples=250000)
        assert node.dumps(3)[0]["state"] == "waiting"
        free = [node.dump(start="earliest", samples=10)["id"] for _ in range(2)]
        assert free[1] > free[0] >= time.time() - 3600, "numbers that no earlier run has given"
        assert all(node.wait_for(i)["state"] == "done" for i in free)
        assert node.dumps(1)[0]["state"] == node.dumps(2)[0]["state"] == "waiting"
        node.go()
        for event, missing in ((1, 0), (2, 0), (5, None)):
            document = node.wait_for(event)
            assert document["state"] == "done", document
            if missing is not None:
                assert document["missing_samples"] == missing, document
            dump_common.check_dada(node.directory, document, source)
        assert kept > 5000 and document["missing_samples"] >= 4 * 5000, document
        for c in document["channels"]:  # what is there begins with a frame
            assert (c["first_sample"] + c["missing_samples"]) % dump_common.FRAME == 0, c
        answer = node.post("/v1/dump/cancel", '{"id": 3}')
        assert answer.code == 200 and answer.json["state"] == "cancelled", answer.text
        assert node.post("/v1/dump/cancel", '{"id": 3}').code == 409
        assert node.post("/v1/dump/cancel", '{"id": 33}').code == 404
        assert node.get("/v1/dumps?id=33").code == 404
        assert not glob.glob(os.path.join(node.directory, "dumps", "baseband_3_*"))
        node.dump(id=6, start={"sample": node.newest() + 1000000}, samples=20000)  # the end comes before it
        dump_common.check_live(node, source)
        assert "dump 6: 0 of 4 files are complete: all of it had passed" in node.err, node.err


def test_the_earliest():
    """The history loses its oldest frame every 0.64 ms: a request for the earliest sample gets it."""
    text = dump_common.node_text().replace("realtime: true,", "realtime: true, frame_samples: 250,")
    with dump_common.dump_node(text, filled=1.7) as (node, source):
        for event in range(300):
            node.dump(id=event, start="earliest", samples=200, channels=[event % 4])
            document = node.wait_for(event)
            assert document["state"] == "done" and document["missing_samples"] in (0, 100), document
            dump_common.check_dada(node.directory, document, source)
        assert len(node.dumps()) <= 256 + 4, len(node.dumps())  # 4: those that a writer is still at
        dump_common.check_live(node, source)


def test_direction():
    """A dump says where its event comes from, and holds the time that the wave needs to cross the array: at
    30 degrees in the north 12 ns from the middle to either pair of dishes."""
    with dump_common.dump_node(filled=0.3, halts=True) as (node, _):
        start = node.newest() - 50000
        days = (EPOCH_NS / 1e9 + start * SAMPLE_NS * 1e-9) / 86400 + 2440587.5 - 2451545
        hour, dec, site = np.radians([280.46061837 + 360.98564736629 * days - 119 - 10, 50, 49])
        altitude = np.degrees(np.arcsin(np.sin(site) * np.sin(dec) +
                                        np.cos(site) * np.cos(dec) * np.cos(hour)))
        for event, name in ((1, "dada"), (2, "chime")):
            answer = node.dump(id=event, start={"sample": start}, samples=1000, format=name,
                               direction={"radec": ["00:40:00", "+50:00:00"], "name": "there"})
            told = answer["direction"]
            assert [told["name"], told["ra_deg"], told["dec_deg"]] == ["there", 10, 50], told
            assert abs(told["altitude_deg"] - altitude) < 0.5, (told, altitude)  # that of the year 2000
            assert node.wait_for(event)["state"] == "done"
            path = os.path.join(node.directory, "dumps", f"baseband_{event}_0.")
            if name == "dada":
                keys, _ = harness.header(path + "dada")
                got = [keys["EVENT_SOURCE"], *map(float, (keys["EVENT_RADEC"] + "," + keys["EVENT_AZEL"])
                                                  .split(","))]
            elif h5py is not None:
                with h5py.File(path + "h5") as f:
                    got = [f.attrs["event_source"].decode()] + [
                        f.attrs[f"event_{k}_deg"] for k in ("ra", "dec", "azimuth", "altitude")]
            wanted = [10, 50, told["azimuth_deg"], told["altitude_deg"]]
            assert got[0] == "there" and np.allclose(got[1:], wanted, atol=1e-6), (got, wanted)
        for event, dishes, early, late in ((3, None, 1, 1), (4, [0, 1], 0, 1), (5, [2, 3], 1, 0)):
            answer = node.dump(id=event, start={"sample": start}, samples=1000, direction={"azel": [0, 30]},
                               **({"dishes": dishes} if dishes else {}))
            assert (answer["first_sample"], answer["end_sample"]) == (start - early, start + 1000 + late)
            assert abs(answer["direction"]["dec_deg"] - 71) < 0.3, answer  # 90 - (49 - 30)
            assert node.wait_for(event)["state"] == "done"
        node.dump(id=6, start={"sample": start}, samples=10, direction={"radec": [10, 50]})
        node.wait_for_line("right ascension 10 is taken in degrees")


def test_refusals():
    """Whatever is asked for wrongly is answered with what is wrong, and changes nothing."""
    with dump_common.dump_node(filled=0.3) as (node, source):
        good = dict(id=1, start="earliest", samples=1000)
        for code, words, more in [(409, "too late", {"start": {"time_ns": 0}}),
                                  (409, "too late", {"start": {"time_ns": -10**18}}),
                                  (400, "ahead of now", {"start": {"time_ns": 4 * 10**18}}),
                                  (400, "ahead of now", {"start": {"time_ns": 9 * 10**18}}),
                                  (400, "samples: expected", {"samples": 0}),
                                  (400, "samples: expected", {"samples": -5}),
                                  (400, "are asked for", {"samples": 10**7}),
                                  (400, "are asked for", {"samples": 2**62}),
                                  (400, "one of duration_s", {"duration_s": 1}),
                                  (400, "samples: expected", {"samples": 1.5}),
                                  (400, "duration_s: expected", {"samples": None, "duration_s": 0}),
                                  (400, "duration_ns: expected", {"samples": None, "duration_ns": -1}),
                                  (400, "start: expected", {"start": "now"}),
                                  (400, "start: expected", {"start": {}}),
                                  (400, "start: expected", {"start": {"sample": 1, "time_ns": 1}}),
                                  (400, "sample: expected", {"start": {"sample": -1}}),
                                  (400, "freq_ref_mhz is missing", {"dm": 5}),
                                  (400, "dm: expected", {"dm": "5"}), (400, "dm: expected", {"dm": 1e9}),
                                  (400, "dm_error: expected", {"dm_error": -1}),
                                  (400, "freq_ref_mhz: expected", {"dm": 1, "freq_ref_mhz": 0}),
                                  (400, "are asked for", {"dm": 0, "dm_error": 1e5, "freq_ref_mhz": 800}),
                                  (400, "channels[0]: expected", {"channels": [4]}),
                                  (400, "channels: expected", {"channels": 3}),
                                  (400, "channels: 1 is listed twice", {"channels": [1, 1]}),
                                  (400, "no channel of the stream", {"freq_mhz": [1, 2]}),
                                  (400, "is not below", {"directory": "../" + "ä" * 60}),
                                  (400, "freq_mhz: expected", {"freq_mhz": [1]}),
                                  (400, "dishes[1]: expected", {"dishes": [0, -1]}),
                                  (400, "format: expected", {"format": "vdif"}),
                                  (400, "direction: expected an object", {"direction": [1, 2]}),
                                  (400, "'ra' is not a key", {"direction": {"ra": 1}}),
                                  (400, "azel: expected", {"direction": {"azel": [1]}}),
                                  (400, "altitude of 0", {"direction": {"azel": [1, -1]}}),
                                  (400, "radec: expected", {"direction": {"radec": [None, 1]}}),
                                  (400, "360 degrees", {"direction": {"radec": ["25:00:00", 1]}}),
                                  (400, "exactly one", {"direction": {"xy": [0, 0], "azel": [0, 9]}}),
                                  (400, "'mars' is not", {"direction": {"name": "mars"}}),
                                  (400, "name: expected", {"direction": {"name": "a\nb 1"}}),
                                  (400, "below the horizon when", {"direction": {"radec": [10, -70]}}),
                                  (400, "is not below", {"directory": "../x"}),
                                  (400, "is not below", {"directory": "/etc"}),
                                  (400, "is not below", {"directory": "a/../../x"}),
                                  (400, "is not a key", {"durations": 3}), (400, "id: expected", {"id": -1}),
                                  (404, "no stage 'other'", {"stage": "other"})]:
            request = {k: v for k, v in {**good, **more}.items() if v is not None}
            answer = node.dump(code, **request)
            assert words in answer["error"], f"{more}: {answer}"
        for body, words in [("", "not JSON"), ("[1]", "not an object"), ("{\"id\": 1", "line 1, column 8"),
                            ("{\"id\": 1, \"id\": 2}", "duplicate")]:
            answer = node.post("/v1/dump", body)
            assert answer.code == 400 and words in answer.json["error"], answer.text
        assert node.dumps() == []
        node.dump(**good)
        assert "already" in node.dump(409, **good)["error"]
        assert node.wait_for(1)["state"] == "done"
        metrics = node.metrics()
        assert metrics['beamring_dump_requests_total{stage="dump",result="accepted"}'] == 1
        assert metrics['beamring_dump_requests_total{stage="dump",result="refused"}'] >= 38
        assert metrics['beamring_dumps_total{stage="dump",state="done"}'] == 1
        assert metrics['beamring_dump_files_total{stage="dump",state="done"}'] == 4
        assert metrics['beamring_dump_written_bytes_total{stage="dump"}'] == 4 * 1000 * 8
        assert metrics['beamring_dumps_active{stage="dump"}'] == 0
        dump_common.check_live(node, source)


def test_kotekans_requests():
    """POST and GET /baseband in kotekan's words: its formula for 400 MHz, widened by the channel's width."""
    text = dump_common.node_text(format="chime")
    with dump_common.dump_node(text, filled=1.7, halts=True) as (node, source):
        when_ns = EPOCH_NS + (node.newest() - 400000) * SAMPLE_NS
        request = {"event_id": 77, "start_unix_seconds": when_ns // 10**9, "start_unix_nano": when_ns % 10**9,
                   "duration_nano": 20000000, "dm": 5, "dm_error": 0.5, "file_path": "2026/event_77"}
        answer = node.post("/baseband", json.dumps(request))
        assert answer.code == 200, answer.text
        assert sorted(map(int, answer.json)) == NUMBER
        for number, one in answer.json.items():
            mhz = 800 - 0.390625 * int(number)
            assert one["file_name"] == f"baseband_77_{number}.h5"
            t = Fraction(when_ns - EPOCH_NS, 10**9)
            begin = t + sweep.delay(Fraction(11, 2), mhz,
                                    400)  # as kotekan has it: earliest with the largest DM
            end = t + Fraction(2, 100) + sweep.delay(Fraction(9, 2), mhz, 400)
            assert one["start_fpga"] <= begin / DT and one["start_fpga"] + one["length_fpga"] >= end / DT, one
        assert node.wait_for(77)["state"] == "done"
        status = node.get("/baseband?event_id=77").json
        assert {s["status"] for s in status} == {"done"} and len(status) == 4, status
        assert list(node.get("/baseband").json) == ["77"]
        for number in NUMBER:
            with h5py.File(os.path.join(node.directory, "dumps/2026/event_77",
                                        f"baseband_77_{number}.h5")) as f:
                assert f["baseband"].shape == (answer.json[str(number)]["length_fpga"], 8)
        node.post("/baseband", json.dumps({**request, "event_id": 78, "start_unix_seconds": -1}))
        assert node.wait_for(78)["state"] in ("done", "empty")
        for code, words, more in [(409, "too late", {"start_unix_seconds": 0}),
                                  (400, "missing", {"dm": None}), (400, "expected", {"duration_nano": 0}),
                                  (400, "below", {"file_path": "/etc"}),
                                  (400, "expected", {"duration_nano": -3}),
                                  (400, "ahead", {"start_unix_seconds": 4 * 10**9}),
                                  (400, "out of range", {"start_unix_seconds": 10**18})]:
            body = {k: v for k, v in {**request, "event_id": 79, **more}.items() if v is not None}
            answer = node.post("/baseband", json.dumps(body))
            assert answer.code == code and \
                words in answer.json["error"], f"{more}: {answer.code} {answer.text}"
        assert node.get("/baseband?event_id=79").code == 404
        dump_common.check_live(node, source)


def test_check_says_what_fits():
    """The memory of a history, and the largest dispersion whose sweep over the channels fits into it."""
    with harness.scratch() as directory:
        harness.run(directory, dump_common.MAKE, name="make.yaml")
        text = dump_common.node_text(seconds=3)
        out = harness.run(directory, text, command="check").out
        words = re.search(r"history of 3 s: (\d+) of these frames, ([0-9.]+) MiB; .* up to DM (\d+)", out)
        assert words, out
        frames = -(-3 * 10**9 // (dump_common.FRAME * SAMPLE_NS)) + 1
        low, high = min(FREQ_MHZ) - WIDTH_MHZ / 2, max(FREQ_MHZ) + WIDTH_MHZ / 2
        assert int(words[1]) == frames, out
        bytes_of_frame = dump_common.FRAME * (4 * 8 + 4)  # data and validity
        assert abs(float(words[2]) * 2**20 / (frames * bytes_of_frame) - 1) < 0.01, out
        assert abs(int(words[3]) - 3 / sweep.delay(1, low, high)) <= 1, out
        for wrong, said in (("in: field", "history: {seconds: 30}"),
                            ("in: {from: field, policy: drop}", "history: {seconds: 30}"),
                            ("in: {from: field, history: {seconds: 3}, policy: drop}", "a policy of its own"),
                            ("in: {from: field, history: {seconds: 3}}, format: vdif", "one of dada, chime"),
                            ("in: {from: field, history: {seconds: 86400}}", "a shorter history")):
            result = harness.run(directory, text.replace("in: {from: field, history: {seconds: 3}}", wrong),
                                 command="check", status=2)
            assert said in result.err, result


def test_upchannelized():
    """The output of another stage: the fine channels of a coarse one stay together in a file, bit for bit."""
    text = dump_common.node_text(more=f"""
  - {{stage: upchannelize, in: field, out: fine, factor: 4, device: '{harness.DEVICE}'}}
  - {{stage: dump, name: late, in: {{from: fine, history: {{seconds: 0.5}}}}, directory: fine}}
  - {{stage: record, name: all, in: fine, prefix: fine}}
""")
    with dump_common.dump_node(text, filled=0.6, halts=True) as (node, _):
        answer = node.dump(400, id=1, start="earliest", samples=1000)
        assert "several stages" in answer["error"] and "dump, late" in answer["error"], answer
        answer = node.dump(400, id=1, stage="late", start="earliest", samples=1000, format="chime")
        assert "upchannelized" in answer["error"], answer
        node.dump(id=1, stage="late", start="earliest", samples=50001, channels=[5, 12], dm=1,
                  freq_ref_mhz=700)
        node.dump(id=2, stage="dump", start="earliest", samples=1000)
        done = [d for d in node.wait_for(1)["channels"]]
        assert [d["channel"] for d in done] == [4, 12] and len(node.dumps()) == 2
        node.end(130)
        whole, keys = raw_of(os.path.join(node.directory, "fine_000000.dada"))
        valid = harness.read_gaps(os.path.join(node.directory, "fine_000000.dada"), 0, len(whole), 16, 4)
        for d in done:
            path = os.path.join(node.directory, "fine", d["file"])
            raw, keys = raw_of(path)
            first, c = d["first_sample"] // 4, d["channel"]
            assert d["first_sample"] % 4 == 0 and d["samples"] % 4 == 0 and raw.shape[1] == 4, d
            assert int(keys["SAMPLE0"]) == d["first_sample"] and keys["ZONE_0"].startswith("0,4,4,4,"), keys
            here = harness.read_gaps(path, first, len(raw), 4, 4)
            want = valid[first:first + len(raw), c:c + 4]
            good = here == 255
            assert (want[good] == 255).all(), path
            assert (~good & (want == 255)).all(axis=1).sum() <= d["missing_samples"] // 4 <= (~good).all(
                axis=1).sum()
            assert good.any() and (raw[good] == whole[first:first + len(raw), c:c + 4][good]).all(), path


def raw_of(path):
    """Bytes [time][freq][pol][dish] of a recording."""
    keys, size = harness.header(path)
    shape = [int(n) for n in keys["SHAPE"].split(",")[1:]]
    return np.fromfile(path, np.uint8, offset=size).reshape(-1, *shape), keys


def test_senseless_requests():
    """Whatever is sent, every answer is one, and the node goes on."""
    rng = np.random.default_rng(1)
    words = [
        b'"id"', b'"start"', b'"samples"', b'"earliest"', b'"dm"', b'"freq_ref_mhz"', b'"channels"',
        b'"dishes"', b'"directory"', b'"format"', b'"sample"', b'"time_ns"', b"{", b"}", b"[", b"]", b":",
        b",", b"1", b"-1", b"1e400", b"9223372036854775807", b"18446744073709551616", b"0.5", b"null",
        b"true", b'"chime"', b'"../.."', b'"\\u0000"', b"\xff", b'"' + b"x" * 3000 + b'"', b"9" * 400
    ]
    good = (b'{"id": 1, "start": {"sample": 100000}, "samples": 100, "dm": 1, "freq_ref_mhz": 600, '
            b'"channels": [0]}')
    with dump_common.dump_node(filled=0.3) as (node, source):
        codes = {}
        for i in range(600):
            if i % 2 == 0:
                body = b"".join(words[k] for k in rng.integers(0, len(words), rng.integers(1, 30)))
            else:
                at, length = rng.integers(0, len(good)), rng.integers(0, 8)
                body = good[:at] + words[rng.integers(0, len(words))] + good[at + length:]
            path = ("/v1/dump", "/v1/dump/cancel", "/baseband")[i % 3]
            answer = node.post(path, body)
            codes[answer.code] = codes.get(answer.code, 0) + 1
            assert answer.code in (200, 202, 400, 404, 409,
                                   503) and answer.json is not None, f"{body}: {answer.text}"
        assert codes[400] > 400, codes
        for query in ("id=", "id=x", "id=-1", "id=99999999999999999999999", "id=1&id=2"):
            assert node.get("/v1/dumps?" + query).code in (200, 400, 404)
            assert node.get("/baseband?event_" + query).code in (200, 400, 404)
        dump_common.check_live(node, source)


if __name__ == "__main__":
    dump_common.main([
        test_windows_follow_the_sweep, test_direction, test_the_future_and_the_past, test_the_earliest,
        test_refusals, test_check_says_what_fits, test_upchannelized, test_senseless_requests,
        *([test_what_is_dumped_is_replayed, test_kotekans_requests] if h5py is not None else [])])
