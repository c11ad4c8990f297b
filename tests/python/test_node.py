"""A running node, from outside: the program with a control interface, and this package as its client."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import beamring as br
from conftest import EPOCH_NS, HEAD, program_env, same

NODE = HEAD + """
pipeline:
  - {stage: replay, files: field_*.dada, out: field, realtime: true, loop: 0}
  - {stage: dump, in: {from: field, history: {seconds: 1}}, directory: dumps}
  - {stage: frb_grid, in: field, out: grid, downsample: 256}
  - {stage: frb_beams, in: grid, out: beams, beams: {directions: [[0, 0], [0.001, 0]]}}
  - {stage: record, in: beams, prefix: live}
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    before = os.getcwd()
    os.chdir(folder)
    br.Pipeline(HEAD + """
pipeline:
  - {stage: simulate, out: field, samples: 81920, seed: 3, frame_samples: 4096}
  - {stage: record, in: field, prefix: field}
""").run()
    os.chdir(before)
    (folder / "node.yaml").write_text(NODE)
    with started(folder) as (url, process):
        node = br.Node(url)
        node.folder, node.process = folder, process
        yield node


@contextlib.contextmanager
def started(folder):
    process = subprocess.Popen(
        [br.program(), "run", "node.yaml", "--control", "127.0.0.1:0"],
        cwd=folder,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=program_env(),
    )
    try:
        for line in process.stderr:
            found = re.search(r"control: (http://[\d.]+:\d+)/", line)
            if found:
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found.group(1), process
    finally:
        process.kill()
        process.wait()


def test_what_a_node_says(node):
    for frame in node.tap("field", frames=2, timeout_s=30):
        pass
    assert node.status["state"] == "running" and node.stages["record"]["stage"] == "record"
    assert node.sample >= frame.first + frame.samples and node.queues["field"]["frames"] >= 2
    before, at, after = node.sample, node.time.astype(np.int64), node.sample
    assert before * 2560 - 10**5 <= at - EPOCH_NS <= after * 2560 + 10**5  # it is told in few digits
    assert any(line["stage"] == "replay" for line in node.log())
    counts = [n for stage in node.sources.values() for of in stage.values() for n in of.values()]
    assert not any(counts), node.sources
    assert any(name.startswith("beamring_") for name, _ in node.metrics)
    preview = node.preview("beams")
    assert preview["waterfall"].shape[1] == 4 and preview["mean"].shape == (2,)


def test_a_tap_has_the_values_of_the_recording(node):
    field = br.open(str(node.folder / "field_*.dada")).data
    count, end = 0, None
    for frame in node.tap("field", frames=4, timeout_s=30):
        at = frame.first % 81920
        assert same(frame.data, field[at : at + frame.samples]) and (frame.valid == 255).all()
        assert frame.times[0] == np.datetime64(EPOCH_NS + 2560 * frame.first, "ns")
        assert end is None or frame.skipped == frame.first - end
        end, count = frame.first + frame.samples, count + 1
    assert count == 4
    slow = node.tap("field", frames=2, timeout_s=30)
    first = next(slow)
    while node.sample < first.first + 5 * first.samples:  # this program is too slow: what it lost is counted
        time.sleep(0.01)
    assert next(slow).skipped >= 0
    every = list(node.tap("beams", every=2, frames=2, timeout_s=30))
    assert every[0].shape == every[1].shape and every[1].first > every[0].first
    with pytest.raises(br.NodeError, match="no queue 'nothing'") as caught:
        next(node.tap("nothing"))
    assert caught.value.code == 404
    with pytest.raises(ValueError, match="every"):
        next(node.tap("beams", every=0))


def test_an_update(node):
    graph = {s["name"]: s for s in node.graph["stages"]}
    assert "frb_beams" in graph
    at = node.sample + 100000000  # it is not waited for
    answer = node.update(
        frb_beams={"steer": [{"sample": 0, "beams": {"directions": [[0, 0], [0.002, 0]]}}]}, at=at
    )
    assert answer
    with pytest.raises(br.NodeError) as caught:
        node.update(frb_beams={"beans": 3})
    assert caught.value.code == 400 and "beans" in str(caught.value)


def test_a_dump(node):
    dump, ahead = None, 100000  # a quarter of a second; more on a machine that is busy
    while dump is None:
        start = node.sample + ahead
        try:
            dump = node.dump(start={"sample": start}, samples=1000, id=4711)
        except br.NodeError as error:
            assert error.code == 409 and ahead < 10**8, error
            ahead *= 2
    dump.wait(60)
    r = dump.open(node.folder / "dumps")
    assert (
        dump.state == "done"
        and r.axes == ("time", "freq", "pol", "dish")
        and same(r.freqs_mhz, [400, 401, 402, 403])
    )
    field = br.open(str(node.folder / "field_*.dada")).data
    inside = [i for i, k in enumerate(r.sample_numbers) if start <= k < start + 1000]
    assert len(inside) == 1000
    numbers = r.sample_numbers[inside] % 81920
    assert same(r.data[inside], field[numbers]) and (r.valid[inside] == 255).all()
    while node.sample < 500000:  # the history has a second
        time.sleep(0.01)
    with pytest.raises(br.NodeError):
        node.dump(start={"sample": 0}, samples=10)


def test_addresses_that_are_none():
    with pytest.raises(br.NodeError, match="does not answer") as caught:
        br.Node("127.0.0.1:9", timeout_s=2).status
    assert caught.value.code is None
    with pytest.raises(br.NodeError, match="not an address"):
        br.Node("http://")


def test_a_node_that_goes_away_during_a_tap(node):
    """The last test of this node."""
    frames = node.tap("field", timeout_s=30)
    next(frames)
    node.process.kill()
    node.process.wait()
    with pytest.raises(br.NodeError, match="does not answer"):
        for _ in frames:
            pass


def test_a_pipeline_here_can_be_watched():
    """`control:` of a pipeline in this process, and a tap that ends with it."""
    text = HEAD + """
control: {listen: "127.0.0.1:0"}
pipeline:
  - {stage: simulate, out: field, samples: 100000000000, seed: 3, frame_samples: 4096}
  - {stage: python, class: Until, in: field}
"""

    class Until(br.Stage):
        outputs = ()
        done = threading.Event()

        def process(self, field):
            return br.CONSUMED | (br.FINISHED if self.done.is_set() else 0)

    address = []

    def message(m):
        found = re.search(r"http://([\d.:]+)/", m.text)
        if found:
            address.append(found.group(1))

    thread = threading.Thread(target=lambda: br.Pipeline(text).run(on_message=message))
    thread.start()
    while not address:
        time.sleep(0.01)
    seen = 0
    try:
        for frame in br.Node(address[0]).tap("field", timeout_s=30):
            seen += 1
            assert frame.data.shape[1:] == (4, 2, 6)
            if seen == 3:
                Until.done.set()
    except br.NodeError:
        pass  # the process stays, its interface goes
    finally:
        Until.done.set()
        thread.join()
    assert seen >= 3
