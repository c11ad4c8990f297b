"""The corner turn between two GPUs, by NCCL and without MPI: two processes that meet at an address. The same
bits as one rank, what a rank lacks is missing, and a rank that is killed ends the other one."""
import os
import signal
import subprocess
import time

import numpy as np

import harness
import ranks_common as mpi
from ranks import FRB, VOLTAGE, inputs, pipeline, products, record
from wires_common import free_port


def require_gpus():
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    except OSError:
        found = 0
    if found < 2:
        print(f"{found} GPUs: this wants two")
        raise SystemExit(77)


def start(d, n, name="pipeline.yaml"):
    port, jobs = free_port(), []
    for r in range(n):
        env = {**os.environ, "RANK": str(r), "RANKS": str(n), "LOCAL_RANK": str(r), "NCCL_NVLS_ENABLE": "0"}
        jobs.append(
            subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "--join", f"127.0.0.1:{port}", name],
                             cwd=d, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return jobs


def run(d, n, text):
    with open(os.path.join(d, "pipeline.yaml"), "w") as f:
        f.write("device: \"cuda:${LOCAL_RANK}\"\n" + text)
    results = []
    for job in start(d, n):
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
        inputs(d, path, 2, [6, 3])
        run(d, 2, pipeline(beams, "{stage: exchange, in: part, out: all, shares: [5, 7]}"))
        two, valids, firsts = products(d, 2)
        assert one.shape == two.shape and all((v == valid).all() for v in valids) and firsts == [first] * 2
        cells = np.broadcast_to((valid != 0).T.reshape(valid.shape[1], *[1] * (one.ndim - 2), valid.shape[0]),
                                one.shape)
        assert (one[cells] == two[cells]).all()


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


def test_a_rank_is_killed():
    with harness.scratch() as d:
        inputs(d, record(d), 2)
        text = pipeline(VOLTAGE).replace("frame_samples: 768", "frame_samples: 768, loop: 0, realtime: true")
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write("device: \"cuda:${LOCAL_RANK}\"\n" + text)
        jobs = start(d, 2)
        try:
            end = time.time() + 60
            paths = [os.path.join(d, f"out2_{r}", "all_000000.dada") for r in range(2)]
            while min(os.path.getsize(p) if os.path.exists(p) else 0 for p in paths) < 100000:
                assert time.time() < end, "nothing is written"
                time.sleep(0.05)
            began = time.time()
            jobs[1].send_signal(signal.SIGKILL)
            out, err = jobs[0].communicate(timeout=30)
            took = time.time() - began
            assert jobs[0].returncode == 1 and took < 10, (took, jobs[0].returncode, out, err)
            assert "rank 1 has ended without a word" in err, err
        finally:
            for job in jobs:
                mpi.end(job)


if __name__ == "__main__":
    require_gpus()
    harness.main([
        test_intensities_have_the_same_bits, test_voltages_have_the_same_bits, test_other_ends_are_missing,
        test_a_rank_is_killed
    ])
