"""Stages in Python: in this process, and in the program."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import beamring as br
from conftest import HEAD, SOURCE, program, same

POWER = '''
import numpy as np, beamring

class Power(beamring.Stage):
    """power of each dish

    Sums over both polarisations."""
    integrate: int = beamring.param(256, "samples to sum", unit="samples", min=1, max=4096)
    kind: str = beamring.param("mean", "which", choices=["mean", "sum"])

    def configure(self, field):
        return field.like("f32", ("time", "freq", "dish"), downsample=self.integrate, scale=1)

    def process(self, field, out):
        power = np.abs(field.decoded()) ** 2
        steps = power.reshape(-1, self.integrate, *power.shape[1:])
        out.data[...] = getattr(steps, self.kind)(axis=(1, 3))
'''
#: Most processor time of a frame, over that of a stage in C.  The rest of the machine takes caches away.
COST_US = 100
THREE = SOURCE.replace("samples: 20000", "samples: 12288")


def with_stage(stage, source=THREE):
    return source + f"  - {{stage: python, in: field, out: power, {stage}}}\n"


def run(cls, source=THREE, more="", collect=("power",), **keys):
    """A class of this program."""
    return br.Pipeline(with_stage(f"class: {cls.__name__}{more}", source)).run(collect=list(collect), **keys)


def test_a_script_in_the_program_and_here():
    with open("mine.py", "w") as file:
        file.write(POWER)
    with open("p.yaml", "w") as file:
        file.write(
            with_stage("script: mine.py, integrate: 256") + "  - {stage: record, in: power, prefix: power}\n"
        )
    result = br.Pipeline("p.yaml").run(collect=["power", "field"])
    here = open("power_000000.dada", "rb").read()
    e = result["field"]
    want = (np.abs(e.data) ** 2).reshape(-1, 256, 4, 2, 6).mean(axis=(1, 3))
    assert same(result["power"].data, want) and result["power"].shape == (48, 4, 6)
    # a step has the validity of its samples
    valid = result["power"].valid
    assert (
        valid[19].max() < 255 and valid[0].min() == 255 and valid[20].max() < 255 and valid[18].min() == 255
    )
    os.remove("power_000000.dada"), os.remove("power_000000.dada.gaps")
    done = program("run", "p.yaml")
    assert done.returncode == 0, done.stderr
    assert open("power_000000.dada", "rb").read() == here
    said = program("stages", "mine.py").stdout
    assert "Power - power of each dish" in said and "integrate" in said and "samples to sum" in said


@pytest.mark.parametrize(
    "keys, words",
    [
        ("integrat: 256", "p.yaml:\\d+:\\d+: unknown key 'integrat'.*did you mean 'integrate'"),
        (
            "integrate: 0",
            "p.yaml:\\d+:\\d+: integrate: '0' is out of range; expected a whole number from 1 to 4096",
        ),
        ("kind: median", "p.yaml:\\d+:\\d+: kind: .*mean.*sum"),
        ("integrate: 100", "p.yaml:\\d+:\\d+: .*100-sample steps"),
        ("class: Sum", "p.yaml:\\d+:\\d+: class|script: .*'mine.py' has no stage 'Sum'; it has Power"),
    ],
)
def test_parameters_are_checked_like_those_of_any_stage(keys, words):
    with open("mine.py", "w") as file:
        file.write(POWER)
    with open("p.yaml", "w") as file:
        file.write(with_stage("script: mine.py, " + keys) + "  - {stage: record, in: power, prefix: power}\n")
    with pytest.raises(br.ConfigError, match=words):
        br.Pipeline("p.yaml").check()


@pytest.mark.parametrize(
    "text, words",
    [
        ("import nothing_of_this_name\n", "bad.py:1: .*ModuleNotFoundError"),
        ("x = (\n", "bad.py:1: SyntaxError"),
        ("x = 1\n", "defines 0 stages"),
        ("import sys\nsys.exit(3)\n", "bad.py:2: .*SystemExit"),
        (POWER.replace("integrate: int", "integrate: dict"), "parameter 'integrate' has the type"),
        (
            POWER.replace("return field.like", "1 / 0; return field.like"),
            r"bad.py:\d+: in configure: ZeroDivisionError",
        ),
        (POWER.replace("return field.like", "field.like"), "expected 1 beamring.Stream"),
        (POWER.replace('"f32", (', '"f33", ('), "there is no element type 'f33'"),
        (
            POWER.replace('("time", "freq", "dish")', '("time", "freq", "antenna")'),
            "the length of axis 'antenna'",
        ),
        (POWER.replace("    kind:", "    out: int = 3\n    kind:"), "every stage has this key already"),
    ],
)
def test_scripts_that_cannot_be_stages(text, words):
    with open("bad.py", "w") as file:
        file.write(text)
    with open("p.yaml", "w") as file:
        file.write(with_stage("script: bad.py") + "  - {stage: record, in: power, prefix: power}\n")
    with pytest.raises(br.ConfigError, match=words) as caught:
        br.Pipeline("p.yaml").check()
    assert caught.value.mistakes[0].line
    if "SystemExit" in words:  # the program itself must not end by it
        done = program("check", "p.yaml")
        assert done.returncode == 2 and "p.yaml:" in done.stderr


@pytest.mark.parametrize(
    "line, words",
    [
        ("1 / 0", r"bad.py:\d+: in process: ZeroDivisionError"),
        ("out.data[...] = np.zeros(3)", r"bad.py:\d+: in process: ValueError.*broadcast"),
        ("field.data[0] = 1", r"bad.py:\d+: in process: ValueError.*read-only"),
        ("out.encode(np.zeros((1, 2)))", r"bad.py:\d+: in process: ValueError: the output is"),
        ("return 'done'", "process returned 'done'"),
        ("return 8", "unknown bits"),
        ("out.samples = 10 ** 9; return", "an output spans 1000000000 base samples; expected 1 to 4096"),
        ("self.kept = field.data", "class Power keeps an array of a frame after `process`"),
        ("self.kept = field.data[3:5].T", "class Power keeps an array of a frame after `process`"),
        ("self.kept = memoryview(out.data)", "class Power keeps an array of a frame after `process`"),
        ("import os; os.write(2, b''); raise SystemExit(0)", "SystemExit"),
    ],
)
def test_what_goes_wrong_in_process_ends_the_run(line, words):
    with open("bad.py", "w") as file:
        file.write(POWER.replace("power = np", line + "; power = np"))
    with open("p.yaml", "w") as file:
        file.write(with_stage("script: bad.py") + "  - {stage: record, in: power, prefix: power}\n")
    with pytest.raises(br.RunError, match=words) as caught:
        br.Pipeline("p.yaml").run()
    assert str(caught.value).startswith("python: ") or "stage 'python'" in str(caught.value)
    if line == "self.kept = field.data" or "SystemExit" in words:
        done = program("run", "p.yaml", "--quiet")
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr


def test_the_exception_itself_is_the_cause():
    class Broken(br.Stage):
        def process(self, field, out):
            raise RuntimeError("the dish fell down")

    with pytest.raises(br.RunError, match="the dish fell down") as caught:
        run(Broken)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("where", ["start", "stop", "finish"])
def test_exceptions_of_the_other_callbacks(where):
    def bad(self, *args):
        raise OSError("no such disk")

    cls = type("Bad" + where, (br.Stage,), {where: bad, "process": lambda self, field, out: out.data.fill(0)})
    with pytest.raises(br.RunError, match="no such disk"):
        run(cls)


def test_a_frame_is_dead_after_process():
    class Keeps(br.Stage):
        kept, said = None, []

        def process(self, field, out):
            if self.kept is not None:
                with pytest.raises(br.DeadFrame):
                    self.kept.data
                self.said.append("dead")
            self.kept = field
            out.data[...] = field.data

    result = run(Keeps, collect=("power", "field"))
    assert len(Keeps.said) == 2 and same(result["power"].data, result["field"].data)


def test_addresses_are_those_of_the_queue():
    """Two stages of one queue, and the writer of it, see the same memory: nothing is copied."""
    seen = {"a": [], "b": [], "w": []}

    class Writes(br.Stage):
        def process(self, field, out):
            out.data[...] = field.data
            seen["w"].append(out.data.ctypes.data)

    class Looks(br.Stage):
        outputs = ()

        def process(self, frame):
            seen[self.name].append(frame.data.ctypes.data)
            assert not frame.data.flags.writeable and not frame.data.flags.owndata

    br.Pipeline(
        with_stage("class: Writes") + "  - {stage: python, class: Looks, name: a, in: power}\n"
        "  - {stage: python, class: Looks, name: b, in: power}\n"
    ).run()
    assert seen["a"] == seen["b"] == seen["w"] and len(seen["a"]) == 3 and len(set(seen["a"])) >= 2


def test_several_inputs_outputs_and_finish():
    class Split(br.Stage):
        outputs = ("even", "odd")

        def process(self, field, even, odd):
            even.data[...], odd.data[...] = field.data, 0
            odd.valid[...] = 0

    class Join(br.Stage):
        inputs = ("a", "b")
        total, ended = 0, 0

        def process(self, a, b, out):
            assert a.first == b.first and (b.valid == 0).all()
            out.data[...] = a.data

        def finish(self, out):
            Join.ended += 1
            return False

    text = THREE + (
        "  - {stage: python, class: Split, name: split, in: field, out: [a, b]}\n"
        "  - {stage: python, class: Join, name: join, in: [a, b], out: joined}\n"
    )
    result = br.Pipeline(text).run(collect=["joined", "field", "b"])
    assert same(result["joined"].data, result["field"].data) and same(
        result["joined"].valid, result["field"].valid
    )
    assert (result["b"].valid == 0).all() and Join.ended == 1 and result.balanced


def test_a_source():
    class Ramp(br.Stage):
        inputs = ()
        frames: int = 3

        def configure(self):
            return br.Stream(
                dtype="f32",
                axes=("time", "freq"),
                shape=(16, 2),
                frame_samples=16,
                epoch_ns=10**18,
                sample_ns=1000,
                freqs_mhz=np.array([400.0, 401.0]),
                widths_mhz=np.array([1.0, 1.0]),
                downsample=1,
                scale=1,
                sideband="upper",
                beams=None,
                side=None,
            )

        def start(self):
            self.n = 0

        def process(self, out):
            if self.n == self.frames or self.stopping:
                return br.FINISHED
            out.first, out.samples = 16 * self.n, 16
            out.data[...] = np.arange(16)[:, None] + out.first
            self.n += 1
            return br.PRODUCED

    result = br.Pipeline("pipeline:\n  - {stage: python, class: Ramp, out: ramp, frames: 4}\n").run(
        collect=["ramp"]
    )
    assert same(result["ramp"].data[:, 1], np.arange(64)) and result["ramp"].times_ns[1] == 10**18 + 1000


def test_a_function_is_a_stage():
    @br.stage(out="f32 [time][freq][dish]", step=256)
    def power_of(e):
        return (abs(e) ** 2).mean(axis=(0, 2))

    result = run(power_of, collect=("power", "field"))
    want = (np.abs(result["field"].data) ** 2).reshape(-1, 256, 4, 2, 6).mean(axis=(1, 3))
    assert np.allclose(result["power"].data, want, rtol=1e-6) and result["power"].stream.downsample == 256


def test_zones_come_in_parts():
    class Parts(br.Stage):
        outputs = ()
        shapes = []

        def process(self, fine):
            self.shapes.append([p.shape for p in fine.parts])
            with pytest.raises(ValueError, match="frame.parts"):
                fine.data

    br.Pipeline(
        THREE
        + "  - {stage: upchannelize, in: field, out: fine, "
        + "zones: [{channels: 1, factor: 16}, {channels: 3, factor: 4}]}\n"
        "  - {stage: python, class: Parts, in: fine}\n"
    ).run()
    assert Parts.shapes[0] == [(256, 16, 2, 6), (1024, 12, 2, 6)]


def test_a_stage_that_never_returns_ends_by_its_timeout():
    class Hangs(br.Stage):
        def process(self, field, out):
            while True:
                pass

    with pytest.raises(br.RunError, match="timeout_s|TimeoutError"):
        run(Hangs, more=", timeout_s: 0.3")


def test_per_frame_cost():
    """Processor time of a frame that passes through a stage that does nothing: of the stage's thread, so that
    a machine that is busy does not matter."""

    class Through(br.Stage):
        def process(self, field, out):
            out.samples = out.samples

    source = HEAD + "pipeline:\n"
    source += "  - {stage: simulate, out: field, samples: 16000, seed: 3, frame_samples: 4}\n"
    best = 1.0
    for _ in range(3):
        stats = run(Through, source).stats
        best = min(best, next(s["cpu_s"] for s in stats["stages"] if s["name"] == "python") / 4000)
    print(f"{best * 1e6:.0f} us of processor time a frame")
    assert best < COST_US * 1e-6
