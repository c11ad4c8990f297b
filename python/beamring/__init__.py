"""beamring: recordings as arrays, pipelines, stages in Python, running nodes.

    import beamring as br
    r = br.open("rec/field_*.dada")                # lazy; r.data, r.times, r.freqs_mhz, r.valid
    out = br.Pipeline("frb.yaml").run(collect=["beams"])
    node = br.Node("127.0.0.1:8081")               # node.sample, node.tap("beams"), node.update(...)

docs/python.md of the project tells more.
"""

import os as _os

from ._program import beside as _beside, path as program

# The telescopes and packets of this package's own tree, which pipelines include by name.
_config = _beside("share", "beamring", "config")
if _config and _config not in _os.environ.get("BEAMRING_CONFIG_PATH", ""):
    _os.environ["BEAMRING_CONFIG_PATH"] = ":".join(
        filter(None, [_os.environ.get("BEAMRING_CONFIG_PATH"), _config])
    )

from . import _core  # noqa: E402
from ._coding import decode, encode  # noqa: E402
from ._errors import ConfigError, DeadFrame, Error, FormatError, Mistake, NodeError, RunError  # noqa: E402
from ._stream import Stream  # noqa: E402
from .node import Node  # noqa: E402
from .pipeline import Graph, Pipeline, Result  # noqa: E402
from .recording import Recording, open  # noqa: E402
from .stage import CONSUMED, FINISHED, PRODUCED, DeviceArray, Frame, Stage, param, stage  # noqa: E402

__all__ = [
    "open",
    "Recording",
    "Pipeline",
    "Graph",
    "Result",
    "Stage",
    "stage",
    "param",
    "Frame",
    "DeviceArray",
    "Stream",
    "Node",
    "decode",
    "encode",
    "CONSUMED",
    "PRODUCED",
    "FINISHED",
    "Error",
    "ConfigError",
    "RunError",
    "FormatError",
    "NodeError",
    "DeadFrame",
    "Mistake",
    "program",
]
