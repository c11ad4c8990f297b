"""Those who ask: updates, a third of them wrong; dumps, a third of them absurd; scrapes, and the page.
Whatever happens to the node, the updates and dumps that it has acknowledged must hold."""
import json
import os
import threading
import time

import boards
import faults
import node

UPDATE_S, DUMP_S, BURST_S = 3, 10, 8
FILLING = [("flag", "threshold_sigma", ([5, 5], [6, 6])), ("upchannelize", "gain", (2, 2.5)),
           ("frb_grid", "threshold", (0.25, 0.5)), ("baseband_beamform", "shift", (6, 7))]
LISTED, AT_ONCE = 260, 8  # a little more than the node keeps; dumps that are not finished
ASKED_DM = 10 if boards.CHORD else 30
AGO_S, LONG_S = ((0.1, 0.4), (0.001, 0.004)) if boards.CHORD else ((0.5, 2.5), (0.05, 0.4))


class Requests:
    def __init__(self, soak, rng):
        self.soak, self.rng, self.over = soak, rng, threading.Event()
        self.calm_at, self.filled_at = soak.calm_at, None
        self.said = []            # what was answered otherwise than it must
        self.count = {k: 0 for k in ("updates", "updates_wrong", "updates_taken", "dumps", "dumps_absurd",
                                     "dumps_taken", "dumps_done", "dumps_gone",
                                     "bursts", "bursts_absurd", "bursts_taken", "scrapes", "pages")}
        self.held = {}            # (stage, parameter): (text of the value, id) that was acknowledged last
        self.unsure = {}          # the same of a request whose answer did not come
        self.steps = []           # Unix times at which the beams' level changed
        self.dumps = {}           # id: the last document seen
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        next_update, next_dump, n = time.monotonic() + 2, time.monotonic() + 5, 0
        next_burst = time.monotonic() + 4 if self.soak.inject else float("inf")
        while not self.over.wait(0.2):
            now = time.monotonic()
            if self.calm_at is not None and now >= self.calm_at and self.filled_at is None:
                self.fill()
                self.filled_at = time.monotonic()
            n += 1
            if now >= next_update:
                next_update = now + UPDATE_S
                self.update()
            if now >= next_dump:
                next_dump = now + DUMP_S
                self.dump()
            if now >= next_burst:
                next_burst = now + BURST_S
                self.burst()
            if n % 5 == 0:
                self.scrape()

    def fill(self):
        """So many updates, dumps, bursts and clients that the node has held as much as it does at most, also
        for a single dump: its lists of the latest ones grow until they are full."""
        for stage, key, values in FILLING * LISTED:
            self.send_update(stage, key, self.rng.choice(values))
        for n in range(LISTED):
            self.count["dumps"] += 1
            self.order_dump(LONG_S[1] if n < AT_ONCE else 0.1 * LONG_S[0])  # also as long as they get
            while len(self.unfinished()) >= AT_ONCE and not self.over.wait(0.05):
                self.look_at_dumps()
        if self.soak.inject:  # all in the past: refused
            now_ms = time.time_ns() // 10**6
            past = {"sample": 0, "beam": 0, "dm": 30, "width_s": 0.02, "snr": 9}
            self.send_bursts([{"id": f"absurd-{now_ms + n}", **past} for n in range(LISTED)])
        clients = faults.Fault("http_half_open", 0, 0)
        self.soak.doing.begin_http_half_open(clients)
        self.soak.doing.end_http_half_open(clients)

    def scrape(self):
        code, text = node.ask("/metrics")
        if code == 200:
            self.count["scrapes"] += 1
            if "beamring_" not in text:
                self.said.append(f"/metrics: {text[:200]}")
        if node.ask("/")[0] == 200:
            self.count["pages"] += 1
        self.look_at_dumps()

    # --- updates

    def draw_update(self):
        r = self.rng
        return r.choice((
            ("flag", "bad_inputs", sorted(r.sample(range(boards.BOARDS * boards.INPUTS), r.randrange(4)))),
            ("flag", "threshold_sigma", [r.randrange(5, 9), r.randrange(5, 9)]),
            ("upchannelize", "gain", r.choice((1.5, 2, 2.5))),
            ("frb_grid", "threshold", r.choice((0.25, 0.5, 0.75))),
            ("baseband_beamform", "shift", r.randrange(4, 10))))

    def draw_wrong(self):
        r = self.rng
        return r.choice((
            b"{", b"[]", b"", b"\0" * 100, b'{"at": {"sample": -1}, "stages": {"flag": {"bad_inputs": [1]}}}',
            b'{"stages": {"flag": {"bad_inputs": [9999]}}}', b'{"stages": {"nobody": {"x": 1}}}',
            b'{"stages": {"upchannelize": {"gain": "loud"}}}', b'{"stages": {"frb_grid": {"threshold": 7}}}',
            b'{"stages": {"capture": {"absent": [777]}}}', b'{"at": "noon", "stages": {"flag": {}}}',
            b'{"stages": {"flag": {"bad_inputs": [1]}, "frb_grid": {"threshold": -1}}}',
            b'{"stages": {"frb_beams": {"beams": {"grid": [3, 3], "spacing_deg": 1}}}}'))

    def update(self):
        if self.rng.random() < 1 / 3:
            self.count["updates_wrong"] += 1
            body = self.draw_wrong()
            code, text = node.ask("/v1/update", body)
            if code not in (0, 400, 409, 503):
                self.said.append(f"the wrong update {body} is answered by {code} {text}")
            return
        self.send_update(*self.draw_update())

    def send_update(self, stage, key, value):
        self.count["updates"] += 1
        name = f"u{self.count['updates']}"
        code, text = node.ask("/v1/update", json.dumps({"id": name, "stages": {stage: {key: value}}}))
        if code == 202:
            self.count["updates_taken"] += 1
            self.held[stage, key] = value, name
            if stage != "baseband_beamform":
                self.steps.append(time.time())
            self.unsure.pop((stage, key), None)
        elif code == 0:
            self.unsure[stage, key] = value
        elif code not in (409, 503):
            self.said.append(f"update {stage}.{key} = {value}: {code} {text}")

    # --- bursts

    def burst(self):
        """A burst two seconds ahead of the stream; each third can only be refused, by its answer or in the
        ledger, and its id says so. Ids have the time in ms, as those of a schedule."""
        code, text = node.ask("/v1/status?now")
        newest = json.loads(text).get("newest") if code == 200 else None
        if not newest:
            return
        self.count["bursts"] += 1
        soon, name = newest["sample"] + 2 * 10**9 // boards.SAMPLE_NS, str(newest["unix_ns"] // 10**6 + 2000)
        beam = node.AIMED[self.count["bursts"] % len(node.AIMED)]
        values = {"id": "asked-" + name, "sample": soon, "beam": beam, "dm": ASKED_DM, "width_s": 0.02,
                  "snr": self.rng.randrange(10, 60)}
        absurd = self.count["bursts"] % 3 == 2
        if absurd:
            self.count["bursts_absurd"] += 1
            values |= {"id": "absurd-" + name, **self.rng.choice((
                {"sample": 0}, {"sample": 1 << 51}, {"beam": 9999}, {"snr": 1e8}, {"dm": -1}, {"width_s": 0},
                {"at_mhz": 1}, {"xy": [0, 0]}, {"snr": "loud"}, {"beam": -1, "xy": [0.9, 0.9]}))}
        self.send_bursts([values], absurd)

    def send_bursts(self, values, absurd=False):
        code, text = node.ask("/v1/update", json.dumps({"stages": {"inject": {"bursts": values}}}))
        self.count["bursts_taken"] += len(values) * (code == 202)
        if code not in (0, 202, 409, 503) and not (absurd and code == 400):
            self.said.append(f"burst {values}: {code} {text}")

    # --- dumps

    def dump(self):
        r = self.rng
        self.count["dumps"] += 1
        event = self.count["dumps"]
        now_ns = time.time_ns()
        if r.random() < 1 / 3:
            self.count["dumps_absurd"] += 1
            body = r.choice((
                {"id": event, "start": {"time_ns": 0}, "duration_s": 1}, {"id": event, "start": "yesterday"},
                {"id": event, "start": {"time_ns": now_ns}, "duration_s": 1e12}, {"id": -1}, {},
                {"id": event, "start": "earliest", "duration_s": -1},
                {"id": event, "start": "earliest", "duration_s": 0.1, "directory": "../.."},
                {"id": event, "start": {"time_ns": now_ns + 10**16}, "duration_s": 1},
                {"id": event, "start": "earliest", "duration_s": 0.1, "dm": 1e30, "freq_ref_mhz": 1}))
            code, text = node.ask("/v1/dump", json.dumps(body))
            if code not in (0, 400, 409, 503) and not (code == 202 and body.get("start") != "yesterday"):
                self.said.append(f"the absurd dump {body} is answered by {code} {text}")
            return
        self.order_dump(r.uniform(*LONG_S))

    def order_dump(self, duration_s):
        event = self.count["dumps"]
        body = {"id": event, "start": {"time_ns": time.time_ns() - int(self.rng.uniform(*AGO_S) * 1e9)},
                "duration_s": duration_s}
        code, text = node.ask("/v1/dump", json.dumps(body))
        if code == 202:
            self.count["dumps_taken"] += 1
            self.dumps[event] = json.loads(text)
        elif code not in (0, 400, 409, 503):
            self.said.append(f"dump {body}: {code} {text}")

    def unfinished(self):
        return [event for event, d in self.dumps.items() if d.get("state") in ("waiting", "writing")]

    def look_at_dumps(self):
        for event in self.unfinished():
            self.look_at_dump(event)

    def look_at_dump(self, event):
        code, text = node.ask(f"/v1/dumps?id={event}")
        found = json.loads(text)["dumps"] if code == 200 else []
        if code == 404 or code == 200 and not found:  # its pipeline has ended
            self.dumps[event] = {"state": "gone", "id": event}
            self.count["dumps_gone"] += 1
        if found:
            self.dumps[event] = found[0]
            self.keep(event)

    def keep(self, event):
        """Files that are said to be on the disk are there. They are taken along, since the disk is small."""
        document = self.dumps[event]
        if document["state"] != "done":
            return
        self.count["dumps_done"] += 1
        for channel in document["channels"]:
            if channel["state"] != "done":
                continue
            path = self.soak.path(document["directory"], channel["file"])
            try:
                with open(path, "rb") as f:
                    channel["bytes"] = f.read()
                os.unlink(path)
            except OSError as error:
                self.said.append(f"dump {event} is done, and has not its file: {error}")

    def finish(self, patience):
        """A last update of each kind, so that something is to be held; then waits for the dumps."""
        self.over.set()
        self.thread.join()
        end = time.monotonic() + patience
        while self.unfinished() and time.monotonic() < end:
            self.look_at_dumps()
            time.sleep(0.2)
