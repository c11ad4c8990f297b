#!/usr/bin/python3
"""Makes the processes of a test stand still now and then, as a busy machine or a slow disk does.

  tests/stall.py PID [SEED]    until it is ended, those that `meson test` below process PID has begun

Now and then one of them, chosen at random, or all of them, are stopped for one to two seconds. A process that
its test has stopped itself is left alone."""
import os
import random
import signal
import sys
import time


def processes():
    """By its number, every process: its parent, state and command line."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            with open(f"/proc/{name}/cmdline") as f:
                found[int(name)] = int(parent), state, f.read().split("\0")
        except OSError:
            pass  # it has ended
    return found


def below(top):
    """The processes that a `meson test` below process `top` has begun."""
    found = processes()

    def ancestors(pid):
        while pid in found and pid != top:
            pid = found[pid][0]
            yield pid

    def is_meson(pid):
        return pid in found and any(word.endswith("meson") for word in found[pid][2][:2])

    for pid, (_, state, _) in found.items():
        above = list(ancestors(pid))
        if state not in "TtZ" and top in above and any(map(is_meson, above)):
            yield pid


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def main():
    top, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    victims = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            time.sleep(rng.uniform(0.2, 2))
            victims = sorted(below(top))
            if victims and rng.random() < 0.8:
                victims = [rng.choice(victims)]
            send(victims, signal.SIGSTOP)
            time.sleep(rng.uniform(1, 2) if victims else 0)
            send(victims, signal.SIGCONT)
    finally:
        send(victims, signal.SIGCONT)


if __name__ == "__main__":
    main()
