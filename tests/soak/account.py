"""The account of a soak: what the F-engine sent against what the node's counters and products say.

The ledger of the F-engine (boards.py) has every slot of every board: sent, or why not. The node's has two
sides. Its recordings of who was missing (`record: {format: sources}`) say, for every slot between the first
and the last frame of a pipeline, whether the packet was taken; its counters say what became of the others.
The kernel's counters of UDP lie between the two."""
import datetime
import glob
import json
import os
import re

import numpy as np

import boards
import harness
import node

CALM_S = 180  # shorter stretches say nothing of a slope
# The least change of what a node holds that counts: kB, kB, descriptors, threads, MiB of the GPU.
SHOWN = {"rss": 128, "locked": 4, "fds": 1, "threads": 1, "gpu": 2}
REASONS = ("accepted", "late", "duplicate", "foreign", "malformed", "flagged", "stray", "no_frame",
           "behind", "early")
LACKING = ("late", "stray", "no_frame", "behind", "malformed", "flagged")  # of packets that are not taken
START = re.compile(r"begins with sample (\d+), which was taken at (\S+)\.(\d{9}) UTC")
TOTAL = re.compile(r"(\d+) packets: (.*); (\d+) never came, of which the kernel lost (\d+); (\d+) resets")
PEER = re.compile(r"127.0.0.1:(\d+): (\d+) minichunks sent, (\d+) missed, (\d+) connections?, (\d+) not "
                  r"acknowledged, in the last connection (\d+) assembled")
CLOCK = re.compile(r"from sample (\d+) on the count was off by (-?\d+) samples")
AGAIN = re.compile(r"(?:began again, at|jumped, to) sample (\d+) by our count"
                   r"( and this machine's clock, until)?")
COUNTED = re.compile(r"the frames from sample (\d+) on are counted so")  # those before it were open already


def counts_of(text):
    return {reason: int(n) for n, reason in re.findall(r"(\d+) (\w+)", text)}


class Run:
    """One pipeline: what its log says."""

    def __init__(self):
        self.first = self.start_ns = self.total = None
        self.reasons = {}    # packets, by what became of them
        self.by_board = {}   # board: the same, unless the log left lines out; None: of no known source
        self.kernel = self.resets = 0
        self.balanced = None
        self.off = []        # (from sample, to sample, by how many): the count was by the clock there
        self.clock_from = None  # the count is by the clock from there on
        self.unknown = []       # (from sample, to sample): it was, and nobody said how far that was off
        self.by_clock = 0       # packets that are counted so, and nobody knows better
        self.sources_at, self.frames_from = None, {}  # where the sources began again: the first frame then
        self.present = None  # [board][slot] of [begin, end), absolute slots
        self.begin = self.end = 0

    def put(self, present, first, end, offset):
        """`present` of samples [first, end), at the slots where the packets were: parts of it were counted by
        the node's clock, until the controller said how far that was off."""
        if self.clock_from is not None:  # it never did: nobody knows where these were
            self.by_clock = int(present[:, max(0, (self.clock_from - first) // boards.SAMPLES):].sum())
            end = max(first, min(end, self.clock_from))
        for part in (slice(max(0, a - first) // boards.SAMPLES, max(0, b - first) // boards.SAMPLES)
                     for a, b in ((a, b or end) for a, b in self.unknown)):
            self.by_clock += int(present[:, part].sum())
            present[:, part] = False
        parts = [(first, end, 0)]
        for a, b, off in self.off:
            at, stop, _ = parts.pop()
            b = end if b is None else min(end, b)
            parts += [(at, a, 0), (a, b, off), (b, end, 0)]
        parts = [(a, b, off) for a, b, off in parts if b > a]
        if not parts:
            return
        slot = lambda sample: sample // boards.SAMPLES + offset
        self.begin, self.end = slot(parts[0][0] + parts[0][2]), slot(parts[-1][1] + parts[-1][2])
        self.present = np.zeros((boards.BOARDS, self.end - self.begin), bool)
        for a, b, off in parts:
            piece = present[:, (a - first) // boards.SAMPLES:(b - first) // boards.SAMPLES]
            to = slot(a + off) - self.begin
            skip, room = max(0, -to), self.present.shape[1] - max(0, to)
            piece = piece[:, skip:skip + room]
            self.present[:, max(0, to):max(0, to) + piece.shape[1]] |= piece

    @property
    def clean(self):
        return self.total is not None

    def take(self, stage, message):
        if stage == "capture":
            if m := START.search(message):
                day = datetime.datetime.strptime(m[2] + "+0000", "%Y-%m-%d-%H:%M:%S%z")
                self.first, self.start_ns = int(m[1]), int(day.timestamp()) * 10**9 + int(m[3])
            elif m := TOTAL.search(message):
                self.total, self.kernel, self.resets = int(m[1]), int(m[4]), int(m[5])
                self.reasons = counts_of(m[2])
            elif m := re.match(r"(?:source (\d+)|no known source): (.*)", message):
                if not message.endswith("again") and "no packets" not in message:
                    self.by_board[int(m[1]) if m[1] else None] = counts_of(m[2])
            elif m := CLOCK.search(message):
                at = int(m[1])
                self.off.append([self.frames_from.get(at, at), None, int(m[2])])
                self.clock_from = None
            elif m := AGAIN.search(message):
                self.sources_at = int(m[1])
                if self.clock_from is not None:
                    self.unknown.append([self.clock_from, None])
                self.clock_from = self.sources_at if m[2] else None
            elif m := COUNTED.search(message):
                frame = self.frames_from[self.sources_at] = int(m[1])
                if self.off and self.off[-1][1] is None:
                    self.off[-1][1] = frame
                for stretch in self.unknown:
                    stretch[1] = frame if stretch[1] is None else stretch[1]
                if self.clock_from is not None:
                    self.clock_from = max(self.clock_from, frame)


def read_log(path):
    """[[Run, ...] of each process], and [port, sent, missed, connections, unanswered,
    assembled by the last one] of each pipeline."""
    processes, peers, doubted = [], [], False
    with open(path, errors="replace") as f:
        for line in f:
            if line.startswith("balance:") and processes:
                processes[-1][-1].balanced = True
            if "DOES NOT ADD UP" in line and processes:
                processes[-1][-1].balanced = False
            if not line.startswith("{"):
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut off by SIGKILL
            if entry.get("unit"):
                processes.append([Run()])
            elif processes:
                run = processes[-1][-1]
                message = entry["message"]
                if entry["stage"] == "capture" and (
                        START.search(message) and (run.first is not None or run.clean) or
                        TOTAL.search(message) and run.clean):
                    processes[-1].append(Run())
                if entry["stage"] == "packetize" and (m := PEER.search(message)):
                    peers.append(list(map(int, m.groups())))
                run = processes[-1][-1]
                run.take(entry["stage"], message)
                doubted = doubted or "than by their counter and its epoch" in message
                if doubted and START.search(message):
                    run.clock_from, doubted = run.first, False
    return processes, peers


def name_of(start_ns):
    s, ms = start_ns // 10**9, start_ns // 10**6 % 1000
    return datetime.datetime.fromtimestamp(s, datetime.timezone.utc).strftime("%Y%m%dT%H%M%S") + f".{ms:03d}Z"


def is_sent(sent, present, first, offset):
    """Whether the F-engine sent all packets that were taken, at the samples of the recording. At other times
    it would lack those that were lost there."""
    at = first // boards.SAMPLES + offset
    state = sent.state[:, max(at, 0):at + present.shape[1]]
    return at >= 0 and state.shape == present.shape and \
        not (present & ((state & (boards.SENT | boards.TWIN)) == 0)).any()


def read_sources(run, directory, epoch_ns, sent):
    """Which slots were taken, by the recording of who was missing, if there is one: a node may be killed
    before its first frame. Returns a complaint, or None."""
    paths = glob.glob(os.path.join(directory, f"s_{name_of(run.start_ns)}_*.sources"))
    lines = open(paths[0]).read().splitlines() if paths else []
    reach = re.match(r"# samples (\d+) to (\d+)", lines[-1]) if lines else None
    if reach is None:
        return None
    first, end = int(reach[1]), int(reach[2])
    epoch = run.start_ns - run.first * boards.SAMPLE_NS  # of the stream's sample 0
    offset, rest = divmod(epoch - epoch_ns, boards.SLOT_NS)
    if rest:
        return f"the samples that begin at {run.start_ns} are not on packets of the F-engine"
    present = np.ones((boards.BOARDS, (end - first) // boards.SAMPLES), bool)
    for line in lines[1:-1]:
        at, count, source = line.split()[:3]
        part = slice((int(at) - first) // boards.SAMPLES, (int(at) + int(count) - first) // boards.SAMPLES)
        present[slice(None) if source == "all" else int(source), part] = False
    if run.clock_from == run.first and run.first is not None and is_sent(sent, present, first, offset):
        run.clock_from = None  # the machine's clock was wrong, and not the count
    run.put(present, first, end, offset)
    return None


def at_the_end(present, latest):
    """[board][slot]: after the last packet of its board that was taken, within the last `latest` slots. One
    thread of the F-engine may be so far behind another, and its packets come when the sockets are closed."""
    n = present.shape[1]
    taken_until = np.where(present.any(1), n - np.argmax(present[:, ::-1], 1), 0)
    return np.arange(n) >= np.maximum(taken_until, n - latest)[:, None]


def balance_of_slots(sent, processes, wrong):
    """Every slot of every board has one fate. Returns {fate: [board]}."""
    zero = lambda: np.zeros(boards.BOARDS, np.int64)
    fate = {k: zero() for k in ("slots", "board silent", "lost on the way", "taken", "taken from a twin",
                                "lost in the node", "no pipeline")}
    here = sent.state[:, sent.start:sent.stop]
    was_sent = (here & boards.SENT) > 0
    fate["slots"] += here.shape[1]
    fate["board silent"] += ((here & boards.DEAD) > 0).sum(1)
    fate["lost on the way"] += ((here & boards.LOST) > 0).sum(1)
    covered = np.zeros(here.shape[1], bool)
    for run in (r for p in processes for r in p if r.present is not None):
        a, b = run.begin - sent.start, run.end - sent.start
        state, present = here[:, max(a, 0):b], run.present[:, max(0, -a):]
        present, beyond = present[:, :state.shape[1]], present[:, state.shape[1]:]
        known = (state & (boards.SENT | boards.TWIN)) > 0
        run.invented = int((present & ~known).sum() + beyond.sum())
        run.taken = present.sum(1)
        run.lacking = ((state & boards.SENT) > 0) & ~present
        run.unheard = int((run.lacking & at_the_end(present, sent.latest)).sum())
        fate["taken"] += (present & ((state & boards.SENT) > 0)).sum(1)
        fate["taken from a twin"] += (present & known & ~((state & boards.SENT) > 0)).sum(1)
        fate["lost in the node"] += run.lacking.sum(1)
        if covered[max(a, 0):b].any():
            wrong.append(f"two pipelines have the samples from slot {run.begin} on")
        covered[max(a, 0):b] = True
        if run.invented:
            wrong.append(f"{run.invented} packets are taken that nobody sent, in the pipeline that begins "
                         f"with sample {run.first}")
    fate["no pipeline"] += (was_sent & ~covered).sum(1)
    return fate


def balance_of_packets(soak, sent, processes, wrong):
    """The kernel between the F-engine and the node: all are exact."""
    last = {k: 0 for k in soak.udp}
    unexplained, nobody = 0, soak.udp["OutDatagrams"] - soak.udp["InDatagrams"] - soak.udp["InErrors"]
    totals = {k: 0 for k in (*REASONS, "kernel", "died with the process", "accepted in a failed run")}
    for number, (process, after) in enumerate(zip(processes, soak.udp_at_ends)):
        got, kernel = (after[k] - last[k] for k in ("InDatagrams", "RcvbufErrors"))
        last = after
        seen, lacking, reasons = 0, 0, 0
        for run in process:
            seen += run.total or 0
            lacking += int(run.lacking.sum()) if run.present is not None else 0
            for reason in REASONS:
                totals[reason] += run.reasons.get(reason, 0)
            taken = run.taken if run.present is not None else np.zeros(boards.BOARDS, int)
            more = run.reasons.get("accepted", 0) - int(taken.sum()) - run.by_clock if run.clean else 0
            totals["accepted in a failed run"] += more
            reasons += sum(run.reasons.get(r, 0) for r in LACKING) + more + run.by_clock
            early = run.reasons.get("early", 0)
            if run.resets or run.off:  # before the stream went on
                reasons += early
            elif run.present is not None:  # of the first frame, when it had just been chosen
                reasons += min(early, int(run.lacking[:, :boards.FRAME // boards.SAMPLES].sum()))
            if run.clean and sum(run.reasons.values()) != run.total:
                wrong.append(f"the counters of {run.total} packets do not add up to them: {run.reasons}")
            told = [(b, c.get("accepted", 0)) for b, c in run.by_board.items() if b is not None]
            sure = run.clean and not (run.failed or run.by_clock or run.off)
            if sure and len(told) == boards.BOARDS:
                wrong += [f"board {b}: {n} packets accepted, {taken[b]} in the recording, of the pipeline "
                          f"that begins with sample {run.first}" for b, n in told if n != taken[b]]
            # a copy may be taken again, when the first is counted as of another time
            if (more < 0 or more and not run.failed) and not run.off:
                wrong.append(f"{more} packets were accepted and are not in the recording of the pipeline "
                             f"that begins with sample {run.first}")
            if run.balanced is False:
                wrong.append(f"a pipeline's own balance does not add up (it begins with sample {run.first})")
        died = got - seen
        killed = not process[-1].clean
        totals["kernel"] += kernel
        totals["died with the process"] += died
        if died < 0 or (died and not killed):
            wrong.append(f"process {number}: the kernel gave it {got} packets, it has counted {seen}")
        unheard = sum(run.unheard for run in process if run.present is not None)
        unexplained += max(0, lacking - reasons - kernel - (died if killed else 0) - min(unheard, nobody))
    udp = soak.udp
    if sent.packets - sent.count["failed"] != udp["OutDatagrams"]:
        wrong.append(f"the F-engine sent {sent.packets} packets, and the kernel {udp['OutDatagrams']}")
    totals["nobody listened"] = udp["NoPorts"]
    totals["in a socket that was closed"] = udp["OutDatagrams"] - udp["NoPorts"] - udp["InDatagrams"] - \
        udp["InErrors"]
    if totals["in a socket that was closed"] < 0:
        wrong.append(f"the kernel's counters do not add up: {udp}")
    if unexplained:
        wrong.append(f"{unexplained} packets that were sent are lost without a reason")
    return totals, unexplained


def check_dumps(soak, sent, processes, wrong):
    """The finished dumps hold the boards' samples of their time, bit for bit, or zeros. Returns how many."""
    table, n = boards.payloads(), 0
    for event, document in soak.requests.dumps.items():
        for channel in document.get("channels", []):
            data = channel.pop("bytes", None)
            if data is None:
                continue
            keys = dict(line.split(None, 1) for line in data[:4096].decode().split("\0")[0].splitlines()
                        if len(line.split(None, 1)) == 2)
            first, samples = int(keys["SAMPLE0"]), int(keys["SAMPLES"])
            body = np.frombuffer(data, np.uint8, offset=int(keys["HDR_SIZE"]))
            body = body.reshape(samples, boards.BOARDS, boards.INPUTS)
            f = int(channel["channel"])
            at_ns = int(keys["EPOCH_NS"]) + (first + np.arange(samples)) * boards.SAMPLE_NS - soak.epoch_ns
            slot, within = at_ns // boards.SLOT_NS, at_ns % boards.SLOT_NS // boards.SAMPLE_NS
            inexact = any(a is not None and a <= first + samples and (b is None or first < b)
                          for p in processes for r in p
                          if r.first and r.start_ns - r.first * boards.SAMPLE_NS == int(keys["EPOCH_NS"])
                          for a, b, off in r.off + [(r.clock_from, None, 0)])
            if inexact:
                continue
            every = np.arange(boards.BOARDS)
            want = table[boards.which_payload(slot[:, None], every), f, within[:, None]]
            here, known = body.any(2), (sent.state[every, slot[:, None]] & (boards.SENT | boards.TWIN)) > 0
            bad = (here & ((body != want).any(2) | ~known)).sum(0)
            wrong += [f"dump {event}, channel {f}, board {board}: {bad[board]} of {samples} samples are not "
                      "what was sent then" for board in np.flatnonzero(bad)]
            n += samples
    return n


def check_updates(soak, wrong):
    """The journal has the updates that were acknowledged last. Returns how many it has."""
    held = soak.requests.held
    with open(soak.path("journal.yaml")) as f:
        listed = [json.loads(line[2:]) for line in f if line.startswith("- {")]
    for (stage, key), (value, name) in held.items():
        now = next((u["stages"][stage][key] for u in listed if key in u["stages"].get(stage, {})), None)
        if now != value and now != soak.requests.unsure.get((stage, key)):
            wrong.append(f"update {name} was acknowledged: {stage}.{key} = {value}; the journal has {now}")
    return len(listed)


def blocks_of(folder):
    """Minichunks that a receiver has recorded."""
    n = 0
    for path in glob.glob(os.path.join(folder, "received_*.dada")):
        keys, size = harness.header(path)
        n += (os.path.getsize(path) - size) // int(keys["RESOLUTION"])
    return n


def check_receivers(soak, peers, wrong):
    rows = []
    for receiver in soak.receivers:
        port = 11025 + receiver.number
        sums = {k: sum(row[n] for row in peers if row[0] == port)
                for n, k in enumerate(("sent", "missed", "connections", "unanswered", "assembled"), 1)}
        sums["recorded"] = sum(blocks_of(receiver.folder(r)) for r in range(receiver.runs))
        sums["runs"], sums["killed"] = receiver.runs, receiver.killed
        if sums["recorded"] + 16 * receiver.killed < sums["assembled"]:  # its window died with it
            wrong.append(f"receiver {receiver.number} acknowledged {sums['assembled']} minichunks, and has "
                         f"recorded {sums['recorded']}")
        rows.append(sums)
    return rows


def slope(rows, key):
    """The slope of a stretch of rows, per hour, with its error; samples that follow each other are not
    independent: the error is that of ten means."""
    t, y = (np.array([r[k] for r in rows], float) for k in ("t", key))
    n = t.size // 10
    t, y = (x[:10 * n].reshape(10, n).mean(1) for x in (t / 3600, y))
    a, b = np.polyfit(t, y, 1)
    error = np.sqrt(((y - a * t - b)**2).sum() / 8 / ((t - t.mean())**2).sum())
    return {"per_hour": float(a), "error": float(error), "mean": float(y.mean())}


def stretches(rows):
    """Times in which one pipeline ran without a break, without their first minute: a minute or longer."""
    out, now = [], []
    for row in rows + [{"ready": False, "t": 0}]:
        if row["ready"] and "rss" in row and (not now or row["pid"] == now[-1]["pid"]):
            now.append(row)
            continue
        late = [r for r in now if r["t"] > now[0]["t"] + 60]
        if late and late[-1]["t"] > late[0]["t"] + 60:
            out.append(late)
        now = []
    return out


def check_calm(soak, wrong):
    """The stretch at the end in which nothing stops the node, a minute after its lists of updates are full:
    what it holds does not grow, as far as a stretch of this length shows. None where it is too short."""
    rows, filled = soak.watch.rows, soak.requests.filled_at
    if filled is None:
        return None
    rows = [r for r in rows if filled - soak.begin + 60 < r["t"] < soak.seconds and "rss" in r]
    if not rows or rows[-1]["t"] - rows[0]["t"] < CALM_S:
        return None
    if not all(r["ready"] for r in rows) or len({r["pid"] for r in rows}) > 1:
        wrong.append("the node was not ready all the time, though nothing stopped it any more")
    hours, found = (rows[-1]["t"] - rows[0]["t"]) / 3600, {"minutes": (rows[-1]["t"] - rows[0]["t"]) / 60}
    for key, least in SHOWN.items():
        if key in rows[0]:
            s = found[key] = slope(rows, key)
            if abs(s["per_hour"]) * hours > max(3 * s["error"] * hours, least):
                wrong.append(f"{key} is not constant: {s['per_hour']:+.0f} +- {s['error']:.0f} an hour, in "
                             f"the last {hours * 60:.1f} minutes")
    return found


def recoveries(soak):
    """[(seconds, what was over)] of every interval in which the node was not ready: its longest part in which
    no cause lasted."""
    from faults import KINDS
    causes = sorted((f for f in soak.plan if KINDS[f.kind][3]), key=lambda f: f.begun)
    out, since = [], None
    for row in soak.watch.rows:
        if not row["ready"] and since is None:
            since = row["t"]
        if row["ready"] and since is not None:
            longest, at, over = (0, ""), since, "the start"
            for f in causes:
                if since - 3 <= f.ended and f.begun <= row["t"]:
                    longest = max(longest, (f.begun - at, over))
                    if f.ended >= at or over == "the start":
                        at, over = max(since, f.ended), f.kind
            longest = max(longest, (row["t"] - at, over))
            out += [longest] if longest[0] > 0 else []
            since = None
    return out


def account(soak, limit_s):
    wrong = list(soak.doing.said) + list(soak.requests.said)
    processes, peers = read_log(soak.path("node.log"))
    sent = soak.boards
    for run in (r for p in processes for r in p):
        run.failed = not run.balanced
        if run.start_ns is not None:
            said = read_sources(run, soak.path("sources"), soak.epoch_ns, sent)
            if said:
                wrong.append(said)
    slots = balance_of_slots(sent, processes, wrong)
    packets, unexplained = balance_of_packets(soak, sent, processes, wrong)
    back = recoveries(soak)
    if soak.unit.given_up:
        wrong.append(soak.unit.given_up)
    if not soak.ready_in_the_end:
        wrong.append("the node is not ready in the end")
    if soak.status != 0:
        wrong.append(f"the node's last exit status is {soak.status}")
    wrong += [f"ready only {s:.1f} s after {kind}" for s, kind in back
              if limit_s is not None and s > limit_s and kind != "the start"]
    return {
        "bursts": None, "seed": soak.seed, "seconds": soak.seconds,
        "faults": [{"kind": f.kind, "at": round(f.begun, 2), "end": round(f.ended, 2)} for f in soak.plan],
        "boards": {k: v.tolist() for k, v in slots.items()}, "packets": packets, "sent": sent.count,
        "sent_late_s": sent.latest * boards.SLOT_NS * 1e-9,
        "unexplained": unexplained, "in_doubt": sum(run.by_clock for p in processes for run in p),
        "processes": len(processes),
        "pipelines": sum(r.first is not None for p in processes for r in p),
        "resets": sum(r.resets for p in processes for r in p),
        "receivers": check_receivers(soak, peers, wrong), "requests": soak.requests.count,
        "dumped_samples": check_dumps(soak, sent, processes, wrong), "journal": check_updates(soak, wrong),
        "recoveries": back, "slopes": [
            {"minutes": (rows[-1]["t"] - rows[0]["t"]) / 60,
             **{k: slope(rows, k) for k in ("rss", "locked", "fds", "threads", "gpu") if k in rows[0]}}
            for rows in stretches(soak.watch.rows)],
        "calm": check_calm(soak, wrong), "udp": soak.udp_at_ends,
        "rows": soak.watch.rows, "wrong": wrong}
