"""The node of the soak, the unit that starts it again, and the receivers of its beams."""
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time

import boards
import harness

CONTROL, CONTROLLER, BEAMS = 8081, 54321, (11025, 11026)
UNIT = os.path.join(harness.CONFIG, "service", "beamring@.service")
PACKETIZE = f"""  - stage: packetize
    in: {{from: levels, policy: drop}}
    format: frb-node
    acks: true
    stall_s: 2
    retry_s: 1
    connect_s: 1
    close_s: 2
    destinations: [{', '.join(f'{{address: "127.0.0.1:{port}"}}' for port in BEAMS)}]
"""
CAPTURE = f"""    backend: socket
    epoch_url: http://127.0.0.1:{CONTROLLER}/get-frame0-time
    frame_samples: {boards.FRAME}
    open: 3
    wait_s: 1
    out: packets
  - {{stage: record, name: ledger, in: packets, format: sources, directory: sources, prefix: "s_{{start}}"}}
  - {{stage: unpack, in: packets, out: field}}"""
SMALL = f"""telescope:
  name: soak
  grid: {{m: 4, n: 4}}
  spacing_m: {{m: 8.5, n: 6.3}}
  dishes: {[[m, n] for m in range(4) for n in range(4)]}
  latitude_deg: 49.3
  longitude_deg: -119.6
control: {{listen: "127.0.0.1:{CONTROL}"}}
journal: journal.yaml
pipeline:
  - stage: capture
    packet: ./board.yaml
    addresses: "127.0.0.1:{boards.PORT}"
    receive_buffer: 4194304
{CAPTURE}
  - {{stage: dump, in: {{from: field, history: {{seconds: 4}}}}, directory: disk/dumps, disk_timeout_s: 2}}
  - {{stage: flag, in: field, out: clean, long_block: 16, least_level: -7}}
  - {{stage: upchannelize, in: clean, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: 32}}
  - {{stage: frb_beams, in: grid, out: beams, beams: {{grid: [2, 2], spacing_deg: 1}}}}
  - {{stage: quantize, in: beams, out: levels, bits: 4, block: 256}}
{PACKETIZE}  - stage: baseband_beamform
    in: clean
    out: moving
    beams: {{directions: [[0, 0]], rates: [[7.2e-5, 0]]}}
  - {{stage: record, name: baseband, in: {{from: moving, policy: drop}}, directory: disk,
     prefix: "b_{{start}}", file_bytes: 4194304}}
  - {{stage: correlate, in: clean, out: visibilities, integrate: 65536}}
  - {{stage: uvh5, in: visibilities, directory: vis, prefix: "v_{{start}}", integrations: 20}}
"""
# A node of CHORD at its real rate, on a GPU: 1024 beams for the disk, 8 for the receivers, 16 of voltages.
CHORD = f"""include: {harness.CONFIG}/telescopes/chord.yaml
device: cuda:0
control: {{listen: "127.0.0.1:{CONTROL}"}}
journal: journal.yaml
pipeline:
  - stage: capture
    packet: chord-crs
    sources: {list(range(boards.BOARDS))}
    streams: [0]
    addresses: [{', '.join(f'"127.0.0.1:{boards.PORT + k}"' for k in range(boards.THREADS))}]
    receive_buffer: 268435456
{CAPTURE}
  - {{stage: dump, in: {{from: field, history: {{seconds: 0.5}}}}, directory: disk/dumps, disk_timeout_s: 2}}
  - {{stage: flag, in: field, out: clean, least_level: -7}}
  - {{stage: upchannelize, in: clean, out: fine, factor: 16}}
  - {{stage: frb_grid, in: fine, out: grid, integrate: 192}}
  - {{stage: frb_beams, name: search, in: grid, out: beams, beams: {{grid: [32, 32], spacing_deg: 0.12}}}}
  - {{stage: quantize, name: search_levels, in: beams, out: search_levels, bits: 4, block: 256}}
  - {{stage: record, name: search_record, in: {{from: search_levels, policy: drop}}, directory: disk,
     prefix: "l_{{start}}", file_bytes: 67108864}}
  - {{stage: frb_beams, in: grid, out: few, beams: {{grid: [2, 4], spacing_deg: 0.12}}}}
  - {{stage: quantize, in: few, out: levels, bits: 4, block: 256}}
{PACKETIZE}    zones: {{nfreq: [98304], edges_mhz: [299.90234375, 1499.90234375]}}
  - stage: baseband_beamform
    in: clean
    out: moving
    beams: {{directions: [{', '.join(f'[0, {0.002 * n:.3f}]' for n in range(16))}],
            rates: [[7.2e-5, 0]]}}
  - {{stage: record, name: baseband, in: {{from: moving, policy: drop}}, directory: disk,
     prefix: "b_{{start}}", file_bytes: 67108864}}
  - {{stage: correlate, in: clean, out: visibilities, integrate: 2097152}}
  - {{stage: uvh5, in: visibilities, directory: vis, prefix: "v_{{start}}", integrations: 2}}
"""
NODE = CHORD if boards.CHORD else SMALL

# The beams that bursts come from: the receivers have them.
AIMED = [32 * m + n for m in (15, 16) for n in range(14, 18)] if boards.CHORD else [0, 1, 2, 3]
INJECT = f"""  - {{stage: inject, in: clean, out: bright, ledger: injections.jsonl,
     schedule: {{per_hour: 1200, seed: SEED, snr: [8, 80], dm: {[2, 20] if boards.CHORD else [50, 1000]},
     width_s: [0.01, 0.04], beams: {AIMED}, radius: {0.0005 if boards.CHORD else 0.004}}}}}
"""  # a sweep of CHORD's band takes 0.9 s at most


def with_bursts(seed):
    """The node with `inject` between `flag` and the products; the dumps have the field before it."""
    before, after = NODE.split("  - {stage: upchannelize")
    return before + INJECT.replace("SEED", str(seed)) + "  - {stage: upchannelize" + \
        after.replace("in: clean", "in: bright")


def ask(path, body=None, method=None, timeout=10):
    """(code, text) of the control interface; (0, why) where it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", CONTROL, timeout=timeout)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


class Unit:
    """systemd's part, by the shipped unit: starts the node, and again when it has failed."""

    def __init__(self, directory, env, on_end):
        self.directory, self.env, self.process = directory, env, None
        self.keys = dict(re.findall(r"^(\w+)=(.*)$", open(UNIT).read(), re.M))
        self.starts, self.ends, self.over = [], [], False
        self.given_up, self.on_end = None, on_end
        self.thread = threading.Thread(target=self.run, daemon=True)

    def words(self, key):
        words = self.keys[key].replace("/etc/beamring/%i.yaml", "node.yaml").replace("--quiet", "")
        return shlex.split(words.replace("/opt/beamring/bin/beamring", os.path.abspath(harness.PROGRAM)))

    def start(self):
        with open(os.path.join(self.directory, "node.log"), "a") as log:
            self.starts.append(time.monotonic())
            checked = subprocess.run(self.words("ExecStartPre"), cwd=self.directory, stdout=log, stderr=log)
            if checked.returncode != 0:
                return checked.returncode
            log.write(json.dumps({"unit": "start", "message": "", "stage": None}) + "\n")
            log.flush()
            self.process = subprocess.Popen(self.words("ExecStart"), cwd=self.directory, stdout=log,
                                            stderr=log, env=self.env)
        return None

    def run(self):
        interval, burst = (float(self.keys.get(k, d)) for k, d in
                           (("StartLimitIntervalSec", 10), ("StartLimitBurst", 5)))
        while not self.over:
            now = time.monotonic()
            if interval > 0 and sum(now - t < interval for t in self.starts) >= burst:
                self.given_up = f"the unit gives up after {burst:.0f} starts in {interval:.0f} s"
                return
            status = self.start()
            if status is None:
                status = self.process.wait()
                self.ends.append((time.monotonic(), status))
                self.on_end()
                if self.over:
                    return
                if status in (0, -signal.SIGTERM) or \
                        str(status) in self.keys["RestartPreventExitStatus"].split():
                    self.given_up = f"the unit does not start the node again after status {status}"
                    return
            time.sleep(float(self.keys["RestartSec"]))

    def signal(self, number):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, seconds):
        """A drained end; its exit status."""
        self.over = True
        self.signal(signal.SIGTERM)
        self.thread.join(seconds)
        if self.thread.is_alive():
            self.signal(signal.SIGKILL)
            self.thread.join()
        return self.process.returncode


class Receiver:
    """A search node as a service: `beamring receive` until its sender closes, and then again, since the next
    sender may have another document; it may be killed, and be away for a while."""

    def __init__(self, directory, number):
        self.directory, self.number, self.runs, self.process = directory, number, 0, None
        self.fault = None  # the one that it has, see faults.py
        self.killed, self.may_run, self.over, self.lock = 0, threading.Event(), False, threading.Lock()
        self.may_run.set()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def folder(self, run):
        return os.path.join(self.directory, f"received{self.number}_{run}")

    def run(self):
        while self.may_run.wait() and not self.over:
            words = [os.path.abspath(harness.PROGRAM), "receive", "frb-node", "--until-closed",
                     f"127.0.0.1:{BEAMS[self.number]}", "--directory", self.folder(self.runs)]
            with self.lock, open(os.path.join(self.directory, f"receiver{self.number}.log"), "a") as log:
                if not self.may_run.is_set():
                    continue
                self.process = subprocess.Popen(words, stdout=log, stderr=log)
                self.runs += 1
            self.process.wait()
            time.sleep(0.1)

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def pause(self):
        """Killed, and not started again until go_on()."""
        with self.lock:
            self.may_run.clear()
            self.killed += self.process.poll() is None
            self.signal(signal.SIGKILL)
        self.process.wait()

    def go_on(self):
        self.may_run.set()

    def end(self):
        self.over = True
        self.go_on()
        self.signal(signal.SIGTERM)
        self.thread.join(60)
        return self.process.returncode


class Watch:
    """Looks at the node once a second: is it ready, and how much it holds."""

    def __init__(self, unit, begin):
        self.unit, self.begin, self.rows, self.over = unit, begin, [], threading.Event()
        self.seen = {}  # pid: what /v1/stages said last
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.gpu = None  # MiB of the GPU that are in use
        if boards.CHORD:
            threading.Thread(target=self.look_at_gpu, daemon=True).start()

    def look_at_gpu(self):
        words = ["nvidia-smi", "-i", os.environ.get("CUDA_VISIBLE_DEVICES", "0"), "--query-gpu=memory.used",
                 "--format=csv,noheader,nounits"]
        while not self.over.wait(1):
            self.gpu = float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    def held(self, pid):
        """Kilobytes that the process has resident and locked, its threads, its descriptors."""
        try:
            with open(f"/proc/{pid}/status") as f:
                status = dict(line.split(":", 1) for line in f if ":" in line)
            return [int(status[k].split()[0]) for k in ("VmRSS", "VmLck", "Threads")] + \
                [len(os.listdir(f"/proc/{pid}/fd"))]
        except (OSError, KeyError, ValueError):
            return None

    def run(self):
        while not self.over.wait(0.25):
            process = self.unit.process
            began = time.monotonic()
            code, _ = ask("/-/ready?now", timeout=5)
            row = {"t": began - self.begin, "ready": code == 200, "answer_s": time.monotonic() - began}
            if process is not None and (held := self.held(process.pid)) is not None:
                row.update(zip(("rss", "locked", "threads", "fds"), held), pid=process.pid)
                if self.gpu is not None:
                    row["gpu"] = self.gpu
            self.rows.append(row)
            if len(self.rows) % 4 == 0 and process is not None:
                code, text = ask("/v1/stages?now", timeout=5)
                if code == 200:
                    self.seen[process.pid] = text
