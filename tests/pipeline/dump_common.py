"""Shared by the tests of `dump`: a recording of four of CHIME's channels that is played in real time for
ever, a node that keeps the last seconds of it, and what its files must hold."""
import concurrent.futures
import contextlib
import functools
import glob
import json
import os
import sys
import time

import numpy as np

import control_common
import harness

FREQ_MHZ = [800, 682.8125, 526.5625, 409.375]
NUMBER = [0, 300, 700, 1000]  # of CHIME's channels
WIDTH_MHZ = 0.390625
SAMPLE_NS = 2560
EPOCH_NS = 1700000000000000000
PERIOD = 100000  # samples of the recording
HOLE = (60000, 60100)
FRAME = 10000
TELESCOPE = """
telescope: {name: small, grid: {m: 2, n: 2}, spacing_m: {m: 8.5, n: 6.3}, dishes: [[0, 0], [0, 1], [1, 0],
            [1, 1]], latitude_deg: 49, longitude_deg: -119}
"""
MAKE = TELESCOPE + f"""
stream: {{freq_mhz: {FREQ_MHZ}, sample_ns: {SAMPLE_NS}, epoch_ns: {EPOCH_NS}}}
pipeline:
  - stage: simulate
    samples: {PERIOD}
    seed: 3
    missing: [{{first: {HOLE[0]}, count: {HOLE[1] - HOLE[0]}}}]
    frame_samples: {FRAME}
    out: field
  - {{stage: record, in: field, prefix: field}}
"""


def node_text(seconds=1.2, more="", **parameters):
    """The node's pipeline: a history, and a reader that must not lose anything. Where the tests are for a GPU
    the history is of what a stage on it puts out, which is what comes in."""
    p = "".join(f", {k}: {v}" for k, v in parameters.items())
    gpu = harness.DEVICE != "cpu"
    through = "  - {stage: upchannelize, name: through, in: played, out: field, factor: 1, " \
        f"device: '{harness.DEVICE}'}}\n"
    return f"""pipeline:
  - {{stage: replay, files: field_000000.dada, loop: 0, realtime: true, out: {"played" if gpu else "field"}}}
{through if gpu else ""}
  - {{stage: dump, in: {{from: field, history: {{seconds: {seconds}}}}}, directory: dumps{p}}}
  - {{stage: record, in: {"played" if gpu else "field"}, prefix: live, file_bytes: 50000000}}
{more}"""


class DumpNode(control_common.Node):
    def go(self):
        """The stream of a node that halts goes on."""
        open(os.path.join(self.directory, "go"), "w").close()

    def wait_for_halt(self):
        queue = "field" if harness.DEVICE == "cpu" else "played"
        stands = lambda q: q["name"] == queue and q["fill"] == q["slots"]
        end = time.time() + 60
        while not any(map(stands, self.get("/v1/queues?now").json["queues"])):
            assert time.time() < end, "the stream does not halt"
            time.sleep(0.02)

    def get(self, path, **more):
        """With a query it is never an answer from before."""
        return super().get(path + ("" if "?" in path else "?now"), **more)

    def dump(self, code=202, **request):
        answer = self.post("/v1/dump", json.dumps(request))
        assert answer.code == code, f"{request}: {answer.code} {answer.text}"
        return answer.json

    def dumps(self, event=None):
        return self.get("/v1/dumps" + ("" if event is None else f"?id={event}")).json["dumps"]

    def wait_for(self, event, states=("done", "empty", "failed", "cancelled"), seconds=60):
        """The document of the dump, once it has one of these states."""
        end = time.time() + seconds
        while True:
            found = self.dumps(event)[0]
            if found["state"] in states:
                return found
            assert time.time() < end, f"it does not come to {states}: {found}"
            time.sleep(0.02)

    def newest(self):
        queues = self.get("/v1/queues?now").json["queues"]
        return next(q["newest_sample"] if "newest_sample" in q else q["samples"] for q in queues
                    if q["name"] == "field")

    def wait_past(self, sample, seconds=60):
        end = time.time() + seconds
        while self.newest() < sample:
            assert time.time() < end, f"sample {sample} does not come: {self.newest()}"
            time.sleep(0.02)


@contextlib.contextmanager
def dump_node(text=None, filled=1.1, env=None, halts=False):
    """A node whose history holds `filled` seconds, and the field that it plays: bytes and validity of PERIOD
    samples. With `halts` the stream stands still there until the test lets it go on, so that nothing leaves
    the history while a slow machine asks for it."""
    text = text or node_text()
    if halts:
        text += f"""  - {{stage: t_sink, name: gate, in: {"field" if harness.DEVICE == "cpu" else "played"},
     check: false, halt_at: {int(filled / SAMPLE_NS * 1e9)}, halt_until: go}}
"""
    with harness.scratch() as directory:
        harness.run(directory, MAKE, name="make.yaml")
        node = DumpNode(directory, text, env=env)
        try:
            node.wait_past(filled / SAMPLE_NS * 1e9)
            if halts:
                node.wait_for_halt()
            yield node, field(os.path.join(directory, "field_000000.dada"))
        finally:
            if node.process.poll() is None:
                node.process.kill()
            node.process.wait()


def field(path):
    """Bytes [PERIOD][freq][pol][dish] and valid [PERIOD][freq]."""
    keys, size = harness.header(path)
    raw = np.fromfile(path, np.uint8, offset=size).reshape(PERIOD, 4, 2, 4)
    return raw, harness.read_gaps(path, 0, PERIOD, 4, 1) == 255


def expected(source, first, end, channel, dishes=slice(None)):
    """Bytes [samples][pol][dish] and validity of what was played there."""
    raw, valid = source
    index = np.arange(first, end) % PERIOD
    return raw[index, channel][:, :, dishes], valid[index, channel]


def check_dada(directory, document, source, dishes=slice(None)):
    """Every file of the dump holds what was played, and says what it lacks. Returns the files."""
    for c in document["channels"]:
        if c["state"] == "empty":
            assert "file" not in c and c["missing_samples"] == c["samples"], c
            continue
        assert c["state"] == "done", c
        path = os.path.join(directory, document["directory"], c["file"])
        keys, size = harness.header(path)
        want, valid = expected(source, c["first_sample"], c["first_sample"] + c["samples"], c["channel"],
                               dishes)
        raw = np.fromfile(path, np.uint8, offset=size).reshape(want.shape)
        assert int(keys["SAMPLE0"]) == c["first_sample"] and int(keys["SAMPLES"]) == c["samples"], keys
        assert int(keys["EVENT_ID"]) == document["id"] and \
            float(keys["FREQ_MHZ"].split(":")[0]) == c["freq_mhz"]
        here = harness.read_gaps(path, c["first_sample"], c["samples"], 1, 1)[:, 0] == 255
        # what the file lacks is counted: missing where it was played, besides what was missing there
        lacking = c["missing_samples"]
        assert (~here & valid).sum() <= lacking <= (~here).sum(), f"{path}: {lacking}"
        assert int(keys["MISSING_SAMPLES"]) == lacking
        assert valid[here].all(), f"{path}: validity"
        assert (raw[here] == want[here]).all(), f"{path}: samples"
    return document["channels"]


def check_live(node, source):
    """The run ends in order, nothing of the stream was lost, and what was recorded live is what was
    played."""
    out = node.end(130)
    assert "balance: every sample is accounted for" in out, out
    at = 0
    for path in sorted(glob.glob(os.path.join(node.directory, "live_*.dada"))):
        keys, size = harness.header(path)
        raw = np.fromfile(path, np.uint8, offset=size).reshape(-1, 4, 2, 4)
        assert int(keys["SAMPLE0"]) == at, f"{path} begins at {keys['SAMPLE0']}, not {at}"
        index = np.arange(at, at + len(raw)) % PERIOD
        assert (raw == source[0][index]).all(), path
        at += len(raw)
    row = next(line for line in out.splitlines() if line.split()[:1] == ["record"] and len(line.split()) >= 5)
    assert row, out
    assert at > 0
    return out


def main(tests):
    """harness.main of tests that run several at a time: most of it is waiting for history."""
    if harness.DEVICE != "cpu" and not harness.has_device():
        harness.main(tests)  # says so, and ends
    wanted = [t for t in tests if t.__name__ in (sys.argv[1:] or [t.__name__])]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = {t: pool.submit(t) for t in wanted}

        def result_of(test):
            return functools.wraps(test)(lambda: done[test].result())
        harness.main([result_of(t) for t in wanted])
