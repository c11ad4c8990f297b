"""How a pipeline on the CPU uses the processors: its rate on 1, 2, ... of them, one run after the other and
the best of several, with the products of all runs compared byte by byte.

  threads.py [--build build] [--pipeline demo|chord] [--processors 1,2] [--tries 3] [--seconds 0.9]
             [--set STAGE.KEY=VALUE] [--apart]

The program may use as many processors as it has threads (`threads:` follows), so that the stages' own
threads share them too. For the largest number the table shows each stage's time: a serial stage shows as a
stage whose elapsed time is its processor time.

With --apart, what the processors give to programs that share nothing: as many programs at once, each with a
processor and a thread of its own, and the sum of their rates. Where hardware threads share a core, or all
cores one memory, it is less than their number."""
import argparse
import glob
import hashlib
import json
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.path.join(HERE, "..", "..", "config")


def start(a, config, directory, processors, *more):
    stats = os.path.join(directory, "stats.json")
    return subprocess.Popen([
        a.program, "run", os.path.join(CONFIG, config), "--stats", stats, "--set", "device=cpu", *more
    ], env={**os.environ, "DEMO_OUT": directory, "OUT": directory, "DURATION": str(a.seconds)},
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            preexec_fn=lambda: os.sched_setaffinity(0, processors))


def finish(process, directory):
    """The run's report."""
    _, messages = process.communicate()
    assert process.returncode == 0, messages.decode()
    with open(os.path.join(directory, "stats.json")) as f:
        return json.load(f)


def fingerprint(directory):
    """A digest of the products: filterbank files, and recordings except the field."""
    total = hashlib.sha256()
    names = glob.glob(os.path.join(directory, "**", "*.fil"), recursive=True)
    names += [n for n in glob.glob(os.path.join(directory, "*.dada")) if "field" not in os.path.basename(n)]
    for name in sorted(names):
        with open(name, "rb") as f:
            total.update(f.read())
    return total.hexdigest()


def run_at_once(a, known, sets):
    """The reports of one program for each of `sets` of processors, all started together."""
    config, running = "demo.yaml" if a.pipeline == "demo" else "chord_node.yaml", []
    with tempfile.TemporaryDirectory(dir=a.directory) as top:
        for n, processors in enumerate(sets):
            d = os.path.join(top, str(n))
            os.mkdir(d)
            if a.pipeline == "demo":
                os.symlink(known["field"], os.path.join(d, "field_000000.dada"))
            running.append((start(a, config, d, processors, *a.set), d))
        reports = [finish(*r) for r in running]
        for _, d in running:
            same = fingerprint(d)
            assert known.setdefault("products", same) == same, f"other products on processors {sets}"
    return reports


def measure(a, processors, known):
    runs = [run_at_once(a, known, [a.allowed[:processors]])[0] for _ in range(a.tries)]
    return min(runs, key=lambda stats: stats["wall_s"])


def measure_apart(a, processors, known):
    """Programs that share nothing: the sum of their rates, in fields a second."""
    sets = [[processor] for processor in a.allowed[:processors]]
    return max(sum(1 / stats["wall_s"] for stats in run_at_once(a, known, sets)) for _ in range(a.tries))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    allowed = sorted(os.sched_getaffinity(0))
    default = ",".join(str(n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= len(allowed))
    parser.add_argument("--build", default="build")
    parser.add_argument("--pipeline", choices=("demo", "chord"), default="demo")
    parser.add_argument("--processors", default=default)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.9)
    parser.add_argument("--set", action="append", default=[], metavar="STAGE.KEY=VALUE")
    parser.add_argument("--apart", action="store_true")
    a = parser.parse_args()
    a.allowed, a.set = allowed, [word for setting in a.set for word in ("--set", setting)]
    inside = os.path.join(a.build, "tools", "beamring")
    a.program = inside if os.path.exists(inside) else os.path.join(a.build, "bin", "beamring") # a bundle
    with tempfile.TemporaryDirectory() as a.directory:
        known = {}
        if a.pipeline == "demo":
            field = os.path.join(a.directory, "recorded")
            os.mkdir(field)
            finish(
                start(a, "demo_simulate.yaml", field, allowed, "--set",
                      f"simulate.samples={int(a.seconds / 5.12e-6)}"), field)
            known["field"] = glob.glob(os.path.join(field, "field*.dada"))[0]
        first, last = None, None
        print(f"{'processors':>10} {'wall, s':>9} {'real time':>9} {'ratio':>6} {'CPU, s':>7}" +
              (f" {'apart':>6}" if a.apart else ""))
        for processors in map(int, a.processors.split(",")):
            last = measure(a, processors, known)
            first = first or last
            cpu = sum(s["cpu_s"] for s in last["stages"])
            print(f"{processors:>10} {last['wall_s']:>9.3f} {last['real_time_factor']:>9.3f} "
                  f"{first['wall_s'] / last['wall_s']:>6.2f} {cpu:>7.2f}" +
                  (f" {first['wall_s'] * measure_apart(a, processors, known):>6.2f}" if a.apart else ""),
                  flush=True)
        print(f"\n{'stage':<20} {'elapsed, s':>10} {'CPU, s':>7} {'waited in':>9} {'out':>6}")
        for s in last["stages"]:
            print(f"{s['name']:<20} {s['busy_s']:>10.3f} {s['cpu_s']:>7.3f} {s['wait_in_s']:>9.3f} "
                  f"{s['wait_out_s']:>6.3f}")


if __name__ == "__main__":
    main()
