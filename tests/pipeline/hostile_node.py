"""A node while its pipeline ends, and requests that want more of it than they may have."""
import contextlib
import glob
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import harness
from control_common import node

PRELOAD = {"LD_PRELOAD": os.path.abspath(os.environ["BEAMRING_HANGING_FILE"])}
DUMPED = """telescope: {name: small, grid: {m: 1, n: 1}, spacing_m: {m: 8, n: 6}, dishes: [[0, 0]]}
stream: {freq_mhz: [800], sample_ns: 2560, epoch_ns: 1700000000000000000}
pipeline:
  - {stage: simulate, samples: 100000000000, frame_samples: 4096, out: field}
  - {stage: dump, in: {from: field, history: {seconds: 0.1}}, directory: dumps}
  - {stage: t_update, name: one, in: field, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, check: false, in: passed}
"""


def request(n, method, path, body="", room=None):
    """A connection that has sent its request; who reads what comes back closes it. room: bytes that it takes
    without being read."""
    s = socket.socket()
    if room is not None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    s.settimeout(30)
    s.connect(("127.0.0.1", n.port))
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return s


def raw(s):
    """Status and bytes."""
    with s:
        got = b""
        while part := s.recv(65536):
            got += part
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), f"no answer: {got}"
    return int(head.split()[1]), body


def answer(s):
    """Status and text."""
    code, body = raw(s)
    return code, body.decode()


def hang(n):
    """An update that hangs in its file, worked at when this returns."""
    for name in ("late.h5", "late.h5.hangs"):
        with open(os.path.join(n.directory, name), "w") as f:
            f.write("7 END\n")
    s = request(n, "POST", "/v1/update", json.dumps({"stages": {"one": {"file": {"file": "late.h5"}}}}))
    end = time.time() + 30
    while n.get("/v1/updates?now").json["busy_s"] == 0:
        assert time.time() < end, "the request is not worked at"
        time.sleep(0.01)
    return s


UPDATE = '{"stages": {"one": {"add": 3}}}'
WHILE_IT_ENDS = [("GET", "/v1/dumps", ""), ("GET", "/baseband", ""), ("GET", "/v1/dumps?id=1", ""),
                 ("POST", "/v1/dump", '{"start": "earliest", "duration_s": 0.01}'),
                 ("POST", "/v1/dump/cancel", '{"id": 1}'), ("POST", "/baseband", "{}"),
                 ("POST", "/v1/update", UPDATE), ("GET", "/v1/updates", ""),
                 ("GET", "/v1/preview?queue=field", ""), ("GET", "/v1/status?now", "")]


def threads_of(n):
    names = []
    for path in glob.glob(f"/proc/{n.process.pid}/task/*/comm"):
        with contextlib.suppress(OSError), open(path) as f:
            names.append(f.read().strip())
    return names


def ending(n, stop):
    """Ends the pipeline while an update hangs: the loop waits a second for it with stages that are stopped
    already. All that is asked meanwhile is answered; returns the codes."""
    n.wait_until(lambda s: s["ready"], what="ready")
    updates = [hang(n)] + [request(n, "POST", "/v1/update", UPDATE) for _ in range(5)]
    stop()
    end = time.time() + 30
    while "slow" in threads_of(n):  # from here on the loop is busy until it gives the update up
        assert time.time() < end, "the pipeline does not end"
        time.sleep(0.01)
    answers = [answer(s) for s in updates + [request(n, *one) for one in WHILE_IT_ENDS]]
    for code, text in answers[:len(updates)]:
        assert code == 503 and "nothing of this update is applied" in text, (code, text)
    for one, (code, text) in zip(WHILE_IT_ENDS, answers[len(updates):]):
        assert code in (200, 202, 400, 404, 409, 503), (one, code, text)
    return [code for code, _ in answers[len(updates):]]


def test_requests_while_a_pipeline_is_stopped():
    """... over HTTP in a node that stays, which must still be there; and by a signal in one that ends."""
    with node(DUMPED, command="serve", env=PRELOAD) as n:
        for _ in range(2):
            codes = ending(n, lambda: n.post("/v1/stop"))
            n.wait_until(lambda s: s["state"] == "stopped", what="the end")
            assert n.get("/v1/dumps").code == 409 and n.post("/v1/update", "{}").code == 409
            os.unlink(os.path.join(n.directory, "late.h5.hangs"))
            assert n.post("/v1/restart").code == 202
        print(f"answers while the pipeline ended: {codes}")
        n.wait_until(lambda s: s["ready"], what="ready again")
        n.end(0)
    with node(DUMPED, env=PRELOAD) as n:
        ending(n, lambda: n.process.send_signal(15))
        n.end(sign=None)


def test_traffic_while_nodes_restart():
    """Dumps, updates and restarts from many at once: each is answered, and the node stays."""
    with node(DUMPED, command="serve") as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        over = threading.Event()
        failures = []

        def ask(which):
            while not over.is_set():
                try:
                    answer(request(n, *which))
                except (OSError, AssertionError) as error:
                    failures.append((which, error))
                    return

        threads = [threading.Thread(target=ask, args=[which]) for which in WHILE_IT_ENDS]
        for t in threads:
            t.start()
        for _ in range(6):
            with contextlib.suppress(AssertionError):
                before = n.status()["restarts"]
                assert n.post("/v1/restart").code in (202, 409)
                n.wait_until(lambda s: s["restarts"] > before and s["state"] == "running", what="a restart")
        over.set()
        for t in threads:
            t.join()
        assert not failures, failures
        assert n.status()["restarts"] == 6
        n.end(0)


UPDATED = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_update, name: one, in: bytes, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""
# ${SECRET} in an update's id, key, value and path: with YAML's escapes, JSON's, and as the characters that
# stand for it while a pipeline file is read.
VARIABLES = ["\\u0024{SECRET}", "$\\u007bSECRET}", "\\x24{SECRET}", "${SECRET}", "\\ue024\\ue07bSECRET}",
             "\ue024\ue07bSECRET\ue07d", "\\u0024{NOTHING:-SECRET}", "\\u0024\\u0024{SECRET}"]


def test_nothing_is_expanded():
    with node(UPDATED + "journal: journal.yaml\n", command="serve", env={"SECRET": "Hunter2"}) as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        for text in VARIABLES:
            for body in ('{"id": "%s", "stages": {"one": {"add": 3}}}', '{"stages": {"one": {"file": "%s"}}}',
                         '{"stages": {"one": {"file": {"file": "%s"}}}}',
                         '{"stages": {"one": {"add": "%s"}}}',
                         '{"stages": {"one": {"%s": 1}}}', '{"stages": {"%s": {"add": 1}}}',
                         '{"at": "%s", "stages": {"one": {"add": 1}}}', '{"%s": 1}'):
                got = n.post("/v1/update", (body % text).encode())
                assert "Hunter2" not in got.text, (body % text, got.text)
                plain = "\ue024" in text or "ue024" in text
                assert got.code == 400, (body % text, got.text)
                assert plain or "there are no variables here" in got.text, (body % text, got.text)
        for path in ("/v1/updates?now", "/v1/log?since=0", "/v1/status?now"):
            assert "Hunter2" not in n.get(path).text, path
        # a name of such characters is a name: also in the journal, which is read again
        with open(os.path.join(n.directory, "\ue024\ue07bHOME}"), "w") as f:
            f.write("7 END\n")
        named = '{"id": "named", "stages": {"one": {"file": "\ue024\ue07bHOME}"}}}'
        got = n.post("/v1/update", named.encode())
        assert got.code == 202, got.text
        assert n.post("/v1/restart").code == 202
        n.wait_until(lambda s: s["restarts"] == 1 and s["ready"], what="the restart")
        journal = n.get("/v1/updates").json["journal"]
        assert journal["state"] == "kept" and journal["resumed"] == 1, journal
        assert "Hunter2" not in open(os.path.join(n.directory, "journal.yaml")).read() + n.err
        n.end(0)


SECRETS = {"environment": "AWS_KEY=SECRETa\nPASSWORD=SECRETb\n",
           "map": "SECRETk: SECRETv\nSECRETk: &SECRETn x\nb: *SECRETm\nc: !SECRETt x\nd: ${SECRETe}\n",
           "passwords": "root:$6$SECRET:19000:0:99999:7:::\nSECRET:x:1\n",
           "JSON": '{"SECRET": {"SECRET": "SECRET"}, "telescope": "SECRET", "device": "SECRET", "SECRET"}',
           "list": "- SECRET\n- SECRET2\n", "key": "-----BEGIN KEY-----\nSECRETSECRET==\n-----END KEY-----\n",
           "numbers": "SECRET=\n1234567890123456789012345678901234567890\n",
           "telescope": "telescope: {SECRETq: 1, grid: SECRETz}\n"}
NAMED = {"included": "include: {0}\n{1}",
         "packet": "pipeline:\n  - {{stage: capture, addresses: ['127.0.0.1:0'], packet: {0}, out: x}}\n"
                   "  - {{stage: t_sink, in: x}}\n",
         "document": "pipeline:\n  - {{stage: receive, format: frb-node, address: '127.0.0.1:0', "
                     "document: {0}, out: x}}\n  - {{stage: t_sink, in: x}}\n",
         "VDIF": "pipeline:\n  - {{stage: replay, files: {0}, format: vdif, out: x}}\n"
                 "  - {{stage: t_sink, in: x}}\n",
         "recording": "pipeline:\n  - {{stage: replay, files: {0}, out: x}}\n  - {{stage: t_sink, in: x}}\n"}


def test_files_that_are_no_pipelines_are_not_quoted():
    """A restart whose file names such a one, or is one, says the place and no word of it; `check` does."""
    with node(UPDATED, command="serve") as n:
        n.wait_until(lambda s: s["ready"], what="ready")

        def refused(what, text):
            with open(os.path.join(n.directory, "node.yaml"), "w") as f:
                f.write(text)
            got = n.post("/v1/restart")
            assert got.code == 422 and "SECRET" not in got.text, (what, got.code, got.text)
            return got.json["error"]

        for kind, secret in SECRETS.items():
            path = os.path.join(n.directory, "other")
            with open(path, "w") as f:
                f.write(secret)
            for what, text in NAMED.items():
                told = refused((kind, what), text.format(path, UPDATED))
                # a frame's length is made of three of its bytes
                length = str(int.from_bytes(secret.encode()[8:11], "little") * 8)
                assert what != "VDIF" or length not in told, told
                assert path in told and (what in ("recording", "VDIF") or "expected" in told or
                                         "YAML" in told), told
            assert "node.yaml:" in refused((kind, "in its place"), secret)
        # a pipeline is quoted as ever
        assert "pause_ms" in refused("pipeline", UPDATED.replace("pause_us", "pause_ms"))
        log = n.get("/v1/log?since=0").text
        assert "SECRET" not in log and "other:1:1: expected" in log, log
        with open(os.path.join(n.directory, "node.yaml"), "w") as f:
            f.write("include: other\n" + UPDATED)
        checked = harness.beamring("check", "node.yaml", cwd=n.directory)
        assert "SECRET" in checked.err, checked
        n.end(0)


def ignores(pid, sign):
    mask = re.search(r"SigIgn:\s+(\w+)", open(f"/proc/{pid}/status").read())[1]
    return int(mask, 16) >> (sign - 1) & 1 == 1


def test_signals_when_there_is_nothing_to_print():
    """SIGUSR1 prints a pipeline's counters; before it runs, between two, after the last it does nothing."""
    with node(UPDATED, command="serve") as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        for again in range(2):
            assert n.post("/v1/stop").code == 202
            n.wait_until(lambda s: s["state"] == "stopped", what="the end")
            for _ in range(5):
                n.process.send_signal(signal.SIGUSR1)
            assert n.status()["state"] == "stopped"
            assert n.post("/v1/restart").code == 202
            n.process.send_signal(signal.SIGUSR1)
            n.wait_until(lambda s: s["restarts"] == again + 1 and s["ready"], what="the restart")
        n.process.send_signal(signal.SIGUSR1)
        n.end(0)
    with harness.scratch() as d:
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(UPDATED.replace("name: one", "name: one, file: late.h5").replace("100000000000", "40960"))
        for name in ("late.h5", "late.h5.hangs"):
            with open(os.path.join(d, name), "w") as f:
                f.write("7 END\n")
        for command in ("run", "serve"):
            process = subprocess.Popen([os.path.abspath(harness.PROGRAM), command, "p.yaml"], cwd=d,
                                       text=True, env={**os.environ, **PRELOAD}, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            end = time.time() + 30  # before its main it cannot do otherwise than die
            while not ignores(process.pid, signal.SIGUSR1):
                assert time.time() < end and process.poll() is None, "the signal is not ignored"
                time.sleep(0.01)
            for _ in range(5):
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.01)
            assert process.poll() is None, process.communicate()
            os.unlink(os.path.join(d, "late.h5.hangs"))
            if command == "serve":
                for line in process.stderr:
                    if "there is no pipeline" in line:
                        break
                process.send_signal(signal.SIGUSR1)
                process.send_signal(signal.SIGTERM)
            err = process.communicate(timeout=60)[1]
            assert process.returncode == 0, (process.returncode, err)
            with open(os.path.join(d, "late.h5.hangs"), "w"):
                pass


MOVING = """  - {stage: baseband_beamform, in: field, out: moving, beams: {directions: [[0, 0]],
     rates: [[1e-4, 0]], reference_ns: -1}}
  - {stage: record, in: moving, overwrite: true, prefix: moving, file_bytes: 40960}
"""


def test_signals_are_for_the_main_thread():
    """Also in a node whose stages have threads of their own: the writers of dumps, the maker of weights."""
    with node(DUMPED + MOVING, env={"OPENBLAS_NUM_THREADS": "1"}) as n:  # whose threads are there before
        n.wait_until(lambda s: s["ready"], what="ready")
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        tasks = f"/proc/{n.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status") as f:
                status = f.read()
            blocked = int(re.search(r"SigBlk:\s+(\w+)", status)[1], 16)
            bits = [bool(blocked >> (s - 1) & 1) for s in handled]
            assert bits == [int(task) != n.process.pid] * len(handled), (status.splitlines()[0], bits)
        assert len(os.listdir(tasks)) > 6
        n.end()


def test_standard_streams_that_are_closed():
    """Whichever of 0, 1 and 2 are closed: nothing that a pipeline opens takes their place."""
    text = DUMPED.split("pipeline:")[0] + """pipeline:
  - {stage: simulate, samples: 100000000000, frame_samples: 4096, seed: 3, out: field}
  - {stage: record, in: field, prefix: x, overwrite: true, file_bytes: 40960}
  - {stage: t_sink, pause_us: 10000, check: false, in: field}
"""
    with harness.scratch() as d:
        path, recorded = os.path.join(d, "p.yaml"), os.path.join(d, "x_000001.dada")
        with open(path, "w") as f:
            f.write(text)
        for closed in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(recorded)
            process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", path], cwd=d,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       preexec_fn=lambda: [os.close(fd) for fd in closed])
            end = time.time() + 30
            while not os.path.exists(recorded):
                assert time.time() < end and process.poll() is None, (closed, process.poll())
                time.sleep(0.01)
            names = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in closed]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 130 and names == ["/dev/null"] * len(closed), (closed, names)
            assert b"beamring: " not in open(os.path.join(d, "x_000000.dada"), "rb").read(), closed


def test_dumps_replace_nothing():
    """A link, a pipe or a folder where a dump's file or what belongs to it would come: that dump fails."""
    with node(DUMPED, command="serve") as n:
        n.wait_until(lambda s: s["ready"], what="ready")
        dumps, precious = os.path.join(n.directory, "dumps"), os.path.join(n.directory, "precious")
        with open(precious, "w") as f:
            f.write("precious")

        def dump(event, **more):
            asked = {"id": event, "start": "earliest", "duration_s": 0.001, **more}
            got = n.post("/v1/dump", json.dumps(asked))
            assert got.code == 202, got.text
            end = time.time() + 30
            while True:
                found = n.get(f"/v1/dumps?id={event}").json["dumps"][0]
                if found["state"] not in ("waiting", "writing"):
                    return found
                assert time.time() < end, found
                time.sleep(0.01)

        first = dump(1)
        assert first["state"] == "done", first
        name = first["channels"][0]["file"]
        event = 10
        for suffix in ("", ".part"):
            for make in (os.mkfifo, os.mkdir, lambda path: os.symlink(precious, path),
                         lambda path: os.symlink("nowhere", path)):
                event += 1
                path = os.path.join(dumps, name.replace("1", str(event), 1) + suffix)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                make(path)
                before = os.lstat(path)
                failed = dump(event)
                assert failed["state"] == "failed" and "replaced" in failed["reason"], (path, failed)
                assert os.lstat(path).st_ino == before.st_ino and open(precious).read() == "precious", path
                assert not os.path.exists(os.path.join(dumps, "nowhere"))
        os.makedirs(os.path.join(n.directory, "elsewhere"))
        os.symlink("../elsewhere", os.path.join(dumps, "out"))
        os.symlink(n.directory, os.path.join(dumps, "up"))
        for event, directory in ((90, "out"), (91, "up"), (92, "up/elsewhere"), (93, "out/new")):
            failed = dump(event, directory=directory)
            assert failed["state"] == "failed" and "leads out of dumps" in failed["reason"], failed
        assert os.listdir(os.path.join(n.directory, "elsewhere")) == []
        assert dump(98, directory="below/that")["state"] == dump(99)["state"] == "done"
        n.end(0)


if __name__ == "__main__":
    harness.main([
        test_requests_while_a_pipeline_is_stopped, test_traffic_while_nodes_restart,
        test_signals_when_there_is_nothing_to_print, test_signals_are_for_the_main_thread,
        test_standard_streams_that_are_closed, test_dumps_replace_nothing,
        test_nothing_is_expanded,
        test_files_that_are_no_pipelines_are_not_quoted
    ])
