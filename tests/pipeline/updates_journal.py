"""A node that is restarted goes on with the values that held, and with what was pending: after a drain, a
restart over HTTP, SIGKILL; a journal that cannot be used is refused, and the pipeline file holds."""
import json
import os
import signal
import time

import yaml

import harness
from control_common import Node, node

PIPELINE = """journal: updates.yaml
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


def kept(n):
    """The contents of the journal: each update by its id."""
    with open(os.path.join(n.directory, "updates.yaml")) as f:
        return {u["id"]: u for u in yaml.safe_load(f)["updates"]}


def wait_for_kept(n, name, state="applied"):
    """Until the journal has the update as one that holds (scheduled: waits)."""
    end = time.time() + 30
    while name not in kept(n) or ("held_from" in kept(n)[name]) != (state == "applied"):
        assert time.time() < end, kept(n)
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
    wait_for_kept(n, "c")


def journal(n):
    return n.get("/v1/updates").json["journal"]


def ends_with(n, one, two, **more):
    n.end(**more)
    assert one is None or f"one: add is {one} in the end" in n.err, n.err
    assert f"two: add is {two} in the end" in n.err, n.err


def test_what_is_kept():
    with node(PIPELINE) as n:
        begin(n)
        told, held = updates(n), kept(n)
        assert list(held) == ["later", "c", "b"], held  # `b` has set all that `a` had
        for name, stages in (("b", {"one": {"add": 4}, "two": {"add": 5}}), ("c", {"two": {"refuse": 77}})):
            assert held[name]["stages"] == stages and held[name]["digest"] == told[name]["digest"]
            assert held[name]["held_from"] == told[name]["held_from"] and "time_ns" not in held[name]
        assert held["later"]["time_ns"] == FAR * 1000 and "held_from" not in held["later"]
        post(n, "d", two={"add": 6})
        wait_for_kept(n, "d")  # of `b` the other value still holds
        assert list(kept(n)) == ["d", "later", "c", "b"], kept(n)
        assert n.ask("/v1/updates/later", "DELETE").code == 200
        assert "later" not in kept(n)
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
    """A pending update is applied at its sample after the restart, behind an entry of the pipeline file."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        sample = post(n, "a", one={"add": 3})["earliest"] + 4096 * 40000
        wait_for_kept(n, "a")
        post(n, "soon", {"sample": sample}, one={"add": 9})
        n.end(status=-9, sign=signal.SIGKILL)
        path = os.path.join(n.directory, "updates.yaml")
        with open(path) as f:
            told = yaml.safe_load(f)
        for update in told["updates"]:
            if update["id"] == "soon":
                assert update["time_ns"] == sample * 1000
                update["time_ns"] = 409600 * 1000
        with open(path, "w") as f:
            yaml.safe_dump(told, f)
        again = Node(n.directory, PIPELINE + "updates: [{at: {sample: 368640}, stages: {one: {add: 8}}}]\n")
        try:
            wait_for(again, "soon")
            held = sorted(u["held_from"] for u in updates(again).values())
            assert held == [0, 368640, 409600], (held, told)
            again.end()
        finally:
            again.process.kill()


def refused(directory, words, text=PIPELINE, one=0):
    path = os.path.join(directory, "updates.yaml")
    before = open(path, "rb").read()
    again = Node(directory, text)
    try:
        again.wait_until(lambda s: s["state"] == "running")
        told = journal(again)
        assert told["state"] == "refused" and words in told["why"], told
        assert again.metrics()["beamring_journal_kept"] == 0
        assert post(again, "new", two={"add": 11})["journal"]["state"] == "refused"
        wait_for(again, "new")
        ends_with(again, one, 11)
        assert "nothing is resumed: the pipeline file's values hold" in again.err and words in again.err
        assert "SECRET" not in again.err + told["why"]
        assert open(path, "rb").read() == before  # it is kept for whoever wants to look at it
    finally:
        again.process.kill()


# A change of the file and the message about it, which quotes nothing else of the file.
ANOTHER = "it is of another pipeline, with a stage 'three'"
UPDATE = "expected an update as beamring writes it"
NONE = "this is not a journal of updates"
BAD = (('"one":', '"three":', ANOTHER), ('{"one":{"add":3}}', '"SECRET"', "expected the stages of an update"),
       ('"held_from":', '"held_from":"SECRET","s":', UPDATE), ('"digest":', '"SECRET":', UPDATE),
       ("updates:", "SECRET:", "it is damaged"), ("journal: 2", "journal: 3", NONE),
       ("taken: []", "taken: ${SECRET}", NONE), ("taken: []", "taken: [", NONE))


def test_refused():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        post(n, "a", one={"add": 3})
        wait_for_kept(n, "a")
        n.end(status=-9, sign=signal.SIGKILL)
        path = os.path.join(n.directory, "updates.yaml")
        good = open(path).read()
        for old, new, words in BAD:
            assert old in good, good
            with open(path, "w") as f:
                f.write(good.replace(old, new))
            refused(n.directory, words)
        with open(path, "w") as f:
            f.write(good)
        other = PIPELINE.replace("t_update, name: one", "t_pass, name: one")
        refused(n.directory, "it is of another pipeline, with a stage 'one'", other, one=None)


def test_not_a_journal():
    """Somebody else's file is left as it is, and nothing of it is said."""
    for text in ("SECRET thesis", "SECRET: 1\nSECRET\n", "{\"journal\": 1, \"stages\": {}}\n",
                 "journal: updates.yaml\npipeline: []\n"):
        with harness.scratch() as d:
            with open(os.path.join(d, "updates.yaml"), "w") as f:
                f.write(text)
            refused(d, "this is not a journal of updates, or one of an earlier version")


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


def test_not_written():
    """A failed write is reported, and the next update tries again."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        obstacle = os.path.join(n.directory, "updates.yaml.new")
        os.mkdir(obstacle)
        told = post(n, "a", one={"add": 3})["journal"]
        assert told["state"] == "failed" and "a directory" in told["why"] and kept(n) == {}, told
        wait_for(n, "a")
        assert n.metrics()["beamring_journal_kept"] == 0
        os.rmdir(obstacle)
        post(n, "b", two={"add": 4})
        assert {"a", "b"} == set(kept(n)) and journal(n)["state"] == "kept", kept(n)
        n.end()
        assert n.err.count("updates from here on hold, but not after a restart") == 1, n.err
        assert n.err.count("it is written again") == 1, n.err


def test_of_the_file():
    """Entries of `updates:` are scheduled once: after a restart they do not undo what came after them."""
    text = "updates: [{at: {sample: 40960}, stages: {one: {add: 20}}}]\n" + PIPELINE
    with node(text) as n:
        n.wait_until(lambda s: s["state"] == "running")
        wait_for(n, "update-1")
        post(n, "a", one={"add": 3})
        wait_for_kept(n, "a")
        n.end(status=-9, sign=signal.SIGKILL)
        again = Node(n.directory, text)
        try:
            again.wait_until(lambda s: s["graph"]["stages"] and s["state"] == "running")
            time.sleep(0.5)
            again.end()
            assert "one: add is 3 in the end" in again.err, again.err
        finally:
            again.process.kill()


def test_many():
    """The updates in force are kept, out of many, however long ago they came."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        post(n, "first", two={"add": 8})
        for i in range(300):
            post(n, f"u{i}", one={"add": i})
        wait_for_kept(n, "u299")
        assert list(kept(n)) == ["u299", "first"], kept(n)
        n.wait_until(lambda s: sum(s["updates"]["states"].values()) <= 256 + 2)  # and those in force
        n.end()
        again = Node(n.directory, PIPELINE)
        try:
            again.wait_until(lambda s: s["state"] == "running")
            ends_with(again, 299, 8)
        finally:
            again.process.kill()


def test_file_that_changed():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        path = os.path.join(n.directory, "number.h5")
        with open(path, "w") as f:
            f.write("31 END\n")
        post(n, "a", one={"file": {"file": "number.h5"}})
        wait_for_kept(n, "a")
        n.end()
        for text, words, value in (("32 END\n", "is taken as it is now", 32), ("33", "cannot be resumed", 0),
                                   ("34 END\n", "is taken as it is now", 34)):
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
        test_what_is_kept, test_large_numbers, test_after_a_drain_and_a_kill, test_restart,
        test_pending_becomes_due, test_refused, test_not_a_journal, test_two_nodes, test_not_written,
        test_of_the_file, test_many, test_file_that_changed
    ])
