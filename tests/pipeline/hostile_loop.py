"""The thread that answers requests: none holds it up, whatever the node has to tell."""
import json
import os
import re
import socket
import time

import harness
from control_common import node
from hostile_node import DUMPED, raw, request


def loop_s(n):
    """Processor time of the thread that answers requests."""
    with open(f"/proc/{n.process.pid}/task/{n.process.pid}/schedstat") as f:
        return int(f.read().split()[0]) * 1e-9


LOOP_S = 0.05
CHANNELS, DUMPS = 8192, 64
# 64 stages: two that keep what has passed, and a long row whose values change.
BIG = DUMPED.split("pipeline:")[0].replace("[800]", f"{{first: 400, step: 0.01, count: {CHANNELS}}}") + \
    """journal: journal.jsonl
pipeline:
  - {stage: simulate, samples: 100000000000, frame_samples: 16, out: field}
""" + "".join(f"""  - {{stage: dump, name: dump{i}, in: {{from: field, history: {{seconds: 0.001}}}},
     directory: dumps{i}, max_dumps: 1000, max_wait_s: 1000000}}
""" for i in range(2)) + "".join(f"""  - {{stage: t_update, name: u{i}, out: passed{i},
     in: {f"passed{i - 1}" if i else "field"}}}
""" for i in range(59)) + """  - {stage: t_sink, name: slow, pause_us: 10000, check: false, in: passed58}
  - {stage: t_sink, name: other, check: false, in: {from: field, policy: drop}}
"""


def test_no_request_holds_the_loop_up():
    """Every request, of a node of 8192 channels, 64 dumps and 64 stages: processor time, so that a machine
    that is busy does not matter."""
    with node(BIG, command="serve") as n:
        n.wait_until(lambda s: s["ready"], seconds=90, what="ready")
        slower = 8 if "libasan" in open(f"/proc/{n.process.pid}/maps").read() else 1
        took = {}

        def ask(method, path, body=None, codes=(200, 202)):
            before = loop_s(n)
            got = n.ask(path, method, body if body is None else json.dumps(body), timeout=120)
            seconds = loop_s(n) - before
            assert got.code in codes, (path, got.code, got.text[-300:])
            what = f"{method} {path} {list(body) if body else ''}"
            if seconds > took.get(what, (0, 0))[0]:
                took[what] = seconds, len(got.body)
            return got

        later = {"start": {"sample": 10**11}, "samples": 256}
        channels = list(range(CHANNELS))
        for i in range(DUMPS):
            where = {"stage": f"dump{i % 2}", "id": 10 + i}
            ask("POST", "/v1/dump", {**where, **later, **({"channels": channels} if i % 4 == 0 else {})})
        kotekan = {"event_id": 2, "start_unix_seconds": 1700256000, "start_unix_nano": 0,
                   "duration_nano": 300000, "dm": 0, "dm_error": 0, "file_path": ""}
        ask("POST", "/baseband", kotekan)
        assert len(ask("POST", "/baseband", {**kotekan, "event_id": 3}).json) == CHANNELS
        every = {f"u{i}": {"add": 5} for i in range(59)}
        for i in range(3):
            ask("POST", "/v1/update", {"id": f"all{i}", "at": {"sample": 10**10 + i}, "stages": every})
        ask("POST", "/v1/update", {"id": "wrong", "stages": {**every, "u58": {"add": 666}}}, (400,))
        for route in ("/", "/metrics?now", "/-/healthy?now", "/-/ready?now", "/healthz?now", "/readyz?now",
                      "/v1/status?now", "/v1/graph?now", "/v1/stages?now", "/v1/queues?now", "/v1/boards?now",
                      "/v1/log?since=0", "/v1/updates?now", "/v1/dumps?now", "/v1/dumps?id=10",
                      "/v1/config?now", "/baseband?now", "/baseband?event_id=11", "/baseband?event_id=2"):
            got = ask("GET", route)
        of = {d["freq_id"]: d["file_name"] for d in got.json}  # of the last one: of both stages
        assert len(got.json) == 2 * CHANNELS == 2 * len(of), len(got.json)
        assert len(ask("GET", "/baseband?now").json["3"]) == 2 * CHANNELS
        assert [d["stage"] for d in ask("GET", "/v1/dumps?id=2").json["dumps"]] == ["dump0", "dump1"]
        for item in (0, 1):
            for _ in range(50):
                if "pending" not in ask("GET", f"/v1/preview?queue=field&item={item}").json:
                    break
                time.sleep(0.05)
        for queue in ("field", "passed58"):
            frames = 0
            end = time.time() + 60
            while frames < 3:
                assert time.time() < end, f"no frames of {queue}"
                frames += ask("GET", f"/v1/tap?queue={queue}", codes=(200, 204)).code == 200
        ask("GET", "/nothing", codes=(404,))
        ask("GET", "/v1/injections?now", codes=(409,))  # no stage of this pipeline adds bursts
        ask("GET", "/metrics?open", codes=(200,))
        ask("POST", "/v1/log", {"level": "note"})
        ask("DELETE", "/v1/updates/all2")
        ask("POST", "/v1/dump/cancel", {"id": 12, "stage": "dump0"})
        with open(os.path.join(n.directory, "node.yaml"), "a") as f:
            f.write("  - {stage: nothing}\n")
        ask("POST", "/v1/restart", codes=(422,))
        with open(os.path.join(n.directory, "node.yaml"), "w") as f:
            f.write(BIG)
        ask("POST", "/v1/restart")
        n.wait_until(lambda s: s["restarts"] == 1 and s["ready"], seconds=90, what="the restart")
        asked = {line.split()[1] for line in n.get("/nothing").json["there_is"]}
        left = {p.rstrip(":") for p in asked} - {w.split()[1].split("?")[0] for w in took} - {
            "/v1/updates/", "/v1/stop"}
        assert not left, f"not asked: {left}"
        ask("POST", "/v1/stop", {"abort": True})
        n.wait_until(lambda s: s["state"] in ("stopped", "failed"), seconds=90, what="the end")
        loop_time = {k: v for k, v in n.metrics().items() if "loop" in k}
        for what, (seconds, size) in sorted(took.items(), key=lambda x: -x[1][0]):
            print(f"{what[:60]}: {size} bytes, {seconds * 1e3:.1f} ms")
        print(loop_time)
        longest = max(took.items(), key=lambda x: x[1][0])
        assert longest[1][0] < LOOP_S * slower, longest
        assert loop_time['beamring_loop_longest_iteration_seconds{clock="cpu"}'] < LOOP_S * slower, loop_time
        n.process.kill()


WIDE = BIG.split("journal:")[0] + """pipeline:
  - {stage: replay, files: wide_000000.dada, loop: 0, out: field}
  - {stage: t_sink, name: slow, pause_us: 10000, check: false, in: field}
"""
MADE = BIG.split("journal:")[0] + """pipeline:
  - {stage: simulate, samples: 1024, frame_samples: 1024, out: field}
  - {stage: record, in: field, prefix: wide}
"""
TAPS_MEMORY = 128 << 20  # runtime/control/taps.h


def resident(n):
    with open(f"/proc/{n.process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) << 10


def test_taps_of_large_frames_are_bounded():
    """Frames of 16 MiB are thinned, and many clients that ask and do not read cost no more than TAPS_MEMORY.
    When they have gone, others get frames again."""
    with harness.scratch() as d:
        made = os.path.join(d, "made.yaml")
        with open(made, "w") as f:
            f.write(MADE)
        got = harness.beamring("run", made, cwd=d)
        assert got.status == 0, got
        wide = WIDE.replace("files: ", f"files: {d}/")
        with open(os.path.join(d, "wide_000000.dada"), "rb") as f:
            recorded = f.read()
            recorded = recorded[int(re.search(rb"HDR_SIZE\s+(\d+)", recorded)[1]):]
        bounded_taps(wide, recorded)


def bounded_taps(text, recorded):
    with node(text, command="serve") as n:
        n.wait_until(lambda s: s["ready"], seconds=90, what="ready")
        slower = 8 if "libasan" in open(f"/proc/{n.process.pid}/maps").read() else 1
        until = time.time() + 120

        def tap(first):
            """The header of a frame that begins at `first` or later, and its bytes; or None: no memory."""
            while True:
                assert time.time() < until, "no frame"
                code, body = raw(request(n, "GET", f"/v1/tap?queue=field&from={first}"))
                if code == 503:
                    return None
                if code == 200:
                    length = int.from_bytes(body[:8], "little")
                    return json.loads(body[8:8 + length]), body[8 + length:]
                time.sleep(0.01)

        header, data = tap(0)
        one = CHANNELS * 2  # bytes of a time step
        assert header["every"] == 4 and header["samples"] == 1024, {**header, "stream": None}
        assert len(data) == header["data"] + header["valid"] and header["data"] == 256 * one
        data = data[:header["data"]]
        thinned = [recorded[at:at + one] for at in range(0, 1024 * one, 4 * one)]
        assert data == b"".join(thinned), header["first"]
        before, idle = resident(n), []
        while True:  # each asks for a frame of its own, and reads the first bytes of it
            first = header["first"] + 1
            got = tap(first)
            if got is None:
                break
            header = got[0]
            assert len(idle) < 64, "clients that do not read cost nothing"
            idle.append(request(n, "GET", "/v1/tap?queue=field", room=4096))
            assert idle[-1].recv(12, socket.MSG_PEEK)
        grown = resident(n) - before
        print(f"{len(idle)} idle clients: {grown >> 20} MiB more")
        assert len(idle) > 3 and grown < TAPS_MEMORY * 1.25
        assert n.get("/v1/status?now").code == 200
        for s in idle:
            s.close()
        while tap(header["first"] + 1) is None:
            assert time.time() < until, "the memory does not come back"
            time.sleep(0.05)
        longest = n.metrics()['beamring_loop_longest_iteration_seconds{clock="cpu"}']
        print(f"longest iteration: {longest * 1e3:.1f} ms")
        assert longest < LOOP_S * slower
        n.process.kill()


if __name__ == "__main__":
    harness.main([test_no_request_holds_the_loop_up, test_taps_of_large_frames_are_bounded])
