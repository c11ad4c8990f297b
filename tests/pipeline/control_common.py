"""Nodes with a control interface, for tests: started, asked, ended."""
import base64
import contextlib
import http.client
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time

import harness

PROGRAM = os.path.abspath(harness.PROGRAM)
# A sink that takes 10 ms a frame: the pipeline runs until it is asked to end.
ENDLESS = """pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: bytes}
  - {stage: t_pass, name: pass, in: bytes, out: passed}
  - {stage: t_sink, name: slow, pause_us: 10000, in: passed}
"""


class Answer:
    def __init__(self, response):
        self.code, self.headers, self.body = response.status, dict(response.getheaders()), response.read()

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class Node:
    """A running `beamring run` or `serve` with `--control 127.0.0.1:0`, whose stages have started if it
    `starts`; .url is where it listens."""

    def __init__(self, directory, text, *args, command="run", control="127.0.0.1:0", env=None,
                 starts=True, program=PROGRAM):
        self.directory, self.lines, self.port = directory, [], None
        path = os.path.join(directory, "node.yaml")
        with open(path, "w") as f:
            f.write(text)
        more = ["--control", control] if control else []
        out = open(os.path.join(directory, "stdout"), "w")
        words = [program, command, "node.yaml", *more, *args]
        self.process = subprocess.Popen(words, cwd=directory, text=True,
                                        stdout=out, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        out.close()
        self._new = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = self.wait_for_line("control: http://", 30)
        self.host, port = re.search(r"http://(.*):(\d+)/", line).groups()
        self.port = int(port)
        with contextlib.suppress(OSError):  # it may be over
            while starts and (answer := self.get("/v1/status?now")).code == 200 and \
                    answer.json["state"] == "starting":
                time.sleep(0.01)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            self._new.put(None)
        self._new.put(None)

    @property
    def err(self):
        return "\n".join(self.lines)

    def wait_for_line(self, words, seconds=30):
        end, seen = time.time() + seconds, 0
        while True:
            while seen < len(self.lines):
                if words in self.lines[seen]:
                    return self.lines[seen]
                seen += 1
            assert time.time() < end and (self._reader.is_alive() or seen < len(self.lines)), \
                f"'{words}' did not come: {self.err}"
            with contextlib.suppress(queue.Empty):
                self._new.get(timeout=0.2)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path, method="GET", body=None, headers=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask(path, **more)

    def post(self, path, body=None, **more):
        return self.ask(path, "POST", body, **more)

    def status(self):
        answer = self.get("/v1/status?now")  # with a query it is never an answer from before
        assert answer.code == 200, answer.text
        return answer.json

    def wait_until(self, condition, seconds=30, what="the condition"):
        """Asks for the status until it satisfies the condition; returns it."""
        end = time.time() + seconds
        while True:
            status = self.status()
            if condition(status):
                return status
            assert time.time() < end, f"{what} did not come true: {json.dumps(status)}"
            time.sleep(0.02)

    def stage(self, name, status=None):
        return next(s for s in (status or self.status())["graph"]["stages"] if s["name"] == name)

    def metrics(self):
        """{name{labels}: value}"""
        values = {}
        for line in self.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in values, f"twice: {name}"
                values[name] = float(value)
        return values

    def end(self, status=130, sign=signal.SIGTERM, seconds=30):
        if self.process.poll() is None and sign is not None:
            self.process.send_signal(sign)
        got = self.process.wait(seconds)
        self._reader.join(5)
        self.out = open(os.path.join(self.directory, "stdout")).read()
        assert got == status, f"exit {got}, expected {status}: {self.err}\n{self.out}"
        return self.out


@contextlib.contextmanager
def node(text, *args, **more):
    """A node in a directory of its own; whatever happens, it is gone in the end."""
    with harness.scratch() as directory:
        n = Node(directory, text, *args, **more)
        try:
            yield n
        finally:
            if n.process.poll() is None:
                n.process.kill()
            n.process.wait()


def basic(token):
    return {"Authorization": "Basic " + base64.b64encode(f"operator:{token}".encode()).decode()}
