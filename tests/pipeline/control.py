"""The control interface of a node: what it answers, to whom, and that nobody can hurt a run through it."""
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import harness
from small import record_field
from control_common import ENDLESS, PROGRAM, basic, node

TOKEN = "0123456789abcdefTOKEN"
ROUTES = ["/metrics", "/-/healthy", "/-/ready", "/healthz", "/readyz", "/v1/status", "/v1/graph",
          "/v1/stages", "/v1/queues", "/v1/boards",
          "/v1/config", "/v1/log"]


def promtool(text):
    if shutil.which("promtool") is None:
        print("no promtool: the metrics are not linted")
        return
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done


def test_endpoints():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        for path in ROUTES:
            answer = n.get(path)
            assert answer.code == 200 and answer.body, (path, answer.code)
            if path.startswith("/v1/"):
                assert answer.headers["Content-Type"] == "application/json" and answer.json, path
        graph = n.get("/v1/graph").json
        assert [s["name"] for s in graph["stages"]] == ["t_source", "pass", "slow"], graph
        assert [(q["name"], q["from"], q["readers"]) for q in graph["queues"]] == \
            [("bytes", "t_source", ["pass"]), ("passed", "pass", ["slow"])], graph
        bytes_queue = graph["queues"][0]
        assert bytes_queue["frame"] == "uint8 [time 4096][freq 1]" and bytes_queue["frame_s"] == 4096e-6
        config = n.get("/v1/config").json
        assert config["pipeline"][2] == {"stage": "t_sink", "name": "slow", "pause_us": "10000",
                                         "in": "passed"}, config
        assert config["control"]["listen"] == "127.0.0.1:0", config
        assert n.ask("/v1/status", "HEAD").body == b""
        unknown = n.get("/v1/statsu")
        assert unknown.code == 404, unknown.code
        assert "GET /v1/status" in unknown.text and "POST /v1/stop" in unknown.text, unknown.text
        wrong = n.post("/v1/status")
        assert wrong.code == 405 and wrong.headers["Allow"] == "GET", wrong.headers
        assert "GET /v1/status" in wrong.text, wrong.text
        assert n.ask("/v1/stop", "DELETE").code == 405 and n.ask("/", "BREW").code in (404, 405)
        n.end()


def test_a_slow_start():
    """While a stage starts the node answers, and says that it starts; a stop meanwhile holds; two signals end
    a process whose start hangs."""
    slow = ENDLESS.replace("samples: 1", "start_waits: go, samples: 1")
    with node(slow, command="serve", starts=False) as n:
        go = os.path.join(n.directory, "go")
        n.wait_until(lambda s: s["state"] == "starting", what="the start")
        for path in (*ROUTES, "/"):
            answer = n.get(path)
            assert answer.code == (503 if path in ("/-/ready", "/readyz") else 200), (path, answer.text)
        assert n.get("/v1/dumps").code == 409 and n.post("/v1/update", "{}").code >= 400
        assert n.status()["state"] == "starting" and not n.status()["ready"]
        open(go, "w").close()
        n.wait_until(lambda s: s["ready"], what="ready")
        os.remove(go)
        assert n.post("/v1/restart").code == 202
        n.wait_until(lambda s: s["state"] == "starting" and s["restarts"] == 1, what="the start again")
        assert n.post("/v1/stop").code == 202
        assert n.status()["state"] == "draining", n.status()
        open(go, "w").close()
        n.wait_until(lambda s: s["state"] == "stopped", what="the end")
        n.end(0)
    with node(slow, starts=False) as n:
        n.wait_until(lambda s: s["state"] == "starting", what="the start")
        n.process.send_signal(2)
        n.wait_for_line("once more aborts")
        n.end(1, sign=2)
        assert "t_source: error: start has not returned" in n.err, n.err


def test_changes_are_logged():
    """Who changes something, and who is refused, stands in the log; who looks does not."""
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        assert n.post("/v1/stop").code < 400
        n.wait_until(lambda s: s["state"] in ("stopped", "failed"), what="the end")
        assert n.get("/v1/nothing").code == 404
        log = n.get("/v1/log").body
        log = log.decode() if isinstance(log, bytes) else log
        assert re.search(r"control: \S+ POST /v1/stop: 202", log), log
        assert re.search(r"control: \S+ GET /v1/nothing: 404", log) and "GET /v1/status" not in log, log
        n.end(0)


def test_what_stages_do():
    """A slow sink lets those before it wait for free frames; behind a source that keeps to the telescope's
    time all wait for input."""
    def does(status):
        return {stage["name"]: stage["does"] for stage in (status["graph"] or {"stages": []})["stages"]}

    with node(ENDLESS) as n:
        n.wait_until(lambda s: does(s).get("t_source") == does(s).get("pass") == "waits for a free frame",
                     what="a full pipeline")
        n.end()
    with harness.scratch() as d:
        path = record_field(d)
        slow = f"""pipeline:
  - {{stage: replay, files: {path}, realtime: true, loop: 0, frame_samples: 6000, out: field}}
  - {{stage: t_pass, name: pass, in: field, out: passed}}
  - {{stage: t_sink, name: sink, check: false, in: passed}}
"""
        with node(slow) as n:
            n.wait_until(lambda s: does(s).get("pass") == does(s).get("sink") == "waits for input",
                         what="a slow source")
            n.end()


def test_metrics():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        answer = n.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        promtool(answer.text)
        openly = n.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert openly.headers["Content-Type"].startswith("application/openmetrics-text"), openly.headers
        assert openly.text.endswith("\n# EOF\n") and "# TYPE beamring_restarts counter" in openly.text
        assert "# EOF" not in answer.text
        worked_off = 'beamring_stage_in_samples_total{stage="slow"}'
        full = 'beamring_queue_state{queue="passed",state="full"}'  # over the last second
        fill = 'beamring_queue_fill_frames{queue="passed"}'
        before = after = n.metrics()
        end = time.time() + 30
        # 3: the sink has just let one go.
        while after[worked_off] < before[worked_off] + 20 * 4096 or after[full] != 1 or \
                after[fill] not in (3, 4):
            assert time.time() < end, "the sink takes nothing, or its queue is not full"
            time.sleep(0.1)
            after = n.metrics()
        for name, value in before.items():
            if name.split("{")[0].endswith(("_total", "_bucket", "_count", "_sum")):
                assert after[name] >= value, f"{name} fell from {value} to {after[name]}"
        got = after[worked_off] - before[worked_off]
        assert got % 4096 == 0, got
        # The sink takes 10 ms a frame: beyond 8.192 ms, or more on a machine that is busy.
        calls = after['beamring_stage_process_seconds_count{stage="slow"}']
        early = after['beamring_stage_process_seconds_bucket{stage="slow",le="0.008192"}']
        assert calls > 10 and early == 0, (calls, early)
        assert after['beamring_stage_process_seconds_bucket{stage="slow",le="+Inf"}'] == calls
        assert after['beamring_stage_process_seconds_sum{stage="slow"}'] >= 0.01 * calls
        assert after['beamring_queue_slots{queue="passed"}'] == 4
        assert after['beamring_stage_lost_samples_total{stage="pass",reason="late"}'] == 0
        # The one connection of the scrape may be closed, or not yet.
        now = len(os.listdir(f"/proc/{n.process.pid}/fd"))
        assert abs(after["process_open_fds"] - now) <= 2, (after["process_open_fds"], now)
        n.end()


def test_numbers_agree_with_the_statistics():
    """After its pipeline has ended, the node agrees with the statistics file."""
    text = "pipeline:\n  - {stage: t_source, samples: 100000, frame_samples: 1000, out: bytes}\n" \
           "  - {stage: t_pass, lose_at: 5000, lose_as: 2, in: bytes, out: passed}\n" \
           "  - {stage: t_sink, in: passed}\n"
    with node(text, "--stats", "stats.json", command="serve") as n:
        n.wait_until(lambda s: s["state"] in ("stopped", "failed"), what="the end")
        stats = json.load(open(os.path.join(n.directory, "stats.json")))
        stages = {s["name"]: s for s in n.get("/v1/stages").json["stages"]}
        for want in stats["stages"]:
            for key in ("in_frames", "in_samples", "out_frames", "out_samples", "out_missing", "saturated",
                        "calls", "lost"):
                assert stages[want["name"]][key] == want[key], (want["name"], key)
        for want, got in zip(stats["queues"], n.get("/v1/queues").json["queues"]):
            for key in ("name", "frames", "samples", "missing", "fill", "max_fill"):
                assert got[key] == want[key], (key, want, got)
        assert n.metrics()['beamring_stage_lost_samples_total{stage="t_pass",reason="duplicate"}'] == 1000
        assert n.get("/-/ready").code == 503 and n.get("/-/healthy").code == 200
        n.end(status=1)  # what it reported as lost it had passed on: the balance does not add up


def test_metrics_page():
    page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "metrics.md")
    made = harness.beamring("help", "--metrics").out
    if os.path.exists(page):
        assert open(page).read() == made, "docs/metrics.md: write `beamring help --metrics` there"
    with node(ENDLESS) as n:
        names = {line.split()[2] for line in n.get("/metrics").text.splitlines() if line.startswith("# TYPE")}
        assert names == {line.split("`")[1] for line in made.splitlines() if line.startswith("| `")}, names
        n.end()


def test_token():
    with harness.scratch() as d:
        token = os.path.join(d, "token")

        def write(text, mode):
            with open(token, "w") as f:
                f.write(text)
            os.chmod(token, mode)

        write(TOKEN + "\n", 0o600)
        with node(ENDLESS, "--set", f"control.token_file={token}") as n:
            for headers in ({}, {"Authorization": "Bearer " + TOKEN[:-1]},
                            {"Authorization": "Bearer " + TOKEN + "x"},
                            {"Authorization": "Bearer "}, basic("x"), {"Authorization": "Basic !!"}):
                for method, path in (("GET", "/v1/status"), ("GET", "/metrics"), ("POST", "/v1/stop"),
                                     ("GET", "/nowhere")):
                    answer = n.ask(path, method, headers=headers)
                    assert answer.code == 401, (headers, path, answer.code)
                    assert "Basic" in answer.headers["WWW-Authenticate"], answer.headers
            assert n.get("/v1/status", headers={"Authorization": "Bearer " + TOKEN}).code == 200
            assert n.get("/v1/status", headers=basic(TOKEN)).code == 200
            done = harness.beamring("status", n.url, "--token-file", token)
            assert done.status in (0, 1) and "slow" in done.out, done
            done = harness.beamring("status", n.url)
            assert done.status == 2 and "401" in done.err and "token" in done.err, done
            assert n.post("/v1/stop", headers=basic(TOKEN)).code == 202
            n.end(sign=None)
        for text, mode, words in ((TOKEN, 0o644, "may be read by others"),
                                  (TOKEN, 0o640, "may be read by others"),
                                  ("short", 0o600, "16 to 255"), (TOKEN + "\nmore", 0o600,
                                                                  "more than one line")):
            write(text, mode)
            done = harness.run(d, ENDLESS, "--control", "127.0.0.1:0", "--set",
                               f"control.token_file={token}", status=2)
            assert words in done.err and token in done.err, done
        done = harness.run(d, ENDLESS, "--control", "127.0.0.1:0", "--set", "control.token_file=nowhere",
                           status=2)
        assert "nowhere" in done.err and "No such file" in done.err, done


def test_addresses():
    with harness.scratch() as d:
        for address, words in (("0.0.0.0:0", "token_file"), ("*:8081", "token_file"),
                               ("127.0.0.1", "no port"),
                               ("127.0.0.1:99999", "port"), ("example.org:80", "not an address"),
                               ("[::2]:80", "token_file")):
            done = harness.run(d, ENDLESS + f"control: {{listen: \"{address}\"}}\n", status=2)
            assert "pipeline.yaml:5:19" in done.err and words in done.err, (address, done)
        done = harness.run(d, ENDLESS + "control: {lissten: 1}\n", status=2)
        assert "did you mean 'listen'" in done.err, done
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = harness.run(d, ENDLESS, "--control", f"127.0.0.1:{taken.getsockname()[1]}", status=2)
            assert "Address already in use" in done.err and "another port" in done.err, done


def test_pages_of_others():
    """A page of another site may neither read this node, under a name that points at it, nor change it."""
    with node(ENDLESS) as n:
        own = f"127.0.0.1:{n.port}"
        assert n.get("/v1/status", headers={"Host": "evil.example"}).code == 403
        assert n.get("/v1/status", headers={"Host": "localhost:1"}).code == 200
        assert n.get("/v1/status", headers={"Host": "[::1]:1"}).code == 200
        assert n.post("/v1/stop", headers={"Origin": "http://evil.example"}).code == 403
        assert n.post("/v1/stop", headers={"Origin": "null"}).code == 403
        assert n.status()["state"] == "running"
        assert n.post("/v1/stop", headers={"Origin": "http://" + own}).code == 202
        n.end(sign=None)


def test_log_level():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["state"] == "running")
        for body in ("", "{}", '{"level": "loud"}', '{"level": 1}', '{"level": "note", "x": 1}', "["):
            assert n.post("/v1/log", body).code == 400, body
        assert n.post("/v1/log", '{"level": "error"}').json == {"level": "error"}
        assert n.post("/v1/log", "quiet").code == 400
        assert n.post("/v1/log", '{"level": "note"}').code == 200
        assert n.post("/v1/log", "loud").code == 400
        n.end()
        printed = [line for line in n.lines if "POST /v1/log: " in line]
        assert len(printed) == 6 + 2, printed  # not those between
        assert "POST /v1/log: 200" in printed[-2] and "POST /v1/log: 400" in printed[-1], printed


def test_status_command():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"] and s["held_up"] and s["held_up"]["stage"] == "slow", what="ready")
        done = harness.beamring("status", n.url)
        assert done.status == 0 and "slow limits the pipeline: it takes " in done.out, done
        assert max(len(line) for line in done.out.splitlines()) <= 140, done.out
        done = harness.beamring("status", n.url.replace("http://", ""))
        assert done.status == 0, done
        log = harness.beamring("log", n.url)
        assert log.status == 0 and f"control: http://127.0.0.1:{n.port}/" in log.out, log
        watching = subprocess.Popen([PROGRAM, "status", n.url, "--watch"], stdout=subprocess.PIPE, text=True)
        seen = [watching.stdout.readline() for _ in range(30)]
        watching.kill()
        watching.wait()
        assert sum("slow limits the pipeline" in line for line in seen) >= 2, seen
        n.end()
    done = harness.beamring("status", n.url)
    assert done.status == 2 and "onnect" in done.err, done
    assert harness.beamring("status", "a", "b").status == 2


def test_escapes_of_nodes():
    """An answer from a node's address never moves the cursor or renames the terminal."""
    nasty = "x\x1b[2J\x9b31m\x07\x08\x7f\r\\u001b"  # the last one is six characters, and harmless

    class Nasty(http.server.BaseHTTPRequestHandler):
        raw = False

        def do_GET(self):
            names = {"state": nasty, "sentence": nasty, "not_ready": nasty, "file": nasty, "error": nasty,
                     "id": nasty, "graph": {"stages": [{"name": nasty, "does": nasty, "waits_for": nasty,
                                                        "lost": {nasty: 1}}],
                                            "queues": [{"name": nasty, "readers": [{"stage": nasty}]}]},
                     "lines": [{"message": nasty, "stage": nasty, "level": nasty}]}
            body = json.dumps(names, ensure_ascii=not self.raw).replace("u001b", "u001B").encode()
            self.send_response(int(self.server.code))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Nasty) as server, harness.scratch() as d:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        update = os.path.join(d, "u.yaml")
        with open(update, "w") as f:
            f.write("{stages: {x: {y: 1}}}")
        for server.code in (200, 409):
            for Nasty.raw in (False, True):
                for words in (["status", url], ["log", url], ["update", update, url]):
                    done = subprocess.run([PROGRAM, *words], capture_output=True, timeout=60)
                    said = done.stdout + done.stderr
                    assert b"x?[2J" in said, (words, done)
                    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", said), (words, done)
                    assert b"\\u001" in said, (words, done)
        server.shutdown()


if __name__ == "__main__":
    harness.main([
        test_endpoints, test_a_slow_start, test_changes_are_logged, test_what_stages_do, test_metrics,
        test_numbers_agree_with_the_statistics, test_metrics_page, test_token, test_addresses,
        test_pages_of_others, test_log_level, test_status_command, test_escapes_of_nodes
    ])
