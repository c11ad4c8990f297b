"""Stages in Python: see docs/python.md."""

import inspect
import typing

import numpy as np

from . import _core, _cuda
from ._coding import STORED, bytes_of, decode, encode, stored_shape
from ._errors import DeadFrame
from ._stream import Stream

CONSUMED, PRODUCED, FINISHED = 1, 2, 4

#: classes that were defined in this program, by name; scripts have tables of their own
_registry = {}

# enum br_param_type (runtime/param.h)
_BOOL, _INT, _REAL, _STRING, _CHOICE, _PATH = 0, 1, 2, 3, 4, 5
_INTS, _REALS, _STRINGS = 7, 8, 9
_TYPES = {
    bool: _BOOL,
    int: _INT,
    float: _REAL,
    str: _STRING,
    list[int]: _INTS,
    list[float]: _REALS,
    list[str]: _STRINGS,
}


class param:
    """A parameter of a stage: `integrate: int = beamring.param(256, "samples to sum", min=1)`.

    default: its value (none: the user must give it); help: one line; unit: "MHz", ...; min, max: inclusive;
    choices: the texts that are allowed; path: a text is a file's name.
    """

    def __init__(self, default=..., help="", *, unit=None, min=None, max=None, choices=(), path=False):
        self.default, self.help, self.unit, self.choices, self.path = (
            default,
            help,
            unit,
            tuple(choices),
            path,
        )
        bounded = min is not None or max is not None
        self.min = float(min if min is not None else -1e15) if bounded else 0.0
        self.max = float(max if max is not None else 1e15) if bounded else 0.0

    def _schema(self, name, kind):
        if kind not in _TYPES:
            raise TypeError(
                f"parameter '{name}' has the type {kind!r}; expected bool, int, float, str, or a list of "
                "int, float or str"
            )
        code = _CHOICE if self.choices else _PATH if self.path else _TYPES[kind]
        missing = self.default is ... or self.default is None
        text = None if missing else _yaml(self.default)
        return (
            name,
            code,
            self.help or name,
            self.unit,
            text,
            self.default is ...,
            self.min,
            self.max,
            self.choices,
        )


def _yaml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value)


class Frame:
    """One frame of an input or output; it lives as long as `process` runs.

    data: a NumPy array of the queue's own memory, in the stored dtype (int4x2: uint8; int8x2 and int32x2: a
        last axis of 2; int4: flat bytes), read-only for an input.  On a GPU: a DeviceArray.
    valid: uint8 [time][freq], or [freq][time] where freq is slower (flat, zone by zone, where zones
        differ): 255 complete, 0 missing.  Reading it of a complete
        input gives an array of 255.  That of an output begins with 255; where it is never asked for, it
        follows the first input.
    side: the second array of the frame, or None
    first, samples: base samples that it spans; complete: nothing is missing
    times: datetime64[ns] of the beginning of each time step
    """

    def __init__(self, stream, raw, writable, device, owner):
        self.stream, self._raw, self._writable, self._device, self._owner = (
            stream,
            raw,
            writable,
            device,
            owner,
        )
        self.first, self.samples, self._complete, self._data, self._valid, self._side = raw
        self._written = False
        self._made = {}

    def _alive(self):
        if self._raw is None:
            raise DeadFrame(
                "this frame ended with the call of `process` that it was for; copy what is needed longer "
                "(numpy.array(frame.data))"
            )

    @property
    def shape(self):
        """Lengths of the axes of this frame; a short frame has fewer time steps."""
        steps = self.stream.steps(self.first, self.samples)
        return tuple(steps if a == "time" else n for a, n in zip(self.stream.axes, self.stream.shape))

    def _array(self, name, memory, dtype, shape):
        if self._device >= 0 and name != "valid":
            return self._made.setdefault(name, DeviceArray(memory, dtype, stored_shape(dtype, shape), self))
        if name not in self._made:
            whole = np.frombuffer(memory, STORED[dtype][0])
            self._made[name] = whole
        array = self._made[name]
        wanted = stored_shape(dtype, shape)
        return array[: int(np.prod(wanted, dtype=np.int64))].reshape(wanted)

    @property
    def data(self):
        self._alive()
        if self.stream.downsample is None:
            raise ValueError(
                "the zones of this stream have different time steps, so that a frame is not one array; "
                "use frame.parts"
            )
        return self._array("data", self._data, self.stream.dtype, self.shape)

    @property
    def parts(self):
        """The arrays of the zones, in order; one where all zones have the same time steps."""
        self._alive()
        if self.stream.downsample is not None:
            return [self.data]
        parts, at = [], 0
        for zone in self.stream.zones:
            down = zone["downsample"]
            steps = -(-(self.first + self.samples) // down) - self.first // down
            shape = tuple(
                {"time": steps, "freq": zone["nchannels"]}.get(a, n)
                for a, n in zip(self.stream.axes, self.stream.shape)
            )
            size = bytes_of(self.stream.dtype, shape)
            whole = self._made.setdefault("data", np.frombuffer(self._data, np.uint8))
            parts.append(
                whole[at : at + size]
                .view(STORED[self.stream.dtype][0])
                .reshape(stored_shape(self.stream.dtype, shape))
            )
            at += size
        return parts

    @property
    def side(self):
        self._alive()
        return (
            None
            if self._side is None
            else self._array("side", self._side, self.stream.side[0], self.stream.side[2])
        )

    @property
    def _cells(self):
        if self.stream.downsample is None:
            end = self.first + self.samples
            return (
                sum(
                    (-(-end // z["downsample"]) - self.first // z["downsample"]) * z["nchannels"]
                    for z in self.stream.zones
                ),
            )
        shape = dict(zip(self.stream.axes, self.shape))
        order = [a for a in self.stream.axes if a in ("time", "freq")]
        return tuple(shape[a] for a in order)

    @property
    def valid(self):
        self._alive()
        if self._writable and (not self._written or self._complete):
            self._written, self._complete = True, False
            self._array("valid", self._valid, "uint8", self._cells)[...] = 255
        elif not self._writable and self._complete:
            return np.broadcast_to(np.uint8(255), self._cells)
        return self._array("valid", self._valid, "uint8", self._cells)

    @property
    def complete(self):
        return self._complete

    @complete.setter
    def complete(self, value):
        self._alive()
        self._complete, self._written = bool(value), True

    @property
    def times(self):
        return self.stream.times_ns(self.first, self.samples).astype("datetime64[ns]")

    def decoded(self):
        """The data as complex64 or float32, a copy: stored values, without the stream's scale."""
        return decode(self.data, self.stream.dtype, self.shape)

    def encode(self, values):
        """Writes numbers into an output, rounded and clamped to its dtype."""
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(
                f"the output is {self.stream.axes} {self.shape}; the values have the shape {values.shape}"
            )
        self.data[...] = encode(values, self.stream.dtype)

    def _follow(self, source):
        """Validity by that of an input: a step has the mean of the steps that it covers."""
        if self._written or source is None:
            return
        if source._complete:
            self._complete = True
            return
        mine = self._cells
        if len(mine) == 1:
            if mine != source._cells:
                raise ValueError("the zones of input and output differ; set the output's `valid`")
            self._array("valid", self._valid, "uint8", mine)[...] = source.valid
            self._complete = False
            return
        order = [a for a in self.stream.axes if a in ("time", "freq")]
        other = [a for a in source.stream.axes if a in ("time", "freq")]
        valid = source.valid if order == other else source.valid.T
        theirs = valid.shape
        if any(t % m for t, m in zip(theirs, mine)):
            raise ValueError(
                f"validity {theirs} of the input does not divide into that of the output, {mine}; set "
                "the output's `valid`"
            )
        groups = valid.reshape(mine[0], theirs[0] // mine[0], mine[1], theirs[1] // mine[1])
        mean = groups.mean(axis=(1, 3))
        rounded = np.clip(np.rint(mean), mean > 0, np.where(mean < 255, 254, 255))
        self._array("valid", self._valid, "uint8", mine)[...] = rounded
        self._complete = False


#: DLPack's numbers: CUDA's default stream of old, and a consumer who sees to the order himself
_LEGACY, _NO_ORDER = 1, -1


class DeviceArray:
    """An array in a GPU's memory, on the stage's stream: for CuPy, PyTorch, JAX, Numba by
    `__cuda_array_interface__` or DLPack.  Work on it belongs on `stage.cuda_stream`, and needs no wait.  A
    stream for which DLPack has handed the array out is ordered behind the stage's, and the stage's behind
    what `process` has enqueued on it."""

    def __init__(self, address, dtype, shape, frame):
        self.shape, self.dtype, self._address, self._frame = shape, STORED[dtype][0], address, frame

    @property
    def ptr(self):
        self._frame._alive()
        return self._address

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, not self._frame._writable),
            "version": 3,
            "strides": None,
            "stream": self._frame._owner.cuda_stream,
        }

    def __dlpack_device__(self):
        return 2, self._frame._device

    def __dlpack__(self, *, stream=None, **_):
        owner, stream = self._frame._owner, _LEGACY if stream is None else stream
        if stream == 0:
            raise BufferError("stream 0 is ambiguous; expected 1, 2, -1 or an address")
        if stream not in (_NO_ORDER, owner.cuda_stream) and self.ptr:
            _cuda.order(owner.cuda_stream, stream)
            owner._other_streams.add(stream)
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        return _core.dlpack(self.ptr, self._frame._device, code, self.dtype.itemsize * 8, self.shape, self)

    def cupy(self):
        """The array as CuPy's, on the same memory."""
        import cupy

        memory = cupy.cuda.UnownedMemory(self.ptr, int(np.prod(self.shape)) * self.dtype.itemsize, self)
        return cupy.ndarray(self.shape, self.dtype, cupy.cuda.MemoryPointer(memory, 0))


class Stage:
    """A stage of a pipeline.  Derive a class; each `name: type = param(...)` is a parameter.

    inputs, outputs: names of the ports (class attributes; () for a source or a sink)
    updates: names of the parameters that a running node may change
    cuda: True where it can work on a GPU's memory
    """

    inputs = ("in",)
    outputs = ("out",)
    updates = ()
    cuda = False

    #: the stage's name in the pipeline; its GPU, -1 for the CPU; the GPU's stream, a number
    name, device, cuda_stream = "?", -1, 0
    _stage, _other_streams = 0, frozenset()

    def __init_subclass__(cls, **keys):
        super().__init_subclass__(**keys)
        for port in ("inputs", "outputs", "updates"):
            value = getattr(cls, port)
            setattr(cls, port, (value,) if isinstance(value, str) else tuple(value))
        _registry[cls.__name__] = cls

    @classmethod
    def _params(cls):
        hints, found = typing.get_type_hints(cls), {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, param):
                    found[name] = value
            for name in vars(base).get("__annotations__", {}):
                if base is not Stage and name not in found and not name.startswith("_"):
                    default = getattr(cls, name, ...)
                    if default is ... or isinstance(default, (bool, int, float, str, list, tuple)):
                        found[name] = param(default)
        return [value._schema(name, hints.get(name, type(value.default))) for name, value in found.items()]

    def configure(self, *inputs):
        """Streams in -> stream (or tuple of streams) out.  The default: frames are mapped one to one."""
        if not self.outputs:
            return ()
        if not inputs:
            raise NotImplementedError("a source must have `configure`, which returns a Stream")
        return tuple(inputs[0] for _ in self.outputs)

    def start(self):
        """Called before the first frame; the place for files and tables."""

    def process(self, *frames):
        """Inputs, then outputs: each a Frame, an input that has ended is None.  Returns None (done with the
        inputs,
        outputs are filled), or an OR of beamring.CONSUMED, PRODUCED, FINISHED."""
        raise NotImplementedError("a stage must have `process`")

    def finish(self, *outputs):
        """Called when all inputs have ended.  Returns True if it has filled the outputs; then it is called
        again."""
        return False

    def update(self, names, sample):
        """Called when new values of these parameters hold, from a base sample on."""

    def stop(self):
        """Called after the last frame, also when the run has failed."""

    def note(self, text):
        """A line for the user."""
        _core.say(self._stage, "note", str(text))

    def warn(self, text):
        """A warning for the user."""
        _core.say(self._stage, "warn", str(text))

    def trouble(self, text=None):
        """A present problem, which the node's status shows until the next call; None: it is over."""
        _core.say(self._stage, "trouble", text)

    @property
    def stopping(self):
        """True once sources shall end."""
        return _core.ask(self._stage, "stopping")


def stage(out, step=1, *, updates=()):
    """Makes a stage of a function: `@beamring.stage(out="f32 [time][freq][dish]", step=256)`.

    out: dtype and axes of the output, whose lengths are those of the input; "[beam 4]" gives a length.
    step: base samples of an output's time step.
    The function gets `step` time steps of the input at a time, decoded (complex64 or float32), with the
    axes of the input, and returns the values of one time step, with the axes of the output without time.
    """
    words = out.replace("[", " [").split(" [")
    dtype, named = words[0].strip(), [w.strip(" ]").split() for w in words[1:]]

    def make(function):
        def configure(self, stream):
            lengths = dict(zip(stream.axes, stream.shape))
            if step % stream.downsample or stream.frame_samples % step:
                raise ValueError(
                    f"step: {step} base samples; expected a multiple of the input's {stream.downsample} "
                    f"that divides its frames of {stream.frame_samples}"
                )
            lengths.update({word[0]: int(word[1]) for word in named if len(word) > 1})
            lengths["time"] = stream.frame_samples // step
            axes = [word[0] for word in named]
            return stream.like(dtype, axes, [lengths[a] for a in axes], downsample=step, scale=1)

        def process(self, field, result):
            values, each = field.decoded(), step // field.stream.downsample
            time, made = field.stream.axes.index("time"), result.stream.axes.index("time")
            blocks = range(0, values.shape[time], each)
            steps = [function(values[(slice(None),) * time + (slice(i, i + each),)]) for i in blocks]
            result.encode(np.stack(steps, made))

        return type(
            function.__name__,
            (Stage,),
            {
                "__doc__": inspect.getdoc(function) or function.__name__,
                "__module__": function.__module__,
                "configure": configure,
                "process": process,
                "updates": updates,
                "function": staticmethod(function),
            },
        )

    return make
