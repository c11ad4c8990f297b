"""Recordings of others: played by `replay` in this process, frame by frame."""

import os

import numpy as np

from ._errors import ConfigError, FormatError
from .recording import Block, Recording


def open_files(files, format, stream, telescope, replay):
    from .pipeline import Pipeline, _Run

    document = {"pipeline": [dict({"stage": "replay", "out": "recording", "files": list(files)}, **replay)]}
    if format is not None:
        document["pipeline"][0]["format"] = format
    if stream is not None:
        document["stream"] = dict(stream)
    if isinstance(telescope, dict):
        document["telescope"] = telescope
    elif telescope is not None:
        document["include"] = os.fspath(telescope)
    pipeline = Pipeline(document)
    spans = _Spans()
    try:  # one pass over headers and data: only the times and the validity are kept
        _Run(pipeline, (), False, lambda message: None, {"recording": spans}).go()
    except ConfigError as error:
        raise FormatError("\n".join(m.text for m in error.mistakes)) from None
    if spans.stream is None or spans.stream.downsample is None or spans.stream.packets:
        raise FormatError(
            "these files hold packets, or zones; run a pipeline with `unpack` behind `replay`, "
            "and collect its output"
        )
    source = _Source(pipeline, spans.frames)
    blocks = [
        Block(
            first,
            samples,
            0,
            len(spans.stream.freqs_mhz),
            lambda i=i: source.load(i),
            _rows(spans.stream, first, samples, valid),
        )
        for i, (first, samples, valid) in enumerate(spans.frames)
    ]
    recording = Recording(spans.stream, blocks, list(files))
    recording._before_read = source
    return recording


def _rows(stream, first, samples, valid):
    from .recording import _weights

    return lambda: _weights(stream, first, samples, valid)


class _Spans:
    """The frames' places, without their data."""

    def __init__(self):
        self.stream, self.frames = None, []

    def take(self, frame):
        self.frames.append((frame.first, frame.samples, None if frame.complete else np.array(frame.valid)))


class _Source:
    """Plays the recording again up to the frames that are wanted; keeps the last ones."""

    KEPT = 8

    def __init__(self, pipeline, frames):
        self.pipeline, self.frames, self.kept = pipeline, frames, {}

    def load(self, i):
        from .pipeline import _Run

        if i not in self.kept:
            taker = _Window(i, min(len(self.frames), i + self.KEPT))
            _Run(self.pipeline, (), False, lambda message: None, {"recording": taker}).go()
            self.kept = taker.kept
        return self.kept[i]


class _Window:
    def __init__(self, begin, end):
        self.begin, self.end, self.number, self.kept = begin, end, 0, {}

    def take(self, frame):
        if self.number >= self.begin:
            self.kept[self.number] = np.array(frame.data)
        self.number += 1
        return self.number >= self.end
