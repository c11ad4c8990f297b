"""Products say which updates they were made with: headers of recordings and dumps, UVH5's history, the log
of what leaves as packets; each with the sample from which it holds, and its digest."""
import json
import os
import re
import time

import h5py

import dump_common
import harness
from small import TELESCOPE, record_field

SAMPLES = 20000
FIRST, SECOND, EARLY = 4800, 12000, 0


def update(name, sample, gain, stage="up"):
    return f"{{id: {name}, at: {{sample: {sample}}}, stages: {{{stage}: {{gain: {gain}}}}}}}"


def pipeline(updates, sinks, up=4):
    return TELESCOPE + f"""
updates: [{", ".join(updates)}]
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 1000}}
  - {{stage: upchannelize, name: up, in: field, out: fine, factor: {up}, gain: 4}}
{sinks}
"""


TOKEN = re.compile(r"^(.*):(\d+):([0-9a-f]{16}):(.*)$")


def tokens(text):
    """[(stage, sample, id)] and the digests."""
    found = [TOKEN.match(one).groups() for one in text.split(",")] if text else []
    return [(stage, int(sample), name) for stage, sample, _, name in found], [d for _, _, d, _ in found]


def header(d, name):
    return harness.header(os.path.join(d, name))[0]


def later(d, name):
    with open(os.path.join(d, name + ".updates")) as f:
        return [tokens(line.strip())[0][0] for line in f]


def test_record():
    """The header has what held at the file's first sample, the file beside it what came after; one file
    of many frames and many files say the same."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        sinks = (("whole", "fine", ""), ("parts", "fine", ", file_bytes: 40000"), ("before", "field", ""))
        records = "".join(f"  - {{stage: record, name: {n}, in: {i}, prefix: {n}{more}}}\n"
                          for n, i, more in sinks)
        updates = [update("early", EARLY, 3), update("noon/2026", FIRST, 2), update("night", SECOND, 5)]
        harness.run(d, pipeline(updates, records))
        names, digests = tokens(header(d, "whole_000000.dada")["UPDATES"])
        assert names == [("up", 0, "early")] and len(set(digests)) == 1
        assert later(d, "whole_000000.dada") == [("up", FIRST, "noon%2F2026"), ("up", SECOND, "night")]
        assert "UPDATES" not in header(d, "before_000000.dada")  # nothing before it was updated
        assert not os.path.exists(os.path.join(d, "before_000000.dada.updates"))
        files = sorted(n for n in os.listdir(d) if n.startswith("parts") and n.endswith(".dada"))
        assert len(files) > 5
        told = set()
        for name in files:
            keys = header(d, name)
            first, count = int(keys["SAMPLE0"]), int(keys["SAMPLES"])
            want = next(u for u in (("up", SECOND, "night"), ("up", FIRST, "noon%2F2026"), ("up", 0, "early"))
                        if u[1] <= first)
            assert tokens(keys["UPDATES"])[0] == [want], (name, keys["UPDATES"])
            if os.path.exists(os.path.join(d, name + ".updates")):
                within = later(d, name)
                assert all(first < s < first + count for _, s, _ in within)
                told.update(within)
            told.add(want)
        assert len(told) == 3
        said = harness.beamring("info", "whole_000000.dada", cwd=d).out
        assert re.search(r"updates +up from sample 0 on: early, digest [0-9a-f]{16}", said), said
        assert re.search(rf"then +up from sample {FIRST} on: noon/2026, digest", said), said
        assert f"up from sample {SECOND} on: night" in said
        # what it was made with changes nothing for those who read it
        harness.run(d, TELESCOPE + """
pipeline:
  - {stage: replay, files: "whole_*", out: fine}
  - {stage: record, in: fine, prefix: again}
""")
        assert harness.header(os.path.join(d, "again_000000.dada"))[0].get("UPDATES") is None


def test_which_parameter():
    """An update is named as long as a parameter has the value that it gave."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        bb = "  - {stage: baseband_beamform, name: bb, in: fine, out: beams, shift: 9, " \
            "beams: {directions: [[0, 0]]}}\n  - {stage: record, in: beams, prefix: beams}\n"
        updates = [update("g", FIRST, 2),
                   f"{{id: s, at: {{sample: {FIRST + 400}}}, stages: {{bb: {{shift: 8}}}}}}",
                   f"{{id: both, at: {{sample: {SECOND}}}, stages: {{up: {{gain: 1}}, bb: {{beams: "
                   "{directions: [[0, 0.1]]}}}}"]
        harness.run(d, pipeline(updates, bb.replace("prefix: beams", "prefix: beams, file_bytes: 1000")))
        last = sorted(n for n in os.listdir(d) if n.startswith("beams") and n.endswith(".dada"))[-1]
        names, digests = tokens(header(d, last)["UPDATES"])
        assert names == [("up", SECOND, "both"), ("bb", SECOND, "both"), ("bb", FIRST + 400, "s")] or \
            names == [("up", SECOND, "both"), ("bb", FIRST + 400, "s"), ("bb", SECOND, "both")], names
        assert len(set(digests)) == 2
        whole = header(d, "beams_000000.dada")
        assert "UPDATES" not in whole  # its first sample was made with the pipeline file's values


def test_many():
    """More than a header has room for: cut behind a whole one, with a mark."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        ups, text = [], TELESCOPE
        for i in range(15):
            ups.append(f"  - {{stage: upchannelize, name: up{i}_{'x' * 60}, factor: 1, out: f{i + 1}, "
                       f"in: {'field' if i == 0 else f'f{i}'}}}\n")
        updates = ", ".join(update(f"{'y' * 70}{i}", 0, 2, f"up{i}_{'x' * 60}") for i in range(15))
        text += f"updates: [{updates}]\npipeline:\n" + \
            "  - {stage: replay, files: field*.dada, out: field}\n" + "".join(ups) + \
            "  - {stage: record, in: f15, prefix: x}\n"
        harness.run(d, text)
        value = header(d, "x_000000.dada")["UPDATES"]
        assert value.endswith(",...") and 1500 < len(value) < 2048, value
        assert len(tokens(value[:-4])[0]) == len(value[:-4].split(","))
        assert "... and more" in harness.beamring("info", "x_000000.dada", cwd=d).out


def test_uvh5():
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        sinks = """  - {stage: correlate, in: fine, out: v, integrate: 500}
  - {stage: uvh5, in: v, directory: out, integrations: 16}
"""
        harness.run(d, pipeline([update("noon", FIRST, 2), update("night", SECOND, 5)], sinks, up=1))
        histories = []
        for name in sorted(os.listdir(os.path.join(d, "out"))):
            with h5py.File(os.path.join(d, "out", name)) as f:
                histories.append(f["Header/history"][()].decode())
        assert len(histories) == 3
        names = [tokens(h.split("Updates: ")[1])[0] for h in histories]
        assert names == [[("up", FIRST, "noon")], [("up", FIRST, "noon"), ("up", SECOND, "night")],
                         [("up", SECOND, "night")]], names
        assert all(h.startswith("Written by beamring") for h in histories)
        harness.run(d, pipeline([], sinks.replace("out,", "plain,"), up=1))
        with h5py.File(os.path.join(d, "plain", os.listdir(os.path.join(d, "plain"))[0])) as f:
            assert "Updates" not in f["Header/history"][()].decode()


def test_dump():
    """A dump of what has passed names the updates of its own span, whatever holds by now."""
    for form in ("dada", "chime"):
        text = """pipeline:
  - {stage: replay, files: field_000000.dada, loop: 0, realtime: true, out: played}
  - {stage: upchannelize, name: up, in: played, out: field, factor: 1, gain: 1, device: cpu}
  - {stage: dump, in: {from: field, history: {seconds: 1.2}}, directory: dumps, format: %s}
  - {stage: t_sink, name: gate, in: played, check: false, halt_at: 117187, halt_until: go}
  - {stage: t_sink, name: end, in: played, check: false, halt_at: 400000, halt_until: end}
""" % form
        with dump_common.dump_node(text, filled=0.3) as (n, _):  # the stream halts until `go` is there
            begin = n.newest() // dump_common.FRAME * dump_common.FRAME + 100000
            for i in range(3):
                answer = n.post("/v1/update", json.dumps({"id": f"u{i}", "at": {"sample": begin + 20000 * i},
                                                          "stages": {"up": {"gain": i + 2}}}))
                assert answer.code == 202, answer.text
            n.go()
            n.wait_past(begin + 60000)
            start_ns = dump_common.EPOCH_NS + (begin + 10000) * dump_common.SAMPLE_NS
            n.dump(id=1, start={"time_ns": start_ns}, duration_s=20000 * dump_common.SAMPLE_NS * 1e-9, dm=0)
            done = n.wait_for(1)
            assert done["state"] == "done", done
            for c in done["channels"]:
                path = os.path.join(n.directory, done["directory"], c["file"])
                if form == "dada":
                    value = harness.header(path)[0]["UPDATES"]
                else:
                    with h5py.File(path) as f:
                        value = f.attrs["updates"].decode()
                assert tokens(value)[0] == [("up", begin, "u0"), ("up", begin + 20000, "u1")], (value, begin)
                said = harness.beamring("info", path).out
                assert f"up from sample {begin} on: u0" in said and f"{begin + 20000} on: u1" in said, said
            open(os.path.join(n.directory, "end"), "w").close()
            n.end()


def test_log_of_packets():
    """Packets have no room for updates: the sender's log names each change."""
    with harness.scratch() as d:
        record_field(d, samples=SAMPLES)
        sinks = """  - {stage: packetize, in: fine, format: kotekan, close_s: 0.1, retry_s: 0.1, connect_s: 0,
     destinations: [{address: "127.0.0.1:1"}]}
"""
        result = harness.run(d, pipeline([update("early", 0, 3), update("noon", FIRST, 2)], sinks))
        told = re.findall(r"packetize: base samples from (\d+) on are made with (\S+)", result.err)
        assert [int(first) for first, _ in told] == [0, FIRST // 1000 * 1000], result.err
        assert [tokens(text)[0] for _, text in told] == [[("up", 0, "early")], [("up", FIRST, "noon")]]


if __name__ == "__main__":
    harness.main([test_record, test_which_parameter, test_many, test_uvh5, test_dump, test_log_of_packets])
