"""A node that outlives its pipelines: stop, restart, signals, what the service manager is told."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import harness
from control_common import ENDLESS, PROGRAM, Answer, node
from small import STREAM, TELESCOPE

SHORT = """pipeline:
  - {stage: t_source, samples: 100000, frame_samples: 1000, out: bytes}
  - {stage: t_sink, in: bytes}
"""
UNIT = os.path.join(harness.CONFIG, "service", "beamring@.service")


class Manager:
    """Stands in for systemd: a socket that keeps what it is told."""

    def __init__(self, directory):
        self.path, self.told = os.path.join(directory, "notify"), []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            self.told += [(time.time(), line) for line in self.socket.recv(4096).decode().split("\n")]

    def words(self):
        return [line for _, line in self.told]

    def wait_for(self, word, count=1, seconds=30):
        end = time.time() + seconds
        while sum(line.startswith(word) for line in self.words()) < count:
            assert time.time() < end, f"'{word}' was not told {count} times: {self.words()}"
            time.sleep(0.02)


def change(n, text):
    with open(os.path.join(n.directory, "node.yaml"), "w") as f:
        f.write(text)


def balances(out):
    return out.count("balance: every sample is accounted for"), out.count("DOES NOT ADD UP")


def test_stop():
    """`run` ends when it is stopped, with the balance; `serve` stays, and starts again."""
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"])
        assert n.post("/v1/stop").code == 202
        assert balances(n.end(sign=None)) == (1, 0)
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"])
        assert n.post("/v1/stop", '{"abort": false}').json == {"state": "draining"}
        stopped = n.wait_until(lambda s: s["state"] == "stopped")
        assert "it was stopped" in stopped["sentence"], stopped
        assert not stopped["ready"] and stopped["healthy"], stopped
        assert n.post("/v1/stop").code == 409
        assert n.post("/v1/restart").json == {"state": "starting"}
        n.wait_until(lambda s: s["state"] == "running" and s["ready"] and s["restarts"] == 1)
        assert n.post("/v1/stop", '{"abort": true}').json == {"state": "aborting"}
        n.wait_until(lambda s: s["state"] == "failed")
        assert balances(n.end(status=1)) == (2, 0)


def test_orders_that_are_none():
    with node(ENDLESS) as n:
        for body, words in (('{"abort": tru', "line 1, column 13"), ('{\n  "abort": 1}', "'abort'"),
                            ('{"abrt": true}', "'abrt'"), ("[]", "not an object"), ("\0", "line 1"),
                            ('{"abort": true, "abort": false}', "line 1"), ("[" * 60000, "line 1")):
            for path in ("/v1/stop", "/v1/restart"):
                answer = n.post(path, body)
                assert answer.code == 400 and words in answer.json["error"], (body[:40], answer.text)
        assert n.status()["state"] == "running"
        n.end()


def test_again():
    """With --again a pipeline that fails is started again, as long as it takes, with the file as it is then.
    One that was stopped is not, and a stop ends the waiting."""
    failing = ENDLESS.replace("pause_us: 10000", "pause_us: 10000, fail_at: 5000")
    with node(failing, "--again", "0.1", command="serve") as n:
        n.wait_until(lambda s: s["restarts"] >= 2, what="it starts again and again")
        change(n, "pipeline: [")
        n.wait_for_line("--again: the file is wrong")
        change(n, ENDLESS)
        n.wait_until(lambda s: s["ready"], what="it has been mended")
        restarts = n.status()["restarts"]
        assert n.post("/v1/stop").code == 202
        n.wait_until(lambda s: s["state"] == "stopped")
        time.sleep(0.5)  # five times as long as it would wait
        status = n.status()
        assert status["state"] == "stopped" and status["restarts"] == restarts, status
        n.end(0)
    with node(failing, "--again", "1000", command="serve") as n:
        n.wait_for_line("it starts again in 1000 s")
        assert n.post("/v1/stop").code == 202  # the waiting
        assert n.post("/v1/stop").code == 409
        n.end(1)


def test_restart_reads_the_file_again():
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"])
        change(n, ENDLESS.replace("name: slow", "name: slower, paus_us: 1"))
        bad = n.post("/v1/restart")
        assert bad.code == 422 and "node.yaml:4:" in bad.text, bad.text
        assert "did you mean 'pause_us'" in bad.text, bad.text
        change(n, "pipeline: [")
        assert n.post("/v1/restart").code == 422
        os.unlink(os.path.join(n.directory, "node.yaml"))
        assert n.post("/v1/restart").code == 422
        status = n.status()
        assert status["state"] == "running" and status["restarts"] == 0 and n.stage("slow", status), status
        change(n, ENDLESS.replace("name: slow", "name: slower"))
        assert n.post("/v1/restart").json == {"state": "restarting"}
        renewed = n.wait_until(lambda s: s["restarts"] == 1 and s["ready"])
        assert renewed["graph"]["stages"][2]["name"] == "slower", renewed
        assert n.get("/v1/config").json["pipeline"][2]["name"] == "slower"
        change(n, SHORT)
        n.process.send_signal(signal.SIGHUP)
        n.wait_until(lambda s: s["restarts"] == 2 and s["state"] == "stopped")
        assert "it has ended" in n.status()["sentence"]
        change(n, SHORT.replace("t_sink,", "t_sink, fail_at: 5000,"))
        n.process.send_signal(signal.SIGHUP)
        failed = n.wait_until(lambda s: s["restarts"] == 3 and s["state"] == "failed")
        assert "stage 't_sink' has failed: told to fail" in failed["sentence"], failed
        change(n, SHORT.replace("out: bytes", "out: bytes, fail_start: true"))
        n.process.send_signal(signal.SIGHUP)
        n.wait_until(lambda s: s["restarts"] == 4 and s["state"] == "failed")
        change(n, ENDLESS)
        n.process.send_signal(signal.SIGHUP)
        n.wait_until(lambda s: s["restarts"] == 5 and s["ready"])
        log = [line["message"] for line in n.get("/v1/log").json["lines"]]
        assert any("the file is wrong, so that nothing changes" in line for line in log), log
        ok, bad = balances(n.end(status=0))
        assert ok == 5 and bad == 0, (ok, bad)  # one of the six did not start


def hang_restart(n):
    """A restart whose file does not come: a pipe in its place that nobody writes to. Returns the connection
    that asked for it, whose answer is to come."""
    path = os.path.join(n.directory, "node.yaml")
    os.unlink(path)
    os.mkfifo(path)
    asking = http.client.HTTPConnection("127.0.0.1", n.port, timeout=30)
    asking.request("POST", "/v1/restart")
    time.sleep(0.3)  # or the next one may be the first
    assert n.post("/v1/restart", timeout=5).code == 409
    return asking


def test_the_program_is_replaced():
    """An upgrade replaces the program of a node that runs: its next pipeline still finds the stages."""
    stages = next(path for path in (os.path.join(os.path.dirname(PROGRAM), "..", room)
                                    for room in ("stages", "lib/beamring/stages")) if os.path.isdir(path))
    text = TELESCOPE + STREAM + """pipeline:
  - {stage: simulate, samples: 1000000000, frame_samples: 1024, realtime: true, out: field}
  - {stage: record, in: field, directory: ., prefix: "f_{run}"}
"""
    with harness.scratch() as d:
        program = os.path.join(d, "bin", "beamring")
        os.makedirs(os.path.join(d, "bin")), os.makedirs(os.path.join(d, "lib", "beamring"))
        os.symlink(os.path.abspath(stages), os.path.join(d, "lib", "beamring", "stages"))
        shutil.copy(PROGRAM, program)
        with node(text, command="serve", program=program, env={"BEAMRING_PLUGIN_PATH": ""}) as n:
            n.wait_until(lambda s: s["ready"])
            shutil.copy(PROGRAM, program + ".new")
            os.replace(program + ".new", program)
            answer = n.post("/v1/restart")
            assert answer.code == 202, answer.text
            n.wait_until(lambda s: s["restarts"] == 1 and s["ready"])
            n.end(status=0)


def test_a_file_that_hangs():
    """Who watches the node is answered, and the pipeline runs; when the file comes it restarts."""
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"])
        asking = hang_restart(n)
        begin = time.time()
        for _ in range(5):
            status = n.status()
            assert status["state"] == "running" and status["restarts"] == 0, status
        again = n.post("/v1/restart")
        assert again.code == 409 and "is being read already, for POST /v1/restart" in again.text, again.text
        assert time.time() - begin < 5
        change(n, ENDLESS.replace("name: slow", "name: slower"))
        answer = Answer(asking.getresponse())
        assert answer.code == 202 and answer.json == {"state": "restarting"}, answer.text
        renewed = n.wait_until(lambda s: s["restarts"] == 1 and s["ready"])
        assert renewed["graph"]["stages"][2]["name"] == "slower", renewed
        n.end(status=0)


def test_a_stop_while_a_file_hangs():
    """It drains, and calls the restart off: when the file comes nothing starts."""
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"])
        asking = hang_restart(n)
        assert n.post("/v1/stop").code == 202
        n.wait_until(lambda s: s["state"] == "stopped")
        for _ in range(2):  # and once more with no pipeline beside it
            change(n, ENDLESS)
            answer = Answer(asking.getresponse())
            assert answer.code == 409 and "a stop has called it off" in answer.text, answer.text
            time.sleep(0.3)
            assert n.status()["state"] == "stopped" and n.status()["restarts"] == 0, n.status()
            asking = hang_restart(n)
            assert n.post("/v1/stop").json == {"state": "stopped"}
        change(n, ENDLESS)
        assert Answer(asking.getresponse()).code == 409
        assert n.post("/v1/stop").code == 409  # there is nothing to stop
        assert balances(n.end(status=0)) == (1, 0)


def test_an_end_while_a_file_hangs():
    with node(ENDLESS, command="serve") as n:
        n.wait_until(lambda s: s["ready"])
        hang_restart(n)
        begin = time.time()
        assert balances(n.end(status=0)) == (1, 0)
        assert time.time() - begin < 10


def test_run_restarts_too():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"])
        change(n, SHORT)
        assert n.post("/v1/restart").code == 202
        assert balances(n.end(status=0, sign=None)) == (2, 0)


def test_hangup_drains_a_run():
    with node(ENDLESS) as n:
        n.wait_until(lambda s: s["ready"])
        n.end(sign=signal.SIGHUP)


def resident(pid):
    text = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024


def arenas(pid):
    """The allocator's arenas beside the main one: each begins at a multiple of 64 MiB, of which the rest is
    reserved."""
    lines = re.findall(r"^(\w+)-(\w+) (\S+) 0+ 00:00 0 *$", open(f"/proc/{pid}/maps").read(), re.M)
    spans = [(int(first, 16), int(end, 16), kind) for first, end, kind in lines]
    return sum(kind == "rw-p" and first % (64 << 20) == 0 and
               (end, first + (64 << 20), "---p") in spans for first, end, kind in spans)


def test_arenas():
    """Threads of stages, updates and restarts share two arenas: more would keep what each ever held."""
    text = TELESCOPE + STREAM + """pipeline:
  - {stage: simulate, samples: 1000000000, frame_samples: 1024, realtime: true, seed: 1, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 4}
  - {stage: frb_grid, in: fine, out: grid, integrate: 32}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: quantize, in: beams, out: levels, bits: 4, block: 256}
  - {stage: record, in: levels, directory: ., prefix: "l_{run}"}
"""
    with node(text, command="serve") as n:
        for i in range(1, 6):
            n.wait_until(lambda s: s["ready"] and s["restarts"] == i - 1)
            assert n.post("/v1/update", '{"stages": {"upchannelize": {"gain": 2}}}').code == 202
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["state"] == "running" and s["restarts"] == i)
        assert arenas(n.process.pid) <= 1, arenas(n.process.pid)
        n.end(status=0)


def test_a_hundred_restarts():
    """No growth of memory, descriptors or threads over 100 restarts in one process."""
    text = ENDLESS.replace("pause_us: 10000", "pause_us: 100")
    with node(text, command="serve") as n:
        seen = []
        for i in range(1, 101):
            n.wait_until(lambda s: s["state"] == "running" and s["restarts"] == i - 1)
            assert n.post("/v1/restart").code == 202
            n.wait_until(lambda s: s["restarts"] == i and s["state"] == "running")
            pid = n.process.pid
            count = [len(os.listdir(f"/proc/{pid}/{what}")) for what in ("fd", "task")]
            seen.append((resident(pid), *count))
        early, late = seen[20], seen[-1]
        keeps = "libasan" in open(f"/proc/{n.process.pid}/maps").read()  # a sanitizer keeps what was freed
        assert keeps or late[0] - early[0] < 2 << 20, (early, late)  # 80 pipelines: less than 26 kB each
        assert late[1] <= early[1] + 1 and late[2] <= early[2], (early, late)
        n.end(status=0)


def test_service_manager():
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        manager = Manager(d)
        env = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "400000"}
        with node(ENDLESS, command="serve", env=env) as n:
            manager.wait_for("READY=1")
            manager.wait_for("WATCHDOG=1", 3)
            manager.wait_for("STATUS=slow limits the pipeline")
            assert n.post("/v1/restart").code == 202
            manager.wait_for("RELOADING=1")
            manager.wait_for("MONOTONIC_USEC=")
            manager.wait_for("READY=1", 2)
            words = manager.words()
            assert words.index("RELOADING=1") < len(words) - words[::-1].index("READY=1"), words
            n.end(status=0)
            assert "STOPPING=1" in manager.words(), manager.words()
        hangs = "watchdog_s: 0.5\n" + ENDLESS.replace("pause_us: 10000", "hang_at: 40960")
        with node(hangs, command="serve", env=env) as n:
            unhealthy = n.wait_until(lambda s: not s["healthy"])
            assert "slow" in unhealthy["unhealthy"] and not unhealthy["ready"], unhealthy
            assert n.get("/-/healthy").code == 503
            held = unhealthy["held_up"]
            before = sum(w == "WATCHDOG=1" for w in manager.words())
            time.sleep(1.2)
            after = sum(w == "WATCHDOG=1" for w in manager.words())
            assert after == before, "a node that hangs feeds the watchdog"
            held = n.wait_until(lambda s: s["held_up"] and s["held_up"]["kind"] == "holds")["held_up"]
            assert held["stage"] == "slow" and "in one call" in held["cause"], held
            n.process.kill()


def test_killed_and_started_again():
    """From SIGKILL to READY, as the service manager would see it."""
    with tempfile.TemporaryDirectory(prefix="beamring-") as d:
        manager = Manager(d)
        with node(ENDLESS, command="serve", env={"NOTIFY_SOCKET": manager.path}) as n:
            manager.wait_for("READY=1")
            n.process.kill()
            n.process.wait()
            killed = time.time()
        with node(ENDLESS, command="serve", env={"NOTIFY_SOCKET": manager.path}) as n:
            manager.wait_for("READY=1", 2)
            print(f"{manager.told[-1][0] - killed:.2f} s from SIGKILL to READY")
            n.end(status=0)


def test_unit():
    """systemd takes the unit, for the program that is under test."""
    if shutil.which("systemd-analyze") is None:
        print("no systemd-analyze: the unit is not verified")
        return
    with harness.scratch() as d:
        unit = open(UNIT).read()
        assert unit.count("/opt/beamring/bin/beamring") == 2, unit
        path = os.path.join(d, "beamring@.service")
        with open(path, "w") as f:
            f.write(unit.replace("/opt/beamring/bin/beamring", os.path.abspath(harness.PROGRAM)))
        done = subprocess.run(["systemd-analyze", "verify", path], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done
        # It starts a command that the program knows.
        options = re.search(r"ExecStart=\S+ serve \S+ (.*)", unit)[1].split()
        harness.run(d, SHORT.replace("t_sink", "t_snik"), *options, command="serve", status=2)
        options.remove("--again"), options.remove("1")  # which `run` does not have
        done = harness.run(d, SHORT, *options, "--stats", "stats.json")
        assert json.load(open(os.path.join(d, "stats.json")))["exit"] == 0, done


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run that is to outlive its terminal ignores it, rightly
    harness.main([test_stop, test_again, test_orders_that_are_none, test_restart_reads_the_file_again,
                  test_the_program_is_replaced,
                  test_a_file_that_hangs, test_a_stop_while_a_file_hangs, test_an_end_while_a_file_hangs,
                  test_run_restarts_too,
                  test_hangup_drains_a_run, test_arenas, test_a_hundred_restarts, test_service_manager,
                  test_killed_and_started_again, test_unit])
