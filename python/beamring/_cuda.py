"""Order among the streams of a GPU, by the driver's library, which every machine with a GPU has."""

import ctypes

_driver = None
_NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING


def _call(name, *args):
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
    code = getattr(_driver, name)(*args)
    if code != 0:
        raise RuntimeError(f"{name} failed with CUDA's error {code}")


def order(before, after):
    """Work enqueued on the stream `after` from now on waits for the work that is on the stream `before` now.
    The host does not wait.  Streams are numbers (1 and 2: the two default streams) of the thread's current
    device.  Raises RuntimeError."""
    event = ctypes.c_void_p()
    _call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(_NO_TIMES))
    try:
        _call("cuEventRecord", event, ctypes.c_void_p(before))
        _call("cuStreamWaitEvent", ctypes.c_void_p(after), event, ctypes.c_uint(0))
    finally:
        _call("cuEventDestroy_v2", event)
