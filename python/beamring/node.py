"""Running nodes, through their control interface (docs/http.md)."""

import http.client
import json
import os
import struct
import time
import urllib.parse

import numpy as np

from ._coding import STORED, bytes_of, decode, stored_shape
from ._errors import NodeError
from ._stream import Stream


class TapFrame:
    """A frame of a running node, a copy: stream, first, samples, raw (stored elements), valid, side, times.

    data: complex64 or float32, times the stream's scale
    every: the node sends every n-th time step of a frame that is larger than 8 MiB; 1: all of them.  shape,
        data, valid and times are those of the steps that came
    skipped: base samples that went by between the frame before and this one, because the program, the
        network, or the bound on copying was too slow
    """

    def __init__(self, document, body, before):
        self.stream, self.first, self.samples = (
            Stream._from_json(document["stream"]),
            document["first"],
            document["samples"],
        )
        s = self.stream
        self.skipped = max(0, self.first - before) if before is not None else 0
        self.every = document["every"]
        shape = self.shape
        self.raw = np.frombuffer(
            body, STORED[s.dtype][0], bytes_of(s.dtype, shape) // STORED[s.dtype][0].itemsize
        )
        self.raw = self.raw.reshape(stored_shape(s.dtype, shape))
        cells = [n for a, n in zip(s.axes, shape) if a in ("time", "freq")]
        at = document["data"]
        self.valid = (
            np.full(cells, 255, np.uint8)
            if document["complete"]
            else np.frombuffer(body, np.uint8, document["valid"], at).reshape(cells)
        )
        at += document["valid"]
        self.side = (
            None
            if s.side is None
            else np.frombuffer(body, STORED[s.side[0]][0], offset=at).reshape(
                stored_shape(s.side[0], s.side[2])
            )
        )

    @property
    def shape(self):
        steps = -(-self.stream.steps(self.first, self.samples) // self.every)
        return tuple(steps if a == "time" else n for a, n in zip(self.stream.axes, self.stream.shape))

    @property
    def data(self):
        values = decode(self.raw, self.stream.dtype, self.shape)
        return values if self.stream.scale == 1 else values * np.float32(self.stream.scale)

    @property
    def times(self):
        return self.stream.times_ns(self.first, self.samples)[:: self.every].astype("datetime64[ns]")


class Dump:
    """A dump of what has passed.  `state` is waiting, writing, done, empty, failed or cancelled; `answer`
    the node's
    reply."""

    def __init__(self, node, answer):
        self.node, self.answer, self.id = node, answer, answer.get("id", answer.get("event_id"))

    @property
    def document(self):
        return self.node._get(f"/v1/dumps?id={self.id}")["dumps"][0]

    @property
    def state(self):
        return self.document["state"]

    def wait(self, timeout_s=60):
        """Until its files are complete.  Returns the dump.  Raises NodeError where it fails, or
        TimeoutError."""
        end = time.monotonic() + timeout_s
        while True:
            document = self.document
            if document["state"] in ("done", "empty"):
                return self
            if document["state"] in ("failed", "cancelled"):
                raise NodeError(
                    f"dump {self.id} {document['state']}: {document.get('reason') or 'it gave no reason'}"
                )
            if time.monotonic() > end:
                raise TimeoutError(f"dump {self.id} is still {document['state']} after {timeout_s} s")
            time.sleep(0.05)

    @property
    def files(self):
        """Paths on the node's machine, in order of frequency."""
        return [c["file"] for c in self.document.get("channels", []) if c.get("file")]

    def open(self, directory=None):
        """The files as one Recording.  directory: where this machine sees them; default: the `directory` of
        the node's
        pipeline, which is relative to the folder where the node was started."""
        from .recording import open as open_recording

        names = self.files
        if not names:
            raise NodeError(f"dump {self.id} has no files: its state is {self.state}")
        if directory is None:
            stages = self.node._get("/v1/config")["pipeline"]
            directory = next((s.get("directory", ".") for s in stages if s.get("stage") == "dump"), ".")
        return open_recording([os.path.join(directory, n) for n in names])


class Node:
    """A running node: `Node("127.0.0.1:8081")`.

    url: its address; token: of its token file, where it has one; timeout_s: for an answer.
    Every method raises NodeError: `code` is the HTTP status, None where the node does not answer.
    """

    def __init__(self, url="127.0.0.1:8081", token=None, timeout_s=10):
        parts = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
        if parts.hostname is None:
            raise NodeError(f"'{url}' is not an address; expected HOST:PORT, such as 127.0.0.1:8081")
        self.address, self._token, self._timeout_s = (parts.hostname, parts.port or 8081), token, timeout_s

    def _ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.address, timeout=self._timeout_s)
        try:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            connection.request(
                method, path, None if body is None else json.dumps(body, default=_plain), headers
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NodeError(
                f"the node at {self.address[0]}:{self.address[1]} does not answer: {error or 'it has gone'}"
            ) from error
        finally:
            connection.close()

    def _json(self, method, path, body=None):
        code, text = self._ask(method, path, body)
        try:
            document = json.loads(text) if text else {}
        except ValueError:
            document = {"error": text.decode(errors="replace")[:500]}
        if code >= 400:
            why = document.get("error") if isinstance(document, dict) else None
            raise NodeError(f"{method} {path}: {why or document}", code)
        return document

    def _get(self, path):
        return self._json("GET", path + ("" if "?" in path else "?now"))

    @property
    def status(self):
        """Where the pipeline is held up and why, with rates: a dict; `status["sentence"]` is for people."""
        return self._get("/v1/status")

    @property
    def stages(self):
        """All counters of the stages: name -> dict."""
        return {s["name"]: s for s in self._get("/v1/stages")["stages"]}

    @property
    def queues(self):
        """All counters of the queues: name -> dict."""
        return {q["name"]: q for q in self._get("/v1/queues")["queues"]}

    @property
    def graph(self):
        return self._get("/v1/graph")

    @property
    def sources(self):
        """The counters of the sources: stage -> {"source 3": {"late": 5, ...}, ...}."""
        return {name: s["counted"] for name, s in self.stages.items() if s["counted"]}

    @property
    def sample(self):
        """The end of the newest frame of any queue, in base samples."""
        return max((q["newest_sample"] for q in self.queues.values()), default=0)

    @property
    def time(self):
        """The same as datetime64[ns]; NaT where nothing has come yet."""
        newest = [q["newest_unix_s"] for q in self.queues.values() if q["newest_unix_s"] is not None]
        return np.datetime64(round(max(newest) * 1e9), "ns") if newest else np.datetime64("NaT", "ns")

    def log(self, since=0):
        """The last messages: dicts (number, unix_s, level, stage, message)."""
        return self._get(f"/v1/log?since={since}")["lines"]

    @property
    def metrics(self):
        """All numbers: (name, ((label, value), ...)) -> float."""
        code, text = self._ask("GET", "/metrics")
        if code != 200:
            raise NodeError(f"GET /metrics: {text.decode(errors='replace')[:500]}", code)
        return _metrics(text.decode())

    def preview(self, queue, item=0, timeout_s=10):
        """The data of a queue, downsampled: a dict with arrays `mean` [item], `waterfall` [time][channel]
        (NaN: missing), `samples` [time] (of the waterfall), `freq_mhz`, and the rest of the node's answer
        (docs/http.md).
        """
        end = time.monotonic() + timeout_s
        while True:
            document = self._get(f"/v1/preview?queue={urllib.parse.quote(queue)}&item={item}")
            if not document.get("pending"):
                break
            if time.monotonic() > end:
                raise TimeoutError(f"queue '{queue}' has published no frame in {timeout_s} s")
            time.sleep(0.05)
        waterfall = document["waterfall"]
        document["waterfall"], document["samples"] = waterfall["power"], np.array(waterfall["sample"])
        for name in ("mean", "waterfall", "freq_mhz", "positions"):
            if document.get(name) is not None:
                document[name] = np.array(document[name], np.float64)
        return document

    def update(self, at=None, id=None, **stages):
        """New values of parameters: `node.update(frb_grid={"gains": "noon.h5"}, at=node.sample + 100_000)`.

        at: a base sample; None: as soon as possible.  Returns the node's answer: its id, and the sample
        from which the values hold.  All or nothing; refused values (NodeError, with the reason) change
        nothing.
        """
        body = {"stages": stages}
        if at is not None:
            body["at"] = {"sample": int(at)}
        if id is not None:
            body["id"] = id
        return self._json("POST", "/v1/update", body)

    @property
    def updates(self):
        return self._get("/v1/updates")

    def dump(self, start="earliest", **request):
        """Writes what has passed: `node.dump(start=t, duration_s=0.01, dm=20, freq_ref_mhz=600)`.

        start: datetime64 or its text, integer ns since 1970, {"sample": N}, or "earliest"; the other keys
        are those of the request (docs/voltage-beams.md).  Returns a Dump.
        """
        if isinstance(start, str) and start != "earliest":
            start = np.datetime64(start)
        if isinstance(start, np.datetime64):
            start = int(start.astype("datetime64[ns]").astype(np.int64))
        request["start"] = {"time_ns": int(start)} if isinstance(start, (int, np.integer)) else start
        return Dump(self, self._json("POST", "/v1/dump", request))

    def stop(self, abort=False):
        """Drains the pipeline, or ends it at once."""
        return self._json("POST", "/v1/stop", {"abort": bool(abort)})

    def restart(self, abort=False):
        """Reads the pipeline's file again and starts it."""
        return self._json("POST", "/v1/restart", {"abort": bool(abort)})

    def tap(self, queue, every=1, frames=None, rate_hz=50, timeout_s=None):
        """Iterates over frames of a queue of the running node: TapFrame after TapFrame.

        every: of the frames that come, hand out every n-th.  frames: end after so many.  rate_hz: at most
        so many requests a second.  timeout_s: raise TimeoutError where no frame has come for so long.
        Of a frame larger than 8 MiB come every n-th time steps (`every`).  A queue of zones that have
        different time steps raises NodeError.
        A frame that this program is too slow for is skipped, and counted in the next one (`skipped`); the
        node never waits.  Ends when the pipeline has ended; raises NodeError when the node goes away.
        """
        if every < 1:
            raise ValueError(f"every: {every}; expected 1 or more")
        where = f"/v1/tap?queue={urllib.parse.quote(queue)}"
        before, came, given, waited = None, 0, 0, time.monotonic()
        start = self.queues.get(queue, {}).get("newest_sample", 0)
        while frames is None or given < frames:
            began = time.monotonic()
            code, body = self._ask("GET", f"{where}&from={before if before is not None else start}")
            if code == 409 and (came or self.status["state"] in ("stopped", "failed", "draining")):
                return
            if code >= 400 and code != 503:  # slow clients hold the memory: later
                raise NodeError(f"tap of '{queue}': {json.loads(body)['error']}", code)
            if code == 200:
                length = struct.unpack_from("<Q", body)[0]
                document = json.loads(body[8 : 8 + length])
                if len({zone["downsample"] for zone in document["stream"]["zones"]}) > 1:
                    raise NodeError(
                        f"tap of '{queue}': its zones have different time steps; expected a queue "
                        "whose steps are equal, such as that behind frb_grid"
                    )
                frame = TapFrame(document, memoryview(body)[8 + length :], before)
                before, waited = frame.first + frame.samples, time.monotonic()
                came += 1
                if (came - 1) % every == 0:
                    given += 1
                    yield frame
                    continue
            elif self.status["state"] in ("stopped", "failed"):
                return
            elif timeout_s is not None and time.monotonic() - waited > timeout_s:
                raise TimeoutError(f"queue '{queue}' has published no frame in {timeout_s} s")
            time.sleep(max(0.0, 1 / rate_hz - (time.monotonic() - began)))

    def __repr__(self):
        return f"<beamring.Node {self.address[0]}:{self.address[1]}>"


def _metrics(text):
    import re

    found = {}
    for name, labels, value in re.findall(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", text, re.M):
        found[name, tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))] = float(value)
    return found


def _plain(value):
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
