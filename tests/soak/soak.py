#!/usr/bin/env python3
"""A whole node on this machine under every fault at once, from a seed; and an account of every sample.

usage: soak.py [--seconds S] [--calm S] [--seed N] [--ready S] [--directory DIR] [--only KIND,...] [--inject]
               [--here]

A simulated F-engine sends to a node that makes beams, voltages, visibilities and dumps, and sends the beams
to two receivers. Meanwhile boards die, packets are lost, the disk is full or hangs, the node is killed: see
faults.py. In the end every packet of every board must be in a product, or in one counter with the reason.
--ready: the longest time after a fault until the node is ready. It depends on the machine, and is only
reported without this option. --calm: so long before the end nothing happens any more that may stop the
node, so that its memory can be seen. --inject: the node injects bursts, and the receivers must have them: see
injected.py. SOAK_NODE=chord takes a node of CHORD on a GPU. Everything runs in network and mount namespaces
of its own; --here: in the machine's, which must not use UDP otherwise. Exit status: 0, 1 when something is
not explained, 77 where namespaces are not permitted.
"""
import argparse
import fcntl
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "pipeline"), os.path.join(HERE, "..", "oracle")]
import boards  # noqa: E402
import faults  # noqa: E402
import node  # noqa: E402
import requests_of  # noqa: E402

DISK_BYTES = (4 << 30) if boards.CHORD else (64 << 20)
KEPT = {"b_": 8, "l_": 8, "v_": 2}  # files of a kind, by how their names begin
PATIENCE_S = 120  # with what must come, on a machine of any speed
BEFORE_S = 30  # until the counters of small boards begin again for the first time


def udp(before={}):
    """The kernel's counters of UDP in this namespace, in packets, from `before` on."""
    with open("/proc/self/net/snmp") as f:
        names, values = [line.split()[1:] for line in f if line.startswith("Udp:")]
    return {name: int(value) * boards.BUNDLE - before.get(name, 0) for name, value in zip(names, values)}


def loopback_up():
    """As `ip link set lo up`, which a bare machine may lack."""
    siocsifflags, iff_up = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, siocsifflags, struct.pack("16sh14x", b"lo", iff_up))


class Soak:
    def __init__(self, directory, seed, seconds, calm, only, inject):
        self.directory, self.seed, self.seconds, self.calm, self.inject = \
            directory, seed, seconds, calm, inject
        self.node = node.with_bursts(seed) if inject else node.NODE
        first = BEFORE_S * 10**9 // boards.SLOT_NS
        if boards.BITS:
            first = 3 * ((1 << boards.BITS) // boards.SAMPLES) - first
        now = time.time_ns() // boards.SLOT_NS
        self.epoch_ns = (now - first) * boards.SLOT_NS
        self.slots = first + int((seconds + 120) * 1e9) // boards.SLOT_NS
        self.plan = [f for f in faults.plan(seed, seconds, calm) if not only or f.kind in only]
        self.running, self.lock = set(), threading.Lock()
        self.udp_before, self.udp_at_ends = udp(), []  # a machine has sent before, a namespace of our own not

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, text):
        with open(self.path(name) + ".new", "w") as f:
            f.write(text)
        os.rename(self.path(name) + ".new", self.path(name))

    def active(self, kind):
        with self.lock:
            return kind in self.running

    def slot_now(self):
        return (time.time_ns() - self.epoch_ns) // boards.SLOT_NS

    def prepare(self):
        self.write("board.yaml", boards.DESCRIPTION)
        self.write("node.yaml", self.node)
        self.write("disk_does", "works")
        with open(self.path("clock"), "wb") as f:
            f.write(bytes(8))
        os.mkdir(self.path("disk"))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", self.path("disk")]
        if subprocess.run(mount).returncode != 0:
            print("no tmpfs can be mounted here: the disk is never full")
            self.plan = [f for f in self.plan if f.kind != "disk_full"]

    def start(self):
        preload = [os.environ[k] for k in ("BEAMRING_BAD_DISK", "BEAMRING_CLOCK") if os.environ.get(k)]
        env = {**os.environ, "LD_PRELOAD": ":".join(preload), "BAD_DISK": self.path("disk"),
               "BAD_DISK_DOES": self.path("disk_does"), "CLOCK_OFFSET": self.path("clock"),
               "XDG_RUNTIME_DIR": self.directory}
        self.controller = faults.Epoch(self.epoch_ns)
        self.receivers = [node.Receiver(self.directory, n) for n in range(2)]
        for receiver in self.receivers:
            receiver.thread.start()
        self.begin, self.begin_s = time.monotonic(), time.time()
        self.calm_at = self.begin + self.seconds - self.calm if self.calm else None
        self.unit = node.Unit(self.directory, env, lambda: self.udp_at_ends.append(udp(self.udp_before)))
        self.watch = node.Watch(self.unit, self.begin)
        self.boards = boards.Boards(self.directory, self.epoch_ns, self.slots, self.seed)
        self.unit.thread.start()
        self.watch.thread.start()
        self.swept = threading.Event()
        threading.Thread(target=self.sweep, daemon=True).start()

    def drive(self):
        """Faults by the plan, each in a thread of its own since some of them wait."""
        self.doing = faults.Doing(self)
        self.requests = requests_of.Requests(self, random.Random(f"{self.seed} requests"))
        self.requests.thread.start()
        threads = []
        for fault in self.plan:
            faults.sleep_until(self.begin + fault.at)
            threads.append(threading.Thread(target=self.make, args=[fault], daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
        while time.monotonic() < self.begin + self.seconds:
            time.sleep(0.2)

    def make(self, fault):
        with self.lock:
            self.running.add(fault.kind)
        fault.begun = time.monotonic() - self.begin
        self.doing.begin(fault)
        faults.sleep_until(self.begin + fault.end)
        with self.lock:
            self.running.discard(fault.kind)
        self.doing.end(fault)
        fault.ended = time.monotonic() - self.begin

    def sweep(self):
        """The oldest recordings make room, as on any disk that is a ring."""
        while not self.swept.wait(0.25):
            for kind, kept in KEPT.items():
                folder = self.path("vis" if kind == "v_" else "disk")
                names = os.listdir(folder) if os.path.isdir(folder) else []
                files = [p for p in names if p.startswith(kind) and p.endswith((".dada", ".uvh5"))]
                files.sort(key=lambda p: os.stat(os.path.join(folder, p)).st_mtime)
                for name in files[:-kept] if boards.CHORD or kind == "b_" else []:
                    os.unlink(os.path.join(folder, name))

    def finish(self, patience):
        """All faults are over: the node is ready, and its dumps are done; then all ends in order."""
        end = time.monotonic() + patience
        while node.ask("/-/ready?now")[0] != 200 and time.monotonic() < end and not self.unit.given_up:
            time.sleep(0.2)
        self.ready_in_the_end = node.ask("/-/ready?now")[0] == 200
        self.requests.finish(patience)
        self.last_stages = node.ask("/v1/stages?now")[1]
        self.boards.end(PATIENCE_S)
        time.sleep(0.5)
        self.watch.over.set()
        self.watch.thread.join()
        self.status = self.unit.end(PATIENCE_S)
        self.receiver_status = [receiver.end() for receiver in self.receivers]
        self.controller.stop()
        self.udp = udp(self.udp_before)

    def keep(self, result):
        with open(self.path("soak.json"), "w") as f:
            json.dump(result, f, indent=1)

    def cut(self):
        """Ends whatever still runs."""
        self.unit.over = True
        for process in (self.boards.process, self.unit.process, *(r.process for r in self.receivers)):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def inside(arguments, directory):
    only = arguments.only.split(",") if arguments.only else None
    soak = Soak(directory, arguments.seed, arguments.seconds, arguments.calm, only, arguments.inject)
    soak.prepare()
    soak.start()
    try:
        soak.drive()
        soak.finish(PATIENCE_S)
    finally:
        soak.cut()
    import account  # at the end: a long run is judged by the account as it is then
    import injected
    import page
    result = account.account(soak, arguments.ready)
    soak.keep(result)  # the search for bursts may take minutes
    if soak.inject:
        began = time.monotonic()
        result["bursts"] = injected.check(soak, result["wrong"])
        result["search_s"] = time.monotonic() - began
        soak.keep(result)
    print(page.text(result))
    if arguments.directory:
        page.draw(result, soak.path("soak.png"))
    return 0 if not result["wrong"] else 1


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--calm", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ready", type=float)
    parser.add_argument("--directory")
    parser.add_argument("--only")
    parser.add_argument("--inject", action="store_true")
    parser.add_argument("--here", action="store_true")
    arguments = parser.parse_args()
    if arguments.directory and os.path.isdir(arguments.directory) and os.listdir(arguments.directory):
        parser.error(f"--directory {arguments.directory} has files in it; expected is a new or empty one")
    if os.environ.get("SOAK_INSIDE") is None and not arguments.here:
        tried = ["unshare", "-n", "-m", "true"]
        if os.geteuid() != 0 or subprocess.run(tried, capture_output=True).returncode != 0:
            print("skipped: no network and mount namespaces here")
            return 77
        os.environ["SOAK_INSIDE"] = "yes"
        os.execvp("unshare", ["unshare", "-n", "-m", "--propagation", "private", sys.executable,
                              os.path.abspath(__file__), *sys.argv[1:]])
    if not arguments.here:
        loopback_up()
    directory = arguments.directory or tempfile.mkdtemp(prefix="beamring-soak-")
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    try:
        status = inside(arguments, directory)
    finally:
        subprocess.run(["umount", "-l", os.path.join(directory, "disk")], capture_output=True)
    if not arguments.directory and status == 0:
        shutil.rmtree(directory)
    elif status != 0:
        print(f"all that was said and written is in {directory}")
    return status


if __name__ == "__main__":
    sys.exit(main())
