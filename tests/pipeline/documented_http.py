"""docs/http.md and docs/http-steering.md against a node: every request that the program has is on a page, and
every answer has the names and types of the page. `--write` writes the pages' answers anew."""
import contextlib
import json
import os
import re
import socket
import sys

import harness
from control_common import node
from wires_common import free_port

PAGES = [os.path.join(harness.CONFIG, "..", "docs", name) for name in ("http.md", "http-steering.md")]
TITLE = re.compile(r"^##+ (?=(?:GET|POST|DELETE) /)", re.M)
PIPELINE = """telescope: {name: example, grid: {m: 2, n: 2}, spacing_m: {m: 8, n: 6},
  dishes: [[0, 0], [0, 1], [1, 0], [1, 1]], latitude_deg: 49.3, longitude_deg: -119.6}
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 0.1953125, count: 4}}
pipeline:
  - {stage: simulate, duration_s: 3600, frame_samples: 4096, realtime: true, out: field}
  - {stage: flag, in: field, out: clean}
  - {stage: frb_grid, in: clean, out: grid, integrate: 256}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: filterbank, in: beams, directory: "fil_{run}"}
  - {stage: dump, in: {from: field, history: {seconds: 0.5}}, directory: events}
  - {stage: packetize, in: field, format: packets, packet: BOARD, destinations: [{address: "127.0.0.1:PORT"}]}
  - {stage: capture, packet: BOARD, addresses: "127.0.0.1:PORT", frame_samples: 4096, out: packets}
  - {stage: record, in: packets, format: sources, directory: "sources_{run}", prefix: lacking}
"""
BOARD = """bytes: 8208
fields: {seq: {offset: 0, bytes: 8}, board: {offset: 8, bytes: 8}}
sequence: {fields: seq}
source: {fields: board}
payload: {offset: 16, axes: [time, freq, pol, dish], lengths: [256, 4, 2, 4]}
coding: {values: twos_complement, real: high}
sideband: upper
sources: {count: 1}
"""
NAMED_BY_DATA = {"lost", "counted", "files"}  # maps whose keys are the node's own
OPTIONAL = {"finished_ns", "finished", "reason", "latency_s"}  # of what has ended, or has had data


def sections():
    """[(method, path, request's body, expected code or None, the page's answer or None)]"""
    found = []
    for section in (one for page in PAGES for one in TITLE.split(open(page).read())[1:]):
        section = section.split("\n## ")[0]
        method, path = section.splitlines()[0].split()
        blocks = re.findall(r"(Request|Answer (\d+)):\n(?:```json\n(.*?)```)?", section, re.S)
        body = next((text for name, _, text in blocks if name == "Request"), None)
        code, text = next(((int(c), t) for name, c, t in blocks if name != "Request"), (None, None))
        found.append((method, path, body, code, json.loads(text) if text else None))
    return found


def kind(value):
    return "bool" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else \
        type(value).__name__


def compare(page, got, at):
    """Names and types agree; null agrees with everything, an empty list with every list."""
    if page is None or got is None:
        return
    assert kind(page) == kind(got), f"{at}: {kind(page)} on the page, {kind(got)} from the node"
    if isinstance(page, list) and page and got and isinstance(page[0], dict) and isinstance(got[0], dict):
        merged = [{k: v for one in reversed(all_of) for k, v in one.items()} for all_of in (page, got)]
        compare(*merged, at + "[]")
    elif isinstance(page, list) and page and got:
        compare(page[0], got[0], at + "[]")
    elif isinstance(page, dict) and at.rsplit(".", 1)[-1] not in NAMED_BY_DATA:
        assert (page.keys() ^ got.keys()) <= OPTIONAL, \
            f"{at}: {sorted(page)} on the page, {sorted(got)} from the node"
        for key in page.keys() & got.keys():
            compare(page[key], got[key], f"{at}.{key}")


def short(value):
    """Lists cut to the items that bring something new."""
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if not isinstance(value, list) or not value:
        return value
    kept, seen = [], set()
    for one in value:
        new = set(one) - seen if isinstance(one, dict) else set()
        if not kept or new or (not isinstance(one, dict) and len(kept) < 3):
            kept.append(short(one))
            seen |= new
    return kept


def pretty(value, indent=0, room=130):
    """JSON on as few lines as the page's width allows."""
    flat = json.dumps(value)
    if len(flat) + indent <= room or not isinstance(value, (dict, list)) or not value:
        return flat
    pad, lines = " " * (indent + 1), []
    items = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    for key, one in items:
        name = "" if key is None else json.dumps(key) + ": "
        lines.append(name + pretty(one, indent + 1, room - len(name)))
    left, right = "{}" if isinstance(value, dict) else "[]"
    return left + (",\n" + pad).join(lines) + right


def write(path, answer):
    """Puts an answer into its page, behind "Answer CODE:" of its section."""
    method, where = path
    block = f"```json\n{pretty(short(answer))}\n```\n"
    head = rf"(## {re.escape(method)} {re.escape(where)}\n(?:(?!## ).)*?Answer \d+:\n)"
    pattern, written = head + "(?:```json\n.*?```\n)?", 0
    for page in PAGES:
        text, n = re.subn(pattern, lambda m: m[1] + block, open(page).read(), count=1, flags=re.S)
        written += n
        with open(page, "w") as f:
            f.write(text)
    assert written == 1, path


def wait_for_end(n):
    """Until the dump has ended."""
    n.wait_until(lambda _: n.get("/v1/dumps").json["dumps"][0]["state"] in ("done", "failed", "empty"))


@contextlib.contextmanager
def example(**more):
    with harness.scratch() as d:
        path = os.path.join(d, "board.yaml")
        with open(path, "w") as f:
            f.write(BOARD)
        text = PIPELINE.replace("BOARD", path).replace("PORT", str(free_port(socket.SOCK_DGRAM)))
        with node(text, **more) as n:
            yield n


def test_answers(writes=False):
    with example(command="serve") as n:
        n.wait_until(lambda s: s["ready"] and all(q["frames_per_s"] > 0 for q in s["graph"]["queues"]))
        for method, path, body, code, page in sections():
            if path == "/v1/boards":
                n.wait_until(lambda _: n.get(path).json["boards"])
            if path == "/v1/preview?queue=beams":
                n.get(path)  # the first request asks the stage's thread for it
                n.wait_until(lambda _: "pending" not in n.get(path).json)
            if path == "/v1/tap?queue=beams":
                n.wait_until(lambda _: n.get(path).code == 200)
            answer = n.ask(path, method, body)
            assert code is None or answer.code == code, (method, path, answer.code, answer.text)
            if code is None:
                assert answer.code == 200 and answer.body, (method, path, answer.code)
            elif writes:
                write((method, path), answer.json)
            else:
                assert page is not None, f"{method} {path}: the page has no answer"
                compare(page, answer.json, f"{method} {path}")
            if path == "/v1/dump":
                wait_for_end(n)
            if path == "/v1/restart":
                n.wait_until(lambda s: s["restarts"] == 1 and s["ready"])
        n.end(status=0)


def test_every_request_is_documented():
    with example() as n:
        answer = n.get("/nothing")
        assert answer.code == 404
        there = set(re.findall(r"\b(GET|POST|DELETE) (/\S*)", answer.text))
        assert len(there) > 20, answer.text
        known = {(method, re.sub(r"(?<=/v1/updates/).*", "", path.split("?")[0]))
                 for method, path, *_ in sections()}
        clean = {(method, re.sub(r"[\"',;:]+$", "", path)) for method, path in there}
        assert clean == known, (clean ^ known)
        n.end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        test_answers(writes=True)
    else:
        if not os.path.exists(PAGES[0]):
            print("skipped: no documents here")
            sys.exit(77)
        harness.main([test_answers, test_every_request_is_documented])
