"""Updates of capture's `absent`: a board that dies and one that comes back, while the node runs. Before and
after the frame where it begins to hold everything is, bit for bit, as in runs with fixed values."""
import contextlib
import glob
import json
import os
import socket
import sys
import threading
import time

import numpy as np

import harness
from capture_common import capture, counters, free_port, packets, REASONS, recorded, Sender
from control_common import Node

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "live"))
from controller import Controller, time_of_sample_0  # noqa: E402

FS, FRAMES, GONE = 512, 6, 2
FENGINE = packets.ChordCrs()
SLOT = 8 * FENGINE.sources.index(GONE)
THEIRS = slice(SLOT, SLOT + 8)


def in_disorder(raw):
    """Packets as the network may bring them: one source is 300 samples ahead, and the last one 200 behind."""
    early = {FENGINE.sources[0]: -300, GONE: 0, FENGINE.sources[-1]: 200}
    return [p for *_, p in sorted(FENGINE.packets(raw), key=lambda p: p[2] + early[p[0]])]


def test_by_the_frame():
    """The same packets to runs with and without the source, and to runs in which that changes, at a frame's
    beginning and beside it, there and back."""
    raw = np.random.default_rng(1).integers(0, 256, FENGINE.shape(FRAMES * FS), np.uint8)
    # Frames in which it is absent, by what is written in the file
    cases = {"never": ("", []), "always": ("absent: [2], ", range(FRAMES)),
             "from 3": ([(3 * FS, "[2]")], [3, 4, 5]), "a sample before": ([(3 * FS - 1, "[2]")], [3, 4, 5]),
             "a sample behind": ([(3 * FS + 1, "[2]")], [4, 5]),
             "from 0, and back": ([(0, "[2]"), (2 * FS, "[]"), (3 * FS, "[2]"), (4 * FS, "[]")], [0, 1, 3])}
    with contextlib.ExitStack() as stack:
        runs, senders = {}, []
        for name, (how, _) in cases.items():
            d, port = stack.enter_context(harness.scratch()), free_port(socket.SOCK_DGRAM)
            absent, top = how, ""
            if not isinstance(how, str):
                each = [f"{{at: {{sample: {s}}}, stages: {{capture: {{absent: {ids}}}}}}}" for s, ids in how]
                absent, top = "", f"updates: [{', '.join(each)}]"
            more = f"{absent}start_sample: 0, hold_samples: {FS}"
            runs[name] = d, capture(d, FENGINE, port, FS, more, control=top)
            senders.append(Sender(port, 800, url=runs[name][1].url))
        for packet in in_disorder(raw):
            for sender in senders:
                sender.send(packet)
        got = {}
        for (name, (d, run)), sender in zip(runs.items(), senders):
            run.finish_after(sender.sent)
            got[name] = *recorded(d, FENGINE, FS), counters(run.text()), run.text()
        for name, (_, absent) in cases.items():
            data, there, share, first, (by_source, total), text = got[name]
            assert first == 0 and len(data) == FRAMES * FS, (name, text)
            for n in range(FRAMES):
                here = slice(n * FS, (n + 1) * FS)
                as_in, as_there, as_share, *_ = got["always" if n in absent else "never"]
                assert np.array_equal(there[here], as_there[here]), (name, n, text)
                assert np.array_equal(data[here][there[here]], as_in[here][there[here]]), (name, n)
                assert np.array_equal(share[here], as_share[here]), (name, n)
                assert there[here][:, :, THEIRS].any() == (n not in absent), (name, n, text)
            assert (share == 255).all() and np.array_equal(data[there], raw[there]), (name, text)
            each = FS // FENGINE.t * len(FENGINE.streams)
            of = by_source[GONE]
            assert of["foreign"] == len(absent) * each, (name, of)
            assert of["accepted"] == (FRAMES - len(absent)) * each, (name, of)
            assert total["never came"] == 0 and sum(total[r] for r in REASONS) == total["packets"], text
            assert total["accepted"] + total["foreign"] == total["packets"], (name, text)


class Boards(threading.Thread):
    """Sends frames of noise until it is told to end; `silent` is from which sample on GONE sends nothing,
    and with `again` they begin again at sample 0."""

    def __init__(self, port, n):
        super().__init__(daemon=True)
        self.sender, self.silent, self.ending = Sender(port, 3000, url=n.url), None, False
        self.sent, self.again = 0, False

    def run(self):
        noise = np.random.default_rng(3).integers(0, 256, FENGINE.shape(FS), np.uint8)
        while not self.ending:
            for source, _, sample, packet in FENGINE.packets(noise, self.sent):
                if source != GONE or self.silent is None or sample < self.silent:
                    self.sender.send(packet)
            self.sent += FS
            if self.again:
                self.sent, self.again = 0, False

    def end(self):
        self.ending = True
        self.join(20)


def text_of(port, url, more):
    return f"""
stream: {{sample_ns: 5120, freq_mhz: {{first: 400, step: 0.1, count: {len(FENGINE.channel_ids())}}}}}
journal: updates.yaml
pipeline:
  - {{stage: capture, packet: chord-crs, addresses: "127.0.0.1:{port}", sources: {list(FENGINE.sources)},
      streams: {list(FENGINE.streams)}, frame_samples: {FS}, open: 4,
      epoch_url: "{url}", {more} out: packets}}
  - {{stage: record, in: packets, directory: ., prefix: raw}}
"""


def post(n, absent, at="now", code=202, **more):
    body = {"at": at, "stages": {"capture": {"absent": absent}}, **more}
    answer = n.post("/v1/update", json.dumps(body))
    assert answer.code == code, answer.text
    return answer.json


def holds(n, name):
    end = time.time() + 30
    while True:
        told = {u["id"]: u for u in n.get("/v1/updates").json["updates"]}
        if name in told and told[name]["state"] == "applied":
            return told[name]["held_from"]
        assert time.time() < end, n.get("/v1/updates").text
        time.sleep(0.02)


def counted(n, source, what):
    (told,) = [s for s in n.get("/v1/stages").json["stages"] if s["name"] == "capture"]
    return told["counted"][f"source {source}"][what]


def test_a_board_comes_back_and_dies():
    """Over HTTP, with the controller of the F-engine away; mistakes are refused, and nothing changes."""
    controller, port = Controller(time_of_sample_0(1700000000000000000)), free_port(socket.SOCK_DGRAM)
    with harness.scratch() as d:
        n = Node(d, text_of(port, controller.url, "start_sample: 0, absent: [2],"))
        n.wait_for_line("listening on port")
        controller.close()
        boards = Boards(port, n)
        boards.start()
        n.wait_until(lambda s: n.get("/v1/updates").json["earliest"] > 0)
        for absent, words in (([77], "absent: 77 is not a source of this node"),
                              ([2, 77], "77 is not a source"),
                              ([0, 1, 2], "absent: all sources"), ("x", "request:1:"), ([-1], "request:1:")):
            said = post(n, absent, code=400)["error"]
            assert words in said and said.startswith("request:1:"), said
        wrong = n.post("/v1/update", '{"stages": {"capture": {"open": 2}}}')
        assert wrong.code == 400 and "'open' cannot be changed while it runs; expected one of absent" in \
            wrong.json["error"], wrong.text
        post(n, [], code=202, id="back")
        back = holds(n, "back")
        late = post(n, [2], {"sample": back}, 409)
        assert late["earliest"] > back and "too late" in late["error"], late
        dies = (boards.sent // FS + 40) * FS
        boards.silent = dies
        post(n, [2], {"sample": dies}, id="dies")
        assert holds(n, "dies") == dies and back % FS == 0
        n.wait_until(lambda s: n.get("/v1/updates").json["earliest"] > dies + 8 * FS)
        boards.end()
        n.end()
        _, there, share, first = recorded(d, FENGINE, FS)
        by_source, total = counters(n.err)
        assert first == 0 and len(share) > dies + FS, n.err
        # The last frames were cut short by the end.
        full = len(share) - 4 * FS
        theirs = there[:full, :, THEIRS]
        assert not theirs[:back].any() and theirs[back:dies].all() and not theirs[dies:].any(), (back, dies)
        assert (share[:full] == 255).all() and by_source[GONE]["never came"] == 0, n.err
        assert by_source[GONE]["accepted"] == (dies - back) // 16 * 2, n.err
        assert by_source[GONE]["foreign"] == back // 16 * 2, n.err
        (name,) = glob.glob(os.path.join(d, "raw*.dada.updates"))
        with open(name) as f:
            marks = f.read()
        assert f"capture:{back}:" in marks and f"capture:{dies}:" in marks, marks
        again(d)


def again(d):
    """With the journal the same node begins where it was: without the board, that is not waited for."""
    controller, port = Controller(time_of_sample_0(1700000000000000000)), free_port(socket.SOCK_DGRAM)
    for path in glob.glob(os.path.join(d, "raw*")):
        os.remove(path)
    n = Node(d, text_of(port, controller.url, "wait_s: 600,"))
    n.wait_for_line("listening on port")
    assert holds(n, "dies") == 0
    boards = Boards(port, n)
    boards.silent = 0
    boards.start()
    n.wait_until(lambda s: n.get("/v1/updates").json["earliest"] > 4 * FS)
    boards.end()
    n.end()
    controller.close()
    by_source, _ = counters(n.err)
    assert by_source[GONE] == {r: 0 for r in by_source[GONE]}, n.err


def test_nobody_waits_for_an_absent_board():
    """A node that has not begun, since a board does not send, begins when it hears that it will not."""
    controller, port = Controller(time_of_sample_0(1700000000000000000)), free_port(socket.SOCK_DGRAM)
    with harness.scratch() as d:
        n = Node(d, text_of(port, controller.url, "wait_s: 600,"))
        n.wait_for_line("listening on port")
        boards = Boards(port, n)
        boards.silent = 0
        boards.start()
        n.wait_until(lambda s: counted(n, 0, "early") > 100)
        post(n, [2], id="gone")
        holds(n, "gone")
        n.wait_until(lambda s: counted(n, 0, "accepted") > 100)
        boards.end()
        n.end()
        controller.close()
        _, _, share, _ = recorded(d, FENGINE, FS)
        assert (share[:FS] == 255).all() and "begins though" not in n.err, n.err


def test_counters_begin_again():
    """Updates stay in force after a jump back of all counters; later ones count by our samples."""
    controller, port = Controller(time_of_sample_0(1700000000000000000)), free_port(socket.SOCK_DGRAM)
    first = 1 << 30
    with harness.scratch() as d:
        n = Node(d, text_of(port, controller.url, f"start_sample: {first}, reset_samples: {8 * FS},"))
        n.wait_for_line("listening on port")
        boards = Boards(port, n)
        boards.sent = first
        boards.start()
        n.wait_until(lambda s: counted(n, GONE, "accepted") > 100)
        post(n, [2], id="gone")
        gone = holds(n, "gone")
        boards.again = True
        n.wait_for_line("began again")
        before = counted(n, GONE, "foreign"), counted(n, 0, "accepted")
        n.wait_until(lambda s: counted(n, 0, "accepted") > before[1] + 500)
        assert counted(n, GONE, "foreign") > before[0] + 300
        post(n, [], id="back")
        back, before = holds(n, "back"), counted(n, GONE, "accepted")
        assert back > gone > first and back % FS == gone % FS == 0, (gone, back)
        n.wait_until(lambda s: counted(n, GONE, "accepted") > before + 300)
        boards.end()
        n.end()
        controller.close()
        by_source, total = counters(n.err)
        assert total["resets"] == 1 and sum(total[r] for r in REASONS) == total["packets"], n.err
        marks = "".join(open(p).read() for p in glob.glob(os.path.join(d, "raw*.dada.updates")))
        assert f"capture:{gone}:" in marks and f"capture:{back}:" in marks, marks


if __name__ == "__main__":
    harness.main([test_by_the_frame, test_a_board_comes_back_and_dies, test_nobody_waits_for_an_absent_board,
                  test_counters_begin_again])
