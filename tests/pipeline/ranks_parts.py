"""Ranks that share one list of files: each takes its part of the bands, or of the channels of the only one,
and all together have the bits of one program, with MPI and without."""
import os
import re

import numpy as np

import harness
import ranks_common as mpi
from ranks import FRB, products, record, VOLTAGE
from ranks_failures import join
from small import TELESCOPE

NAMES = ("zebra", "apple", "mango", "lemon", "grape")  # in the order of their frequencies
SHARES = (3, 1, 2, 1, 2)
REPLAY = '  - {stage: replay, files: "%s", out: field, part: "${RANK}/${RANKS}", frame_samples: 768}\n'


def pipeline(files, beams, out="all"):
    exchange = "  - {stage: exchange, in: part, out: all}\n" if out == "all" else ""
    return TELESCOPE + "\npipeline:\n" + REPLAY % files + beams + exchange + f"""
  - {{stage: record, in: {out}, directory: "out${{RANKS}}_${{RANK}}", prefix: all, overwrite: true}}
"""


def spread(d):
    """A recording of nine channels, whole in whole_000000.dada, and in files of bands in one folder."""
    path = record(d)
    made = [os.path.join(d, f"band{i}") for i in range(len(NAMES))]
    mpi.cut(path, made, SHARES)
    os.mkdir(os.path.join(d, "bands"))
    for directory, name in zip(made, NAMES):
        for end in ("", ".gaps"):
            os.rename(os.path.join(directory, "field_000000.dada" + end),
                      os.path.join(d, "bands", f"{name}.dada{end}"))


def same(d, n, one):
    """The valid samples of n ranks are those of one."""
    values, (valid,), (first,) = one
    many, valids, firsts = products(d, n)
    assert many.shape == values.shape and firsts == [first] * n, (n, many.shape, values.shape, firsts)
    assert all((v == valid).all() for v in valids), n
    cells = np.broadcast_to((valid != 0).T.reshape(valid.shape[1], *(1,) * (many.ndim - 2), -1), many.shape)
    assert (many == values)[cells].all() and cells.any(), n


def test_bands_and_channels():
    for files in ("bands/*.dada", "whole_*.dada"):
        for beams in (FRB, VOLTAGE):
            with harness.scratch() as d:
                spread(d)
                text = pipeline(files, beams)
                harness.run(d, text)
                one = products(d, 1)
                assert (one[1][0] == 0).any() and np.unique(one[0]).size > 10
                for n in (1, 2, 3):
                    mpi.run(d, n, text)
                    same(d, n, one)


def field(d, n):
    """The recordings of the ranks of a job without an exchange."""
    return [harness.read_e(os.path.join(d, f"out{n}_{r}", "all_000000.dada")) for r in range(n)]


def test_without_mpi():
    for files in ("bands/*.dada", "whole_*.dada"):
        with harness.scratch() as d:
            spread(d)
            text = pipeline(files, "", out="field")
            harness.run(d, text)
            (e, valid, first, keys), = field(d, 1)
            assert e.shape[1] == 9 and not valid.all()
            begin, step = (float(x) for x in keys["FREQ_MHZ"].split(":")[:2])
            for n in (1, 2, 3):
                results = join(d, n, text)
                assert all(r.status == 0 for r in results), results
                found = field(d, n)
                assert [f[2] for f in found] == [first] * n
                assert (np.concatenate([f[0] for f in found], 1) == e).all(), n
                assert (np.concatenate([f[1] for f in found], 1) == valid).all(), n
                at = 0
                for r, (part, _, _, mine) in enumerate(found):
                    numbers = [float(x) for x in re.split("[:,]", mine["FREQ_MHZ"])]
                    assert abs(numbers[0] - begin - at * step) < 1e-9, (n, r, mine["FREQ_MHZ"])
                    at += part.shape[1]


def test_too_many_ranks():
    """Nothing starts, and the message names the place in the file and the numbers."""
    with harness.scratch() as d:
        spread(d)
        for files, n, words in (("bands/*.dada", 6, ["6 parts", "5 bands"]),
                                ("whole_*.dada", 10, ["10 parts", "9 channels"])):
            text = pipeline(files, "", out="field")
            result = harness.run(d, text, "--ranks", n, command="check", status=2)
            for word in (*words, "pipeline.yaml:11:"):
                assert word in result.err, (word, result)
            results = join(d, n, text)
            for r, result in enumerate(results):
                assert result.status == 2 and all(word in result.err for word in words), (r, result)
            assert not any(x.startswith("out") for x in os.listdir(d)), "something has started"


def test_too_many_ranks_under_mpi():
    with harness.scratch() as d:
        spread(d)
        result = mpi.run(d, 6, pipeline("bands/*.dada", FRB), status=2, grace=1)
        assert "6 parts" in result.err and "5 bands" in result.err and "pipeline.yaml:" in result.err, result
        assert not any(x.startswith("out") for x in os.listdir(d)), "something has started"


def test_what_is_no_part():
    """Parts that overlap, or that leave holes, are seen before anything starts; so is nonsense."""
    with harness.scratch() as d:
        spread(d)
        for part, words in (("0/2", ["ranks 0 and 1 both have", "MHz"]),
                            ("${RANK}/1", ["R below N"]),
                            ("${RANK}.5/${RANKS}", ["R/N"]), ("${RANKS}/${RANK}", ["R below N"])):
            text = pipeline("bands/*.dada", FRB).replace("${RANK}/${RANKS}", part)
            result = harness.run(d, text, "--ranks", 2, command="check", status=2)
            assert all(word in result.err for word in words), (part, result)


if __name__ == "__main__":
    tests = [test_without_mpi, test_too_many_ranks, test_what_is_no_part]
    try:
        mpi.require_mpi(lambda reason: print(f"only without MPI: {reason}"))
        tests += [test_bands_and_channels, test_too_many_ranks_under_mpi]
    except SystemExit:
        pass
    harness.main(tests)
