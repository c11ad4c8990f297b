"""Injected bursts: the node's ledger against what the receivers have."""
import glob
import json
import os

import harness

BEAMS, BRIGHT = 2, 10  # of each receiver; S/N above which none may be missed
AFTER_S, BEFORE_S = 6, 2  # of a step of the beams' level: so long its events are not judged
STATES = ("injected", "partly", "refused", "scheduled")


def read_ledger(path, kills, wrong):
    """{id: state}, the last line of each event. Every line is whole but those that a kill has cut off; an
    event stays `scheduled` only where the process was killed."""
    states, broken = {}, 0
    with open(path) as f:
        for line in f:
            try:
                event = json.loads(line)
                before, state = states.get(event["id"]), event["state"]
            except (ValueError, KeyError):
                broken += 1
                continue
            if state not in (STATES if before == "scheduled" else ("scheduled", "refused")) or \
                    before not in (None, "scheduled") or before == state:
                wrong.append(f"the ledger has event {event['id']} as {state} after {before}")
            states[event["id"]] = state
    wrong += [f"the burst {id} cannot be injected, and is {state}" for id, state in states.items()
              if id.startswith("absurd") and state not in ("refused", "scheduled")]
    if broken > kills:
        wrong.append(f"{broken} lines of the ledger are not whole; the node was killed {kills} times")
    left = sum(state == "scheduled" for state in states.values())
    if left and not kills:
        wrong.append(f"{left} events have no end in the ledger, and the node was never killed")
    return states


def recover(ledger, files, first_beam):
    """The events, as `beamring recover` found them in one recording; None: it cannot read the recording."""
    result = harness.beamring("recover", ledger, *files, "--first-beam", first_beam, "--json", timeout=300)
    return json.loads(result.out)["events"] if result.out.startswith("{") else None


def is_steady(soak, event):
    """Whether the level of the beams was the same around an event. An update of gains, flags or thresholds,
    and a board that goes or returns, make steps, which `packetize` follows within 3 s, and `recover` takes
    for a part of the burst, or of the noise."""
    at = int(event.rsplit("-", 1)[1]) * 1e-3  # an event of a schedule has its time, in ms, as its name
    steps = soak.requests.steps + [soak.begin_s + t for f in soak.plan if f.kind == "boards_die"
                                   for t in (f.begun, f.ended)]
    return not any(-AFTER_S < step - at < BEFORE_S for step in steps)


def check(soak, kills, wrong):
    """How many events have which state, and how many of those that a beam should see above S/N BRIGHT the
    receivers have. Only whole events in a steady level must be found: a fault may have taken the rest of a
    `partly` one."""
    ledger = soak.path("injections.jsonl")
    states = read_ledger(ledger, kills, wrong)
    bright, unread = {}, 0  # id: (predicted, recovered, missed) in the beam that should see it best
    for receiver in soak.receivers:
        for run in range(receiver.runs):
            files = sorted(glob.glob(os.path.join(receiver.folder(run), "received_*.dada")))
            events = recover(ledger, files, receiver.number * BEAMS) if files else []
            unread += events is None
            for event in events or []:
                if not is_steady(soak, event["id"]):
                    continue
                if event["unexpected"]:
                    wrong.append(f"the refused burst {event['id']} is in what receiver {receiver.number} "
                                 f"has, with S/N {event['recovered']:.1f}")
                if event.get("predicted", 0) >= BRIGHT:
                    one = event["predicted"], event["recovered"], event["missed"]
                    bright[event["id"]] = max(one, bright.get(event["id"], one))
    lost = [id for id, (_, _, missed) in bright.items() if missed]
    wrong += [f"the burst {id} is missed: S/N {bright[id][1]:.1f}, {bright[id][0]:.1f} were to be expected"
              for id in lost if states[id] == "injected"]
    if unread:
        wrong.append(f"`beamring recover` cannot read {unread} recordings of the receivers")
    if len(bright) == len(lost):
        wrong.append(f"of {len(states)} events of the ledger the receivers have none")
    ratios = [snr / predicted for id, (predicted, snr, _) in bright.items() if states[id] == "injected"]
    return {**{s: list(states.values()).count(s) for s in STATES}, "judged": len(bright),
            "recovered": len(bright) - len(lost), "ratio": sum(ratios) / max(len(ratios), 1)}
