"""Frames of a GPU, as other packages take them: by address, shape, type and stream. On a machine without a
GPU the descriptions are looked at, with memory of the host in its place; CUDA itself must be there for the
rest."""
import ctypes
import threading
import time

import numpy as np
import pytest

import beamring as br
from beamring.stage import DeviceArray, Frame
from conftest import TELESCOPE


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


@pytest.fixture
def frame():
    stream = br.Stream(dtype="int8x2", axes=("time", "freq"), shape=(4, 3), frame_samples=4, epoch_ns=0,
                       sample_ns=1, freqs_mhz=np.arange(3.0), widths_mhz=np.ones(3), downsample=1, scale=1,
                       sideband=None, beams=None, side=None, zones=[])
    memory = np.arange(24, dtype=np.int8)
    owner = type("Owner", (), {"cuda_stream": 77, "_other_streams": set()})()
    made = Frame(stream, (8, 4, True, memory.ctypes.data, None, None), False, 2, owner)
    return made, memory


def test_the_array_interface(frame):
    made, memory = frame
    assert isinstance(made.data, DeviceArray)
    said = made.data.__cuda_array_interface__
    assert said == {"shape": (4, 3, 2), "typestr": "|i1", "data": (memory.ctypes.data, True), "version": 3,
                    "strides": None, "stream": 77}


def test_dlpack(frame):
    made, memory = frame
    assert made.data.__dlpack_device__() == (2, 2)
    with pytest.raises(BufferError, match="stream"):
        made.data.__dlpack__(stream=0)
    capsule = made.data.__dlpack__(stream=77)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = Tensor.from_address(pointer(capsule, b"dltensor"))
    assert (tensor.data, tensor.device_type, tensor.device_id) == (memory.ctypes.data, 2, 2)
    assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (3, 0, 8, 1)
    assert list(tensor.shape[:3]) == [4, 3, 2] and tensor.strides is None


def test_a_dead_frame_gives_no_address(frame):
    array = frame[0].data
    frame[0]._raw = None
    with pytest.raises(br.DeadFrame):
        array.__cuda_array_interface__


def test_streams_are_ordered_both_ways(frame, monkeypatch):
    """Without a GPU: which order is asked for.  Whether it holds, the gate shows on one."""
    asked = []
    monkeypatch.setattr(br._cuda, "order", lambda before, after: asked.append((before, after)))
    made, _ = frame
    for stream in (None, 77, -1, 5, 2):
        made.data.__dlpack__(stream=stream)
    assert asked == [(77, 1), (77, 5), (77, 2)] and made._owner._other_streams == {1, 5, 2}

    class Other(br.Stage):
        def process(self, field, out):
            self.cuda_stream = 77
            self._other_streams.add(5)
            out.data[...] = field.data

    del asked[:]
    text = field(1024) + "  - {stage: python, class: Other, in: field, out: copy}\n"
    br.Pipeline(text).run(collect=["copy"])
    assert asked == [(5, 77)]


def field(samples):
    return TELESCOPE + f"""
stream: {{sample_ns: 2560, epoch_ns: 0, freq_mhz: [400, 401], sideband: upper}}
pipeline:
  - {{stage: simulate, out: {{name: field, depth: {DEPTH}}}, samples: {samples}, frame_samples: 1024}}
"""


@pytest.fixture
def cuda():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("there is not a CUDA driver")
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        pytest.skip("there is not a GPU")

    class Ends(br.Stage):
        cuda, outputs = True, ()

    try:
        br.Pipeline(field(1024) + '  - {stage: python, class: Ends, device: "cuda:0", in: field}\n').check()
    except br.ConfigError as error:
        if "built without CUDA" not in str(error):
            raise
        pytest.skip("the package was built without CUDA")
    return driver


class Gate:
    """A word of memory that a stream waits for."""

    def __init__(self, driver):
        self.driver, host, self.device = driver, ctypes.c_void_p(), ctypes.c_uint64()
        assert driver.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(64), ctypes.c_uint(2)) == 0  # mapped
        assert driver.cuMemHostGetDevicePointer_v2(ctypes.byref(self.device), host, ctypes.c_uint(0)) == 0
        self.word = ctypes.c_uint32.from_address(host.value)
        self.word.value = 0

    def block(self, stream):
        code = self.driver.cuStreamWaitValue32_v2(ctypes.c_void_p(stream), self.device, ctypes.c_uint32(1),
                                                  ctypes.c_uint(0))
        assert code == 0, code


def copy(driver, out, field, stream):
    size = ctypes.c_size_t(int(np.prod(field.shape)))
    to, source = ctypes.c_uint64(out.data.ptr), ctypes.c_uint64(field.data.ptr)
    assert driver.cuMemcpyDtoDAsync_v2(to, source, size, ctypes.c_void_p(stream)) == 0


DEPTH = 6


@pytest.mark.parametrize("where", ["stage", "dlpack"])
def test_no_host_waits_and_streams_are_ordered(cuda, where):
    """The gated-stream test of the stages in C.  The stream of the stage, or another one that DLPack has
    handed the frames to, is blocked: the host enqueues and publishes frames until the queue is full, and none
    comes out.  When the gate opens, all are right."""
    opened, seen = threading.Event(), []

    class Gated(br.Stage):
        cuda = True
        gate, calls, other = None, 0, None

        def process(self, field, out):
            if self.device < 0:
                raise RuntimeError("not on a GPU")
            stream = self.cuda_stream
            if where == "dlpack":
                if Gated.other is None:
                    Gated.other = ctypes.c_void_p()
                    assert cuda_driver.cuStreamCreate(ctypes.byref(Gated.other), ctypes.c_uint(1)) == 0
                stream = Gated.other.value
                field.data.__dlpack__(stream=stream), out.data.__dlpack__(stream=stream)
            if Gated.gate is None:
                Gated.gate = Gate(cuda_driver)
                Gated.gate.block(stream)
            copy(cuda_driver, out, field, stream)
            Gated.calls += 1

    class Sees(br.Stage):
        outputs = ()

        def process(self, frame):
            seen.append(opened.is_set())

    cuda_driver, result = cuda, []
    text = field(64 * 1024) + f"""
  - {{stage: python, class: Gated, name: gated, device: "cuda:0", in: field,
     out: {{name: copy, depth: {DEPTH}}}}}
  - {{stage: python, class: Sees, name: sees, in: copy}}
"""
    pipeline = br.Pipeline(text)
    run = threading.Thread(target=lambda: result.append(pipeline.run(collect=["field", "copy"])))
    run.start()
    end = time.monotonic() + 60
    while Gated.calls < DEPTH and run.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    calls, early = Gated.calls, len(seen)
    opened.set()
    if Gated.gate is not None:
        Gated.gate.word.value = 1
    run.join(60)
    assert calls >= DEPTH and early == 0, (calls, early)
    assert all(seen) and len(seen) == 64
    assert np.array_equal(result[0]["copy"].data, result[0]["field"].data)


def test_cupy_takes_frames(cuda):
    """By DLPack on CuPy's own stream, and by its own way on the stage's."""
    cupy = pytest.importorskip("cupy")

    class Doubles(br.Stage):
        cuda = True

        def process(self, field, out):
            source, to = cupy.from_dlpack(field.data), cupy.from_dlpack(out.data)
            cupy.bitwise_xor(source, 0x55, out=to)

    class Again(br.Stage):
        cuda = True

        def process(self, field, out):
            with cupy.cuda.ExternalStream(self.cuda_stream):
                cupy.bitwise_xor(field.data.cupy(), 0x55, out=out.data.cupy())

    text = field(64 * 1024) + """
  - {stage: python, class: Doubles, name: doubles, device: "cuda:0", in: field, out: changed}
  - {stage: python, class: Again, name: again, device: "cuda:0", in: changed, out: copy}
"""
    result = br.Pipeline(text).run(collect=["field", "changed", "copy"])
    assert np.array_equal(result["copy"].raw, result["field"].raw)
    assert np.array_equal(result["changed"].raw, result["field"].raw ^ 0x55)
