"""Every key that a file of ours carries stands in the pages: headers of recordings in recordings.md, the
statistics of a run and what `beamring receive` prints on the pages run.md and wires.md."""
import json
import os
import re
import socket

import harness
from recordings import PIPELINE
from small import record_field
from wires_common import document, free_port, receive_tool
import frb_node  # noqa: E402

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def page(name):
    """The words that stand in backticks on a page, keys with `{...}` and lists taken apart."""
    text = re.sub(r"^```.*?^```", "", open(os.path.join(DOCS, name)).read(), flags=re.S | re.M)
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return {
        word for quoted in re.findall(r"`([^`]+)`", text) for word in re.findall(r"[A-Za-z0-9_]+", quoted)
    }


def keys_of(node):
    """All keys of a JSON document, at all depths."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from keys_of(value)
    if isinstance(node, list):
        for value in node:
            yield from keys_of(value)


def test_headers_and_statistics():
    with harness.scratch() as d:
        record_field(d)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(PIPELINE)
        result = harness.beamring("run", "p.yaml", "--stats", "stats.json", cwd=d)
        assert result.status == 0, result
        known, seen = page("recordings.md"), set()
        for name in os.listdir(os.path.join(d, "out")):
            if name.endswith(".dada"):
                keys, _ = harness.header(os.path.join(d, "out", name))
                # a list that goes on in further lines, and the zones by number
                seen |= {re.sub(r"^ZONE_[0-9]+$", "ZONE_n", re.sub(r"_[0-9]+$", "", k) if not k.startswith(
                    "ZONE_") else k) for k in keys}
        assert len(seen) > 30 and seen <= known, sorted(seen - known)
        guide = page("run.md")
        stats = set(keys_of(json.load(open(os.path.join(d, "stats.json")))))
        reasons = {k for s in json.load(open(os.path.join(d, "stats.json")))["stages"] for k in s["lost"]}
        assert len(stats) > 30 and stats - reasons <= guide, sorted(stats - reasons - guide)


def test_statistics_are_json():
    """Statistics are JSON whatever bytes a file's name has: here a recording fails in such a folder."""
    with harness.scratch() as d:
        harness.run(d, "stream: {sample_ns: 5120, epoch_ns: 0, freq_mhz: {first: 400, step: 0.2, count: 2}}\n"
                    "telescope: {name: t, positions_m: [[0, 0, 0], [5, 0, 0]]}\npipeline:\n"
                    "  - {stage: simulate, samples: 100000, out: e}\n"
                    "  - {stage: record, in: e, directory: '${OUT}', prefix: p}\n", "--stats", "stats.json",
                    status=1, env={"OUT": "a\udcffb\udcc0\udc80"}, file_bytes=65536)
        failed = json.load(open(os.path.join(d, "stats.json"), encoding="utf-8"))["stages"][1]
        assert "a?b??/p_000000.dada" in failed["error"] and "File too large" in failed["error"], failed


def test_units():
    """A parameter whose name ends in a unit has it in its description, and so in every message about its
    range."""
    units = {
        "s": "s", "ns": "ns", "us": "us", "ms": "ms", "mhz": "MHz", "deg": "degrees", "m": "m",
        "bytes": "bytes", "gbps": "Gb/s", "samples": "samples"
    }
    text = harness.beamring("stages", "--markdown").out.replace("\n  ", " ")
    rows = re.findall(r"^- `([\w.]+)` \(((?:integer|number|rational)[^)]*)\)", text, flags=re.M)
    meant = [(name, units[name.rsplit("_", 1)[1]], what) for name, what in rows
             if "_" in name and name.rsplit("_", 1)[1] in units]
    assert len(meant) > 25, meant
    for name, unit, what in meant:
        assert any(part.endswith(unit) for part in what.split("; ")[0].split(", ")[1:]), (name, unit, what)
    with harness.scratch() as d:
        result = harness.run(d, "pipeline:\n  - {stage: replay, files: x, frame_samples: -1, out: e}\n"
                             "  - {stage: record, in: e, directory: o, file_bytes: -1}\n", status=2)
        assert "frame_samples: '-1' is out of range; expected a whole number from 0 to 1073741824 base " \
            "samples" in result.err, result


def test_counters_of_receive():
    with harness.scratch() as d:
        port = free_port()
        tool = receive_tool(d, "frb-node", f"127.0.0.1:{port}", "--until-closed")
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(frb_node.hello(document()))
        out, _ = tool.communicate(timeout=20)
        keys = set(json.loads(out.splitlines()[-1]))
        assert keys <= page("wires.md"), sorted(keys - page("wires.md"))


if __name__ == "__main__":
    harness.main([test_units, test_headers_and_statistics, test_statistics_are_json,
                  test_counters_of_receive])
