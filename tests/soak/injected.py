"""Injected bursts: the node's ledger against what the receivers have."""
import concurrent.futures
import glob
import json
import os
import signal

import boards
import harness

STAGE = "frb_beams"  # whose beams the receivers have: a node of CHORD has two stages of beams
BEAMS, BRIGHT = 4 if boards.CHORD else 2, 10  # of each receiver; S/N above which none may be missed
AFTER_S, BEFORE_S = 3 if boards.CHORD else 6, 2  # of a step of the beams' level: its events are not judged
ADDED = 0.9 if boards.CHORD else 1  # of an event's energy; of 128 boards there is often one that lost packets
STATES = ("injected", "partly", "refused", "scheduled")


def read_ledger(path, kills, wrong):
    """{id: event}, the last line of each event. Every line is whole but those that a kill has cut off; an
    event stays `scheduled` only where the process was killed."""
    events, broken = {}, 0
    with open(path) as f:
        for line in f:
            try:
                event = json.loads(line)
                before, state = events.get(event["id"], {}).get("state"), event["state"]
            except (ValueError, KeyError):
                broken += 1
                continue
            if state not in (STATES if before == "scheduled" else ("scheduled", "refused")) or \
                    before not in (None, "scheduled") or before == state:
                wrong.append(f"the ledger has event {event['id']} as {state} after {before}")
            events[event["id"]] = event
    wrong += [f"the burst {id} cannot be injected, and is {event['state']}" for id, event in events.items()
              if id.startswith("absurd") and event["state"] not in ("refused", "scheduled")]
    if broken > kills:
        wrong.append(f"{broken} lines of the ledger are not whole; the node was killed {kills} times")
    left = sum(event["state"] == "scheduled" for event in events.values())
    if left and not kills:
        wrong.append(f"{left} events have no end in the ledger, and the node was never killed")
    return events


def is_judged(event):
    """Whether an event must be found: all of it was added, or so much that the prediction, which counts the
    rest as missing, holds."""
    return event["state"] == "injected" or (event["state"] == "partly" and event["added"] >= ADDED)


def recover(ledger, files, first_beam, wrong):
    """The events, as `beamring recover` found them in one recording."""
    result = harness.beamring("recover", ledger, *files, "--stage", STAGE, "--first-beam", first_beam,
                              "--json", timeout=300)
    if result.out.startswith("{"):
        return json.loads(result.out)["events"]
    wrong.append(f"`beamring recover` cannot read {files[0]}: {result.err.strip()[-300:]}")
    return []


def is_steady(soak, event):
    """Whether the level of the beams was the same around an event. An update of gains, flags or thresholds,
    and a board that goes or returns, make steps, which `packetize` follows within 3 s, and `recover` takes
    for a part of the burst, or of the noise."""
    at = int(event.rsplit("-", 1)[1]) * 1e-3  # an event of a schedule has its time, in ms, as its name
    steps = soak.requests.steps + [soak.begin_s + t for f in soak.plan if f.kind == "boards_die"
                                   for t in (f.begun, f.ended)]
    return not any(-AFTER_S < step - at < BEFORE_S for step in steps)


def check(soak, wrong):
    """How many events have which state; how many are judged, since a beam should see them above S/N BRIGHT
    in a steady level; and how many of these the receivers have."""
    ledger = soak.path("injections.jsonl")
    kills = sum(status == -signal.SIGKILL for _, status in soak.unit.ends)
    written = read_ledger(ledger, kills, wrong)
    states = [event["state"] for event in written.values()]
    runs = [(receiver, sorted(glob.glob(os.path.join(receiver.folder(run), "received_*.dada"))))
            for receiver in soak.receivers for run in range(receiver.runs)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda r: [(r[0].number, event) for event in
                                    recover(ledger, r[1], r[0].number * BEAMS, wrong)],
                         [r for r in runs if r[1]])
        events = [event for recording in found for event in recording]
    if not any(event.get("predicted", 0) >= BRIGHT for _, event in events) and "injected" in states:
        wrong.append(f"of {len(written)} events of the ledger none should be above S/N {BRIGHT} in what the "
                     "receivers have: nothing was tested")
    bright = {}  # id: (predicted, recovered, missed) in the beam that should see it best
    for number, event in events:
        if not is_steady(soak, event["id"]):
            continue
        if event["unexpected"]:
            wrong.append(f"the refused burst {event['id']} is in what receiver {number} has, with S/N "
                         f"{event['recovered']:.1f}")
        if event.get("predicted", 0) >= BRIGHT:
            one = event["predicted"], event["recovered"], event["missed"]
            bright[event["id"]] = max(one, bright.get(event["id"], one))
    judged = {id: one for id, one in bright.items() if is_judged(written[id])}
    lost = [f"the burst {id} is missed: S/N {snr:.1f}, {predicted:.1f} were to be expected"
            for id, (predicted, snr, missed) in judged.items() if missed]
    wrong += lost
    ratio = sum(snr / predicted for predicted, snr, _ in judged.values()) / len(judged) if judged else None
    return {**{s: states.count(s) for s in STATES}, "judged": len(judged),
            "recovered": len(judged) - len(lost), "ratio": ratio}
