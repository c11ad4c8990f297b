"""Pipelines in this process."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import beamring as br
from conftest import HEAD, SOURCE, program, same


def test_check_says_what_flows():
    g = br.Pipeline(
        SOURCE + "  - {stage: frb_grid, in: field, out: grid, downsample: 256}\n"
        "  - {stage: record, in: grid, prefix: x}\n"
    ).check()
    assert g.queues["field"].shape == (4096, 4, 2, 6) and g.queues["field"].readers == ["frb_grid"]
    assert g.queues["grid"].dtype == "f16" and g.queues["grid"].downsample == 256
    assert g.memory["host"] > 0 and [s["name"] for s in g.stages] == ["simulate", "frb_grid", "record"]
    assert not os.listdir(".")


def test_the_same_bytes_as_the_program():
    text = (
        SOURCE
        + "  - {stage: frb_grid, in: field, out: grid, downsample: 256}\n"
        + "  - {stage: record, in: grid, prefix: x, directory: ${WHERE}}\n"
    )
    for where in ("python", "program"):
        os.mkdir(where)
    with open("p.yaml", "w") as file:
        file.write(text)
    os.environ["WHERE"] = "python"
    result = br.Pipeline("p.yaml").run()
    done = program("run", "p.yaml", env={"WHERE": "program"})
    assert done.returncode == 0 and result.balanced, done.stderr
    names = sorted(os.listdir("python"))
    assert names == sorted(os.listdir("program")) and len(names) == 2
    for name in names:
        assert open(f"python/{name}", "rb").read() == open(f"program/{name}", "rb").read(), name


def test_text_dict_and_set():
    from_text = br.Pipeline(SOURCE).set("simulate.samples", 5000).run(collect="field")
    import copy

    document = {
        "stream": {"sample_ns": 2560, "epoch_ns": 0, "freq_mhz": [400.0], "sideband": "upper"},
        "telescope": {
            "name": "one",
            "grid": {"m": 1, "n": 1},
            "spacing_m": {"m": 1, "n": 1},
            "dishes": [[0, 0]],
        },
        "pipeline": [{"stage": "simulate", "samples": np.int64(100), "out": "field"}],
    }
    from_dict = br.Pipeline(copy.deepcopy(document)).run(collect=["field"])
    assert from_text["field"].shape == (5000, 4, 2, 6) and from_dict["field"].shape == (100, 1, 2, 1)
    assert from_text.balanced and from_text.balance["simulate"]["out"] == 5000
    assert from_text.stats["exit"] == 0 and not from_text.interrupted


def test_all_mistakes_with_their_places():
    with open("bad.yaml", "w") as file:
        file.write(SOURCE.replace("samples: 20000", "sample: 20000") + "  - {stage: recrd, in: field}\n")
    for call in (br.Pipeline("bad.yaml").check, br.Pipeline("bad.yaml").run):
        with pytest.raises(br.ConfigError) as caught:
            call()
        mistakes = caught.value.mistakes
        assert len(mistakes) >= 2 and all(
            m.file == "bad.yaml" and m.line and m.column for m in mistakes
        ), mistakes
        assert "did you mean" in str(caught.value)
    with pytest.raises(br.ConfigError, match="cannot read 'none.yaml'"):
        br.Pipeline("none.yaml").run()
    with pytest.raises(br.ConfigError, match="there is no queue|no stage has|nothing"):
        br.Pipeline(SOURCE + "  - {stage: record, in: field}\n").run(collect=["fild"])


def test_messages_and_warnings():
    seen = []
    br.Pipeline(SOURCE + "  - {stage: record, in: field, prefix: x}\n").run(on_message=seen.append)
    assert any(m.stage == "record" and "20000 samples" in m.text for m in seen), seen


ENDLESS = (
    HEAD
    + "\npipeline:\n  - {stage: simulate, out: field, samples: 1000000000000, seed: 3, frame_samples: 4096}\n"
)


def run_script(text, *, interrupts=0, timeout=60):
    """A program of its own, which gets Ctrl-C for each line 'now' that it prints."""
    site = os.path.dirname(os.path.dirname(br.__file__))
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": site},
    )
    lines, last = [], threading.Timer(timeout, child.kill)
    last.start()
    try:
        for line in child.stdout:
            lines.append(line.strip())
            if line.strip() == "now" and interrupts:
                child.send_signal(signal.SIGINT)
                interrupts -= 1
        _, err = child.communicate(timeout=timeout)
    finally:
        last.cancel()
        child.kill()
    return child.returncode, lines, err


def test_an_interrupt_drains_and_comes_back_as_an_exception():
    code, lines, err = run_script(
        f"""
        import beamring as br
        class Tell(br.Stage):
            outputs = ()
            told = False
            def process(self, field):
                if not self.told: print("now", flush=True)
                self.told = True
        p = br.Pipeline({ENDLESS!r} + "  - {{stage: python, class: Tell, in: field}}\\n")
        try: p.run()
        except KeyboardInterrupt: print("interrupted")
        print(br.Pipeline({ENDLESS!r}).set("simulate.samples", 5000).run(collect=["field"]).balanced)
        """,
        interrupts=1,
    )
    assert lines == ["now", "interrupted", "True"] and code == 0, err


def test_fork_and_two_interpreters():
    code, lines, err = run_script(f"""
        import os, sys, beamring as br
        p = br.Pipeline({ENDLESS!r}).set("simulate.samples", 5000)
        p.run(collect=["field"])
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            print(p.run(collect=["field"])["field"].shape[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        try:
            import _interpreters as i
        except ImportError:
            import _xxsubinterpreters as i
        other = i.create()
        try:
            words = "try:\\n import beamring._core\\nexcept ImportError: print('refused', flush=True)\\n"
            bad = i.run_string(other, words)
        except Exception as error: bad = error
        print("alive", flush=True)
        """)
    assert lines == ["5000", "refused", "alive"] and code == 0, (lines, err)


def test_a_fork_while_a_pipeline_runs():
    """The child has the memory of the parent's pipeline and none of its threads: it makes its own."""
    code, lines, err = run_script(f"""
        import os, threading, beamring as br
        begun = threading.Event()
        class Tell(br.Stage):
            outputs = ()
            def process(self, field): begun.set()
        p = br.Pipeline({ENDLESS!r} + "  - {{stage: python, class: Tell, in: field}}\\n")
        thread = threading.Thread(target=lambda: p.set("simulate.samples", 2000000).run())
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            q = br.Pipeline({ENDLESS!r}).set("simulate.samples", 5000)
            print(q.run(collect=["field"])["field"].shape[0], flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        thread.join()
        print("ended", flush=True)
        """)
    assert lines == ["5000", "0", "ended"] and code == 0, (lines, err)


def test_a_stage_that_is_stuck_outside_of_python():
    """No exception reaches it: the watchdog names it, and the second Ctrl-C ends the run without it."""
    code, lines, err = run_script(
        f"""
        import threading, beamring as br
        class Stuck(br.Stage):
            outputs = ()
            def process(self, field):
                print("now", flush=True)
                threading.Event().wait()
        def told(message):
            if message.level == "warning" and message.stage == "stuck": print("now", flush=True)
        p = br.Pipeline("watchdog_s: 0.5\\n" + {ENDLESS!r} +
                        "  - {{stage: python, class: Stuck, name: stuck, in: field, timeout_s: 0}}\\n")
        try: p.run(on_message=told)
        except KeyboardInterrupt: print("interrupted", flush=True)
        import os; os._exit(0)
        """,
        interrupts=2,
    )
    assert lines[:2] == ["now", "now"] and lines[-1] == "interrupted" and code == 0, (lines, err)


def test_two_pipelines_at_a_time():
    found = {}

    def work(name):
        found[name] = br.Pipeline(SOURCE).run(collect=["field"])["field"].data

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(found) == 3 and same(found[0], found[1]) and same(found[1], found[2])
