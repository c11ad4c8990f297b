"""Shared by the kinds of hostile input: the program as a process that must end well, mutations, counts."""
import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "oracle"), os.path.join(HERE, "..", "pipeline")]
import harness  # noqa: E402

PATIENCE_S = 60
COUNTS = collections.Counter()  # of all that was tried


class Fault(Exception):
    pass


def check(ok, *what):
    if not ok:
        raise Fault(" ".join(map(str, what)))


class Process(subprocess.Popen):
    """The program with these arguments; what it says goes into a file."""
    begun = []

    def __init__(self, d, *args, **more):
        self.path = os.path.join(d, "log")
        with open(self.path, "w") as log:
            super().__init__([os.path.abspath(harness.PROGRAM), *map(str, args)], cwd=d, stdout=log,
                             stderr=log, **more)
        Process.begun.append(self)

    @staticmethod
    def end_all(d):
        """Where something went wrong, one may still run."""
        for process in [p for p in Process.begun if os.path.dirname(p.path) == d]:
            if process.poll() is None:
                process.kill()
                process.wait()
            Process.begun.remove(process)

    def log(self):
        with open(self.path, errors="replace") as f:
            return f.read()

    def until(self, ready, what):
        """Waits until ready(), or its end."""
        end = time.time() + PATIENCE_S
        while self.poll() is None and not ready():
            check(time.time() < end, what, "\n", self.log()[-3000:])
            time.sleep(0.005)

    def ports(self, count):
        """The ports that it says it listens on, once it is ready."""
        found = lambda: re.findall(r"listening on port (\d+)|control: http://[^ ]*:(\d+)/", self.log())
        self.until(lambda: len(found()) == count, "the node does not listen")
        check(self.poll() is None, "the node ends at once\n", self.log())
        return [int(a or b) for a, b in found()]

    def ended(self, allowed, what, patience_s=PATIENCE_S):
        """It ends by itself, with a status that is allowed: no signal, no sanitizer. Returns what it said."""
        try:
            self.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
            raise Fault(f"{what}: hangs\n{self.log()[-3000:]}") from None
        said = self.log()
        check(self.returncode in allowed,
              f"{what}: exit {self.returncode}, expected {allowed}\n{said[-3000:]}")
        check("Sanitizer" not in said and "runtime error:" not in said, f"{what}\n{said[-3000:]}")
        return said

    def stopped(self, allowed, what):
        """It ends when it is asked to, at the latest when it is asked twice."""
        for _ in range(2):
            if self.poll() is None:
                self.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(PATIENCE_S / 4)
                break
        return self.ended((*allowed, -signal.SIGTERM), what)  # before it takes signals, while it is loaded


def mutated(rng, data, times=None):
    """A few places are changed, left out, doubled, moved, or cut off; lengths become extreme."""
    data = bytearray(data)
    for _ in range(times or rng.choice((1, 1, 1, 2, 5, 20))):
        if not data:
            break
        at, n = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 100))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + n] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * n
        elif kind == 2:
            del data[at:at + n]
        elif kind == 3:
            data[at:at] = data[at:at + n]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            data[at:at + 4] = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
        else:
            data[at:at + n] = rng.randbytes(n)
    return bytes(data)
