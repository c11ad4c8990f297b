"""The corner turn between ranks: the same bits for every number of ranks, missing where a rank lacks
something, and errors that name the rank before anything starts."""
import os
import re

import numpy as np

import harness
import ranks_common as mpi
from small import TELESCOPE

BAND = """
stream:
  freq_mhz: {first: 400, step: 0.1953125, count: 9}
  sample_ns: 5120
  epoch_ns: 1700000000000000000
"""
FRB = """
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: part, beams: {grid: [3, 4], spacing_deg: 1}}
"""
ZONED = """
  - {stage: upchannelize, in: field, out: fine, zones: [{channels: 1, factor: 16}, {channels: 2, factor: 4}]}
  - {stage: frb_grid, in: fine, out: grid, integrate: 48}
  - {stage: frb_beams, in: grid, out: part, beams: {grid: [3, 4], spacing_deg: 1}}
"""
VOLTAGE = """
  - {stage: baseband_beamform, in: field, out: part, beams: {grid: [3, 4], spacing_deg: 1}}
"""


def record(d, samples=5000, missing="[{first: 1000, count: 37}, {first: 3001, count: 700}]"):
    harness.run(d, TELESCOPE + BAND + f"""
pipeline:
  - {{stage: simulate, samples: {samples}, seed: 7, missing: {missing},
     sources: [{{x_deg: 1.1, y_deg: -1.7, flux: 0.3}}], out: field}}
  - {{stage: record, in: field, directory: ., prefix: whole}}
""", name="simulate.yaml")
    return os.path.join(d, "whole_000000.dada")


def pipeline(beams, exchange="{stage: exchange, in: part, out: all}", out="all"):
    return TELESCOPE + f"""
pipeline:
  - {{stage: replay, files: "in${{RANKS}}_${{RANK}}/field_*.dada", out: field, frame_samples: 768}}
""" + beams + f"""
  - {exchange}
  - {{stage: record, in: {out}, directory: "out${{RANKS}}_${{RANK}}", prefix: all, overwrite: true}}
"""


def inputs(d, path, n, share=None, keep=None):
    mpi.cut(path, [os.path.join(d, f"in{n}_{r}") for r in range(n)], share, keep)


def products(d, n, axis=1):
    found = [mpi.product(os.path.join(d, f"out{n}_{r}", "all_*.dada")) for r in range(n)]
    return (np.concatenate([f[0] for f in found], axis), [f[1] for f in found], [f[2] for f in found])


def check_same(beams, ranks=(2, 3, 4)):
    with harness.scratch() as d:
        path = record(d)
        inputs(d, path, 1)
        mpi.run(d, 1, pipeline(beams))
        one, (valid,), (first,) = products(d, 1)
        assert (valid == 0).any() and (valid == 255).any() and np.unique(one).size > 10
        for n in ranks:
            inputs(d, path, n)
            mpi.run(d, n, pipeline(beams))
            many, valids, firsts = products(d, n)
            assert many.shape == one.shape, (n, many.shape, one.shape)
            assert all((v == valid).all() for v in valids) and firsts == [first] * n, n
            same = many == one
            cells = (valid != 0).T[:, None, ..., :] if one.ndim == 3 else (valid != 0).T[:, None, None, :]
            assert (same | ~cells).all(), f"{n} ranks: {np.argwhere(~(same | ~cells))[:3]}"


def test_intensities_have_the_same_bits():
    check_same(FRB, (2, 3, 4, 8))


def test_voltages_have_the_same_bits():
    check_same(VOLTAGE)


def test_there_and_back():
    """Turned to beams and back, every rank has what it began with."""
    with harness.scratch() as d:
        path = record(d)
        inputs(d, path, 3, [4, 3, 2])
        text = pipeline(FRB, "{stage: exchange, in: part, out: all, shares: [1, 6, 5]}\n"
                        "  - {stage: exchange, name: back, in: all, out: again, to: channels,\n"
                        "     shares: [4, 3, 2]}\n"
                        "  - {stage: record, name: before, in: part, directory: \"before_${RANK}\",\n"
                        "     prefix: x}",
                        "again")
        mpi.run(d, 3, text)
        for r in range(3):
            a, va, fa, _ = mpi.product(os.path.join(d, f"before_{r}", "x_*.dada"))
            b, vb, fb, _ = mpi.product(os.path.join(d, f"out3_{r}", "all_*.dada"))
            assert a.shape == b.shape and (a == b).all() and (va == vb).all() and fa == fb, r


def test_ranks_in_any_order_and_uneven():
    with harness.scratch() as d:
        path = record(d)
        inputs(d, path, 1)
        mpi.run(d, 1, pipeline(FRB))
        one, (valid,), _ = products(d, 1)
        mpi.cut(path, [os.path.join(d, f"in3_{r}") for r in (2, 0, 1)], [1, 3, 5])
        mpi.run(d, 3, pipeline(FRB, "{stage: exchange, in: part, out: all, shares: [2, 9, 1]}"))
        many, valids, _ = products(d, 3)
        assert (many == one).all() and all((v == valid).all() for v in valids)


def test_other_ends_and_gaps_are_missing():
    """Rank 1 begins later and ends earlier, rank 2 has a gap: what they lack is missing, the rest as it
    was."""
    with harness.scratch() as d:
        path = record(d, missing="[]")
        inputs(d, path, 3)
        text = pipeline(VOLTAGE) + """
  - {stage: baseband_beamform, name: b8, in: field, out: part8, beams: {grid: [3, 1], spacing_deg: 1},
     bits: 8}
  - {stage: exchange, name: e8, in: part8, out: all8}
  - {stage: record, name: r8, in: all8, directory: "eight_${RANK}", prefix: x, overwrite: true}
"""
        mpi.run(d, 3, text)
        whole, (valid, *_), _ = products(d, 3)
        assert (valid == 255).all()
        inputs(d, path, 3, keep=[None, (1700, 2111), None])
        with open(os.path.join(d, "in3_2", "field_000000.dada.gaps"), "w") as f:
            f.write("768 1536\n2400 10\n")
        result = mpi.run(d, 3, text)
        some, valids, firsts = products(d, 3)
        expected = np.full(valid.shape, 255, np.uint8)
        expected[:1700, 3:6] = expected[3811:, 3:6] = 0
        expected[768:2304, 6:] = expected[2400:2410, 6:] = 0
        assert firsts == [0, 0, 0] and all((v == expected).all() for v in valids)
        there = np.broadcast_to((expected == 255).T[:, None, None, :], some.shape)
        assert (some[there] == whole[there]).all()
        assert (some[~there] == 0x88).all(), "missing voltages are -8"
        wide = mpi.product(os.path.join(d, "eight_1", "x_*.dada"))[0]
        assert ((wide == 0x8080) == ~there[:, :1]).all(), "and of 8 bits -128"
        assert "accounted for" in result.out


def test_a_rank_that_has_nothing_in_common():
    """Far apart in time: what one rank has is missing on the other, and nobody waits."""
    with harness.scratch() as d:
        path = record(d, missing="[]")
        inputs(d, path, 2, keep=[(0, 1000), (4000, 1000)])
        mpi.run(d, 2, pipeline(VOLTAGE))
        for r in range(2):
            early, late = (mpi.product(os.path.join(d, f"out2_{r}", name))
                           for name in ("all_000000.dada", "all_000001.dada"))
            assert (early[2], late[2]) == (0, 4000), (early[2], late[2])
            for (_, valid, *_), here in ((early, slice(0, 5)), (late, slice(5, 9))):
                expected = np.zeros(valid.shape, np.uint8)
                expected[:, here] = 255
                assert len(valid) == 1000 and (valid == expected).all(), r


def test_zones_there_and_back():
    """Every rank has two zones, so that all of them have six; nothing of a frame's
    bytes changes on the way there and back."""
    with harness.scratch() as d:
        path = record(d)
        inputs(d, path, 3)
        text = pipeline(ZONED, "{stage: exchange, in: part, out: all}\n"
                        "  - {stage: exchange, name: back, in: all, out: again, to: channels}\n"
                        "  - {stage: record, name: before, in: part, directory: \"before_${RANK}\",\n"
                        "     prefix: x}\n"
                        "  - {stage: record, name: turned, in: all, directory: \"turned_${RANK}\",\n"
                        "     prefix: x}", "again")
        mpi.run(d, 3, text)
        for r in range(3):
            pair = [os.path.join(d, name)
                    for name in (f"before_{r}/x_000000.dada", f"out3_{r}/all_000000.dada")]
            a, b = (open(p, "rb").read()[harness.header(p)[1]:] for p in pair)
            assert a == b and len(a) > 1000, r
            assert open(pair[0] + ".gaps").read() == open(pair[1] + ".gaps").read()
            keys, _ = harness.header(os.path.join(d, f"turned_{r}", "x_000000.dada"))
            assert keys["NZONES"] == "6", keys


def expect(text, words, n=2, command="check", before=None):
    with harness.scratch() as d:
        path = record(d, samples=800, missing="[]")
        inputs(d, path, n)
        if before:
            before(d, path)
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(text)
        result = harness.beamring("check", "--ranks", n, "pipeline.yaml", cwd=d) if command == "check" else \
            mpi.run(d, n, text, status=2, grace=1)
        assert result.status == 2, result
        for word in words:
            assert word in result.err, (word, result)
        assert not any(x.startswith("out") for x in os.listdir(d)), "something has started"


def test_overlaps_and_holes():
    def overlap(d, path):
        mpi.cut(path, [os.path.join(d, "in2_0"), os.path.join(d, "rest")], [6, 3])
    def hole(d, path):
        mpi.cut(path, [os.path.join(d, "in2_0"), os.path.join(d, "rest")], [3, 6])
    for command in ("check", "run"):
        expect(pipeline(FRB), ["ranks 0 and 1 both have", "MHz"], command=command, before=overlap)
        expect(pipeline(FRB), ["no rank has", "between ranks 0 and 1"], command=command, before=hole)


def test_other_sidebands():
    """Bands of different sidebands do not make one band."""
    def before(d, path):
        inputs(d, path, 2)
        folder = os.path.join(d, "in2_1")
        name = os.path.join(folder, next(n for n in os.listdir(folder) if n.endswith(".dada")))
        data = open(name, "rb").read()
        data, changed = re.subn(rb"(?m)^(SIDEBAND +)upper", rb"\1lower", data)
        assert changed == 1
        open(name, "wb").write(data)
    expect(pipeline(FRB), ["sideband 'upper'", "'lower'"], before=before)


def test_more_ranks_than_beams():
    text = pipeline("  - {stage: baseband_beamform, in: field, out: part,\n"
                    "     beams: {grid: [1, 2], spacing_deg: 1}}\n")
    expect(text, ["3 ranks share 2 beams"], n=3)


def test_shares_that_do_not_add_up():
    expect(pipeline(FRB, "{stage: exchange, in: part, out: all, shares: [5, 6]}"),
           ["11 beams together", "12"])
    expect(pipeline(FRB, "{stage: exchange, in: part, out: all, shares: [12]}"), ["1 numbers for 2 ranks"])


def test_the_same_files():
    text = pipeline(FRB).replace("out${RANKS}_${RANK}", "out")
    expect(text, ["would both write the files", "${RANK}"])
    expect(text, ["would both write the files", "${RANK}"], command="run")


def test_check_says_what_crosses():
    with harness.scratch() as d:
        path = record(d, samples=800, missing="[]")
        inputs(d, path, 3)
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(pipeline(VOLTAGE, "{stage: exchange, in: part, out: all, shares: [2, 4, 6]}"))
        result = harness.beamring("check", "--ranks", 3, "pipeline.yaml", cwd=d)
        assert result.status == 0, result
        # A rank has 3 channels; 2 polarisations of 1 byte each 5.12 us.
        per = 3 * 2 / 5.12e-6 / 2**20
        for r, share in enumerate((2, 4, 6)):
            part = result.out.split(f"rank {r} of 3")[1]
            line = next(x for x in part.splitlines() if x.startswith("exchange: "))
            sent, got = (float(x) for x in (line.split()[1], line.split()[6]))
            assert abs(sent - per * (12 - share)) < 0.06, line
            assert abs(got - per * 2 * share) < 0.06, line


def test_alone():
    """Without MPI a program is rank 0 of 1, and a job in host memory asks for it."""
    with harness.scratch() as d:
        inputs(d, record(d, samples=1600), 1)
        harness.run(d, pipeline(FRB))


if __name__ == "__main__":
    mpi.require_mpi()
    harness.main([
        test_intensities_have_the_same_bits, test_voltages_have_the_same_bits, test_there_and_back,
        test_ranks_in_any_order_and_uneven, test_other_ends_and_gaps_are_missing,
        test_a_rank_that_has_nothing_in_common, test_zones_there_and_back, test_overlaps_and_holes,
        test_more_ranks_than_beams, test_other_sidebands,
        test_shares_that_do_not_add_up, test_the_same_files, test_check_says_what_crosses, test_alone
    ])
