"""The faults of a soak: a plan that follows from the seed alone, and how each is made and undone."""
import contextlib
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field

import boards
import node

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "live"))
from controller import Controller, time_of_sample_0  # noqa: E402

# kind: (least and most seconds that it lasts, mean seconds between two of them in a long run, whether the
# node may be not ready meanwhile)
KINDS = {
    "boards_die": (3, 12, 40, False), "loss": (4, 12, 30, False), "reorder": (4, 12, 40, False),
    "late": (3, 8, 50, False), "duplicate": (3, 10, 40, False), "twin_near": (3, 6, 80, False),
    "twin_far": (3, 6, 80, False), "noise": (3, 10, 50, False), "begin_again": (1, 6, 130, True),
    "controller_gone": (4, 9, 110, True), "receiver_killed": (2, 5, 60, False),
    "receiver_stopped": (4, 10, 100, False), "receiver_half_open": (3, 6, 100, False),
    "disk_full": (3, 6, 150, True), "disk_hangs": (3, 6, 120, True), "restart_right": (0, 0, 120, True),
    "restart_wrong": (0, 0, 90, False), "clock_step": (4, 9, 90, False), "http_half_open": (4, 9, 60, False),
    "memory": (3, 6, 90, False), "node_stopped": (1, 3, 120, True), "node_killed": (0, 0, 200, True),
}


@dataclass
class Fault:
    kind: str
    at: float
    end: float
    how: float = 0  # a draw of its own, 0 to 1
    done: dict = field(default_factory=dict)


def plan(seed, seconds, calm=0):
    """Every kind at least once; those of one kind one after the other; all over 15 s before the end, and
    those that may stop the node `calm` seconds before it."""
    faults = []
    for kind, (least, most, every, stops) in KINDS.items():
        rng, last = random.Random(f"{seed} {kind}"), seconds - max(15, calm if stops else 0)
        at = 6 + rng.random() * (min(every, last - most - 1) - 6)
        while at + most <= last:
            length = rng.uniform(least, most)
            faults.append(Fault(kind, at, at + length, rng.random()))
            at += length + 2 + rng.expovariate(1 / every)
    return sorted(faults, key=lambda f: f.at)


class Epoch:
    """The F-engine's controller; it may be gone."""

    def __init__(self, epoch_ns):
        self.epoch_ns, self.server = epoch_ns, None
        self.start()

    def start(self):
        self.server = Controller(time_of_sample_0(self.epoch_ns), node.CONTROLLER)

    def stop(self):
        if self.server is not None:
            self.server.close()
        self.server = None

    def tell(self, epoch_ns):
        self.epoch_ns = epoch_ns
        if self.server is not None:
            self.server.answer = time_of_sample_0(epoch_ns)


class Doing:
    """Makes faults and undoes them. `soak` has what they are made with."""

    def __init__(self, soak):
        self.soak, self.epochs = soak, [soak.epoch_ns]
        self.said = []  # what went otherwise than it must

    def order(self, **orders):
        self.soak.boards.order(**orders)

    def begin(self, fault):
        getattr(self, "begin_" + fault.kind)(fault)

    def end(self, fault):
        getattr(self, "end_" + fault.kind, lambda _: None)(fault)

    def begin_boards_die(self, fault):
        rng = random.Random(fault.how)
        self.order(dead=rng.sample(range(boards.BOARDS), rng.choice((1, 1, 2, 3))))

    def end_boards_die(self, _):
        self.order(dead=[])

    def begin_loss(self, fault):
        self.order(loss=0.002 + 0.02 * fault.how, burst=1 + int(fault.how * 977) % 40)

    def end_loss(self, _):
        self.order(loss=0)

    def begin_reorder(self, fault):
        self.order(reorder=4 + int(60 * fault.how))

    def end_reorder(self, _):
        self.order(reorder=0)

    def begin_late(self, fault):
        self.order(late=0.002 + 0.01 * fault.how)

    def end_late(self, _):
        self.order(late=0)

    def begin_duplicate(self, fault):
        self.order(duplicate=0.01 + 0.1 * fault.how)

    def end_duplicate(self, _):
        self.order(duplicate=0)

    def begin_twin_near(self, _):
        self.order(near=True)

    def end_twin_near(self, _):
        self.order(near=False)

    def begin_twin_far(self, _):
        self.order(far=True)

    def end_twin_far(self, _):
        self.order(far=False)

    def begin_noise(self, fault):
        self.order(noise=0.02 + 0.1 * fault.how)

    def end_noise(self, _):
        self.order(noise=0)

    def begin_begin_again(self, fault):
        """The counters begin again; the controller says so a moment before or after, or when it is back."""
        slot = self.soak.slot_now() + 10**9 // boards.SLOT_NS
        epoch = self.soak.epoch_ns + slot * boards.SLOT_NS
        self.order(begin_again=slot)
        fault.done = {"epoch": epoch, "slot": slot}
        self.epochs.append(epoch)
        if fault.how < 0.4:
            self.soak.controller.stop()
        elif fault.how < 0.7:
            self.soak.controller.tell(epoch)

    def end_begin_again(self, fault):
        self.soak.controller.tell(fault.done["epoch"])
        if self.soak.controller.server is None and not self.soak.active("controller_gone"):
            self.soak.controller.start()

    def begin_controller_gone(self, _):
        self.soak.controller.stop()

    def end_controller_gone(self, _):
        if self.soak.controller.server is None:
            self.soak.controller.start()

    def receiver(self, fault):
        return self.soak.receivers[int(fault.how * 1000) % len(self.soak.receivers)]

    def free(self, fault):
        """Receivers have one fault at a time; which one has it is kept in `fault.done`."""
        receiver = self.receiver(fault)
        if receiver.fault is not None:
            return None
        receiver.fault = fault
        fault.done = {"receiver": receiver.number}
        return receiver

    def mine(self, fault):
        receiver = self.receiver(fault)
        if receiver.fault is not fault:
            return None
        receiver.fault = None
        return receiver

    def begin_receiver_killed(self, fault):
        receiver = self.free(fault)
        if receiver:
            receiver.pause()

    def end_receiver_killed(self, fault):
        receiver = self.mine(fault)
        if receiver:
            receiver.go_on()

    def begin_receiver_stopped(self, fault):
        receiver = self.free(fault)
        if receiver:
            receiver.signal(signal.SIGSTOP)

    def end_receiver_stopped(self, fault):
        receiver = self.mine(fault)
        if receiver:
            receiver.signal(signal.SIGCONT)

    def begin_receiver_half_open(self, fault):
        """Another program has its port: it accepts, and neither reads nor answers."""
        receiver = self.free(fault)
        if receiver:
            receiver.pause()
            fault.done["listener"] = socket.create_server(("127.0.0.1", node.BEAMS[receiver.number]))

    def end_receiver_half_open(self, fault):
        receiver = self.mine(fault)
        if receiver:
            fault.done.pop("listener").close()
            receiver.go_on()

    def begin_disk_full(self, _):
        """Somebody else's file fills the tmpfs."""
        fd = os.open(self.soak.path("disk", "filler"), os.O_CREAT | os.O_WRONLY)
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(fd, os.fstat(fd).st_size, size)
        os.close(fd)

    def end_disk_full(self, _):
        os.unlink(self.soak.path("disk", "filler"))

    def begin_disk_hangs(self, _):
        self.soak.write("disk_does", "hangs")

    def end_disk_hangs(self, _):
        self.soak.write("disk_does", "works")

    def begin_restart_right(self, _):
        code, text = node.ask("/v1/restart", b"", timeout=30)
        if code not in (0, 202, 409, 422):
            self.said.append(f"a restart with the right file: {code} {text}")

    def begin_restart_wrong(self, fault):
        text = self.soak.node
        wrong = (text.replace("frame_samples", "frame_sampels"), text + "  - {stage: nothing, in: field}\n",
                 text[:len(text) // 2], "", "pipeline: [")
        self.soak.write("node.yaml", wrong[int(fault.how * len(wrong))])
        code, answer = node.ask("/v1/restart", b"", timeout=30)
        self.soak.write("node.yaml", text)
        if code not in (0, 422, 409):
            self.said.append(f"a restart with a wrong file is answered by {code} {answer}")

    def begin_clock_step(self, fault):
        self.clock(int((fault.how - 0.5) * 16e9))

    def end_clock_step(self, _):
        self.clock(0)

    def clock(self, offset_ns):
        with open(self.soak.path("clock"), "r+b") as f, mmap.mmap(f.fileno(), 8) as m:
            m[:] = struct.pack("<q", offset_ns)

    def begin_http_half_open(self, fault):
        fault.done["sockets"] = []
        for n in range(60):
            with contextlib.suppress(OSError):
                s = socket.create_connection(("127.0.0.1", node.CONTROL), timeout=5)
                s.sendall((b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"POST /v1/upd",
                           b"")[n % 3])
                fault.done["sockets"].append(s)

    def end_http_half_open(self, fault):
        for s in fault.done.pop("sockets"):
            s.close()

    def begin_memory(self, fault):
        """Takes and touches memory, never more than a sixteenth of what is free."""
        with open("/proc/meminfo") as f:
            free = next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) * 1024
        grab = f"import time; block = bytearray({min(free // 16, 512 << 20)}); block[::4096] = " \
            "bytes(len(block[::4096])); time.sleep(60)"
        fault.done["process"] = subprocess.Popen([sys.executable, "-c", grab])

    def end_memory(self, fault):
        process = fault.done.pop("process")
        process.kill()
        process.wait()

    def begin_node_stopped(self, _):
        self.soak.unit.signal(signal.SIGSTOP)

    def end_node_stopped(self, _):
        self.soak.unit.signal(signal.SIGCONT)

    def begin_node_killed(self, _):
        self.soak.unit.signal(signal.SIGKILL)


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))
