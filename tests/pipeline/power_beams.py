"""power_beams, and baseband_beamform with 8 bits, from a recording, to the bit: against NumPy, with weights
computed here from positions; the sum over inputs; moving beams and updates; quantize, filterbank and
packetize behind it."""
import csv
import glob
import os
import re
import sys

import numpy as np

import harness
from small import DISHES, SPACING, TELESCOPE, one, record_field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "plots"))

FREQ = 400 + 0.1953125 * np.arange(5)
BEAMS = np.array([[np.sin(np.radians(1.1)), np.sin(np.radians(-1.7))], [0, 0], [0.02, -0.03]])
BLOCK = 48


def run(d, name, stage, updates="", frame=1024, more="", status=0):
    os.mkdir(os.path.join(d, name))
    result = harness.run(d, TELESCOPE + (f"updates: [{updates}]\n" if updates else "") + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: {frame}}}
  - {{stage: {stage}, name: s, in: field, out: beams}}
  - {{stage: record, in: beams, directory: {name}, prefix: out}}
{more}""", status=status)
    if status:
        return result
    file = one(os.path.join(d, name), "out*.dada")
    keys, size = harness.header(file)
    if keys["DTYPE"] == "int8x2":
        raw = np.fromfile(file, np.int8, offset=size)
        shape = [int(n) for n in keys["SHAPE"].split(",")]
        per = int(keys["FRAME_SAMPLES"])
        each, parts, at = int(np.prod(shape[:3])) * 2, [], 0
        while at < raw.size:
            n = min(per, (raw.size - at) // each)
            parts.append(raw[at:at + n * each].reshape(shape[:3] + [n, 2]))
            at += n * each
        return np.concatenate(parts, axis=3)
    data, first, keys, _ = harness.read_frames(file)
    assert first == 0 and int(keys["DOWNSAMPLE"]) == BLOCK
    return data, float(keys["SCALE"]), harness.read_gaps(file, 0, data.shape[1], 5, BLOCK).T


def weights(beams):
    """A = round(127 exp(-2 pi i cycles)) [freq][pol][beam][dish][2], cycles of an upper sideband."""
    place = np.array(DISHES) * SPACING
    cycles = (beams @ place.T)[None] * FREQ[:, None, None] * 1e6 / 299792458
    a = 127 * np.exp(-2j * np.pi * cycles)
    a = np.stack([np.round(a.real), np.round(a.imag)], axis=-1).astype(np.int64)
    return np.repeat(a[:, None], 2, axis=1)


def sums(e, a):
    """sum_d A E, exact: re, im [time][freq][pol][beam]."""
    re, im = e.real.astype(np.int64), e.imag.astype(np.int64)
    dot = "tfpd,fpbd->tfpb"
    return (np.einsum(dot, re, a[..., 0]) - np.einsum(dot, im, a[..., 1]),
            np.einsum(dot, re, a[..., 1]) + np.einsum(dot, im, a[..., 0]))


def integrate(power, valid, block=BLOCK, threshold=0.5):
    """float32 power [time][freq][pol][column] -> I [freq][block][column] float32 and R, as power.h says."""
    T, F, P, C = power.shape
    steps = -(-T // block)
    out, share = np.zeros((F, steps, C), np.float32), np.zeros((F, steps))
    power = np.where(valid[:, :, None, None], power, np.float32(0))
    for k in range(steps):
        groups = -(-block // 16)
        x = np.zeros((groups * 16, F, P, C), np.float32)
        here = power[k * block:(k + 1) * block]
        x[:len(here)] = here
        x = x.reshape(groups, 16, F, P, C)
        while x.shape[1] > 1:
            x = x[:, 0::2] + x[:, 1::2]
        for g in range(groups):
            both = x[g, 0, :, 0]
            for p in range(1, P):
                both = both + x[g, 0, :, p]
            out[:, k] = out[:, k] + both
        share[:, k] = valid[k * block:(k + 1) * block].sum(axis=0) / block
    share[share < threshold] = 0
    return out, share


def expected(path, a):
    e, valid, first, _ = harness.read_e(path)
    assert first == 0
    re, im = sums(e, a)
    power = re.astype(np.float32)**2 + im.astype(np.float32)**2
    return e, valid.astype(bool), power


def finish(total, share, scale):
    with np.errstate(divide="ignore"):
        factor = np.where(share > 0, 1 / np.where(share > 0, share, 1) / scale, 0).astype(np.float32)
    return (total * factor[..., None]).astype(np.float16)


def check(got, total, share, partly=True):
    data, scale, valid = got
    assert data.dtype == np.float16 and data.shape == total.shape
    assert np.array_equal(data.view(np.uint16), finish(total, share, scale).view(np.uint16))
    assert np.array_equal(valid == 0, share == 0) and (share == 0).any() and (share == 1).any()
    assert ((share > 0) & (share < 1)).any() == partly


STAGE = "power_beams, integrate: %d, beams: {directions: %s}"


def test_equation():
    with harness.scratch() as d:
        path = record_field(d, samples=9000)
        e, valid, power = expected(path, weights(BEAMS))
        total, share = integrate(power, valid)
        exact = sum(x.astype(float)**2 for x in sums(e, weights(BEAMS)))[:48 * 20].sum(axis=2)
        exact = exact.reshape(20, 48, 5, 3).sum(axis=1).transpose(1, 0, 2)
        assert np.allclose(total[:, :20], exact, rtol=1e-6)
        for i, frame in enumerate((1024, 1000, 77, 9000) if harness.DEVICE == "cpu" else (1024, 1000)):
            got = run(d, f"a{i}", STAGE % (BLOCK, BEAMS.tolist()), frame=frame)
            check(got, total, share)
        # the source is where the first beam looks
        assert (total[:, share.min(axis=0) == 1].mean(axis=(0, 1)).argmax()) == 0
        inner = ", frame: 7, threshold: 0.9"
        check(run(d, "b", STAGE % (BLOCK, BEAMS.tolist()) + inner),
              *integrate(power, valid, threshold=0.9), partly=False)


def test_weights_file():
    """Any weights, with the shifts of the file, shared by the channels."""
    import h5py  # which a bare machine with a GPU may lack
    rng = np.random.default_rng(3)
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        a, shift = rng.integers(-127, 128, (1, 2, 4, 12, 2)), rng.integers(0, 5, (1, 2, 4))
        with h5py.File(os.path.join(d, "w.h5"), "w") as f:
            f["weights"], f["shift"] = a.astype(np.int8), shift.astype(np.int32)
        _, valid, power = expected(path, np.repeat(a, 5, axis=0))
        power = power * np.float32(4.0)**-shift[0].astype(np.float32)
        check(run(d, "a", f"power_beams, integrate: {BLOCK}, weights: w.h5"), *integrate(power, valid))
        said = run(d, "b", f"power_beams, integrate: {BLOCK}, weights: w.h5, incoherent: append", status=2)
        assert "goes with beams" in said.err, said


def test_incoherent():
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        e, valid, power = expected(path, weights(BEAMS))
        inputs = (127**2 * (e.real**2 + e.imag**2)).sum(axis=-1).astype(np.float32)
        total, share = integrate(np.concatenate([power, inputs[..., None]], axis=-1), valid)
        append = STAGE % (BLOCK, BEAMS.tolist()) + ", incoherent: append"
        check(run(d, "a", append), total, share)
        rows = [r for r in csv.reader(open(one(os.path.join(d, "a"), "*beams.csv"))) if r and r[0].isdigit()]
        assert len(rows) == 4 and [float(x) for x in rows[3][1:3]] == [0, 0], rows
        data, scale, _ = run(d, "b", append.replace("append", "subtract"))
        want = finish(total[..., :3] - total[..., 3:], share, scale)
        assert np.array_equal(data.view(np.uint16), want.view(np.uint16))


def test_eight_bits():
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        e, valid, _, _ = harness.read_e(path)
        re, im = sums(e, weights(BEAMS))
        for i, (shift, frame) in enumerate(((4, 1024), (3, 777))):
            got = run(d, f"a{i}", f"baseband_beamform, bits: 8, shift: {shift}, "
                      f"beams: {{directions: {BEAMS.tolist()}}}", frame=frame)
            want = np.stack([np.clip((x + (1 << shift - 1)) >> shift, -127, 127) for x in (re, im)], axis=-1)
            want = np.where(valid.astype(bool)[:, :, None, None, None], want, -128).transpose(3, 1, 2, 0, 4)
            assert np.array_equal(got, want)
            assert (abs(want) == 127).any() and (abs(want) < 127).mean() > 0.3
        auto = run(d, "c", f"baseband_beamform, bits: 8, beams: {{directions: {BEAMS.tolist()}}}")
        four = round(np.log2(127 * 12**0.5))  # what keeps the rms
        want = np.stack([np.clip((x + (1 << four - 3)) >> four - 2, -127, 127) for x in (re, im)], axis=-1)
        assert np.array_equal(auto[..., valid.astype(bool).all(axis=1), :],
                              want[valid.astype(bool).all(axis=1)].transpose(3, 1, 2, 0, 4))
        said = run(d, "b", "baseband_beamform, bits: 5, beams: {directions: [[0, 0]]}", status=2)
        assert "expected 4 or 8" in said.err, said


def test_moving_and_updates():
    """Each block has the weights that hold where it begins, whatever the frames; 8-bit beams have new ones
    in the middle of a frame."""
    other = [[0.05, 0.01], [-0.02, 0], [0.3, 0.2]]
    rate, every = [3.0, -1.0], 1000  # base samples of 5.12 us
    with harness.scratch() as d:
        path = record_field(d, samples=6000)
        _, valid, one_power = expected(path, weights(BEAMS))
        _, _, two_power = expected(path, weights(np.array(other)))
        first, second = integrate(one_power, valid), integrate(two_power, valid)
        for i, (sample, frame) in enumerate(((2000, 1024), (2016, 500), (100, 6000))):
            update = f"{{at: {{sample: {sample}}}, stages: {{s: {{beams: {{directions: {other}}}}}}}}}"
            got = run(d, f"u{i}", STAGE % (BLOCK, BEAMS.tolist()), update, frame=frame)
            cut = -(-sample // BLOCK)
            total = np.concatenate([first[0][:, :cut], second[0][:, cut:]], axis=1)
            check(got, total, first[1])
        total = first[0].copy()
        for k in range(6):
            there = BEAMS + np.array(rate) * (k + 0.5) * every * 5120e-9
            power = expected(path, weights(there))[2]
            now, _ = integrate(power, valid)
            begins = np.arange(total.shape[1]) * BLOCK // every == k
            total[:, begins] = now[:, begins]
        moves = (STAGE % (BLOCK, BEAMS.tolist())).replace(
            "]]}", f"]], rates: [{rate}], every_s: {every * 5120e-9:.9f}}}")
        for i, frame in enumerate((1024, 6000)):
            check(run(d, f"m{i}", moves, frame=frame), total, first[1])
        eight = f"baseband_beamform, bits: 8, shift: 4, beams: {{directions: {BEAMS.tolist()}}}"
        a, b = run(d, "e0", eight), run(d, "e1", eight.replace(str(BEAMS.tolist()), str(other)))
        update = f"{{at: {{sample: 2100}}, stages: {{s: {{beams: {{directions: {other}}}}}}}}}"
        got = run(d, "e2", eight, update)
        assert np.array_equal(got, np.concatenate([a[:, :, :, :2100], b[:, :, :, 2100:]], axis=3))
        assert not np.array_equal(a[:, :, :, 2100:], b[:, :, :, 2100:])


def test_below_the_horizon():
    """Such a beam has no power, also where the sum over inputs is taken off; its voltages are missing."""
    import circle_common as circle
    if not circle.has_erfa():
        return
    with harness.scratch() as d:
        path = record_field(d, samples=1000)
        _, valid, _, _ = harness.read_e(path)
        beams = 'beams: {towards: [{azel: [30, 80]}, {radec: ["05:48:00", "-20:00:00"]}]}'
        for incoherent in ("none", "subtract"):
            data, _, _ = run(d, incoherent, f"power_beams, integrate: 48, incoherent: {incoherent}, {beams}")
            assert (data[..., 1] == 0).all() and (data[..., 0] != 0).mean() > 0.8, data
        got = run(d, "e", f"baseband_beamform, bits: 8, {beams}", frame=300)
        assert (got[1] == -128).all() and (got[0, ..., valid.astype(bool).all(axis=1), :] != -128).all()


def test_products():
    """quantize, filterbank and packetize follow as they follow frb_beams: beam 3 of 4 is on the source."""
    from demo_report import read_filterbank
    from wires_common import recorded_levels  # which needs yaml
    import frb_node
    with harness.scratch() as d:
        record_field(d, samples=9000, missing="[]")
        node = frb_node.Receiver()
        grid = ("power_beams, integrate: 4, beams: {directions: [[0, 0], [0.1, 0.1], [-0.1, 0.05], %s]}"
                % BEAMS[0].tolist())
        os.mkdir(os.path.join(d, "a"))
        harness.run(d, TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: {grid}, in: field, out: beams}}
  - {{stage: filterbank, in: beams, directory: a, prefix: fil}}
  - {{stage: quantize, in: beams, out: levels, bits: 4, block: 256}}
  - {{stage: record, in: levels, directory: a, prefix: levels}}
  - {{stage: packetize, in: levels, format: frb-node, document: d.yaml,
      destinations: [{{address: "{node.address}"}}]}}
""")
        files = sorted(glob.glob(os.path.join(d, "a", "fil*.fil")))
        assert len(files) == 4, os.listdir(os.path.join(d, "a"))
        level = [read_filterbank(f)[1].mean() for f in files]
        assert level[3] > 1.5 * max(level[:3]), level
        (_, _, chunks), = node.finish()
        frames = recorded_levels(one(os.path.join(d, "a"), "levels*.dada"))
        assert len(chunks) == len(frames) > 4
        for (_, _, levels), (_, want, _) in zip(chunks, frames):
            assert levels.shape[:2] == (4, 5) and np.array_equal(levels[..., :want.shape[2]], want)


def test_mistakes():
    with harness.scratch() as d:
        record_field(d, samples=1000)
        for i, (stage, words) in enumerate((
            ("power_beams, integrate: 48", "expected exactly one"),
            ("power_beams, beams: {directions: [[0, 0]]}", "integrate"),
            ("power_beams, integrate: 48, shift: 3, beams: {directions: [[0, 0]]}", "shift"),
        )):
            said = run(d, f"a{i}", stage, status=2)
            assert re.search(words, said.err), (stage, said)


if __name__ == "__main__":
    tests = [test_equation, test_incoherent, test_eight_bits, test_moving_and_updates, test_mistakes]
    if harness.DEVICE == "cpu":  # the rest does not depend on the device, and needs modules
        tests += [test_weights_file, test_below_the_horizon, test_products]
    harness.main(tests)
