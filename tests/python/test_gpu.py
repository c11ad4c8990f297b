"""Frames of a GPU, as other packages take them: by address, shape, type and stream. On a machine without a
GPU the descriptions are looked at, with memory of the host in its place; CUDA itself must be there for the
rest."""
import ctypes

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
    owner = type("Owner", (), {"cuda_stream": 77})()
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
        made.data.__dlpack__(stream=5)
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


def test_a_stage_on_a_gpu():
    """Copies its frames on the stage's stream, through the driver alone."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("there is no CUDA driver")
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        pytest.skip("there is no GPU")

    class Copies(br.Stage):
        cuda = True
        devices = set()

        def process(self, field, out):
            self.devices.add(self.device)
            if self.device < 0:
                out.data[...] = field.data
                return
            size = int(np.prod(field.shape))
            to, source = ctypes.c_uint64(out.data.ptr), ctypes.c_uint64(field.data.ptr)
            stream = ctypes.c_void_p(self.cuda_stream)
            assert cuda.cuMemcpyDtoDAsync_v2(to, source, ctypes.c_size_t(size), stream) == 0
    text = TELESCOPE + """
stream: {sample_ns: 2560, epoch_ns: 0, freq_mhz: [400, 401], sideband: upper}
pipeline:
  - {stage: simulate, out: field, samples: 8192, seed: 3, frame_samples: 1024}
  - {stage: python, class: Copies, in: field, out: copy}
"""
    try:
        result = br.Pipeline(text).run(collect=["field", "copy"])
    except br.ConfigError as error:
        pytest.skip(str(error))
    if Copies.devices == {-1}:
        pytest.skip("this beamring was built without CUDA")
    assert np.array_equal(result["copy"].data, result["field"].data)
