"""The recorded demo over four ranks, also by the guide's batch file: the burst that one program finds is
found in the ranks' products, in the same beam, at the same dispersion and time, with the same S/N; all beams
have the same bits."""
import glob
import os
import subprocess
import sys

import harness
import ranks_common as mpi
import slurm

RANKS, BEAMS = 4, 256
SIMULATION = os.path.join(harness.CONFIG, "demo_simulate.yaml")
PIPELINE = os.path.join(harness.CONFIG, "cluster", "frb.yaml")
HERE = os.path.dirname(os.path.abspath(__file__))
REPORT = os.path.join(HERE, "..", "..", "tools", "plots", "demo_report.py")
NAMES = ("zebra", "apple", "mango", "lemon")  # of the bands, ascending


def simulate(d):
    """The demo's recording, in field_whole.dada, and what one program makes of it, in alone/0."""
    made = harness.beamring("run", SIMULATION, "--set", "device=cpu", cwd=d,
                            env={"DEMO_OUT": os.path.join(d, "demo")})
    assert made.status == 0, made
    os.rename(os.path.join(d, "demo", "field_000000.dada"), os.path.join(d, "field_whole.dada"))
    alone = harness.beamring("run", PIPELINE, "--set", "device=cpu", cwd=d, env={"OUT": "alone"})
    assert alone.status == 0, alone


def cut(d):
    """The recording as four bands, whose names say nothing of them."""
    bands = [os.path.join(d, f"band{r}") for r in range(RANKS)]
    mpi.cut(os.path.join(d, "field_whole.dada"), bands)
    os.remove(os.path.join(d, "field_whole.dada"))
    for band, name in zip(bands, NAMES):
        os.rename(os.path.join(band, "field_000000.dada"), os.path.join(d, f"field_{name}.dada"))


def compare(d, job):
    """Rank r has the r-th quarter of the beams, with numbers of its own."""
    whole = sorted(glob.glob(os.path.join(d, "alone", "0", "*.fil")))
    assert len(whole) == BEAMS, len(whole)
    at = 0
    for r in range(RANKS):
        for path in sorted(glob.glob(os.path.join(d, job, str(r), "*.fil"))):
            a, b = open(whole[at], "rb").read(), open(path, "rb").read()
            end = a.index(b"HEADER_END") + 10
            assert a[end:] == b[b.index(b"HEADER_END") + 10:] and len(a) > end + 1000, (whole[at], path)
            at += 1
    assert at == BEAMS, at


def find(d, directories, name):
    """The result of the demo's own search in the beams of `directories`, one after another: the lines about
    the burst, by their names."""
    home = os.path.join(d, name)
    os.makedirs(os.path.join(home, "filterbank"))
    paths = [p for directory in directories for p in sorted(glob.glob(os.path.join(directory, "*.fil")))]
    for beam, path in enumerate(paths):
        os.link(path, os.path.join(home, "filterbank", f"beam{beam:04d}.fil"))
    done = subprocess.run([sys.executable, REPORT, "--simulation", SIMULATION, "--pipeline", PIPELINE,
                           "--directory", home], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"the burst is not where it was put: {done}"
    lines = done.stdout.splitlines()
    found = lines[1:lines.index("") if "" in lines else len(lines)]
    for word in ("position x", "DM,", "arrival", "signal to noise", "beam "):
        assert any(word in x for x in found), done.stdout
    return found


def batch(d):
    """The guide's batch file, under a real Slurm."""
    slurm.require()
    home = os.path.join(d, "slurm")
    os.mkdir(home)
    node = slurm.Slurm(home, RANKS)
    try:
        env = {**node.env, "BEAMRING": os.path.abspath(harness.PROGRAM), "OUT": "job",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "MPIRUN_OPTIONS": "--oversubscribe --bind-to none --mca btl self,vader"}
        done = subprocess.run(["sbatch", "--wait", f"--ntasks={RANKS}", "--overcommit",
                               os.path.join(harness.CONFIG, "cluster", "frb.sbatch"), PIPELINE],
                              cwd=d, env=env, capture_output=True, text=True, timeout=120)
        log = "".join(open(p).read() for p in glob.glob(os.path.join(d, "beamring-*.log")))
        assert done.returncode == 0, (done, log)
        assert log.count("every sample is accounted for") == RANKS, log
    finally:
        node.end()


def test_the_burst_is_found():
    """In the products of four files of bands. The whole recording, whose channels the ranks divide, gives the
    same bits."""
    with harness.scratch() as d:
        simulate(d)
        mpi.run(d, RANKS, None, name=PIPELINE, env={**os.environ, "OUT": "divided"})
        compare(d, "divided")
        cut(d)
        try:
            batch(d)
        except slurm.Missing as reason:
            print(f"left out: the batch file under Slurm: {reason}")
            mpi.run(d, RANKS, None, name=PIPELINE, env={**os.environ, "OUT": "job"})
        compare(d, "job")
        alone = find(d, [os.path.join(d, "alone", "0")], "found_alone")
        ranks = find(d, [os.path.join(d, "job", str(r)) for r in range(RANKS)], "found_job")
        assert alone == ranks, "\n".join([*alone, "over the ranks:", *ranks])
        print("\n".join(ranks))


if __name__ == "__main__":
    mpi.require_mpi()
    harness.main([test_the_burst_is_found])
