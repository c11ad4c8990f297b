"""Failures of a GPU under a pipeline: allocations, launches, copies and events that fail, a kernel that
writes where it must not, and one that never ends. One message that names the stage and the call, exit 1, all
threads joined soon, and what was written before is right."""
import glob
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import control_common  # noqa: E402
import harness  # noqa: E402
from small import STREAM, TELESCOPE, one  # noqa: E402

INJECT = os.environ.get("BEAMRING_INJECT_LIBRARY", "")
CHAIN = "device: cuda:0\n" + TELESCOPE + STREAM + """
pipeline:
  - {stage: simulate, duration_s: 3600, seed: 1, frame_samples: 3072, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [4, 4], spacing_deg: 1}}
  - {stage: quantize, in: beams, out: levels, bits: 8}
  - {stage: record, in: levels, directory: ., prefix: levels}
  - {stage: record, name: record_fine, in: fine, directory: ., prefix: fine}
"""


def run(directory, text, inject=None, command="run", timeout=20):
    with open(os.path.join(directory, "pipeline.yaml"), "w") as f:
        f.write(text)
    env = dict(os.environ)
    if inject:
        env.update(LD_PRELOAD=INJECT, BEAMRING_INJECT=inject)
    begin = time.time()
    try:
        done = subprocess.run([os.path.abspath(harness.PROGRAM), command, "pipeline.yaml"], cwd=directory,
                              capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"with {inject} the program did not end within {timeout} s")
    return done, time.time() - begin


def reference(directory):
    """The first of the same products, from a run that is stopped by its length."""
    text = CHAIN.replace("duration_s: 3600", "samples: 200000")
    done, _ = run(directory, text)
    assert done.returncode == 0, done


def payload(path):
    size = harness.header(path)[1]
    return open(path, "rb").read()[size:]


def one_message(done, *expected):
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert done.returncode == 1, done
    assert len(errors) == 1, done.stderr
    for words in expected:
        assert words in errors[0], (words, errors)


def test_injected():
    with harness.scratch() as good:
        reference(good)
        whole = payload(one(good, "fine*.dada"))
        for inject in ("cudaMemcpyAsync:400", "__cudaLaunchKernel:400", "cudaEventRecord:900",
                       "cudaStreamWaitEvent:900", "cudaEventSynchronize:200"):
            with harness.scratch() as d:
                done, seconds = run(d, CHAIN, inject)
                call = inject.split(":")[0]
                call = "launch" if "Launch" in call else call
                print(f"{inject}: {seconds:.1f} s, {[l for l in done.stderr.splitlines() if 'error' in l]}")
                one_message(done, call)
                assert seconds < 15, seconds
                for path in glob.glob(os.path.join(d, "fine*.dada")):
                    got = payload(path)
                    n = min(len(got), len(whole))
                    assert n > 0 and got[:n] == whole[:n], f"{inject}: what was recorded before is not right"


def test_no_memory():
    for inject in ("cudaMalloc:1", "cudaMalloc:9", "cudaHostRegister:1"):
        with harness.scratch() as d:
            done, _ = run(d, CHAIN, inject)
            one_message(done, "MiB")
            assert "free" in done.stderr or "locked" in done.stderr, done.stderr


HANG = """watchdog_s: {watchdog}
pipeline:
  - {{stage: t_source, samples: 100000000000, frame_samples: 4096, out: a}}
  - {{stage: t_gpu, in: a, out: b}}
  - {{stage: t_gpu, name: bad, mode: hang, fault_at: 4096000, in: b, out: c}}
  - {{stage: t_gpu, name: last, in: c, out: d}}
  - {{stage: record, in: d, directory: ., prefix: d}}
"""


def check_hang(d, returncode, out, err, seconds, limit):
    print(f"hang: {seconds:.1f} s\n{err}")
    assert returncode == 1 and seconds < limit, (returncode, seconds, err)
    assert "bad: error: " in err and "does not end" in err, err
    assert "balance: every sample is accounted for" in out, out
    files = glob.glob(os.path.join(d, "d_*.dada"))
    got = payload(files[0])
    assert len(got) == 4096000 and all(got[i] == i % 251 for i in range(0, len(got), 997)), len(got)


def test_a_kernel_never_ends():
    """The watchdog ends the run, names the stage whose kernel it is, and leaves with the balance; so does
    Ctrl-C, twice."""
    with harness.scratch() as d:
        done, seconds = run(d, HANG.format(watchdog=2), timeout=60)
        check_hang(d, done.returncode, done.stdout, done.stderr, seconds, 30)
        assert "watchdog_s allows 2 s" in done.stderr and "cudaEventQuery" in done.stderr, done.stderr
    with harness.scratch() as d:
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(HANG.format(watchdog=600))
        process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(8)
        begin = time.time()
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        out, err = process.communicate(timeout=60)
        check_hang(d, process.returncode, out, err, time.time() - begin, 20)


def test_an_event_never_happens():
    """A driver that never says that an event has happened: the watchdog ends the run, and the rest comes down
    in order."""
    with harness.scratch() as d:
        done, seconds = run(d, "watchdog_s: 2\n" + CHAIN, "cudaEventQuery:400", timeout=60)
        print(f"cudaEventQuery: {seconds:.1f} s, {done.stderr}")
        assert done.returncode == 1 and seconds < 30 and "cudaEventQuery" in done.stderr, done
        assert "balance: every sample is accounted for" in done.stdout, done.stdout


def test_sticky():
    """A kernel that writes to an address that is nobody's: the device is lost to the process, and everybody
    is told once."""
    with harness.scratch() as d:
        done, seconds = run(d, """
pipeline:
  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: a}
  - {stage: t_gpu, in: a, out: b}
  - {stage: t_gpu, name: bad, mode: fault, fault_at: 4096000, in: b, out: c}
  - {stage: t_gpu, name: last, in: c, out: d}
  - {stage: t_sink, in: d}
""")
        print(f"sticky: {seconds:.1f} s, {done.stderr}")
        assert done.returncode == 1 and seconds < 30, done
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        assert len(errors) == 1 and "illegal" in errors[0].lower(), done.stderr


UPDATED = "device: cuda:0\n" + TELESCOPE + STREAM + """
pipeline:
  - {stage: simulate, duration_s: 3600, seed: 1, frame_samples: 3072, out: field}
  - {stage: upchannelize, name: up, in: field, out: fine, factor: 16, gain: 4}
  - {stage: baseband_beamform, name: bb, in: fine, out: beams, shift: 9, beams: {directions: [[0, 0]]}}
  - {stage: record, in: beams, directory: ., prefix: beams}
"""


def test_updates():
    """The GPU fails while an update is prepared: the update is refused, the old values stay, the pipeline
    goes on, and the next one holds."""
    for call in ("cudaMallocHost", "cudaStreamCreateWithFlags", "cudaMallocAsync", "__cudaLaunchKernel",
                 "cudaEventCreateWithFlags"):
        env = {"LD_PRELOAD": INJECT, "BEAMRING_INJECT": call + ":1", "BEAMRING_INJECT_WHILE": "fails",
               "BEAMRING_INJECT_THREAD": "updates"}
        with control_common.node(UPDATED, env=env) as n:
            n.wait_until(lambda s: s["state"] == "running")
            mark = os.path.join(n.directory, "fails")
            refused = 0
            for i in range(10):
                open(mark, "w").close()
                beams = {"directions": [[0, 0.01 * i]]}
                body = json.dumps({"id": f"bad{i}", "stages": {"up": {"gain": 3}, "bb": {"beams": beams}}})
                answer = n.post("/v1/update", body)
                os.unlink(mark)
                refused += answer.code in (400, 500) and answer.json["state"] == "rejected"
            print(f"{call}: {refused} of 10 refused: {answer.text}")
            assert refused == 10, answer.text
            answer = n.post("/v1/update", json.dumps({"id": "good", "stages": {"up": {"gain": 2}}}))
            assert answer.code == 202, answer.text
            end = time.time() + 20
            while not any(u["id"] == "good" and u["state"] == "applied"
                          for u in n.get("/v1/updates").json["updates"]):
                assert time.time() < end, n.get("/v1/updates").text
                time.sleep(0.05)
            n.end()


if __name__ == "__main__":
    if not INJECT or not harness.has_device():
        print("no GPU: skipped")
        sys.exit(77)
    harness.main(
        [test_injected, test_no_memory, test_sticky, test_a_kernel_never_ends, test_an_event_never_happens,
         test_updates])
