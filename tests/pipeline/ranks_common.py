"""Jobs of several ranks under the distribution's Open MPI, on the loopback interface, and recordings cut into
bands, one for each rank."""
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np

import harness

# Keys of a recording that follow from others, and would not agree with a band.
FOLLOWS = "FREQ|BW|SAMPLES|FILE_SIZE|TRANSFER_SIZE|BYTES_PER_SECOND|RESOLUTION|MJD_START|UTC_START"
MPIRUN = shutil.which("mpirun")


def require_mpi(why_not=print):
    """Ends the test as skipped where there is no MPI."""
    build = os.path.join(os.path.dirname(os.path.abspath(harness.PROGRAM)), "..")
    plugin = os.path.join(build, "runtime", "beamring_mpi.so")
    reason = None
    if MPIRUN is None or b"Open MPI" not in subprocess.run([MPIRUN, "--version"], capture_output=True).stdout:
        reason = "there is no mpirun of Open MPI: install openmpi-bin"
    elif not os.path.exists(plugin):
        reason = "beamring was built without MPI: install libopenmpi-dev"
    if reason is not None:
        why_not(reason)
        raise SystemExit(77)


def mpirun(n, transport="vader", grace=3):
    """The command line before the program."""
    return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(n),
            "--mca", "btl", f"self,{transport}", "--mca", "btl_tcp_if_include", "lo",
            "--mca", "oob_tcp_if_include", "lo",
            "--mca", "odls_base_sigkill_timeout", str(grace),
            "--mca", "btl_vader_single_copy_mechanism", "none"]


def start(directory, n, text, *args, name="pipeline.yaml", program=(), env=None, **more):
    """A job of n ranks that runs, as a Popen with texts. `program`: what goes before beamring."""
    if text is not None:
        with open(os.path.join(directory, name), "w") as f:
            f.write(text)
    return subprocess.Popen(
        [*mpirun(n, **more), *program, os.path.abspath(harness.PROGRAM), "run", "--mpi", name, *args,
         "--set", "device=cpu", "--set", "threads=1"], cwd=directory, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)


def finish(job, timeout=60):
    out, err = job.communicate(timeout=timeout)
    return harness.Result(job.returncode, out, err)


def run(directory, n, text, *args, status=0, timeout=100, **more):
    result = finish(start(directory, n, text, *args, **more), timeout)
    assert result.status == status, f"expected exit {status}: {result}"
    return result


def rank_pids(job, n, timeout=20):
    """Process ids of a job's ranks, by rank."""
    end = time.time() + timeout
    while time.time() < end:
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as f:
                    env = dict(x.split(b"=", 1) for x in f.read().split(b"\0") if b"=" in x)
            except (OSError, ValueError):
                continue
            if stat(path.split("/")[2])[1] == job.pid and b"OMPI_COMM_WORLD_RANK" in env:
                found[int(env[b"OMPI_COMM_WORLD_RANK"])] = int(path.split("/")[2])
        if len(found) == n:
            return [found[r] for r in range(n)]
        time.sleep(0.05)
    raise AssertionError(f"only ranks {sorted(found)} of {n} have begun")


def stat(pid):
    """State and parent of a process; of one that is gone "X" and 0."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        return state, int(parent)
    except (OSError, ValueError):
        return "X", 0


def end(job):
    """Kills a job that still runs, and waits until its ranks are gone: they write to the test's folder."""
    ranks = []
    if job.poll() is None:
        ranks = [int(p) for p in os.listdir("/proc") if p.isdigit() and stat(p)[1] == job.pid]
        for pid in (job.pid, *ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    job.communicate()
    limit = time.time() + 60
    while any(stat(pid)[0] not in "XZ" for pid in ranks):
        assert time.time() < limit, "killed ranks do not end"
        time.sleep(0.02)


def shares(total, n):
    return [total // n + (r < total % n) for r in range(n)]


def cut(path, directories, share=None, keep=None):
    """Writes one band of a recording E[time][freq][pol][dish] into each of the directories,
    field_000000.dada; `share`: channels of each; `keep[r]`: time steps (first, count) of the r-th."""
    keys, size = harness.header(path)
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    raw = np.fromfile(path, np.uint8, offset=size).reshape(-1, *shape[1:])
    with open(path, "rb") as f:
        text = f.read(size).rstrip(b"\0").decode()
    first, step = (float(x) for x in keys["FREQ_MHZ"].split(":")[:2])
    share = share or shares(shape[1], len(directories))
    gaps = path + ".gaps"
    at = 0
    for r, directory in enumerate(directories):
        os.makedirs(directory, exist_ok=True)
        begin, count = keep[r] if keep and keep[r] else (0, raw.shape[0])
        mine = re.sub(rf"(?m)^({FOLLOWS}) .*\n", "", text)
        for key, value in {
                "FREQ_MHZ": f"{first + step * at!r}:{step!r}:{share[r]}", "NCHAN": share[r],
                "SHAPE": f"{shape[0]},{share[r]},{shape[2]},{shape[3]}", "ZONE_0": f"0,{share[r]},1,1,0",
                "SAMPLE0": int(keys["SAMPLE0"]) + begin, "OBS_OFFSET": 0}.items():
            mine = re.sub(rf"(?m)^{key} .*", f"{key} {value}", mine)
        with open(os.path.join(directory, "field_000000.dada"), "wb") as f:
            f.write(mine.encode().ljust(size, b"\0"))
            f.write(np.ascontiguousarray(raw[begin:begin + count, at:at + share[r]]).tobytes())
        if os.path.exists(gaps):
            shutil.copy(gaps, os.path.join(directory, "field_000000.dada.gaps"))
        at += share[r]


def product(pattern):
    """A recording of any stream with time, freq and beam axes: values as unsigned integers
    [freq][beam][rest...][time], validity [time step][freq], the first sample, the keys."""
    path, = glob.glob(pattern)
    keys, size = harness.header(path)
    axes = keys["AXES"].split(",")
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    down = int(keys.get("DOWNSAMPLE", 1))
    bits = harness.BITS[keys["DTYPE"]]
    raw = np.fromfile(path, {8: np.uint8, 16: np.uint16, 32: np.uint32}[bits], offset=size)
    time_axis = axes.index("time")
    per_step = int(np.prod([s for a, s in zip(axes, shape) if a != "time"]))
    frame = raw.size // per_step if time_axis == 0 else int(keys["FRAME_SAMPLES"]) // down
    first = int(keys["SAMPLE0"])
    pieces, at, step = [], 0, first // down
    while at < raw.size:
        n = frame - step % frame if time_axis else frame
        n = min(n, (raw.size - at) // per_step)
        lengths = [n if a == "time" else s for a, s in zip(axes, shape)]
        piece = raw[at:at + n * per_step].reshape(lengths)
        rest = [i for i, a in enumerate(axes) if a not in ("freq", "beam", "time")]
        pieces.append(piece.transpose(axes.index("freq"), axes.index("beam"), *rest, time_axis))
        at += n * per_step
        step += n
    values = np.concatenate(pieces, -1)
    nfreq = shape[axes.index("freq")]
    valid = harness.read_gaps(path, first // down, values.shape[-1], nfreq, down)
    return values, valid, first, keys
