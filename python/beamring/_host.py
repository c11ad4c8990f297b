"""Called by the extension (src/stage.c): classes, their objects, and the calls of a running pipeline.

A function that fails returns a text for the user, which names script and line."""

import gc
import importlib.util
import os
import sys
import threading
import time
import traceback
import weakref

from . import _core, _cuda, stage as stages
from ._stream import Stream

_scripts = {}  # path -> (time of change, classes)
_live = {}  # address of the C struct -> _Runner
_local = threading.local()
_here = os.path.dirname(os.path.abspath(__file__))


def explain(error):
    """'script.py:12: in process: ZeroDivisionError: division by zero': the innermost line that is the
    user's."""
    place = ""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
    for line in traceback.extract_tb(error.__traceback__):
        if not os.path.abspath(line.filename).startswith(_here + os.sep) and "importlib" not in line.filename:
            place = f"{line.filename}:{line.lineno}: in {line.name}: "
    return f"{place}{type(error).__name__}: {error}"


def _guarded(function):
    def call(*args):
        try:
            return function(*args)
        except BaseException as error:  # also SystemExit: a script must not end the program
            return explain(error)

    return call


def _classes(script):
    """The stages that a script defines; it is read again when it has changed."""
    if script is None:
        return stages._registry
    path = os.path.abspath(script)
    changed = os.stat(path).st_mtime_ns
    if path in _scripts and _scripts[path][0] == changed:
        return _scripts[path][1]
    before = dict(stages._registry)
    stages._registry.clear()
    try:
        name = "beamring_script_" + os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None:
            raise ImportError(f"'{script}' is not a Python file; expected NAME.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = {name: cls for name, cls in stages._registry.items() if cls.__module__ == module.__name__}
    finally:
        stages._registry.clear()
        stages._registry.update(before)
    _scripts[path] = changed, found
    return found


def _class(script, name):
    classes = _classes(script)
    where = f"'{script}'" if script else "this program"
    names = ", ".join(sorted(n for n in classes if not n.startswith("_"))) or "none"
    if name is None:
        if script is None:
            raise LookupError(
                "expected `script:` with a file, or `class:` with a stage of the program that runs this"
            )
        if len(classes) != 1:
            raise LookupError(
                f"{where} defines {len(classes)} stages ({names}); expected `class:` with one of them"
            )
        return next(iter(classes.values()))
    if name not in classes:
        raise LookupError(f"{where} has no stage '{name}'; it has {names}")
    return classes[name]


@_guarded
def spec_of(script, name):
    cls = _class(script, name)
    doc = (cls.__doc__ or cls.__name__).strip().split("\n", 1)
    port = lambda names, what: tuple((n, f"{what} of class {cls.__name__}") for n in names)
    params = tuple(cls._params())
    for one in params:
        if one[0] in ("stage", "name", "in", "out", "device", "affinity", "script", "class", "timeout_s"):
            raise ValueError(
                f"parameter '{one[0]}' of class {cls.__name__}: every stage has this key already"
            )
    known = {one[0] for one in params}
    for name in cls.updates:
        if name not in known:
            raise ValueError(f"class {cls.__name__}: updates names '{name}', which is not a parameter")
    if len(cls.inputs) > 4 or len(cls.outputs) > 4 or not (cls.inputs or cls.outputs):
        raise ValueError(f"class {cls.__name__}: expected 1 to 4 inputs or outputs")
    return (
        cls.__name__,
        doc[0],
        doc[1].strip() if len(doc) > 1 else None,
        params,
        port(cls.inputs, "input"),
        port(cls.outputs, "output"),
        tuple(cls.updates),
        bool(cls.cuda),
    )


def types_of(script, name):
    return tuple(one[1] for one in _class(script, name)._params())


class Timeout(TimeoutError):
    def __str__(self):
        return "the call takes longer than timeout_s of the stage allows"


class _Runner:
    """One stage of a pipeline: the user's object, and what its calls need."""

    def __init__(self, cls, key, pointer, name, device, values, streams, timeout_s):
        self.user = user = cls.__new__(cls)
        user.name, user.device, user._stage, user._other_streams = name, device, pointer, set()
        self.names = [one[0] for one in cls._params()]
        for param, value in zip(self.names, values):
            setattr(user, param, value)
        user.__init__()
        self.inputs, self.key, self.timeout_s = streams, key, timeout_s
        self.failure, self.since, self.thread, self.done = None, 0.0, 0, threading.Event()
        made = user.configure(*streams)
        made = () if made is None else (made,) if isinstance(made, Stream) else tuple(made)
        if len(made) != len(cls.outputs) or not all(isinstance(one, Stream) for one in made):
            raise TypeError(f"configure returned {made!r}; expected {len(cls.outputs)} beamring.Stream")
        self.outputs = made
        self.base = streams[0] if streams else None

    def process(self, ins, outs):
        try:
            return self._process(ins, outs)
        except BaseException as error:
            self.failure = error
            return explain(error)
        finally:
            self.since = 0.0

    def _process(self, ins, outs):
        user = self.user
        make = lambda streams, raw, writable: [
            None if r is None else stages.Frame(s, r, writable, user.device, user)
            for s, r in zip(streams, raw)
        ]
        inputs, outputs = make(self.inputs, ins, False), make(self.outputs, outs, True)
        self.thread, self.since = threading.get_ident(), time.monotonic()
        drained = bool(self.inputs) and all(frame is None for frame in inputs)
        if drained:
            result = stages.PRODUCED if user.finish(*outputs) else stages.FINISHED
        else:
            result = user.process(*inputs, *outputs)
        self.since = 0.0
        while user._other_streams:  # what comes next reads, or fills anew, what these work on
            _cuda.order(user._other_streams.pop(), user.cuda_stream)
        if result is None:
            result = stages.CONSUMED | stages.PRODUCED
        if not isinstance(result, int):
            raise TypeError(
                f"process returned {result!r}; expected None, or an OR of CONSUMED, PRODUCED and FINISHED"
            )
        if result & stages.PRODUCED:
            first = next((frame for frame in inputs if frame is not None), None)
            for frame in outputs:
                if not 0 < frame.samples <= frame.stream.frame_samples:
                    raise ValueError(
                        f"an output spans {frame.samples} base samples; expected 1 to "
                        f"{frame.stream.frame_samples}, the length of its frames"
                    )
                if first is not None:
                    frame._follow(first)
                elif not frame._written:
                    frame._complete = True
        said = tuple(None if f is None else (f.first, f.samples, f._complete) for f in outputs)
        self._bury(inputs + outputs, ins, outs)
        return result, said

    def _bury(self, frames, ins, outs):
        """The frames' memory goes on to others: whoever still holds an array would see other data."""
        watched = []
        for frame in frames:
            if frame is not None:
                watched += [weakref.ref(made) for made in frame._made.values()]
                frame._made, frame._raw, frame._data, frame._valid, frame._side = {}, None, None, None, None
        if any(ref() is not None for ref in watched):
            gc.collect()
            if any(ref() is not None for ref in watched):
                _core.ask(self.user._stage, "keep_memory")
                raise stages.DeadFrame(
                    f"class {type(self.user).__name__} keeps an array of a frame after `process`, "
                    "whose memory goes on to other data; keep a copy (numpy.array(frame.data))"
                )

    def watch(self):
        """Ends a call that takes too long, where Python still runs."""
        import ctypes

        while not self.done.wait(min(self.timeout_s / 4, 1.0)):
            since = self.since
            if since and time.monotonic() - since > self.timeout_s:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.thread), ctypes.py_object(Timeout)
                )


@_guarded
def configure(key, pointer, script, name, values, streams, called, device, timeout_s):
    cls = _class(script, name)
    runner = _Runner(
        cls, key, pointer, called, device, values, [Stream._from_json(s) for s in streams], timeout_s
    )
    _live[key] = runner
    if hasattr(_local, "keys"):
        _local.keys.append(key)
    base = runner.base if runner.base is not None else Stream()
    return tuple(stream._to_json(base) for stream in runner.outputs)


@_guarded
def start(key, cuda_stream):
    runner = _live[key]
    runner.user.cuda_stream = cuda_stream
    try:
        runner.user.start()
    except BaseException as error:
        runner.failure = error
        raise
    if runner.timeout_s > 0:
        threading.Thread(target=runner.watch, daemon=True).start()
    runner.method = runner.process
    return runner.method


@_guarded
def stop(key, _):
    runner = _live.pop(key, None)
    if runner is None:
        return None
    runner.done.set()
    if hasattr(_local, "failures") and runner.failure is not None:
        _local.failures.append(runner.failure)
    try:
        if hasattr(runner, "method"):
            runner.user.stop()
    except BaseException as error:
        if hasattr(_local, "failures"):
            _local.failures.append(error)
        raise
    finally:
        runner.__dict__.pop("method", None)
        if sys.stdout is not None:
            sys.stdout.flush()
    return None


def commit(key, fresh, sample):
    running, new = _live[key].user, _live[fresh].user
    names = [name for name in type(running).updates if getattr(new, name) != getattr(running, name)]
    for name in names:
        setattr(running, name, getattr(new, name))
    try:
        running.update(names, sample)
    except Exception as error:
        running.warn("update: " + explain(error))


class scope:
    """Objects that a pipeline of this thread makes are dropped at its end; `failures` are the exceptions of
    its stages."""

    def __enter__(self):
        _local.keys, _local.failures = [], []
        self.failures = _local.failures
        return self

    def __exit__(self, *_):
        for key in _local.keys:
            runner = _live.pop(key, None)
            if runner is not None:
                runner.done.set()
        del _local.keys, _local.failures
