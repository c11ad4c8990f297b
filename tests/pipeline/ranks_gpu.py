"""The corner turn between two and four GPUs, by NCCL and without MPI: processes that meet at an address. The
same bits as one rank, what a rank lacks is missing, and a rank that is killed or stopped ends the others."""
import os
import signal
import subprocess
import time

import numpy as np

import harness
import ranks_common as mpi
from ranks import FRB, VOLTAGE, inputs, pipeline, products, record


def gpus():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    except OSError:
        return 0


GPUS = gpus()
RANKS = 4 if GPUS >= 4 else 2  # of the tests in which a rank dies


def start(d, n, name="pipeline.yaml", late_s=0):
    port, jobs = harness.free_port(), []
    for r in range(n):
        time.sleep(late_s if r == n - 1 else 0)
        env = {**os.environ, "RANK": str(r), "RANKS": str(n), "LOCAL_RANK": str(r), "NCCL_NVLS_ENABLE": "0"}
        jobs.append(
            subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "--join", f"127.0.0.1:{port}", name],
                             cwd=d, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return jobs


def run(d, n, text, **more):
    with open(os.path.join(d, "pipeline.yaml"), "w") as f:
        f.write("device: \"cuda:${LOCAL_RANK}\"\n" + text)
    results = []
    for job in start(d, n, **more):
        out, err = job.communicate(timeout=90)
        results.append(harness.Result(job.returncode, out, err))
    assert all(r.status == 0 for r in results), results
    assert all("runs on the CPU" not in r.err for r in results), results
    return results


def check_same(beams):
    with harness.scratch() as d:
        path = record(d)
        inputs(d, path, 1)
        run(d, 1, pipeline(beams))
        one, (valid,), (first,) = products(d, 1)
        assert (valid == 0).any() and np.unique(one).size > 10
        cells = np.broadcast_to((valid != 0).T.reshape(valid.shape[1], *[1] * (one.ndim - 2), valid.shape[0]),
                                one.shape)
        for n, channels, shares in ((2, [6, 3], [5, 7]), (4, [3, 1, 2, 3], [2, 5, 1, 4])):
            if n > GPUS:
                print(f"{n} ranks skipped: {GPUS} GPUs")
                continue
            inputs(d, path, n, channels)
            run(d, n, pipeline(beams, f"{{stage: exchange, in: part, out: all, shares: {shares}}}"))
            some, valids, firsts = products(d, n)
            assert one.shape == some.shape and firsts == [first] * n
            assert all((v == valid).all() for v in valids) and (one[cells] == some[cells]).all()


def test_intensities_have_the_same_bits():
    check_same(FRB)


def test_voltages_have_the_same_bits():
    check_same(VOLTAGE)


def test_other_ends_are_missing():
    with harness.scratch() as d:
        path = record(d, missing="[]")
        inputs(d, path, 2)
        run(d, 2, pipeline(VOLTAGE))
        whole, _, _ = products(d, 2)
        inputs(d, path, 2, keep=[None, (1700, 2111)])
        run(d, 2, pipeline(VOLTAGE))
        some, valids, firsts = products(d, 2)
        expected = np.full(valids[0].shape, 255, np.uint8)
        expected[:1700, 5:] = expected[3811:, 5:] = 0
        assert firsts == [0, 0] and all((v == expected).all() for v in valids)
        there = np.broadcast_to((expected == 255).T[:, None, None, :], some.shape)
        assert (some[there] == whole[there]).all() and (some[~there] == 0x88).all()


def check_ends(send, words):
    """All other ranks end when the last one gets the signal, and name it."""
    last = RANKS - 1
    with harness.scratch() as d:
        inputs(d, record(d), RANKS)
        text = pipeline(VOLTAGE).replace("frame_samples: 768", "frame_samples: 768, loop: 0, realtime: true")
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write("device: \"cuda:${LOCAL_RANK}\"\nstall_s: 4\n" + text)
        jobs = start(d, RANKS)
        try:
            end = time.time() + 60
            paths = [os.path.join(d, f"out{RANKS}_{r}", "all_000000.dada") for r in range(RANKS)]
            while min(os.path.getsize(p) if os.path.exists(p) else 0 for p in paths) < 100000:
                assert time.time() < end, "nothing is written"
                time.sleep(0.05)
            began = time.time()
            jobs[last].send_signal(send)
            for job in jobs[:last]:
                out, err = job.communicate(timeout=30)
                assert job.returncode == 1 and f"rank {last} {words}" in err, (job.returncode, out, err)
            assert time.time() - began < 10, time.time() - began
        finally:
            for job in jobs:
                mpi.end(job)


def test_a_rank_is_killed():
    check_ends(signal.SIGKILL, "has ended without a word")


def test_a_rank_is_stopped():
    check_ends(signal.SIGSTOP, "has given no sign of life")


def test_a_rank_comes_late():
    with harness.scratch() as d:
        inputs(d, record(d), 2)
        run(d, 2, pipeline(VOLTAGE))
        at_once, _, _ = products(d, 2)
        run(d, 2, pipeline(VOLTAGE), late_s=3)
        late, _, _ = products(d, 2)
        assert (late == at_once).all()


if __name__ == "__main__":
    if GPUS < 2:
        print(f"{GPUS} GPUs: this wants two")
        raise SystemExit(77)
    harness.main([
        test_intensities_have_the_same_bits, test_voltages_have_the_same_bits, test_other_ends_are_missing,
        test_a_rank_is_killed, test_a_rank_is_stopped, test_a_rank_comes_late
    ])
