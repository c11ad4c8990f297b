"""Updates whose files hang: only updates wait. The node answers, drains, restarts and ends meanwhile."""
import contextlib
import http.client
import json
import os
import signal
import threading
import time

import harness
from control_common import node

PIPELINE = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, in: bytes, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""
PRELOAD = {"LD_PRELOAD": os.path.abspath(os.environ["BEAMRING_HANGING_FILE"])}


class Later(threading.Thread):
    """A request in a thread of its own; .answer is None until it has come."""

    def __init__(self, n, body):
        super().__init__(daemon=True)
        self.n, self.body, self.answer = n, body, None
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            self.answer = self.n.post("/v1/update", self.body, timeout=60)

    def done(self, seconds=30):
        self.join(seconds)
        assert self.answer is not None, "no answer came"
        return self.answer


def update(name, file=None, **values):
    if file is not None:
        values["file"] = {"file": file}
    return json.dumps({"id": name, "stages": {"one": values}})


def write(n, name, text="7 END\n"):
    with open(os.path.join(n.directory, name), "w") as f:
        f.write(text)


def hang(n, name):
    write(n, name)
    write(n, name + ".hangs")


def let(n, name):
    os.unlink(os.path.join(n.directory, name + ".hangs"))


def frames_of(n):
    return n.get("/v1/stages?now").json["stages"][0]["out_frames"]


def is_worked_at(n):
    end = time.time() + 30
    while n.get("/v1/updates").json["busy_s"] == 0:
        assert time.time() < end, "the request is not worked at"
        time.sleep(0.01)


def begin(n):
    n.wait_until(lambda s: s["state"] == "running")
    hang(n, "slow.h5")
    first = Later(n, update("hangs", "slow.h5"))
    is_worked_at(n)
    return first


def test_only_updates_wait():
    with node(PIPELINE, env=PRELOAD) as n:
        first = begin(n)
        second = Later(n, update("behind", add=9))
        end = time.time() + 30
        while n.get("/v1/updates").json["waiting"] < 2:
            assert time.time() < end
            time.sleep(0.01)
        slowest, frames = 0, frames_of(n)
        for _ in range(20):
            for path in ("/metrics", "/-/healthy", "/v1/updates", "/v1/status?now"):
                before = time.time()
                assert n.get(path).code == 200, path
                slowest = max(slowest, time.time() - before)
            time.sleep(0.02)
        assert slowest < 5, slowest
        assert frames_of(n) > frames
        assert first.answer is None and second.answer is None
        let(n, "slow.h5")
        assert first.done().code == 202 and second.done().code == 202, (first.answer.text, second.answer.text)
        assert first.answer.json["sample"] <= second.answer.json["sample"]  # in order
        n.end()


def test_too_many_wait():
    with node(PIPELINE, env=PRELOAD) as n:
        begin(n)
        waiting = [Later(n, update(f"u{i}", add=i)) for i in range(64)]
        end = time.time() + 30
        while n.get("/v1/updates").json["waiting"] < 65:
            assert time.time() < end, n.get("/v1/updates").text
            time.sleep(0.01)
        refused = n.post("/v1/update", update("one-more", add=1))
        assert refused.code == 503 and "64 updates wait" in refused.json["error"], refused.text
        let(n, "slow.h5")
        assert [w.done().code for w in waiting] == [202] * 64
        n.end()


def test_asker_goes_away():
    with node(PIPELINE, env=PRELOAD) as n:
        n.wait_until(lambda s: s["state"] == "running")
        hang(n, "slow.h5")
        asker = http.client.HTTPConnection("127.0.0.1", n.port, timeout=30)
        asker.request("POST", "/v1/update", update("hangs", "slow.h5"))
        is_worked_at(n)
        asker.close()
        let(n, "slow.h5")
        assert n.post("/v1/update", update("next", add=1)).code == 202
        names = {u["id"] for u in n.get("/v1/updates").json["updates"]}
        assert names == {"hangs", "next"}
        n.end()


def test_end():
    """SIGTERM while a file hangs: the node ends, what waits hears that nothing came of it."""
    with node(PIPELINE, env=PRELOAD) as n:
        first = begin(n)
        second = Later(n, update("behind", add=9))
        time.sleep(0.1)
        n.end(seconds=20)
        assert "an update hangs in a file" in n.err
        for request in (first, second):
            request.join(10)
            answer = request.answer
            assert answer is None or (answer.code == 503 and "the pipeline ends" in answer.text), answer.text


def test_restart():
    """A restart while a file hangs: the next pipeline runs and takes updates; the file comes back late."""
    with node(PIPELINE, env=PRELOAD, command="serve") as n:
        first = begin(n)
        assert n.post("/v1/restart").code == 202
        assert first.done().code == 503, first.answer.text
        n.wait_until(lambda s: s["state"] == "running" and s["restarts"] == 1)
        assert n.post("/v1/update", update("after", add=3)).code == 202
        let(n, "slow.h5")
        time.sleep(0.6)
        assert [u["id"] for u in n.get("/v1/updates").json["updates"]] == ["after"]
        n.end(status=0)


def test_stop():
    with node(PIPELINE, env=PRELOAD, command="serve") as n:
        first = begin(n)
        assert n.post("/v1/stop").code == 202
        n.wait_until(lambda s: s["state"] == "stopped")
        assert first.done().code == 503
        n.end(status=0, sign=signal.SIGINT)


def test_no_file():
    """A pipe, a directory: refused, since a library that waits for them would hold up others."""
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        os.mkfifo(os.path.join(n.directory, "pipe.h5"))
        os.mkdir(os.path.join(n.directory, "directory.h5"))
        os.symlink("/dev/zero", os.path.join(n.directory, "zero.h5"))
        for name, words in (("pipe.h5", "not a regular file"), ("zero.h5", "not a regular file"),
                            ("directory.h5", "a directory"), ("not.h5", "cannot open")):
            answer = n.post("/v1/update", update(name, name))
            assert answer.code == 400 and words in answer.json["error"], answer.text
            assert "request:1:" in answer.json["error"]
        n.end()


if __name__ == "__main__":
    harness.main([test_only_updates_wait, test_too_many_wait, test_asker_goes_away, test_end, test_restart,
                  test_stop, test_no_file])
