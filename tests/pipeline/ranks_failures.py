"""A rank that dies, stops, fails or has another pipeline file: all ranks end, say which one it was, print
their balance, and what left the pipeline before is whole."""
import concurrent.futures
import contextlib
import glob
import os
import signal
import socket
import struct
import subprocess
import time

import numpy as np

import harness
import ranks_common as mpi
from ranks import BAND, TELESCOPE, inputs, pipeline, VOLTAGE

RANKS = 3
LIMIT_S = 10  # when a rank dies or stops, until all others have ended
NEVER_S = 300  # after so long mpirun would kill them


def endless(more=""):
    """A pipeline that goes on until it is ended, and writes a frame every 4 ms."""
    return TELESCOPE + more + """
pipeline:
  - {stage: replay, files: "in${RANKS}_${RANK}/field_*.dada", out: field, frame_samples: 768, loop: 0,
     realtime: true}
""" + VOLTAGE + """
  - {stage: exchange, in: part, out: all}
  - {stage: record, in: all, directory: "out${RANKS}_${RANK}", prefix: all}
"""


def field(d, n=RANKS):
    harness.run(d, TELESCOPE + BAND + """
pipeline:
  - {stage: simulate, samples: 19968, seed: 3, out: field}
  - {stage: record, in: field, directory: ., prefix: whole}
""", name="simulate.yaml")
    inputs(d, os.path.join(d, "whole_000000.dada"), n)


def begin(d, text, limits="", **more):
    """A job that has put something out on every rank: with it the ranks' process ids. What a rank says goes
    to files, for mpirun passes on nothing while it clears up; `limits`: a shell command before the ranks."""
    script = os.path.join(d, "rank")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\nr=$OMPI_COMM_WORLD_RANK\n{limits}\nexec "$@" >said$r.out 2>said$r.err\n')
    os.chmod(script, 0o755)
    job = mpi.start(d, RANKS, text, program=[script], grace=NEVER_S, **more)
    pids = mpi.rank_pids(job, RANKS)
    end = time.time() + 20
    while time.time() < end:
        sizes = [os.path.getsize(p) if os.path.exists(p) else 0
                 for p in (os.path.join(d, f"out{RANKS}_{r}", "all_000000.dada") for r in range(RANKS))]
        if min(sizes) > 100000:
            return job, pids
        time.sleep(0.05)
    mpi.end(job)
    raise AssertionError(f"nothing is written: {sizes}")


def check_products(d, but=()):
    """The files hold whole frames, valid where they say so."""
    for r in range(RANKS):
        if r in but:
            continue
        path = os.path.join(d, f"out{RANKS}_{r}", "all_000000.dada")
        keys, size = harness.header(path)
        per = int(np.prod([int(x) for x in keys["SHAPE"].split(",") if x != "0"]))
        payload = os.path.getsize(path) - size
        assert payload > 0 and payload % per == 0, (r, payload, per)


def said_by(d, rank, stream):
    with open(os.path.join(d, f"said{rank}.{stream}")) as f:
        return f.read()


def await_all(true_of, ranks, meanwhile=lambda: None):
    """Until it is true of all these ranks, within LIMIT_S of a machine that has time: each step needs some of
    a processor, so that a busy machine delays the steps as it delays the ranks."""
    spent = 0
    while not all(map(true_of, ranks)):
        assert spent < LIMIT_S, f"not after {spent:.1f} s: {[true_of(r) for r in ranks]}"
        meanwhile()
        time.sleep(0.045)
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        spent += 0.05


def check_end(d, pids, dead, words, **more):
    """All but one rank end in time, and each says which one that was."""
    alive = [r for r in range(RANKS) if r != dead]
    await_all(lambda r: mpi.stat(pids[r])[0] in "XZ", alive, **more)
    for r in alive:
        said = said_by(d, r, "err")
        assert any(f"rank {dead} " in x and any(w in x for w in words) for x in said.splitlines()
                   if x.startswith(f"beamring: rank {r}: ")), (r, said)
        assert "every sample is accounted for" in said_by(d, r, "out"), (r, said)
    check_products(d, but=(dead,))


def killed(dead, transport):
    with harness.scratch() as d:
        field(d)
        job, pids = begin(d, endless(), transport=transport)
        try:
            os.kill(pids[dead], signal.SIGKILL)
            check_end(d, pids, dead, ["has ended without a word"])
        finally:
            mpi.end(job)


def stopped(dead):
    with harness.scratch() as d:
        field(d)
        job, pids = begin(d, endless("stall_s: 4\n"))
        try:
            check_end(d, pids, dead, ["no sign of life"], meanwhile=lambda: stop(pids[dead]))
        finally:
            mpi.end(job)


def stop(pid):
    """Again and again: mpirun wakes the ranks when the first of them has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


def woken():
    """Rank 0 stops until the other has given it up, and then goes on: it says of itself what happened."""
    with harness.scratch() as d:
        field(d, 2)
        jobs = begin_joined(d, 2, "stall_s: 4\n" + COPY.replace("field}", "field, loop: 0, realtime: true}"))
        try:
            end = time.time() + 60
            while not all(glob.glob(os.path.join(d, f"out{r}", "*.dada")) for r in range(2)):
                assert time.time() < end, "nothing is written"
                time.sleep(0.05)
            jobs[0].send_signal(signal.SIGSTOP)
            other = mpi.finish(jobs[1])
            jobs[0].send_signal(signal.SIGCONT)
            for result in (other, mpi.finish(jobs[0])):
                assert result.status == 1 and "rank 0 has given no sign of life" in result.err, result
        finally:
            for job in jobs:
                job.kill()
                job.communicate()


def test_a_rank_is_gone():
    """Killed, or stopped; all cases at a time, for most of it is waiting."""
    cases = [(killed, dead, transport) for dead in (0, 2) for transport in ("vader", "tcp")]
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        for done in [pool.submit(*case) for case in cases + [(stopped, 0), (stopped, 1), (woken,)]]:
            done.result()


def test_a_rank_fails():
    """Its disk is full: a limit on the size of its files."""
    with harness.scratch() as d:
        field(d)
        job, pids = begin(d, endless(), limits='[ "$r" = 1 ] && ulimit -f 600', transport="tcp")
        try:
            check_end(d, pids, 1, ["has failed: stage 'record'"])
            assert "File too large" in said_by(d, 1, "err"), said_by(d, 1, "err")
        finally:
            mpi.end(job)


def test_other_pipeline_files():
    with harness.scratch() as d:
        field(d)
        for r in range(RANKS):
            os.mkdir(os.path.join(d, f"at{r}"))
            with open(os.path.join(d, f"at{r}", "pipeline.yaml"), "w") as f:
                f.write(endless().replace("in$", "../in$") + ("# mine\n" if r == 2 else ""))
        script = os.path.join(d, "elsewhere")
        with open(script, "w") as f:
            f.write('#!/bin/sh\ncd at$OMPI_COMM_WORLD_RANK\nexec "$@"\n')
        os.chmod(script, 0o755)
        result = mpi.run(d, RANKS, None, program=[script], status=2, grace=1)
        assert result.err.count("rank 2 has another pipeline file") >= 1, result
        assert not any(os.listdir(os.path.join(d, f"at{r}")) != ["pipeline.yaml"] for r in range(RANKS))


def test_an_interrupt_drains_all():
    with harness.scratch() as d:
        field(d)
        job, pids = begin(d, endless())
        try:
            for pid in pids:  # mpirun would pass it on only after the time that it allows for an end
                os.kill(pid, signal.SIGTERM)
            await_all(lambda r: mpi.stat(pids[r])[0] in "XZ", range(RANKS))
            for r in range(RANKS):
                assert "every sample is accounted for" in said_by(d, r, "out"), said_by(d, r, "err")
            check_products(d)
            ends = [mpi.product(os.path.join(d, f"out{RANKS}_{r}", "all_*.dada"))[1] for r in range(RANKS)]
            assert all(e.shape == ends[0].shape and (e == ends[0]).all() for e in ends), "the same on all"
        finally:
            mpi.end(job)


def begin_joined(d, n, text, before=None, said=None):
    """A job without MPI; `before(port)` is called when rank 0 runs and the others do not yet. `said`: RANK
    and RANKS of each process, where they are others."""
    with open(os.path.join(d, "join.yaml"), "w") as f:
        f.write(text)
    port, jobs = harness.free_port(), []
    for r in range(n):
        rank, ranks = (said or {}).get(r, (r, n))
        jobs.append(
            subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "--join", f"127.0.0.1:{port}",
                              "join.yaml", "--set", "device=cpu"], cwd=d,
                             env={**os.environ, "RANK": str(rank), "RANKS": str(ranks)},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if r == 0 and before:
            before(port)
    return jobs


def join(*args, **more):
    return [mpi.finish(job, 60) for job in begin_joined(*args, **more)]


COPY = TELESCOPE + """
pipeline:
  - {stage: replay, files: "in${RANKS}_${RANK}/field_*.dada", out: field}
  - {stage: record, in: field, directory: "out${RANK}", prefix: all}
"""


def test_ranks_that_disagree():
    """RANKS that differ, upwards and downwards, and a RANK that is there twice: all of the job end, and say
    why."""
    with harness.scratch() as d:
        field(d, 2)
        for said in ({1: (1, 3)}, {1: (2, 3)}, {0: (0, 3)}, {1: (1, 60000)}):
            results = join(d, 2, COPY, said=said)
            assert all(r.status != 0 for r in results), (said, results)
            assert all("expected the same RANKS" in r.err for r in results), (said, results)
        results = join(d, 3, COPY, said={2: (1, 3)})
        assert all(r.status != 0 for r in results), results
        assert any("expected another RANK for each process" in r.err for r in results), results


def test_strangers_are_turned_away():
    """Whoever else connects to rank 0 does no harm: nonsense, a wrong token, a length beyond all
    reason, silence of more than it has room for."""
    held = []

    def disturb(port):
        wrong = struct.pack("<IIIIQ", 0, 1, 0, 0, 16) + b"not the token ..."
        huge = struct.pack("<IIIIQ", 0, 1, 0, 0, 1 << 62)
        for text in (b"GET / HTTP/1.1\r\n\r\n" * 300, wrong, huge, *[b"", wrong[:9]] * 20):
            s = socket.socket()
            end = time.time() + 20
            while s.connect_ex(("127.0.0.1", port)) != 0 and time.time() < end:
                s.close()
                s = socket.socket()
                time.sleep(0.05)
            s.sendall(text)
            held.append(s)

    with harness.scratch() as d:
        field(d, 2)
        results = join(d, 2, COPY, disturb)
        assert all(r.status == 0 for r in results), results
        for s in held:
            s.close()
        results = join(d, 2, pipeline(VOLTAGE))
        assert all(r.status == 2 and "run --mpi" in r.err for r in results), results


def test_memory_does_not_grow():
    """With frames as fast as the ranks exchange them."""
    with harness.scratch() as d:
        field(d)
        text = endless().replace(",\n     realtime: true", "")
        text = text.replace("  - {stage: record, in: all",
                            "  - {stage: exchange, name: back, in: all, out: few, to: channels}\n"
                            "  - {stage: record, in: few")
        job = mpi.start(d, RANKS, text)
        try:
            pids = mpi.rank_pids(job, RANKS)
            def resident():
                with_kb = [open(f"/proc/{p}/status").read().split("VmRSS:")[1].split()[0] for p in pids]
                return [int(kb) for kb in with_kb]

            def written(least, path=os.path.join(d, "out3_0", "all_000000.dada")):
                end = time.time() + 60
                while not os.path.exists(path) or os.path.getsize(path) < least:
                    assert time.time() < end and job.poll() is None, (least, job.poll())
                    time.sleep(0.05)
            written(4 << 20)
            before = resident()
            written(40 << 20)
            after = resident()
            assert all(b < a + 2000 for a, b in zip(before, after)), (before, after)
        finally:
            mpi.end(job)


def test_no_mpi_library():
    """A build without MPI, or a machine without its library, says what to install."""
    with harness.scratch() as d:
        field(d, 1)
        os.mkdir(os.path.join(d, "tools"))
        alone = os.path.join(d, "tools", "beamring")
        with open(harness.PROGRAM, "rb") as f, open(alone, "wb") as g:
            g.write(f.read())
        os.chmod(alone, 0o755)
        stages = os.path.join(os.path.dirname(os.path.abspath(harness.PROGRAM)), "..", "stages")
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(pipeline(VOLTAGE))
        done = subprocess.run([alone, "run", "--mpi", "p.yaml"], cwd=d, capture_output=True, text=True,
                              env={**os.environ, "BEAMRING_PLUGIN_PATH": stages})
        assert done.returncode == 2 and "openmpi-bin" in done.stderr, done
        os.mkdir(os.path.join(d, "runtime"))
        with open(os.path.join(d, "runtime", "beamring_mpi.so"), "w") as f:
            f.write("this is not a library")
        done = subprocess.run([alone, "run", "--mpi", "p.yaml"], cwd=d, capture_output=True, text=True,
                              env={**os.environ, "BEAMRING_PLUGIN_PATH": stages})
        assert done.returncode == 2 and "install openmpi-bin" in done.stderr, done


if __name__ == "__main__":
    mpi.require_mpi()
    harness.main([
        test_a_rank_is_gone, test_a_rank_fails, test_other_pipeline_files,
        test_an_interrupt_drains_all, test_strangers_are_turned_away, test_ranks_that_disagree,
        test_memory_does_not_grow, test_no_mpi_library
    ])
