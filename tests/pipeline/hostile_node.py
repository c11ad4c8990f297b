"""A node while its pipeline ends, and requests that want more of it than they may have."""
import contextlib
import glob
import json
import os
import socket
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


def request(n, method, path, body=""):
    """A connection that has sent its request; who reads what comes back closes it."""
    s = socket.create_connection(("127.0.0.1", n.port), timeout=30)
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return s


def answer(s):
    """Status and text."""
    with s:
        got = b""
        while part := s.recv(65536):
            got += part
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), f"no answer: {got}"
    return int(head.split()[1]), body.decode()


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


if __name__ == "__main__":
    harness.main([test_requests_while_a_pipeline_is_stopped, test_traffic_while_nodes_restart])
