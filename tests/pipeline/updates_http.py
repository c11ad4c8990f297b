"""Updates that are posted to a node: scheduled, applied, late, wrong; in two stages from one sample on."""
import json
import os
import re
import subprocess
import time

import harness
from control_common import PROGRAM, node

PIPELINE = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, in: bytes, out: more}
  - {stage: t_update, name: two, in: more, out: passed, refuse: 13}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""


def post(n, **update):
    return n.post("/v1/update", json.dumps(update))


def wait_for(n, name, state, seconds=60):
    end = time.time() + seconds
    while True:
        answer = n.get("/v1/updates")
        assert answer.code == 200, answer.text
        found = [u for u in answer.json["updates"] if u["id"] == name]
        if found and found[0]["state"] == state:
            return found[0]
        assert time.time() < end, answer.text
        time.sleep(0.02)


def test_applied():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        both = {"one": {"add": 3}, "two": {"add": 4}}
        first = post(n, id="a", at="now", stages=both)
        assert first.code == 202 and first.json["state"] == "scheduled", first.text
        done = wait_for(n, "a", "applied")
        assert first.json["sample"] <= done["held_from"] < first.json["sample"] + 4096
        again = post(n, id="a", at="now", stages=both)
        assert again.code == 202 and again.json["state"] == "applied" and \
            again.json["sample"] == done["sample"]
        ahead = first.json["earliest"] + 40960000
        for i in range(64):
            answer = post(n, id=f"p{i}", at={"sample": ahead + i}, stages={"one": {"add": i}})
            assert answer.code == 202 and answer.json["sample"] == ahead + i, answer.text
        waiting = [u for u in n.get("/v1/updates").json["updates"] if u["state"] == "scheduled"]
        assert len(waiting) == 64
        n.end()
        assert "update 'a' (one, two) holds from sample" in n.err


def test_all_pending_hold():
    """More than 64 are pending; each holds at its own sample, and none falls out. If the first holds before
    all are posted, on a machine that stands still, they are posted again, further ahead."""
    many, ahead = 100, 200
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        while True:
            assert post(n, id=f"a{ahead}", at="now", stages={"one": {"add": 1}}).code == 202
            wait_for(n, f"a{ahead}", "applied")
            first = (n.get("/v1/updates").json["earliest"] // 4096 + ahead) * 4096
            last = first + 4096 * (many - 1)
            answers = [post(n, id=f"p{ahead}-{i}", at={"sample": first + 4096 * i},
                            stages={"one": {"add": i + 10}}) for i in range(many)]
            early = [post(n, id=f"early{ahead}", at=at, stages={"one": {"add": 1}})
                     for at in ("now", {"sample": last - 1})]
            states = n.status()["updates"]["states"]
            if states["scheduled"] == many:
                break
            assert ahead < 10000, states
            n.wait_until(lambda s: s["updates"]["states"]["scheduled"] == 0, 120)
            ahead *= 4
        assert all(answer.code == 202 for answer in answers), [answer.text for answer in answers]
        for answer in early:
            assert answer.code == 409 and answer.json["earliest"] == last, answer.text
            assert f"stage 'one' has update 'p{ahead}-{many - 1}' scheduled" in answer.text
        wait_for(n, f"p{ahead}-{many - 1}", "applied", 120)
        told = {u["id"]: u for u in n.get("/v1/updates").json["updates"]}
        for i in range(many):
            one = told[f"p{ahead}-{i}"]
            assert one["state"] == "applied" and one["held_from"] == first + 4096 * i, one
        n.end()


def test_too_many():
    """There is an end to what may be pending: it is said, and what is pending stays. The last places are for
    what holds soon, also when all others come back with the journal; and what is pending can be cancelled."""
    def scheduled(n):
        return n.status()["updates"]["states"]["scheduled"]

    with node(PIPELINE + "journal: j\n", command="serve") as n:
        n.wait_until(lambda s: s["state"] == "running")
        for i in range(960):
            answer = post(n, id=f"p{i}", at={"sample": 10**12 + i}, stages={"one": {"add": i % 100}})
            assert answer.code == 202, answer.text
        for at in ({"sample": 10**12 + 5000}, {"sample": 10**10}, {"time_ns": 4 * 10**18}):
            refused = post(n, id="more", at=at, stages={"one": {"add": 1}})
            assert refused.code == 503, refused.text
            assert "960 updates are scheduled already" in refused.json["error"] and \
                "DELETE /v1/updates/ID" in refused.json["error"], refused.text
        again = post(n, id="p7", at={"sample": 10**12 + 7}, stages={"one": {"add": 7}})
        assert again.code == 202 and again.json["state"] == "scheduled"
        assert scheduled(n) == 960, n.status()["updates"]
        assert n.post("/v1/restart").code == 202
        n.wait_until(lambda s: s["restarts"] == 1 and s["state"] == "running", what="the restart")
        assert scheduled(n) == 960, n.status()["updates"]
        assert post(n, id="soon", at="now", stages={"two": {"add": 5}}).code == 202
        wait_for(n, "soon", "applied")
        first = n.get("/v1/updates").json["earliest"]
        for i in range(64):  # a minute is some 60 million samples here
            answer = post(n, id=f"s{i}", at={"sample": first + 40000000 + i}, stages={"two": {"add": 20 + i}})
            assert answer.code == 202, answer.text
        more = {"id": "none", "at": {"sample": first + 40000100}, "stages": {"two": {"add": 6}}}
        refused = post(n, **more)
        assert refused.code == 503, refused.text
        assert "1024 updates are scheduled already" in refused.json["error"], refused.text
        for name in ("p959", "p958"):
            assert n.ask("/v1/updates/" + name, "DELETE").json["state"] == "cancelled"
        assert post(n, **more).code == 202
        n.end(0)


def test_cancelled():
    """A cancelled update was never in force: in none of its stages, and not after a restart. An update with
    another one scheduled behind it stays."""
    def delete(name, code=200):
        answer = n.ask("/v1/updates/" + name, "DELETE")
        assert answer.code == code, answer.text
        return answer.json

    with node(PIPELINE + "journal: j\n", command="serve") as n:
        n.wait_until(lambda s: s["state"] == "running")
        first = (n.get("/v1/updates").json["earliest"] // 4096 + 300) * 4096
        for name, at, stages in (("a", 0, {"one": {"add": 1}}),
                                 ("b", 4096, {"one": {"add": 666}}),
                                 ("d", 8192, {"two": {"add": 13}}), ("e", 8192, {"two": {"add": 30}}),
                                 ("c", 8192, {"one": {"add": 2}, "two": {"add": 20}})):
            post(n, id=name, at={"sample": first + at}, stages=stages)
        c = delete("c")
        assert c["state"] == "cancelled", c
        far = 10**12
        for i, name in enumerate(("x", "y", "z")):
            answer = post(n, id=name, at={"sample": far + 4096 * i},
                          stages={"one": {"add": 50 + i}, "two": {"add": 60 + i}})
            assert answer.code == 202, answer.text
        assert "update 'z' scheduled behind it" in delete("y", 409)["error"]
        cancelled = delete("z")
        assert cancelled["state"] == "cancelled" and cancelled["sample"] == far + 8192, cancelled
        assert "there is no update" in delete("z", 404)["error"]  # it is as if it had never come
        assert "there is no update" in delete("nobody", 404)["error"] and delete("a%20b%0a%1b", 404)
        assert n.ask("/v1/updates/", "DELETE").code == 404 and n.ask("/v1/updates/x", "GET").code == 405
        assert n.ask("/v1/updates", "DELETE").code == 405
        wait_for(n, "e", "applied")
        for name in ("a", "e"):
            assert "applied already" in delete(name, 409)["error"]
        # the id is free again
        assert post(n, id="c", at={"sample": far + 8000}, stages={"one": {"add": 7}}).code == 202
        told = {(u["id"], u["state"]) for u in n.get("/v1/updates").json["updates"]}
        assert {("c", "cancelled"), ("c", "scheduled"), ("z", "cancelled"), ("y", "scheduled")} <= told, told
        states = n.status()["updates"]["states"]
        assert states["cancelled"] == 2 and states["scheduled"] == 3, states
        assert n.metrics()['beamring_updates{state="cancelled"}'] == 2
        assert n.post("/v1/restart").code == 202
        n.wait_until(lambda s: s["restarts"] == 1 and s["state"] == "running", what="the restart")
        told = {u["id"]: u["state"] for u in n.get("/v1/updates").json["updates"]}
        assert "z" not in told and told["x"] == told["y"] == told["c"] == "scheduled", told
        assert told["a"] == told["e"] == "applied", told
        n.end(0)


def test_command():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        path = os.path.join(n.directory, "update.yaml")

        def command(text, *more, status=0):
            with open(path, "w") as f:
                f.write(text)
            done = harness.beamring("update", path, n.url, *more)
            assert done.status == status, done
            return done

        assert json.loads(command("{id: a, stages: {one: {add: 3}}}").out)["state"] == "scheduled"
        done = command("{id: b, stages: {one: {add: 4}}}", "--wait")
        assert re.search(r"^b: applied from sample \d+ on$", done.out, re.M), done
        assert "did you mean 'two'" in command("{stages: {tow: {add: 4}}}", status=1).out
        assert "more than 64 KiB" in command("#" * 70000, status=2).err
        assert harness.beamring("update", path + ".not", n.url).status == 2
        assert harness.beamring("update").status == 2
        assert harness.beamring("update", "a", "b", "c").status == 2
        typed = subprocess.run([PROGRAM, "update", "--wait", "-", n.url], text=True, capture_output=True,
                               input="{id: c, stages: {two: {add: 9}}}")
        assert typed.returncode == 0 and "c: applied" in typed.stdout, typed
        n.end()
    assert harness.beamring("update", os.devnull, n.url).status == 2


def test_refused():
    with node(PIPELINE) as n:
        n.wait_until(lambda s: s["state"] == "running")
        assert post(n, id="a", at="now", stages={"one": {"add": 3}}).code == 202
        wait_for(n, "a", "applied")
        late = post(n, id="late", at={"sample": 1}, stages={"one": {"add": 5}, "two": {"add": 5}})
        assert late.code == 409 and late.json["earliest"] > 1 and "too late" in late.json["error"], late.text
        assert post(n, id="a", at="now", stages={"one": {"add": 4}}).code == 409
        for body, code, words in (
            ('{"stages": {"one": {"add": 666}}}', 400, "request:1:28: stage 'one': add: 666"),
            ('{"stages": {"one": {"add": "x"}}}', 400, "request:1:28: "),
            ('{"stages": {"one": {"add": NaN}}}', 400, "request:1:28: "),
            ('{"stages": {"one": {"fixed": 1}}}', 400, "'fixed' cannot be changed while it runs"),
            ('{"stages": {"one": {"add": 1}, "tow": {"add": 1}}}', 400, "did you mean 'two'?"),
            ('{"stages": {"one": {"add": 1}, "two": {"add": 13}}}', 500, "told to refuse 13"),
            ('{"stages": {"slow": {"pause_us": 1}}}', 400, "takes no updates"),
            ('{"stages": {"one": {"add": ${HOME}}}}', 400, "there are no variables here"),
            ('{"stages": {"one": {"add": 1}', 400, "request:1:"), ("", 400, "request:1:1: there is nothing"),
            ('{"at": {"sample": 1e30}, "stages": {"one": {"add": 1}}}', 400, "request:1:19: ")):
            answer = n.post("/v1/update", body)
            assert answer.code == code and words in answer.json["error"], (body, answer.text)
        answer = post(n, id="b", at="now", stages={"one": {"add": 7}})
        assert answer.code == 202  # nothing of the others is in its way
        wait_for(n, "b", "applied")
        n.end()


if __name__ == "__main__":
    harness.main([test_applied, test_all_pending_hold, test_too_many, test_cancelled, test_command,
                  test_refused])
