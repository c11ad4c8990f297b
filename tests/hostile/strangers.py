"""A node and its strangers: random requests, from correct ones to noise, and clients that take their time.
Meanwhile a client that knows the node is answered, and the node ends when it is asked to."""
import contextlib
import json
import os
import select
import socket
import time

import small
from common import check, COUNTS, mutated, Process

NODE = small.TELESCOPE + small.STREAM + """
journal: journal.jsonl
control: {listen: "127.0.0.1:0"}
pipeline:
  - {stage: simulate, samples: 100000000000, seed: 7, out: e, frame_samples: 256}
  - {stage: dump, in: {from: e, history: {seconds: 0.05}}, directory: dumps, max_dumps: 4, max_wait_s: 5}
  - {stage: flag, in: e, out: f}
  - {stage: frb_grid, in: f, out: i, integrate: 16}
  - {stage: frb_beams, in: i, out: j, beams: {grid: [2, 2], spacing_deg: 0.3}}
  - {stage: quantize, in: j, out: q, bits: 8, block: 64}
  - {stage: filterbank, in: {from: q, policy: drop}, directory: fil, overwrite: true, beams: [0]}
"""
DUMP = {"id": 1, "start": "earliest", "duration_s": 0.001, "dm": 0.1, "freq_ref_mhz": 600, "channels": [0],
        "dishes": [0], "format": "dada", "directory": "a"}
KOTEKAN = {"event_id": 2, "start_unix_seconds": -1, "start_unix_nano": 0, "duration_nano": 300000, "dm": 0.1,
           "dm_error": 0, "file_path": "x"}
UPDATE = {"id": "u", "at": {"sample": 100000}, "stages": {"frb_grid": {"threshold": 0.4},
                                                           "flag": {"bad_inputs": [1], "power": [2, 40]},
                                                           "frb_beams": {"beams": {"grid": [2, 2],
                                                                                   "spacing_deg": 0.1}}}}
GETS = ["/", "/metrics", "/-/healthy", "/-/ready", "/v1/status", "/v1/graph", "/v1/stages", "/v1/queues",
        "/v1/config", "/v1/log?since=0", "/v1/preview?queue=e", "/v1/preview?queue=q&item=1", "/v1/updates",
        "/v1/boards", "/v1/dumps", "/v1/dumps?id=1", "/baseband", "/baseband?event_id=2"]
POSTS = [("POST", "/v1/dump", DUMP), ("POST", "/baseband", KOTEKAN), ("POST", "/v1/update", UPDATE),
         ("POST", "/v1/dump/cancel", {"id": 1}), ("POST", "/v1/log", {"level": "warning"}),
         ("DELETE", "/v1/updates/u", None), ("POST", "/v1/restart", {"abort": False})]
VALUES = [0, -1, 1, 2**31, 2**53, 2**63 - 1, -2**63, 1e308, -1e-308, True, None, "", "x", "x" * 5000, [], {},
          [0] * 300, "../../etc", "/etc/passwd", "${HOME}", "\x00", "\ud800", {"sample": -1}, [[[]]], "nan"]
HEADERS = [b"Host: localhost", b"Host: evil.example", b"Content-Length: 5", b"Content-Length: -1",
           b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Connection: close",
           b"Connection: Upgrade", b"Expect: 100-continue", b"Accept: application/openmetrics-text",
           b"Authorization: Basic AAAA", b"Origin: http://evil.example", b"Range: bytes=0-1",
           b"X: " + b"y" * 40000,
           b"Cookie: \xff\xfe", b"Content-Type: application/json", b" folded: x"]


def other_value(rng, document):
    """Somewhere in it another value, another key, or nothing."""
    place = document
    while isinstance(place, dict) and place and rng.random() < 0.7:
        key = rng.choice(list(place))
        if isinstance(place[key], dict) and rng.random() < 0.7:
            place = place[key]
            continue
        kind = rng.randrange(4)
        if kind == 0:
            del place[key]
        elif kind == 1:
            place[str(rng.choice(VALUES))[:50]] = place[key]
        else:
            place[key] = rng.choice(VALUES)
        break
    return document


def request(rng):
    """Bytes of one."""
    if rng.random() < 0.4:
        method = rng.choice((b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"X" * 300))
        path, body = rng.choice(GETS), b""
    else:
        verb, path, document = rng.choice(POSTS)
        method, body = verb.encode(), b"" if document is None else json.dumps(
            other_value(rng, json.loads(json.dumps(document)))).encode()
        if rng.random() < 0.2:
            body = mutated(rng, body)
    headers = [b"Host: localhost", b"Content-Length: %d" % len(body)]
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        headers.append(rng.choice(HEADERS))
    data = method + b" " + path.encode() + b" HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body
    return mutated(rng, data) if rng.random() < 0.3 else data


def answer(port, path, patience_s=60):
    """The node's answer to a client that knows it."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        got = b""
        while part := s.recv(1 << 20):
            got += part
    check(got.startswith(b"HTTP/1.1 "), "no answer to", path, got[:200])
    return int(got.split()[1]), got.partition(b"\r\n\r\n")[2]


def known_is_answered(node, port):
    try:
        code, body = answer(port, "/v1/status?now")
        check(code == 200 and json.loads(body)["state"], code, body[:300])
    except (OSError, ValueError) as error:
        node.poll()
        check(False, f"a client is not answered: {error}; exit {node.returncode}\n{node.log()[-3000:]}")


def requests(rng, d):
    """120 connections with one or more requests each; some leave in the middle."""
    with open(os.path.join(d, "p.yaml"), "w") as f:
        f.write(NODE)
    node = Process(d, "serve", "p.yaml")
    port, = node.ports(1)
    for n in range(120):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as s:
            for _ in range(rng.choice((1, 1, 1, 5))):
                data = request(rng)
                s.sendall(data[:rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)
                COUNTS["requests"] += 1
            how = rng.randrange(4)
            if how == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif how == 1:
                s.shutdown(socket.SHUT_WR)
            if how != 0 and select.select([s], [], [], 0.02)[0]:
                s.recv(1 << 20)
        COUNTS["connections"] += 1
        check(node.poll() is None, f"the node has ended: {node.returncode}\n{node.log()[-3000:]}")
        if n % 20 == 19:
            known_is_answered(node, port)
    for path in GETS:
        code, _ = answer(port, path)
        check(code in (200, 400, 404, 409, 503), path, code)
    node.stopped((0, 1, 130), "the node that was asked")


def slow(rng, d):
    """Clients that send a few bytes a second, or never read what they asked for: 100 of them."""
    with open(os.path.join(d, "p.yaml"), "w") as f:
        f.write(NODE)
    node = Process(d, "serve", "p.yaml")
    port, = node.ports(1)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(100):
            with contextlib.suppress(OSError):
                s = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                s.setblocking(False)
                clients.append([s, request(rng) * rng.choice((1, 50))])
                COUNTS["slow clients"] += 1
        end = time.time() + 1 + rng.random()
        while time.time() < end:
            for client in clients:
                n = rng.choice((0, 0, 1, 2, 3, 1000))
                with contextlib.suppress(OSError):
                    sent = client[0].send(client[1][:n])
                    client[1] = client[1][sent:]
            known_is_answered(node, port)
    node.stopped((0, 1, 130), "the node of slow clients")
