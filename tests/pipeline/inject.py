"""Injected bursts: bit for bit nothing outside of them, the dispersion law within, the S/N that the ledger
predicts, `beamring recover`, and mistakes. The expected values come from NumPy (inject_common.py)."""
import glob
import json
import os
import re

import numpy as np

import harness
from control_common import node
from dump_disk import BAD_DISK, Disk
from inject_common import (CHAIN, CHANNELS, DISHES, EPOCH_NS, FILES, FIRST_MHZ, frequencies, HEAD, late_s,
                           ledger, MHZ, read_filterbank, recovered, SAMPLE_NS)

SAMPLE_S = SAMPLE_NS * 1e-9
TOP = FIRST_MHZ + MHZ * (CHANNELS - 1)


def text(samples, inject, chain=CHAIN + FILES, sideband="upper"):
    stage = "  - {stage: inject, in: clean, out: field, ledger: ledger.jsonl, %s}\n" % inject
    return HEAD % (sideband, samples) + stage + chain


def burst(id, sample, **more):
    keys = {"id": id, "sample": sample, "xy": [0.005, -0.004], "dm": 50, "width_s": 0.002, "snr": 40, **more}
    return "{" + ", ".join(f"{k}: {v}" for k, v in keys.items() if v is not None) + "}"


def test_field():
    """The field with one burst beside the field without: equal before and after it in each channel; within,
    the phases of its direction, and the power at the time of the law."""
    dm, width, at, samples = 60, 0.001, 6000, 12288
    for sideband in ("upper", "lower"):
        with harness.scratch() as d:
            one = burst("one", at, dm=dm, width_s=width, snr=None, fluence_s=0.0015)
            harness.run(d, text(samples, f"bursts: [{one}]", sideband=sideband, chain="""
  - {stage: record, name: a, in: clean, directory: ., prefix: a}
  - {stage: record, name: b, in: field, directory: ., prefix: b}
"""))
            a, b = (harness.read_e(os.path.join(d, f"{n}_000000.dada"))[0] for n in "ab")
            assert "inject:" in harness.header(os.path.join(d, "b_000000.dada"))[0].get("UPDATES", "") or \
                "inject:" in open(os.path.join(d, "b_000000.dada.updates")).read()
            e = ledger(os.path.join(d, "ledger.jsonl"))["one"]
        assert e["state"] == "injected" and e["added"] == 1 and e["inputs"] == 1, e
        f = frequencies()
        # the extra field, with the phases of the direction taken out
        path = DISHES[:, 0] * 0.005 + DISHES[:, 1] * -0.004
        phase = np.exp(-2j * np.pi * path * f[:, None] * 1e6 / harness.C_M_PER_S)
        more = b - a if sideband == "upper" else np.conj(b - a)
        coherent = (more * phase[:, None, :]).mean(axis=3)
        power, alone = (abs(coherent) ** 2).sum(axis=2), (abs(more) ** 2).mean(axis=3).sum(axis=2)
        assert power.sum() > 0.6 * alone.sum(), (power.sum(), alone.sum())
        t = np.arange(samples) * SAMPLE_S
        for c, mhz in enumerate(f):
            changed = np.flatnonzero(more[:, c].any(axis=(1, 2)))
            centre = at * SAMPLE_S + late_s(dm, mhz, TOP)
            half = 2.6 * width + abs(late_s(dm, mhz - MHZ / 2, mhz))
            assert abs(t[changed] - centre).max() < half + 70 * SAMPLE_S, (mhz, t[changed[[0, -1]]], centre)
            # noise of duration `width` in a channel has so many independent samples in two polarisations
            off = (power[:, c] * t).sum() / power[:, c].sum() - centre
            assert abs(off) < 5 * width / 2.355 / np.sqrt(2 * width / SAMPLE_S) * 1.5, (mhz, off)


def test_shared():
    """The stage exchanges frames with its input where nobody else reads that, else it copies: the
    same bits."""
    record = "\n  - {{stage: record, name: {0}, in: {1}, directory: ., prefix: {0}}}\n"
    with harness.scratch() as d:
        one = f"bursts: [{burst('one', 6000)}]"
        harness.run(d, text(12288, one, chain=record.format("a", "field")))
        os.remove(os.path.join(d, "ledger.jsonl"))
        harness.run(d, text(12288, one, chain=record.format("b", "field") + record.format("c", "clean")))
        a, b, c = (harness.read_e(os.path.join(d, f"{n}_000000.dada"))[0] for n in "abc")
        assert np.array_equal(a, b) and not np.array_equal(a, c)


def schedule(slot, **more):
    keys = {"per_hour": 3600 / (slot * SAMPLE_S), "seed": 4, "snr": [12, 90], "dm": [20, 60],
            "width_s": [0.001, 0.002], "radius": 0.01, **more}
    return "schedule: {" + ", ".join(f"{k}: {v}" for k, v in keys.items() if v is not None) + "}"


def check_steps(d, events, before):
    """Inputs that go silent change the noise: between two events this does not matter, at an event nothing
    can be said of it."""
    spans = [((e["first_sample"] + 512) // 128, e["end_sample"] // 128) for e in events]
    wide = max(range(2, 5), key=lambda i: spans[i + 1][0] - spans[i][1])
    between, within = (spans[wide][1] + spans[wide + 1][0]) // 2, events[7]["sample"] // 128 + 2
    for name in sorted(glob.glob(os.path.join(d, "fil", "*.fil"))):
        raw, (data, _, _) = open(name, "rb").read(), read_filterbank(name)
        data[between:within] *= 0.6
        with open(os.path.join(d, os.path.basename(name)), "wb") as f:
            f.write(raw[:len(raw) - data.size] + np.rint(data).astype(np.uint8).tobytes())
    files = sorted(glob.glob(os.path.join(d, "*.fil")))
    done = json.loads(harness.beamring("recover", os.path.join(d, "ledger.jsonl"), *files, "--json").out)
    after = {e["id"]: e for e in done["events"]}
    assert done["summary"]["unsteady"] == 1 and after[events[7]["id"]]["unsteady"], done
    for e in events[:7] + events[8:]:
        one, other = after[e["id"]], before[e["id"]]
        assert abs(one["recovered"] / other["recovered"] - 1) < 0.1, (one, other)


def test_recovered():
    """S/N of events at random places around the beams, by NumPy and by `beamring recover`."""
    with harness.scratch() as d:
        harness.run(d, text(9 * 8192, schedule(8192)))
        events = [e for e in ledger(os.path.join(d, "ledger.jsonl")).values() if e["state"] != "refused"]
        assert len(events) == 9 and all(e["state"] == "injected" for e in events), events
        want = recovered(os.path.join(d, "fil"), events)
        ratio = np.array([snr / predicted for _, predicted, snr in want.values()])
        error = np.sqrt(sum(predicted ** -2 for _, predicted, _ in want.values())) / len(want)
        assert abs(ratio.mean() - 1) < 0.03 + 3 * error, (ratio, error)
        files, path = sorted(glob.glob(os.path.join(d, "fil", "*.fil"))), os.path.join(d, "ledger.jsonl")
        said = open(os.path.join(d, "fil", "beam.updates")).read()
        assert all(e["id"] in said for e in events), said
        done = harness.beamring("recover", path, *files, "--json")
        found = {e["id"]: e for e in json.loads(done.out)["events"] if "ratio" in e}
        assert done.status == 0 and set(found) == set(want), done
        for id, (beam, predicted, snr) in want.items():
            got = found[id]
            assert got["beam"] == beam and abs(got["recovered"] - snr) < 0.04 * snr + 0.3, (got, snr)
            assert abs(got["time_error_s"]) < 0.002 and abs(got["dm_error"]) < 60, got
        check_steps(d, events, found)
        # a line that was cut off by a kill, and completed by the node that started again
        whole = open(path).read().splitlines(keepends=True)
        for length in (5, len(whole[0]) // 2, len(whole[0]) - 2):
            with open(os.path.join(d, "killed.jsonl"), "w") as f:
                f.writelines(["".join(whole[:3]), whole[0][:length] + "\n", *whole[3:]])
            again = harness.beamring("recover", os.path.join(d, "killed.jsonl"), *files, "--json")
            assert again.status == 0 and json.loads(again.out) == json.loads(done.out), (length, again)
            assert "killed.jsonl: line 4 is cut off" in again.err, again
        # limits that are not met, and events that are not in the data
        assert harness.beamring("recover", path, *files, "--ratio", "2,3").status == 1
        with open(os.path.join(d, "false.jsonl"), "w") as f:
            for e in events:
                f.write(json.dumps({**e, "time_ns": e["time_ns"] + 25000000}) + "\n")
        wrong = harness.beamring("recover", os.path.join(d, "false.jsonl"), *files)
        assert wrong.status == 1 and "MISSED" in wrong.out, wrong
        with open(os.path.join(d, "denied.jsonl"), "w") as f:
            for e in events:
                del e["beams"]
                f.write(json.dumps({**e, "state": "refused"}) + "\n")
        wrong = harness.beamring("recover", os.path.join(d, "denied.jsonl"), *files)
        assert wrong.status == 1 and "IT IS IN THE DATA" in wrong.out, wrong
        # lines that `inject` never writes: these would make a filter that takes hours, or say nothing
        for key, value in (("dm", 1e9), ("width_s", 1e300), ("scattering_s", -1), ("state", "happy"),
                           ("time_ns", -1 << 63)):
            with open(os.path.join(d, "damaged.jsonl"), "w") as f:
                f.write(json.dumps({**events[0], key: value}) + "\n")
            wrong = harness.beamring("recover", os.path.join(d, "damaged.jsonl"), *files)
            assert wrong.status == 1 and "damaged.jsonl:1: keys are missing" in wrong.err, (key, wrong)


def test_two_stages():
    """Two stages make beams: --stage says whose beams the files hold."""
    second = """
  - {stage: frb_beams, name: search, in: image, out: many, beams: {grid: [3, 3], spacing_deg: 1}}
  - {stage: filterbank, name: all, in: many, directory: many}
"""
    with harness.scratch() as d:
        harness.run(d, text(2 * 8192, schedule(8192), chain=CHAIN + FILES + second))
        files, path = sorted(glob.glob(os.path.join(d, "fil", "*.fil"))), os.path.join(d, "ledger.jsonl")
        unsaid = harness.beamring("recover", path, *files)
        assert unsaid.status == 1 and "it has beams of several stages; say with --stage" in unsaid.err, unsaid
        assert harness.beamring("recover", path, *files, "--stage", "frb_beams").status == 0
        wrong = harness.beamring("recover", path, *files, "--stage", "nobody")
        assert wrong.status == 1 and "it has no beams of that stage" in wrong.err, wrong


def test_gains():
    """Receivers with phases and amplitudes of their own, one of them dead, and their corrections in frb_grid:
    a burst that is divided by these is as bright as the ledger says."""
    try:
        import h5py
    except ImportError as error:
        print(f"skipped: {error}")
        return
    rng = np.random.default_rng(1)
    gain = rng.uniform(0.7, 1.4, (CHANNELS, 2, 4)) * np.exp(2j * np.pi * rng.random((CHANNELS, 2, 4)))
    gain[:, 1, 2] = 0
    correction = np.divide(1, gain, out=np.zeros_like(gain), where=gain != 0)
    for sideband in ("upper", "lower"):
        with harness.scratch() as d:
            for name, value in (("receivers.h5", gain), ("gains.h5", correction)):
                with h5py.File(os.path.join(d, name), "w") as f:
                    f["gain"] = value.astype(np.complex64)
            pipeline = text(6 * 8192, "gains: gains.h5, " + schedule(8192, snr="[40, 90]"), sideband=sideband)
            harness.run(d, pipeline.replace("seed: 3,", "seed: 3, gains: receivers.h5,")
                        .replace("integrate: 128", "integrate: 128, gains: gains.h5"))
            events = [e for e in ledger(os.path.join(d, "ledger.jsonl")).values() if e["state"] == "injected"]
            want = recovered(os.path.join(d, "fil"), events)
            ratio = np.array([snr / predicted for _, predicted, snr in want.values()])
            assert len(ratio) == 6 and abs(ratio.mean() - 1) < 0.04, ratio


def test_refused():
    """Events that cannot be injected are refused, with the reason, and nothing of them is in the data."""
    bursts = [burst("past", 100), burst("good", 6000), burst("overlaps", 6100),
              burst("nobeam", 9000, xy=None, beam=7), burst("bright", 9000, snr=None, fluence_s=1),
              burst("late", 20000), burst("never", 1 << 51)]
    with harness.scratch() as d:
        harness.run(d, text(12288, f"bursts: [{', '.join(bursts)}]"))
        events = ledger(os.path.join(d, "ledger.jsonl"))
        for id, why in (("past", "before sample 0|too late"), ("overlaps", "overlaps with 'good'"),
                        ("nobeam", "no beam 7: the pipeline has 4"), ("bright", "brighter than the field"),
                        ("late", "the stream ended before it"), ("never", "the stream ended before it")):
            assert events[id]["state"] == "refused" and re.search(why, events[id]["why"]), events[id]
            assert "beams" not in events[id]
        with open(os.path.join(d, "ledger.jsonl")) as f:
            ends = [e["id"] for e in map(json.loads, f) if e["state"] == "refused"]
        assert sorted(ends) == sorted({*events} - {"good"}), ends
        done = harness.beamring("recover", "ledger.jsonl", "fil/beam0000.fil", "--json", cwd=d)
        assert json.loads(done.out)["summary"]["events"] == 1, done
        assert events["good"]["state"] == "injected", events["good"]
        # a beam below the horizon has no direction, which JSON cannot say with a NaN
        low = text(12288, f"bursts: [{burst('low', 6000, xy=None, beam=0)}]", chain="""
  - {stage: power_beams, in: field, out: beams, integrate: 384, beams: {towards: [{name: sun}]}}
  - {stage: record, in: beams, directory: ., prefix: low}
""").replace("ledger.jsonl", "low.jsonl")
        low = re.sub("name: t[a-z0-9_]*,", r"\g<0> latitude_deg: 52, longitude_deg: 4.5,", low, count=1)
        harness.run(d, low)
        told = ledger(os.path.join(d, "low.jsonl"))["low"]
        assert told["state"] == "refused" and "below the horizon" in told["why"] and "xy" not in told, told
        # an earlier ledger goes on: nothing in it is injected again, behind a line that was cut off
        with open(os.path.join(d, "ledger.jsonl"), "a") as f:
            f.write('{"id": "cut')
        result = harness.run(d, text(12288, f"bursts: [{bursts[1]}, {burst('more', 6000)}]", chain="""
  - {stage: record, in: field, directory: ., prefix: b}
"""))
        assert "is not an event's" in result.err, result
        lines = open(os.path.join(d, "ledger.jsonl")).read().splitlines()
        assert lines[-3] == '{"id": "cut' and \
            [json.loads(s)["id"] for s in lines[-2:]] == ["more", "more"], lines
        broken = harness.beamring("recover", "ledger.jsonl", "fil/beam0000.fil", cwd=d)
        assert f"ledger.jsonl: line {len(lines) - 2} is cut off; it is left out" in broken.err, broken


def test_directions():
    """Events from azimuth and altitude, right ascension and declination, and the Sun: where `beamring beams`
    says that they are, which astropy confirms elsewhere; below the horizon they are refused."""
    towards = {"azel": "{azel: [200, 60]}", "radec": "{radec: [299.868, 40.734]}", "sun": "{name: sun}",
               "below": "{radec: [05:34:31.9, +22:00:52], name: crab}"}
    site, at = r"\g<0> latitude_deg: 49.3, longitude_deg: -119.6,", 12000
    bursts = [burst(id, at + 24000 * i, xy=None, dm=20, snr=None, fluence_s=0.001)[:-1] + ", " + direction[1:]
              for i, (id, direction) in enumerate(towards.items())]
    chosen = schedule(24000, towards=f"[{towards['azel']}, {towards['sun']}]", dm=20, radius=0.001, snr=None)
    with harness.scratch() as d:
        beams = f"beams: {{towards: [{', '.join(towards.values())}]}}"
        for name, inject in (("list", f"bursts: [{', '.join(bursts)}]"), ("drawn", chosen)):
            pipeline = re.sub("name: t[a-z0-9_]*,", site, text(84000 + 4096, inject, chain=f"""
  - {{stage: power_beams, name: s, in: field, out: beams, integrate: 384, {beams}}}
  - {{stage: record, in: beams, directory: ., prefix: {name}}}
""").replace("ledger.jsonl", f"{name}.jsonl"), count=1)
            harness.run(d, pipeline)
        told = harness.beamring("beams", "pipeline.yaml", "--json", "--at", f"time:{EPOCH_NS}", cwd=d)
        want = {id: (b["x"], b["y"]) for id, b in zip(towards, json.loads(told.out)["s"]["beams"])}
        events = ledger(os.path.join(d, "list.jsonl"))
        for id in ("azel", "radec", "sun"):
            assert events[id]["state"] == "injected", events[id]
            assert np.allclose(events[id]["xy"], want[id], atol=1e-4), (events[id], want[id])
        assert abs(events["radec"]["radec_deg"][0] - 299.868) < 1e-6 and events["sun"]["name"] == "sun"
        assert events["below"]["state"] == "refused" and "xy" not in events["below"] and \
            re.search("below the horizon then: altitude -[0-9.]+ degrees", events["below"]["why"]), events
        drawn = [e["xy"] for e in ledger(os.path.join(d, "drawn.jsonl")).values() if e["sample"] < 1 << 17]
        away = [[np.hypot(*np.subtract(xy, want[id])) for id in ("azel", "sun")] for xy in drawn]
        assert np.min(away, axis=1).max() < 0.0012 and {*np.argmin(away, axis=1)} == {0, 1}, (drawn, want)


def test_ledger_cannot_be_written():
    """The node goes on with the field as it is, and refuses."""
    with harness.scratch() as d:
        os.mkdir(os.path.join(d, "ledger.jsonl"))
        result = harness.run(d, text(12288, f"bursts: [{burst('one', 6000)}]", chain="""
  - {stage: record, name: a, in: clean, directory: ., prefix: a}
  - {stage: record, name: b, in: field, directory: ., prefix: b}
"""))
        assert "injections are refused" in result.err and "'one' is refused" in result.err, result
        a, b = (harness.read_e(os.path.join(d, f"{n}_000000.dada"))[0] for n in "ab")
        assert np.array_equal(a, b)


def update(n, id, sample):
    values = {"id": id, "sample": sample, "beam": 1, "dm": 20, "width_s": 0.001, "snr": 30}
    answer = n.post("/v1/update", json.dumps({"stages": {"inject": {"bursts": [values]}}}))
    assert answer.code in (200, 202), answer.text


def ask(n, id, sample):
    """Asks a node for an event, and waits for what becomes of it."""
    update(n, id, sample)
    events = []
    n.wait_until(lambda _: events.append(n.get(f"/v1/injections?id={id}").json["injections"]) or
                 (events[-1] and events[-1][0]["state"] != "scheduled"))
    return events[-1][0]


def injected_in_time(n):
    """Asks for events ahead of the stream by more and more until the request is early."""
    for attempt in range(12):
        newest = n.status()["newest"]
        event = ask(n, f"try{attempt}", (newest["sample"] if newest else 0) + 20000 * 2**attempt)
        if event["state"] == "injected":
            break
    return event


def test_update():
    """Events over HTTP: in the past, and ahead of the stream by more and more until the request is early."""
    live = text(10**9, "seed: 1").replace("out: clean}", "realtime: true, out: clean}")
    with node(live) as n:
        n.wait_until(lambda s: s["newest"] and s["newest"]["sample"] > 16384)
        late = ask(n, "late", 2000)
        assert late["state"] == "refused" and "too late" in late["why"], late
        event = injected_in_time(n)
        assert event["state"] == "injected" and event["beam"] == 1, event
        assert abs(event["beams"]["frb_beams"]["snr"][1] / 30 - 1) < 0.1, event
        again = n.post("/v1/update", '{"stages": {"inject": {"bursts": [{"id": "x", "sample": 1}]}}}')
        assert again.code == 400 and "dm" in again.text, again.text
        states = [e["state"] for e in n.get("/v1/injections").json["injections"]]
        assert states[0] == "injected" and states[-1] == "refused", states
        past = [{"id": f"past{i}", "sample": 0, "beam": 0, "dm": 20, "width_s": 0.001, "snr": 30}
                for i in range(300)]
        assert n.post("/v1/update", json.dumps({"stages": {"inject": {"bursts": past}}})).code in (200, 202)
        n.wait_until(lambda _: n.get("/v1/injections?id=past299").json["injections"])
        listed = [e["id"] for e in n.get("/v1/injections").json["injections"]]
        assert listed == [f"past{i}" for i in range(299, 43, -1)], listed  # it forgets older ones
        n.end()
        on_disk = ledger(os.path.join(n.directory, "ledger.jsonl"))
        assert on_disk["late"]["state"] == "refused" and on_disk[event["id"]] == event, on_disk


def test_a_disk_that_hangs():
    """The stream goes on past an event whose line the disk does not take; it is refused, and later ones are
    not."""
    live = text(10**9, "seed: 1").replace("out: clean}", "realtime: true, out: clean}")
    with harness.scratch() as control:
        disk = Disk(control)
        env = {"LD_PRELOAD": BAD_DISK, "BAD_DISK": "/ledger.jsonl", "BAD_DISK_DOES": disk.path}
        with node(live, env=env) as n:
            n.wait_until(lambda s: s["newest"] and s["newest"]["sample"] > 16384)
            disk.does("hangs")
            due = n.status()["newest"]["sample"] + 60000
            update(n, "lost", due)
            n.wait_until(lambda s: s["newest"]["sample"] > due + 60000)
            status = n.wait_until(lambda s: "does not answer" in (n.stage("inject", s)["trouble"] or ""))
            n.wait_until(lambda s: s["newest"]["sample"] > status["newest"]["sample"] + 60000)
            assert not n.get("/v1/injections?id=lost").json["injections"]
            disk.does("nothing")
            n.wait_until(lambda s: n.get("/v1/injections?id=lost").json["injections"])
            lost = ask(n, "lost", due)
            assert lost["state"] == "refused" and "too late" in lost["why"], lost
            n.wait_until(lambda s: not n.stage("inject", s)["trouble"])
            assert injected_in_time(n)["state"] == "injected"
            n.end()
            assert ledger(os.path.join(n.directory, "ledger.jsonl"))["lost"] == lost


def record_with_holes(d):
    """A field with a board that is dead, one that stops at sample 5000, and a channel that is not there."""
    harness.run(d, HEAD % ("upper", 12288) + "  - {stage: record, in: clean, directory: ., prefix: e}\n")
    path = os.path.join(d, "e_000000.dada")
    raw = np.memmap(path, np.uint8, "r+", harness.header(path)[1]).reshape(-1, CHANNELS, 2, 4)
    raw[:, :, :, 1] = 0
    raw[5000:, :, :, 2] = 0
    raw[:, 3] = 0
    raw.flush()
    with open(path + ".gaps", "w") as f:
        f.write(f"0 5000 0 {CHANNELS} 191\n0 5000 3 1 0\n5000 7288 0 {CHANNELS} 128\n5000 7288 3 1 0\n")
    return path, raw


def holes_text(bursts, frame=2048, prefix="f", chain=""):
    return HEAD.split("pipeline:")[0] % "upper" + f"""
pipeline:
  - {{stage: replay, files: e_000000.dada, out: clean, frame_samples: {frame}}}
  - {{stage: inject, in: clean, out: field, ledger: {prefix}.jsonl, bursts: [{", ".join(bursts)}]}}
  - {{stage: record, in: field, directory: ., prefix: {prefix}}}
""" + chain


def test_the_same_on_a_gpu():
    """Field and ledger are those of the CPU, bit for bit, also with holes, dead inputs, several events a
    frame."""
    device = harness.DEVICE if harness.DEVICE != "cpu" else "cuda:0"
    if not harness.has_device(device):
        print("skipped: no GPU")
        return
    bursts = [burst(f"e{at}", at, dm=dm, width_s=0.0005, snr=None, fluence_s=0.0015)
              for at, dm in ((2500, 20), (5200, 5), (7400, 60), (9400, 0))]
    with harness.scratch() as d:
        record_with_holes(d)
        for frame in (512, 2048, 12288):
            for where, prefix in (("cpu", f"c{frame}"), (device, f"g{frame}")):
                harness.run(d, f"device: {where}\n" + holes_text(bursts, frame, prefix))
            a, b = (harness.read_e(os.path.join(d, f"{n}{frame}_000000.dada"))[0] for n in "cg")
            assert np.array_equal(a, b), (frame, np.argwhere(a != b)[:5])
            a, b = (ledger(os.path.join(d, f"{n}{frame}.jsonl")) for n in "cg")
            assert a == b and {e["state"] for e in a.values()} == {"partly"}, (a, b)


def test_missing():
    """A hole takes a part of the burst, dead inputs lower the prediction: both are said."""
    with harness.scratch() as d:
        path, raw = record_with_holes(d)
        two = [burst(id, at, dm=20, width_s=0.001) for id, at in (("one", 3500), ("two", 8500))]
        harness.run(d, holes_text(two, prefix="ledger", chain=CHAIN + FILES))
        events = ledger(os.path.join(d, "ledger.jsonl"))
        out = np.fromfile(os.path.join(d, "ledger_000000.dada"), np.uint8, offset=harness.header(path)[1])
        out = out.reshape(raw.shape)
        assert not out[:, :, :, 1].any() and not out[5000:, :, :, 2].any() and not out[:, 3].any()
        for id, inputs in (("one", 0.75), ("two", 0.5)):
            e = events[id]
            assert e["state"] == "partly" and abs(e["added"] - 15 / 16) < 1e-3, e
            assert abs(e["inputs"] - inputs) < 1e-3, e
        best = [max(events[id]["beams"]["frb_beams"]["snr"]) for id in ("one", "two")]
        # amplitudes add over the inputs that are there: S/N ~ their number
        assert abs(best[0] / (40 * 0.75 * np.sqrt(15 / 16)) - 1) < 0.05, best
        assert 0.55 < best[1] / best[0] < 0.8, best


def test_mistakes():
    with harness.scratch() as d:
        for inject, want in ((f"bursts: [{burst('a', 6000, snr=None)}]", "none of fluence_s and snr"),
                             (f"bursts: [{burst('a', 6000, xy=[0.9, 0.9])}]", "below the horizon"),
                             (f"bursts: [{burst('a', 6000, at_mhz=700)}]", "outside the band"),
                             (f"bursts: [{burst('a', 6000)}, {burst('a', 9000)}]", "the same id"),
                             (f"bursts: [{burst('a', 6000, beam=1)}]", "more than one of xy.* and beam"),
                             (f"bursts: [{burst('a', 6000, azel=[10, 80])}]", "more than one of xy"),
                             (f"bursts: [{burst('a', 6000, xy=None)}]", "none of xy.* and beam"),
                             (f"bursts: [{burst('a', 6000, xy=None, azel=[10, -5])}]", "the horizon"),
                             (f"bursts: [{burst('a', 6000, xy=None, name='sun')}]", "add latitude_deg"),
                             (schedule(8192, beams=[0], towards="[{xy: [0, 0]}]"), "both of beams and"),
                             (schedule(8192, towards="[{xy: [0, 2]}]"), "towards|xy"),
                             (schedule(100), "expected at most [0-9.]+ an hour"),
                             (schedule(8192, dm="[60, 20]"), "is not a range")):
            result = harness.run(d, text(4096, inject), command="check", status=2)
            assert re.search(want, result.err), result
        result = harness.beamring("recover", os.path.join(d, "none.jsonl"), os.path.join(d, "none.fil"))
        assert result.status == 1 and "none.jsonl" in result.err, result


if __name__ == "__main__":
    harness.main([test_field, test_shared, test_recovered, test_two_stages, test_gains, test_refused,
                  test_directions, test_ledger_cannot_be_written, test_a_disk_that_hangs, test_update,
                  test_missing, test_the_same_on_a_gpu, test_mistakes])
