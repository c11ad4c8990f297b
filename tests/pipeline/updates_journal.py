"""A node that is restarted goes on with the values that held, and with what was pending: after a drain, a
restart over HTTP, SIGKILL; a journal that cannot be used is refused with its line, and the pipeline file
holds."""
import json
import os
import signal
import time

import harness
from control_common import Node, node

PIPELINE = """journal: updates.jsonl
pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, in: bytes, out: more}
  - {stage: t_update, name: two, in: more, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""
FAR = 90000000000


def post(n, name, at="now", **stages):
    answer = n.post("/v1/update", json.dumps({"id": name, "at": at, "stages": stages}))
    assert answer.code == 202, answer.text
    return answer.json


def updates(n):
    return {u["id"]: u for u in n.get("/v1/updates").json["updates"]}


def wait_for(n, name, state="applied"):
    end = time.time() + 30
    while updates(n).get(name, {}).get("state") != state:
        assert time.time() < end, n.get("/v1/updates").text
        time.sleep(0.02)


def lines(n):
    with open(os.path.join(n.directory, "updates.jsonl")) as f:
        return [json.loads(line) for line in f]


def wait_for_line(n, name, state):
    end = time.time() + 30
    while not any(x.get("id") == name and x.get("state") == state for x in lines(n)):
        assert time.time() < end, lines(n)
        time.sleep(0.02)


def begin(n):
    n.wait_until(lambda s: s["state"] == "running")
    post(n, "a", one={"add": 3})
    wait_for(n, "a")
    post(n, "b", one={"add": 4}, two={"add": 5})
    wait_for(n, "b")
    post(n, "c", two={"refuse": 77})
    wait_for(n, "c")
    post(n, "later", {"sample": FAR}, one={"add": 9})
    wait_for_line(n, "c", "applied")


def journal(n):
    return n.get("/v1/updates").json["journal"]


def ends_with(n, one, two, **more):
    n.end(**more)
    assert f"one: add is {one} in the end" in n.err, n.err
    assert two is None or f"two: add is {two} in the end" in n.err, n.err


def test_lines():
    with node(PIPELINE) as n:
        begin(n)
        head, *rest = lines(n)
        assert head == {"journal": 1, "stages": {"one": "t_update", "two": "t_update"}}
        a = next(x for x in rest if x["id"] == "a" and x["state"] == "scheduled")
        told = updates(n)["a"]
        assert a["stages"] == {"one": {"add": 3}} and a["digest"] == told["digest"] and a["at"] == "now"
        applied = next(x for x in rest if x["id"] == "a" and x["state"] == "applied")
        assert applied["sample"] == told["held_from"]
        later = next(x for x in rest if x["id"] == "later")
        assert later["at"] == {"sample": FAR} and later["sample"] == FAR
        assert journal(n)["state"] == "kept" and journal(n)["resumed"] == 0
        n.end()


def test_large_numbers():
    """Integers of up to 64 bits are the same before and after, however they were written."""
    with node(PIPELINE, command="serve") as n:
        n.wait_until(lambda s: s["state"] == "running")
        for name, text, value in (("a", "9223372036854775807", 2**63 - 1),
                                  ("b", "-9223372036854775808", -2**63),
                                  ("c", "1234567890123456789", 1234567890123456789),
                                  ("d", "9e18", 9 * 10**18), ("e", "9007199254740993.0", 9007199254740993)):
            answer = n.post("/v1/update", f"{{id: {name}, stages: {{one: {{add: {text}}}}}}}")
            assert answer.code == 202, answer.text
            wait_for(n, name)
            restarts = n.status()["restarts"]
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["restarts"] > restarts and s["state"] == "running", what="a restart")
            assert journal(n)["state"] == "kept" and journal(n)["resumed"] == 1, (name, journal(n))
            assert updates(n)[name]["state"] == "applied" and "holds something else" not in n.err, n.err
            assert n.post("/v1/stop").code == 202
            n.wait_until(lambda s: s["state"] == "stopped", what="the end")
            assert n.err.count(f"one: add is {value} in the end") == 2, (name, n.err)
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["state"] == "running", what="the start")
        n.end(0)


def resumed(n):
    n.wait_until(lambda s: s["state"] == "running")
    told = updates(n)
    # `a` is not needed any more: `b` has set the same since
    states = {k: u["state"] for k, u in told.items()}
    assert states == {"b": "applied", "c": "applied", "later": "scheduled"}, told
    assert told["b"]["held_from"] == 0 and told["later"]["sample"] == FAR
    assert journal(n)["resumed"] == 3
    # the same request again is known; with other values its id is not free
    assert post(n, "b", one={"add": 4}, two={"add": 5})["state"] == "applied"
    answer = n.post("/v1/update", json.dumps({"id": "b", "stages": {"one": {"add": 8}}}))
    assert answer.code == 409, answer.text


def test_after_a_drain_and_a_kill():
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with node(PIPELINE) as n:
            begin(n)
            if sign == signal.SIGKILL:
                n.end(status=-9, sign=sign)
            else:
                ends_with(n, 4, 5)
            again = Node(n.directory, PIPELINE)
            try:
                resumed(again)
                post(again, "d", two={"add": 6})
                wait_for(again, "d")
                ends_with(again, 4, 6)
            finally:
                again.process.kill()
            once_more = Node(n.directory, PIPELINE)
            try:
                once_more.wait_until(lambda s: s["state"] == "running")
                ends_with(once_more, 4, 6)
            finally:
                once_more.process.kill()


def test_restart():
    with node(PIPELINE, command="serve") as n:
        begin(n)
        for i in range(2):
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["state"] == "running" and s["restarts"] == i + 1)
            resumed(n)
        ends_with(n, 4, 5, status=0)


def test_pending_becomes_due():
    """A pending update is applied at its sample after the restart."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        earliest = post(n, "a", one={"add": 3})["earliest"]
        post(n, "soon", {"sample": earliest + 4096 * 40000}, one={"add": 9})
        n.end(status=-9, sign=signal.SIGKILL)
        text = open(os.path.join(n.directory, "updates.jsonl")).read()
        with open(os.path.join(n.directory, "updates.jsonl"), "w") as f:
            f.write(text.replace(str(earliest + 4096 * 40000), "409600"))
        again = Node(n.directory, PIPELINE)
        try:
            wait_for(again, "soon")
            assert updates(again)["soon"]["held_from"] == 409600
            again.end()
        finally:
            again.process.kill()


BAD = (("{\"id\": 7}\n", "line 5: expected an object with an 'id'"), ("{\"id\": \"x\",}\n", "line 5, column"),
       ("\0\0\0\n", "line 5"),
       ("{\"id\": \"x\", \"state\": \"gone\", \"sample\": 1}\n", "line 5: its 'state'"),
       ("[]\n", "line 5: expected an object"),
       ("{\"id\": \"x\", \"state\": \"scheduled\", \"sample\": 1}\n", "line 5: it has no 'stages'"))


def refused(directory, words, text=PIPELINE, two=0):
    path = os.path.join(directory, "updates.jsonl")
    before = open(path, "rb").read()
    again = Node(directory, text)
    try:
        again.wait_until(lambda s: s["state"] == "running")
        told = journal(again)
        assert told["state"] == "refused" and words in told["why"], told
        assert again.metrics()["beamring_journal_kept"] == 0
        assert post(again, "new", one={"add": 11})["journal"]["state"] == "refused"
        wait_for(again, "new")
        ends_with(again, 11, two)
        assert "nothing is resumed: the pipeline file's values hold" in again.err and words in again.err
        assert open(path, "rb").read() == before  # it is kept for whoever wants to look at it
    finally:
        again.process.kill()


def test_refused():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        post(n, "a", one={"add": 3})
        wait_for_line(n, "a", "applied")
        post(n, "b", two={"add": 3})
        wait_for_line(n, "b", "scheduled")
        n.end(status=-9, sign=signal.SIGKILL)
        path = os.path.join(n.directory, "updates.jsonl")
        good = open(path).read().splitlines(keepends=True)
        for line, words in BAD:
            with open(path, "w") as f:
                f.write("".join(good[:4]) + line + good[-1])
            refused(n.directory, words)
        with open(path, "w") as f:
            f.write("".join(good))
        other = PIPELINE.replace("t_update, name: two", "t_pass, name: two")
        refused(n.directory, "line 1: it is of another pipeline, with a stage 'two'", other, two=None)


def test_not_a_journal():
    """Somebody else's file is left as it is, with or without an end of its line."""
    for text in ("my thesis", "my thesis\n", "{\"stages\": {}}\n"):
        with harness.scratch() as d:
            with open(os.path.join(d, "updates.jsonl"), "w") as f:
                f.write(text)
            refused(d, "this is no journal of updates")


def test_half_a_line():
    with node(PIPELINE) as n:
        begin(n)
        n.end(status=-9, sign=signal.SIGKILL)
        path = os.path.join(n.directory, "updates.jsonl")
        with open(path) as f:
            text = f.read()
        for half in ("{\"id\": \"x\", \"sta", "{", text.splitlines()[-1]):
            with open(path, "w") as f:
                f.write(text + half)
            again = Node(n.directory, PIPELINE)
            try:
                resumed(again)
                assert journal(again)["dropped"] == 1
                again.end(status=-9, sign=signal.SIGKILL)
                assert "its last line was not complete, and is dropped" in again.err
                assert open(path).read() == text
            finally:
                again.process.kill()
        with open(path, "w") as f:
            f.write("{\"jour")  # the very first line
        again = Node(n.directory, PIPELINE)
        try:
            again.wait_until(lambda s: s["state"] == "running")
            assert journal(again)["state"] == "kept"
            again.end()
        finally:
            again.process.kill()


def test_two_nodes():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        other = Node(n.directory, PIPELINE)
        try:
            other.wait_until(lambda s: s["state"] == "running")
            assert "another process writes to it" in journal(other)["why"]
            other.end()
        finally:
            other.process.kill()
        assert journal(n)["state"] == "kept" and n.metrics()["beamring_journal_kept"] == 1
        n.end()


def test_of_the_file():
    """Entries of `updates:` are scheduled once: after a restart they do not undo what came after them."""
    text = "updates: [{at: {sample: 40960}, stages: {one: {add: 20}}}]\n" + PIPELINE
    with node(text) as n:
        n.wait_until(lambda s: s["state"] == "running")
        wait_for(n, "update-1")
        post(n, "a", one={"add": 3})
        wait_for_line(n, "a", "applied")
        n.end(status=-9, sign=signal.SIGKILL)
        again = Node(n.directory, text)
        try:
            again.wait_until(lambda s: s["graph"]["stages"] and s["state"] == "running")
            time.sleep(0.5)
            again.end()
            assert "one: add is 3 in the end" in again.err, again.err
        finally:
            again.process.kill()


def test_shortened():
    """A restart keeps the updates in force, out of many."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        for i in range(120):
            post(n, f"u{i}", one={"add": i})
        wait_for_line(n, "u119", "applied")
        n.end()
        before = len(lines(n))
        assert before > 200
        again = Node(n.directory, PIPELINE)
        try:
            again.wait_until(lambda s: s["state"] == "running")
            ends_with(again, 119, 0)
            assert len(lines(n)) == 3, lines(n)
        finally:
            again.process.kill()


def test_file_that_changed():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        path = os.path.join(n.directory, "number.h5")
        with open(path, "w") as f:
            f.write("31 END\n")
        post(n, "a", one={"file": {"file": "number.h5"}})
        wait_for_line(n, "a", "applied")
        n.end()
        for text, words, value in (("32 END\n", "is taken as it is now", 32), ("33", "cannot be resumed", 0)):
            with open(path, "w") as f:
                f.write(text)
            again = Node(n.directory, PIPELINE)
            try:
                again.wait_until(lambda s: s["state"] == "running")
                ends_with(again, value, 0)
                assert words in again.err, again.err
            finally:
                again.process.kill()


if __name__ == "__main__":
    harness.main([
        test_lines, test_large_numbers, test_after_a_drain_and_a_kill, test_restart,
        test_pending_becomes_due, test_refused, test_not_a_journal, test_half_a_line,
        test_two_nodes, test_of_the_file, test_shortened, test_file_that_changed
    ])
