"""Watched files: one that is replaced or written again becomes an update; one that is half written waits;
what cannot be used changes nothing and is said."""
import json
import os
import time

import harness
from control_common import Node

PIPELINE = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, file: {file: number.txt, watch: true}, in: bytes, out: more}
  - {stage: t_update, name: two, file: {file: number.txt, watch: true}, in: more, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""


def write(directory, text, name="number.txt"):
    with open(os.path.join(directory, name), "w") as f:
        f.write(text)


def replace(directory, text, name="number.txt"):
    write(directory, text, name + ".new")
    os.rename(os.path.join(directory, name + ".new"), os.path.join(directory, name))


def watch(n):
    (one,) = n.get("/v1/updates").json["watches"]
    return one


def wait_for(n, state, words=""):
    end = time.time() + 30
    while True:
        now = watch(n)
        if now["state"] == state and words in now.get("why", ""):
            return now
        assert time.time() < end, (now, n.err)
        time.sleep(0.02)


def applied(n, count):
    """The updates, oldest first, once there are so many that hold."""
    end = time.time() + 30
    while True:
        all_of_them = n.get("/v1/updates").json["updates"][::-1]
        if len(all_of_them) == count and all_of_them[-1]["state"] == "applied":
            return all_of_them
        assert len(all_of_them) <= count and time.time() < end, (all_of_them, watch(n))
        time.sleep(0.02)


class Watching:
    def __init__(self, text=PIPELINE, first="1 END\n"):
        self.scratch = harness.scratch()
        self.text, self.first = text, first

    def __enter__(self):
        self.directory = self.scratch.__enter__()
        write(self.directory, self.first)
        self.n = Node(self.directory, self.text)
        self.n.wait_until(lambda s: s["state"] == "running")
        return self.n

    def __exit__(self, *what):
        self.n.process.kill()
        self.n.process.wait()
        return self.scratch.__exit__(*what)


def ends_with(n, number):
    n.end()
    for name in ("one", "two"):
        assert f"{name}: add is {number} in the end" in n.err, n.err


def test_replaced_and_rewritten():
    with Watching() as n:
        assert wait_for(n, "holds")["parameters"] == "one.file, two.file"
        replace(n.directory, "2 END\n")
        (first,) = applied(n, 1)
        assert first["id"].startswith("number.txt-") and len(first["id"]) == len("number.txt-") + 16
        assert first["stages"] == "one, two"
        write(n.directory, "3 END\n")
        second = applied(n, 2)[1]
        replace(n.directory, "2 END\n")  # a version that has held before is an update of its own
        third = applied(n, 3)[2]
        assert third["id"] == first["id"] + "-2" and second["id"] != first["id"]
        while watch(n)["state"] != "waits":
            os.utime(os.path.join(n.directory, "number.txt"))  # touched: nothing new
            time.sleep(0.02)
        wait_for(n, "holds")
        assert len(applied(n, 3)) == 3
        assert n.metrics()['beamring_watched_files{state="holds"}'] == 1
        assert n.status()["updates"]["watched"]["holds"] == 1
        ends_with(n, 2)


def test_behind_one_that_is_scheduled():
    """It waits, without a request that would be refused, until nothing is scheduled in its stages."""
    with Watching() as n:
        later = {"id": "later", "at": {"sample": 90000000000}, "stages": {"two": {"refuse": 7}}}
        assert n.post("/v1/update", json.dumps(later)).code == 202
        replace(n.directory, "2 END\n")
        wait_for(n, "waits", "stage 'two' has another update scheduled")
        assert n.ask("/v1/updates/later", "DELETE").code == 200
        last = applied(n, 2)[1]
        assert last["id"].startswith("number.txt-"), last
        ends_with(n, 2)


def half_written():
    """False where we stood still ourselves while the file was to grow."""
    with Watching() as n:
        grown = time.monotonic()
        write(n.directory, "5")
        while (said := watch(n))["state"] == "holds":
            time.sleep(0.02)
        for _ in range(5):  # longer than it takes to settle
            updates = n.get("/v1/updates").json["updates"]
            if time.monotonic() - grown > 0.9:
                return False
            assert said["state"] == "waits" and "has stayed the same for 1 s" in said["why"], said
            assert updates == [], updates
            grown = time.monotonic()
            with open(os.path.join(n.directory, "number.txt"), "a") as f:
                f.write("0")
            time.sleep(0.25)
            said = watch(n)
        said = wait_for(n, "refused", "ends too early")
        assert "the values of before stay" in said["why"] and "watch number.txt: " in n.err
        (refused,) = n.get("/v1/updates").json["updates"]
        assert refused["state"] == "rejected"
        with open(os.path.join(n.directory, "number.txt"), "a") as f:
            f.write(" END\n")
        applied(n, 2)
        ends_with(n, 500000)
        return True


def test_half_written():
    """One that grows waits until it is whole; one that stays half is refused, and taken once it is whole."""
    assert any(half_written() for _ in range(20)), "this machine stands still all the time"


def test_gone():
    with Watching() as n:
        path = os.path.join(n.directory, "number.txt")
        os.unlink(path)
        wait_for(n, "missing", "No such file")
        os.mkdir(path)
        said = wait_for(n, "missing", "something else than a file")
        assert "until it is back" in said["why"]
        os.rmdir(path)
        os.mkfifo(path)
        time.sleep(0.6)
        assert n.get("/-/healthy").code == 200 and watch(n)["state"] == "missing"
        os.unlink(path)
        write(n.directory, "8 END\n")
        applied(n, 1)
        wait_for(n, "holds")
        os.rename(path, path + ".away")  # away and back: the same as before
        wait_for(n, "missing")
        os.rename(path + ".away", path)
        wait_for(n, "holds")
        applied(n, 1)
        ends_with(n, 8)
        assert "watch number.txt: No such file" in n.err


def test_not_wanted():
    with Watching() as n:
        replace(n.directory, "666 END\n")
        wait_for(n, "refused", "666 is not a number that anybody wants")
        replace(n.directory, "4 END\n")
        wait_for(n, "holds")
        ends_with(n, 4)


def test_mistakes():
    with harness.scratch() as d:
        write(d, "1 END\n")
        for value, words in (("{file: number.txt, watch: maybe}", "watch: 'maybe'"),
                             ("{file: number.txt, wacht: true}", "did you mean 'watch'?"),
                             ("{watch: true}", "file"), ("{file: [1, 2], watch: true}", "file")):
            text = PIPELINE.replace("{file: number.txt, watch: true}", value, 1)
            result = harness.run(d, text, command="check", status=2)
            assert words in result.err and "pipeline.yaml:3:" in result.err, (value, result.err)
        text = """pipeline:
  - {stage: replay, files: "x*.dada", out: a}
  - {stage: record, directory: {file: out, watch: true}, prefix: x, in: a}
"""
        result = harness.run(d, text, command="check", status=2)
        assert "'directory' cannot be changed while it runs" in result.err, result.err


def test_journal():
    """Values from a watched file are in the journal; a restart reads the file as it is."""
    text = "journal: j\n" + PIPELINE
    with Watching(text) as n:
        replace(n.directory, "2 END\n")
        applied(n, 1)
        replace(n.directory, "3 END\n")
        applied(n, 2)
        time.sleep(0.5)
        n.process.kill()
        n.process.wait()
        again = Node(n.directory, text)
        try:
            again.wait_until(lambda s: s["state"] == "running")
            assert [u["id"] for u in again.get("/v1/updates").json["updates"]] != []
            replace(n.directory, "2 END\n")
            end = time.time() + 30
            while len([u for u in again.get("/v1/updates").json["updates"] if u["state"] == "applied"]) < 2:
                assert time.time() < end, again.get("/v1/updates").text
                time.sleep(0.02)
            ends_with(again, 2)
        finally:
            again.process.kill()


if __name__ == "__main__":
    harness.main([
        test_replaced_and_rewritten, test_behind_one_that_is_scheduled, test_half_written, test_gone,
        test_not_wanted, test_mistakes, test_journal
    ])
