"""Clients that mean no good, or are just slow: no effect on the data, and memory stays bounded."""
import contextlib
import http.client
import os
import random
import re
import socket
import threading
import time

import harness
from control_common import node

# As fast as it goes, so that whatever held a stage's thread up would show.
FAST = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 65536, out: bytes}
  - {stage: t_pass, name: pass, in: bytes, out: passed}
  - {stage: t_sink, in: passed, pause_us: 1000}
"""
REQUESTS = int(os.environ.get("BEAMRING_HOSTILE_REQUESTS", "3000"))


def resident(n):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{n.process.pid}/status").read())[1]) * 1024


def connect(n, timeout=8):
    return socket.create_connection(("127.0.0.1", n.port), timeout=timeout)


def flows(n, seconds=30):
    """Waits until the sink has taken more samples; says whether it has."""
    def taken():
        queues = n.get("/v1/queues?now").json["queues"]
        return next(q for q in queues if q["name"] == "passed")["newest_sample"]
    before, end = taken(), time.time() + seconds
    while time.time() < end:
        time.sleep(0.1)
        if taken() > before:
            return True
    return False


def ends_well(n):
    """Every sample is accounted for, and the sink has checked each byte."""
    out = n.end()
    assert "balance: every sample is accounted for" in out, out


def test_half_open_connections():
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        before = resident(n)
        held = []
        for i in range(200):
            s = connect(n)
            s.sendall([b"", b"GET", b"GET /metrics HTTP/1.1\r\n",
                       b"POST /v1/stop HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
                       b"GET / HTTP/1.1\r\nHost: x\r\nX: "][i % 5])
            held.append(s)
        assert flows(n) and n.status()["state"] == "running"
        assert n.metrics()["beamring_http_connections"] >= 200
        assert resident(n) - before < 200 * 64 * 1024, resident(n) - before
        for s in held:
            s.close()
        n.wait_until(lambda s: n.metrics()["beamring_http_connections"] < 20, what="the connections' end")
        assert resident(n) - before < 200 * 2048, resident(n) - before  # what they used goes with them
        ends_well(n)


def test_strangers_shut_nobody_out():
    """Who has the token is answered while 700 others, who send a byte now and then, want all connections."""
    with harness.scratch() as d, contextlib.ExitStack() as stack:
        token, over = os.path.join(d, "token"), threading.Event()
        with open(token, "w") as f:
            f.write("t" * 32)
        os.chmod(token, 0o600)
        n = stack.enter_context(node(FAST + f"control: {{listen: '127.0.0.1:0', token_file: {token}}}\n",
                                     control=None))
        headers = {"Authorization": "Bearer " + "t" * 32}
        kept = http.client.HTTPConnection("127.0.0.1", n.port, timeout=40)

        def status():
            kept.request("GET", "/v1/status?now", headers=headers)
            answer = kept.getresponse()
            answer.read()
            return answer.status

        assert status() == 200
        own, strangers = kept.sock, []
        for i in range(700):
            strangers.append(stack.enter_context(connect(n, 60)))
            with contextlib.suppress(OSError):
                strangers[-1].sendall([b"", b"GET /v1/status HTTP/1.1\r\nX: "][i % 2])

        def trickle():
            while not over.wait(2):
                for s in strangers:
                    with contextlib.suppress(OSError):
                        s.send(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:  # they are never silent for as long as ten seconds, so that waiting makes no room
            assert n.ask("/v1/status?now", headers=headers, timeout=40).code == 200
            assert status() == 200 and kept.sock is own
            held = int(re.search(r"beamring_http_connections (\d+)",
                                 n.ask("/metrics", headers=headers, timeout=40).text)[1])
            assert 400 < held <= 512, held
        finally:
            over.set()
            thread.join()
        n.end()


def test_idle_clients_shut_nobody_out():
    """Without a token 600 clients have asked, and go on holding their connections: a new one is answered."""
    with node(FAST) as n, contextlib.ExitStack() as stack:
        held = []
        for _ in range(600):
            held.append(stack.enter_context(connect(n, 60)))
            held[-1].sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
            assert held[-1].recv(1000).startswith(b"HTTP/1.1 "), len(held)
        assert n.ask("/v1/status?now", timeout=40).code == 200
        n.end()


def test_bodies():
    """A body of 1 GB is refused before it is read; one without a length is cut off."""
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        before = resident(n)
        for size in (65537, 1 << 30, 1 << 62):
            with connect(n) as s:
                head = f"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
                s.sendall(head.encode())
                assert s.recv(100).startswith(b"HTTP/1.1 413 "), size
        sent = 0
        with connect(n) as s:
            s.sendall(b"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                while sent < 1 << 30:
                    s.sendall(b"8000\r\n" + b" " * 32768 + b"\r\n")
                    sent += 32768
            except OSError:
                pass
        assert sent < 64 << 20, sent
        assert resident(n) - before < 8 << 20, resident(n) - before
        assert n.status()["state"] == "running" and flows(n)
        ends_well(n)


def test_slow_readers():
    """Scrapes that are asked for and not read hold no stage up: what they would wait for is never locked."""
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        held = []
        for _ in range(100):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", n.port))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            held.append(s)
        assert all(flows(n) for _ in range(3))
        assert n.get("/metrics").code == 200
        for s in held:
            s.close()
        ends_well(n)


def test_clients_that_say_goodbye_at_once():
    """A request, and at once the end of what the client has to say: answered, and soon forgotten."""
    with node(FAST) as n:
        for pause in (0, 0.05):
            for _ in range(20):
                with connect(n) as s:
                    s.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    time.sleep(pause)
                    s.shutdown(socket.SHUT_WR)
                    answer = b""
                    while part := s.recv(4096):  # a connection that is kept for 10 s times out here
                        answer += part
                    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"healthy\n"), answer
        ends_well(n)


def test_requests_that_two_readers_read_differently():
    """A request that a proxy may divide differently is refused, and the bytes behind it are not a request."""
    behind = b"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    head = b"POST /v1/log HTTP/1.1\r\nHost: localhost\r\n"
    chunked = b"\r\n\r\n0\r\n\r\n" + behind
    long = str(len(behind)).encode()
    heads = [b"Content-Length: %s\r\nTransfer-Encoding: chunked" % long, b"Transfer-Encoding: chunked\r\n"
             b"Content-Length: %s" % long, b"Content-Length: 0\r\nContent-Length: %s" % long,
             b"Content-Length: %s\r\nContent-Length: 0" % long, b"Content-Length: 0, %s" % long,
             b"Content-Length: +0", b"Content-Length: 0x0", b"Content-Length: -1", b"Content-Length:",
             b"Content-Length: 18446744073709551616", b"Transfer-Encoding: identity, chunked",
             b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
             b"Transfer-Encoding : chunked\r\nContent-Length: 0", b"Host: 127.0.0.1\r\nContent-Length: 0"]
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        for more in heads:
            with connect(n) as s:
                s.sendall(head + more + chunked)
                got = b""
                with contextlib.suppress(ConnectionResetError):
                    while part := s.recv(65536):
                        got += part
            answers = re.findall(rb"HTTP/1\.[01] (\d+)", got)
            assert set(answers) <= {b"400", b"413"}, (more, got)
        for host in ("[::1]evil", "[::1", "[::1]:", "[::1]:80evil", "[::1]@evil", "127.0.0.1:80@evil.example",
                     "localhost:evil", "localhost.evil", "127.0.0.1.evil", "[127.0.0.1]", "[localhost]",
                     "::1", "[]", "", " ", "localhost,evil", "127.0.0.1 evil"):
            code = n.get("/v1/status", headers={"Host": host}).code
            assert code in (403, 400) or host in ("[::1]:", ), (host, code)
        for host in ("[::1]", "[::1]:80", "localhost", "LOCALHOST:1", "127.0.0.1:65535"):
            assert n.get("/v1/status", headers={"Host": host}).code == 200, host
        assert n.status()["state"] == "running" and flows(n)
        ends_well(n)


SEEDS = [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
         b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n",
         b"GET /v1/log?since=3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
         b"GET /v1/preview?queue=bytes&item=0 HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: http://x\r\n\r\n",
         b'POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{"abort": true}',
         b"POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"2\r\n{}\r\n0\r\n\r\n",
         b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n"]


def mutated(rng):
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randrange(1, 8)):
        at, what = rng.randrange(len(data) + 1), rng.randrange(5)
        if what == 0:
            data[at:at + rng.randrange(1, 9)] = b""
        elif what == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what == 2:
            data[at:at] = rng.choice(SEEDS)[:rng.randrange(1, 60)]
        elif what == 3:
            part = rng.choice([b"A", b"%", b"%00", b"\r\n", b"/", b"0", b"&=", b"\xff"])
            data[at:at] = part * rng.randrange(1, 3000)
        elif at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        data = data or bytearray(b"x")
    return bytes(data)


def test_mutated_requests():
    with node(FAST) as n:
        n.wait_until(lambda s: s["ready"])
        before = resident(n)

        def send(seed):
            rng = random.Random(seed)
            for _ in range(REQUESTS // 4):
                with connect(n) as s:
                    s.settimeout(0.02)
                    try:
                        s.sendall(mutated(rng))
                        s.shutdown(socket.SHUT_WR)
                        s.recv(4096)
                    except OSError:
                        pass

        threads = [threading.Thread(target=send, args=[seed]) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        status = n.status()
        assert status["state"] == "running" and status["restarts"] == 0 and flows(n), status
        grown = resident(n) - before
        keeps = "libasan" in open(f"/proc/{n.process.pid}/maps").read()  # a sanitizer keeps what was freed
        assert keeps or grown < 32 << 20, grown
        answers = {k.split('"')[1]: v for k, v in n.metrics().items() if "http_requests" in k}
        print(f"{REQUESTS} requests, answers by status: {answers}")
        assert "500" not in answers and answers["400"] > 0 and answers["404"] > 0, answers
        ends_well(n)


if __name__ == "__main__":
    harness.main([test_half_open_connections, test_strangers_shut_nobody_out,
                  test_idle_clients_shut_nobody_out, test_bodies, test_slow_readers,
                  test_clients_that_say_goodbye_at_once,
                  test_requests_that_two_readers_read_differently, test_mutated_requests])
