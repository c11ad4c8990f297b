"""Pipelines in this process: the same code and the same bytes as `beamring run`."""

import json
import os
import sys
import threading
import warnings

import numpy as np

from . import _core, _host
from ._errors import ConfigError, RunError
from ._stream import Stream
from .recording import Recording
from .stage import CONSUMED, FINISHED, PRODUCED, Stage


class _Sink(Stage):
    """Hands the frames of a queue to the program that runs the pipeline."""

    outputs = ()
    taker: int
    _takers = {}

    def configure(self, stream):
        self._takers[self.taker].stream = stream

    def process(self, frame):
        return CONSUMED | (FINISHED if self._takers[self.taker].take(frame) else 0)


class _Collector:
    """Copies of a queue's frames."""

    def __init__(self):
        self.stream, self.frames = None, []

    def take(self, frame):
        valid = None if frame.complete else np.array(frame.valid)
        side = None if frame.side is None else np.array(frame.side)
        self.frames.append(
            (frame.first, frame.samples, [np.array(part) for part in frame.parts], valid, side)
        )


class Message:
    """A line of the log: level ("note", "warning", "error"), stage (or None), text."""

    def __init__(self, level, stage, text):
        self.level, self.stage, self.text = level, stage, text

    def __repr__(self):
        level = "" if self.level == "note" else self.level + ": "
        return f"{self.stage + ': ' if self.stage else ''}{level}{self.text}"


class Graph:
    """What `check` returns.  stages: dicts (name, stage, device, memory); queues: name -> Queue; memory:
    bytes on
    host, locked and device."""

    def __init__(self, document):
        self.stages, self.memory = document["stages"], document["memory"]
        self.queues = {}
        for queue in document["queues"]:
            stream = self.queues[queue["name"]] = Stream._from_json(queue.pop("stream"))
            stream.__dict__.update(queue)

    def __repr__(self):
        return "\n".join(
            f"{q.name}: {q.dtype} "
            + "".join(f"[{a} {n}]" for a, n in zip(q.axes, q.shape))
            + f"  {q.__dict__['from']} -> {', '.join(q.readers)}"
            for q in self.queues.values()
        )


class Result:
    """What `run` returns.  stats: the counters, as `--stats` of the program writes them; balanced: whether
    every sample is accounted for; messages: the log; interrupted: it was stopped before its end.
    `result["beams"]` is the
    Recording that was collected."""

    def __init__(self, status, stats, messages, collected):
        self.stats, self.messages, self.interrupted, self._collected = (
            stats,
            messages,
            status == 130,
            collected,
        )
        self.balanced = bool(stats and stats.get("balanced"))

    def __getitem__(self, queue):
        return self._collected[queue]

    def keys(self):
        return self._collected.keys()

    @property
    def balance(self):
        """Per stage: base samples in, out and lost (by reason)."""
        return {
            s["name"]: {"in": s["in_samples"], "out": s["out_samples"], "lost": s["lost"]}
            for s in self.stats["stages"]
        }


def _pipe_lines(read, take):
    """Reads lines of a pipe to its end, in a thread."""

    def work():
        with os.fdopen(read, errors="replace") as lines:
            for line in lines:
                take(line)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class _Outlets:
    """The three descriptors of one call: the log as it comes, mistakes, a document."""

    def __init__(self, on_message):
        self.messages, self._on_message = [], on_message
        self.errors, self.document = [], []
        pipes = [os.pipe() for _ in range(3)]
        takers = (self._take_log, self.errors.append, self.document.append)
        self.fds = [write for _, write in pipes]
        self._threads = [_pipe_lines(read, taker) for (read, _), taker in zip(pipes, takers)]

    def _take_log(self, line):
        try:
            entry = json.loads(line)
        except ValueError:
            return
        message = Message(entry.get("level"), entry.get("stage"), entry.get("message", ""))
        self.messages.append(message)
        self._on_message(message)

    def close(self):
        for fd in self.fds:
            os.close(fd)
        for thread in self._threads:
            thread.join(2)  # one that is left behind may hold its end of the pipe


def _wants_progress():
    kernel = "ipykernel" in sys.modules
    return kernel or (sys.stderr is not None and sys.stderr.isatty())


class Pipeline:
    """A pipeline: a path, a text in YAML, or a dict.

    A `str` with a line break or a colon-and-blank, or one that does not name a file, is a text.
    """

    def __init__(self, pipeline):
        self._set, self._text = [], None
        if isinstance(pipeline, dict):
            self._name, self._text = "pipeline", json.dumps(pipeline, default=_plain)
        elif isinstance(pipeline, os.PathLike) or ("\n" not in pipeline and os.path.exists(pipeline)):
            self._name = os.fspath(pipeline)
        elif "\n" in pipeline or ": " in pipeline:
            self._name, self._text = "pipeline", pipeline
        else:
            self._name = pipeline

    def set(self, key, value):
        """`set("frb_grid.integrate", 512)`, as `--set` of the program.  Returns the pipeline."""
        self._set.append(f"{key}={json.dumps(value, default=_plain)}")
        return self

    def _arguments(self, more):
        return (self._name, self._text, json.dumps(more) if more else None, self._set)

    def check(self):
        """The graph with shapes and memory; nothing starts.  Raises ConfigError with all mistakes."""
        outlets = _Outlets(lambda message: None)
        with _host.scope():
            status = _core.check(*self._arguments([]), *outlets.fds)
        outlets.close()
        if status != 0:
            raise ConfigError("".join(outlets.errors))
        return Graph(json.loads("".join(outlets.document)))

    def run(self, collect=(), progress=None, on_message=None):
        """Runs the pipeline to its end.

        collect: names of queues whose frames are copied and returned as recordings
        progress: whether a line shows how far it is; default: in a terminal and in a notebook
        on_message: called with each Message; default: warnings become Python's warnings
        Returns a Result.  Raises ConfigError (all mistakes of the file) or RunError (the failure, the log,
        the counters).  KeyboardInterrupt drains the pipeline; a second one aborts it.  The first one is
        raised
        again when all has ended.
        """
        return _Run(self, collect, progress, on_message).go()


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


class _Run:
    def __init__(self, pipeline, collect, progress, on_message, takers=None):
        self.pipeline, self.handle = pipeline, _core.open()
        self.takers = takers or {
            queue: _Collector() for queue in ([collect] if isinstance(collect, str) else collect)
        }
        self.progress = _wants_progress() if progress is None else progress
        self.outlets = _Outlets(on_message or self._warn)
        self.status, self.failures, self.error = None, [], None

    def _warn(self, message):
        if message.level == "warning":
            warnings.warn(repr(message), stacklevel=2)

    def _work(self, more):
        try:
            with _host.scope() as scope:
                self.status = _core.run(self.handle, *self.pipeline._arguments(more), *self.outlets.fds)
                self.failures = scope.failures
        except BaseException as error:
            self.error = error

    def go(self):
        more = []
        for queue, taker in self.takers.items():
            _Sink._takers[id(taker)] = taker
            more.append(
                {
                    "stage": "python",
                    "class": "_Sink",
                    "name": f"collect {queue}",
                    "in": queue,
                    "taker": id(taker),
                    "device": "cpu",
                }
            )
        thread = threading.Thread(target=self._work, args=(more,), name="beamring")
        interrupt = self._wait(thread)
        if self.progress:
            sys.stderr.write("\r" + " " * 100 + "\r")
        self.outlets.close()
        for taker in self.takers.values():
            _Sink._takers.pop(id(taker), None)
        if self.error is not None:
            raise self.error
        if interrupt is not None:
            raise interrupt
        return self._conclude()

    def _wait(self, thread):
        """Until the run has ended; the first interrupt drains, the second aborts."""
        interrupt = None
        thread.start()
        while thread.is_alive():
            try:
                thread.join(0.25 if self.progress else 1.0)
                if self.progress and thread.is_alive():
                    sys.stderr.write("\r" + _core.progress(self.handle).ljust(100)[:100])
                    sys.stderr.flush()
            except KeyboardInterrupt as error:
                _core.stop(self.handle, interrupt is not None)
                interrupt = error
        return interrupt

    def _conclude(self):
        text = "".join(self.outlets.document)
        stats = json.loads(text) if text else None
        if self.status == 2:
            raise ConfigError(
                "".join(self.outlets.errors)
                or "\n".join(m.text for m in self.outlets.messages if m.level == "error")
            )
        if self.status not in (0, 130):
            errors = [repr(m).replace("error: ", "", 1) for m in self.outlets.messages if m.level == "error"]
            text = "\n".join(errors + [line.strip() for line in self.outlets.errors]) or "the run failed"
            raise RunError(text, self.outlets.messages, stats) from (
                self.failures[0] if self.failures else None
            )
        collected = {
            queue: Recording._from_frames(taker.stream, taker.frames)
            for queue, taker in self.takers.items()
            if isinstance(taker, _Collector)
        }
        return Result(self.status, stats, self.outlets.messages, collected)
