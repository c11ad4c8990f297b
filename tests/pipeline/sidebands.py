"""Who says which sideband a stream holds, and what happens where nobody does, where two contradict each
other, and where the word is nonsense; `check` and `info` say it for every format."""
import dataclasses
import os
import shutil
import sys

import h5py
import numpy as np

import harness
import sky_common as sky
from capture_common import LINKS, ip_udp, write_pcap
from sky_common import fe

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

NOTE = "sideband of the channels"
TIMES = 256
FORM = fe.Packets(4, 8)
NOT = {"upper": "lower", "lower": "upper"}


class Files:
    """A directory with one field in every format that there is: {name: (files, keys of `stream:` that the
    format needs, whether it says the sideband)}."""

    def __init__(self, d, zone=2):
        self.d = d
        board = sky.board(zone)
        self.array = sky.Array(board, 2, 2)
        self.field = fe.simulate(board, fe.Receivers(self.array.positions), [], TIMES, epoch_ns=sky.EPOCH_NS)
        self.side = self.field.sideband
        mhz = [float(f) for f in board.freq_mhz()]
        sky.write(d, self.field, "ours.dada")
        sky.write(d, self.field, "silent.dada", sideband=None)
        self.guppi("x.raw", float(board.step_mhz))
        for i in range(2):
            self.chime(f"c{i}.h5", i, {})
        self.foreign("x.dada", {})
        with open(self.at("x.vdif"), "wb") as f:
            f.write(b"".join(other.vdif_file(self.field.levels(), 16, 5000, 0, 46, 6250000)))
        with open(self.at("k.bin"), "wb") as f:
            f.write(other.kotekan_frame(self.field.levels(), list(range(8)), 0))
        write_pcap(self.at("x.pcap"), LINKS["raw"][0],
                   [LINKS["raw"][1](ip_udp(p.tobytes())) for p in fe.packets(self.field, FORM)])
        self.description("said.yaml", self.side)
        self.description("unsaid.yaml", None)
        freq = f"freq_mhz: {mhz}"
        time = f"sample_ns: 160, epoch_ns: {sky.EPOCH_NS}"
        self.formats = {
            "ours": ("ours.dada", [], True), "silent": ("silent.dada", [], False),
            "dada": ("x.dada", [], True),
            "guppi": ("x.raw", [], True), "chime": ("'c*.h5'", ["npol: 2"], True),
            "vdif": ("x.vdif", ["npol: 2", freq, "sample_ns: 160"], False),
            "kotekan": ("k.bin", [freq, time], False),
            "pcap": ("x.pcap, packet: ./said.yaml, sources: [0], frame_samples: 64", [time], True),
            "bare pcap": ("x.pcap, packet: ./unsaid.yaml, sources: [0], frame_samples: 64", [time], False)}

    def at(self, name):
        return os.path.join(self.d, name)

    def description(self, name, side):
        with open(self.at(name), "w") as f:
            f.write(fe.packet_description(self.field, FORM, side))

    def guppi(self, name, step, first=0):
        blocks = other.guppi_blocks(self.field.levels(), 64, centre=float(self.field.freq_mhz.mean()),
                                    band=8 * step, first_packet=first)
        with open(self.at(name), "wb") as f:
            f.write(b"".join(blocks))

    def chime(self, name, i, attributes):
        raw = other.pack_chime(self.field.levels()[:, i].reshape(TIMES, 8))
        other.write_chime(self.at(name), raw, i, 0, 1600000000.0, attributes=attributes)

    def foreign(self, name, keys):
        header = {"HEADER": "DADA", "HDR_SIZE": 4096, "FREQ": float(self.field.freq_mhz.mean()),
                  "BW": float(self.field.board.step_mhz) * 8, "NCHAN": 8, "NPOL": 2, "NANT": 4, "NBIT": 4,
                  "NDIM": 2, "TSAMP": 0.16, "ORDER": "TFPA", "UTC_START": "2023-11-14-22:13:20",
                  "OBS_OFFSET": 0, **keys}
        with open(self.at(name), "wb") as f:
            f.write("".join(f"{k} {v}\n" for k, v in header.items()).encode().ljust(4096, b"\0"))
            f.write(other.pack_int4x2(self.field.levels()).tobytes())

    def replay(self, files, stream=(), stages=None, status=0, command="run"):
        """The pipeline and what it recorded."""
        shutil.rmtree(self.at("out"), ignore_errors=True)
        keys = "stream: {%s}\n" % ", ".join(stream) if stream else ""
        return harness.run(self.d, self.array.yaml + keys + "pipeline:\n  - {stage: replay, files: " + files +
                           ", out: field}\n" +
                           (stages or "  - {stage: record, in: field, directory: out, prefix: x}\n"),
                           status=status, command=command)

    def recorded(self):
        """The key SIDEBAND of what was recorded, or None."""
        (path,) = sky.files(self.at("out"), "*.dada")
        return harness.header(path)[0].get("SIDEBAND")


def test_who_says_it():
    """Every format: what it says goes into the recording, or what `stream:` says; a contradiction names both
    values and how to insist; `check` prints it."""
    for zone in (2, 3):
        with harness.scratch() as d:
            f = Files(d, zone)
            wrong = NOT[f.side]
            for name, (files, keys, says) in f.formats.items():
                pcap = "pcap" in name
                stages = "  - {stage: unpack, in: field, out: e}\n" \
                    "  - {stage: record, in: e, directory: out, prefix: x}\n" if pcap else None
                # CHIME's second zone: without a word of ours a lower sideband
                own = (f.side if name != "chime" else "lower") if says else None
                checked = f.replay(files, keys, stages, command="check").out
                assert f"{own} sideband" in checked if own else "sideband unknown" in checked, (name, checked)
                f.replay(files, keys, stages)
                assert f.recorded() == own, (name, f.recorded())
                for side in ("upper", "lower"):
                    told = [*keys, f"sideband: {side}"]
                    if own in (None, side):
                        f.replay(files, told, stages)
                    else:
                        err = f.replay(files, told, stages, status=2).err
                        assert own in err and side in err and "override" in err, (name, err)
                        f.replay(files, [*told, "override: [sideband]"], stages)
                    assert f.recorded() == side, (name, side, f.recorded())
                    checked = f.replay(files, [*told, "override: [sideband]"], stages, command="check").out
                    assert f"{side} sideband" in checked, (name, checked)
            assert wrong != f.side


def test_capture_says_it():
    """A description, a parameter of capture, `stream:`, and where they contradict each other."""
    with harness.scratch() as d:
        f = Files(d)

        def check(description, parameter="", stream="", status=0):
            return harness.run(d, f.array.yaml + f"""
stream: {{epoch_ns: {sky.EPOCH_NS}{stream}}}
pipeline:
  - {{stage: capture, packet: ./{description}, sources: [0], addresses: ["127.0.0.1:4321"],
      frame_samples: 64, out: packets{parameter}}}
  - {{stage: unpack, in: packets, out: field}}
  - {{stage: record, in: field, directory: out, prefix: x}}
""", command="check", status=status)
        for description, parameter, stream, side in (
                ("said.yaml", "", "", "lower"), ("unsaid.yaml", "", "", None),
                ("unsaid.yaml", "", ", sideband: upper", "upper"),
                ("said.yaml", "", ", sideband: lower", "lower"),
                ("said.yaml", ", sideband: upper", "", "upper"),
                ("unsaid.yaml", ", sideband: lower", "", "lower"),
                ("said.yaml", "", ", sideband: upper, override: [sideband]", "upper")):
            out = check(description, parameter, stream).out
            assert (f"{side} sideband" if side else "sideband unknown") in out, out
            assert out.count("lower sideband") + out.count("upper sideband") + \
                out.count("sideband unknown") == 2, "both connections say it: " + out
        for description, parameter, stream in (("said.yaml", "", ", sideband: upper"),
                                               ("said.yaml", ", sideband: upper", ", sideband: lower"),
                                               ("unsaid.yaml", ", sideband: upper", ", sideband: lower")):
            err = check(description, parameter, stream, 2).err
            assert "lower" in err and "upper" in err and "override" in err, err


def test_files_that_differ():
    """Files of one recording hold one sideband: in time, side by side, and in every format that says it."""
    with harness.scratch() as d:
        f = Files(d)
        sky.write(d, f.field, "later.dada", sideband="upper", sample0=TIMES)
        sky.write(d, f.field, "later_silent.dada", sideband=None, sample0=TIMES)
        away = {"FREQ_MHZ": "600,593.75,587.5,581.25,575,568.75,562.5,556.25"}
        sky.write(d, f.field, "band.dada", sideband="upper", keys=away)
        sky.write(d, f.field, "good.dada", keys=away)
        f.foreign("signed.dada", {"OBS_OFFSET": TIMES * 64, "SIDEBAND": "upper"})
        f.guppi("later.raw", -float(f.field.board.step_mhz), first=TIMES)
        f.chime("u1.h5", 1, {"sideband": "upper"})
        for one, two in (("ours.dada", "later.dada"), ("ours.dada", "later_silent.dada"),
                         ("ours.dada", "band.dada"), ("x.dada", "signed.dada"), ("x.raw", "later.raw"),
                         ("c0.h5", "u1.h5")):
            for files in ([one, two], [two, one]):
                err = f.replay(f"[{', '.join(files)}]", ["npol: 2"] if ".h5" in one else [], status=2).err
                assert one in err and two in err and "sideband" in err.lower(), err
        f.replay("[ours.dada, good.dada]")
        assert f.recorded() == "lower"


def test_nonsense():
    with harness.scratch() as d:
        f = Files(d)
        for word in ("sideways", "Upper", "1", "upper lower", "lowe"):
            sky.write(d, f.field, "n.dada", sideband=word)
            f.foreign("nf.dada", {"SIDEBAND": word})
            f.chime("n.h5", 0, {"sideband": word})
            for files, keys in (("n.dada", []), ("nf.dada", []), ("n.h5", ["npol: 2"])):
                result = f.replay(files, keys, status=2)
                assert files in result.err and word in result.err and "upper or lower" in result.err, result
                result = harness.beamring("info", files, cwd=d)
                assert word in result.err or result.status == 0, (files, result)
            f.description("n.yaml", f"'{word}'")
            result = harness.beamring("info", "n.yaml", cwd=d)
            assert result.status != 0 and word in result.err and "upper" in result.err, result
            result = f.replay("ours.dada", [f"sideband: '{word}'"], status=2)
            assert word in result.err and "upper" in result.err, result


def test_attributes_of_any_type():
    """CHIME's attribute as a text of variable and of fixed length; what is not one word is refused."""
    with harness.scratch() as d:
        f = Files(d)
        for value in ("upper", np.bytes_("upper"), np.array("upper", "S12"), np.bytes_("lower")):
            f.chime("a.h5", 0, {"sideband": value})
            f.replay("a.h5", ["npol: 2"])
            assert f.recorded() == ("lower" if b"lower" in np.bytes_(value) else "upper"), value
        for value in (1, 0.5, "", "upper" * 1000, np.bytes_("lower" * 1000), [b"upper", b"upper"],
                      h5py.Empty("S5")):
            f.chime("a.h5", 0, {"sideband": value})
            result = f.replay("a.h5", ["npol: 2"], status=2)
            for words in ("a.h5", "sideband", "upper or lower"):
                assert words in result.err, result


BEAMS = """
  - {stage: upchannelize, in: field, out: fine, factor: 4}
  - {stage: upchannelize, name: again, in: field, out: other, factor: 8}
  - {stage: frb_grid, in: fine, out: image, integrate: 16}
  - {stage: frb_beams, in: image, out: beams, beams: {directions: [[0, 0.1]]}}
  - {stage: baseband_beamform, in: field, out: voltages, beams: {directions: [[0, 0.1]]}}
  - {stage: record, name: r1, in: beams, directory: out, prefix: beams}
  - {stage: record, name: r2, in: voltages, directory: out, prefix: voltages}
  - {stage: record, name: r3, in: other, directory: out, prefix: other}
"""


def test_one_note_where_nobody_knows():
    """A run with fine channels and beams of two kinds says it once; one that is told, none; and a recording
    that is copied stays silent, bit for bit."""
    with harness.scratch() as d:
        f = Files(d)
        for command in ("check", "run"):
            assert (f.replay("silent.dada", (), BEAMS, command=command).err).count(NOTE) == 1
        upper = [open(p, "rb").read() for p in sky.files(f.at("out"), "*.dada")]
        for side in ("upper", "lower"):
            assert NOTE not in f.replay("silent.dada", [f"sideband: {side}"], BEAMS).err
            told = [open(p, "rb").read() for p in sky.files(f.at("out"), "*.dada")]
            same = [a[4096:] == b[4096:] for a, b in zip(upper, told)]
            assert len(same) == 3 and (all(same) if side == "upper" else not any(same)), (side, same)
        assert NOTE not in f.replay("ours.dada", (), BEAMS).err
        # one stage alone is enough, and neither a copy nor a correlator needs to know
        for stages, count in ((BEAMS.splitlines()[1] + "\n  - {stage: record, in: fine, prefix: f}\n", 1),
                              ("  - {stage: upchannelize, in: field, out: fine, factor: 1}\n"
                               "  - {stage: record, in: fine, directory: out, prefix: f}\n", 0)):
            assert f.replay("silent.dada", (), stages).err.count(NOTE) == count, stages
        result = f.replay("silent.dada")
        assert "sideband" not in result.err, result
        assert f.recorded() is None
        (path,) = sky.files(f.at("out"), "*.dada")
        keys, size = harness.header(path)
        assert open(path, "rb").read()[size:] == f.field.e.tobytes()
        shutil.move(path, f.at("copy_000000.dada"))
        f.replay("copy_000000.dada")
        (path,) = sky.files(f.at("out"), "*.dada")
        keys_again, size_again = harness.header(path)
        assert open(path, "rb").read()[size_again:] == f.field.e.tobytes() and keys_again == keys


EVERY = """
  - {stage: flag, in: field, out: [clean, kurtosis], block: 16, long_block: 4}
  - {stage: upchannelize, in: clean, out: fine, factor: 4}
  - {stage: frb_grid, in: fine, out: image, integrate: 16}
  - {stage: frb_beams, in: image, out: beams, beams: LOOKS}
  - {stage: quantize, in: beams, out: levels, bits: 8, block: 4}
  - {stage: baseband_beamform, in: clean, out: voltages, beams: LOOKS}
  - {stage: correlate, in: clean, out: v, integrate: 64}
  - {stage: filterbank, in: levels, directory: fil}
"""
LOOKS = "{directions: [[0.1, 0.2], [-0.1, -0.2]]}"
CUTS = ("kurtosis", "clean", "fine", "image", "beams", "levels", "voltages", "v")


def test_every_stage_hands_it_on():
    """Every connection has it, every recording of one says it, and a pipeline that is cut there and goes on
    from the recording makes the same bits."""
    every = EVERY.replace("LOOKS", LOOKS)
    records = "".join(f"  - {{stage: record, name: r_{c}, in: {c}, directory: out, prefix: {c}}}\n"
                      for c in CUTS)
    with harness.scratch() as d:
        f = Files(d)
        for files, side in (("ours.dada", "lower"), ("x.raw", "lower"), ("silent.dada", None)):
            wide = "{stage: requantize, in: wide, out: field, scale: 1}"
            text = f.array.yaml + "pipeline:\n  - {stage: replay, files: %s, out: %s}\n" % (
                files, "wide}\n  - " + wide[:-1] if files == "x.raw" else "field") + every + records
            words = f"{side} sideband" if side else "sideband unknown"
            out = harness.run(d, text, command="check").out
            assert out.count(words) == len(CUTS) + 1 + (files == "x.raw"), (files, out)
            shutil.rmtree(f.at("out"), ignore_errors=True)
            harness.run(d, text.replace("fil}", f"fil_{side}_{files}}}"))
            for cut in CUTS:
                (path,) = sky.files(f.at("out"), f"{cut}_*.dada")
                assert harness.header(path)[0].get("SIDEBAND") == side, (files, cut)
            if side is None:
                continue
            for cut, until in (("clean", "fine"), ("fine", "image"), ("image", "beams"),
                               ("clean", "voltages")):
                stage = next(line for line in every.splitlines() if f"out: {until}," in line)
                harness.run(d, f.array.yaml + f"""
pipeline:
  - {{stage: replay, files: 'out/{cut}_*.dada', out: {cut}}}
{stage}
  - {{stage: record, in: {until}, directory: again, prefix: {until}, overwrite: true}}
""")
                (one,), (two,) = (sky.files(f.at(place), f"{until}_*.dada") for place in ("out", "again"))
                a, b = (open(p, "rb").read()[4096:] for p in (one, two))
                assert a == b and harness.header(two)[0]["SIDEBAND"] == side, (files, cut, until)


def test_one_channel():
    """A single channel has no order of frequencies: the sign of BW and OBSBW tells the sideband."""
    with harness.scratch() as d:
        for zone in (1, 2, 3, 4):
            f = Files(d, zone)
            one = dataclasses.replace(f.field, e=f.field.e[:, 3:4])
            sky.write(d, one, "one.dada", keys={"FREQ_MHZ": repr(float(f.field.freq_mhz[3]))})
            for form, suffix, keys in (("dada", "dada", []), ("guppi", "raw", []),
                                       ("chime", "h5", ["npol: 2", "width_mhz: 6.25"])):
                lossy = "" if form == "dada" else f", format: {form}, lossy: true"
                f.replay("one.dada", (),
                         f"  - {{stage: record, in: field, directory: out, prefix: o{lossy}}}\n")
                (path,) = sky.files(f.at("out"), f"*.{suffix}")
                moved = shutil.move(path, f.at(f"o.{suffix}"))
                if form == "dada":
                    assert float(harness.header(moved)[0]["BW"]) * (1 if f.side == "upper" else -1) > 0
                f.replay(f"o.{suffix}", keys)
                assert f.recorded() == f.side, (zone, form)
                os.remove(moved)


def test_convert():
    """`convert` between all formats that say it, and with --stream where one does not."""
    with harness.scratch() as d:
        for zone in (2, 3):
            f = Files(d, zone)
            for name, stream in (("ours.dada", None), ("silent.dada", f"sideband: {f.side}"),
                                 ("x.raw", None)):
                for form, suffix, back in (("dada", "dada", []), ("guppi", "raw", []),
                                           ("chime", "h5", ["npol: 2", "width_mhz: 6.25"])):
                    if form == "chime" and name == "x.raw":
                        continue  # 8 bits
                    shutil.rmtree(f.at("to"), ignore_errors=True)
                    more = ["--stream", stream] if stream else []
                    result = harness.beamring("convert", "--to", form, "--lossy", *more, name, "to/x", cwd=d)
                    assert result.status == 0, (name, form, result)
                    f.replay(f"'to/*.{suffix}'", back)
                    assert f.recorded() == f.side, (name, form, f.recorded())


def test_info():
    """Every format and every description: what it says, or that it does not and what to do."""
    with harness.scratch() as d:
        f = Files(d)
        for name, side in (("ours.dada", "lower"), ("silent.dada", None), ("x.dada", "lower"),
                           ("x.raw", "lower"),
                           ("c0.h5", "lower"), ("x.vdif", None), ("k.bin", None), ("said.yaml", "lower"),
                           ("unsaid.yaml", None)):
            result = harness.beamring("info", name, cwd=d)
            lines = [line.split() for line in result.out.splitlines() if line.split()[:1] == ["sideband"]]
            assert len(lines) == 1, (name, result)
            if side:
                assert lines[0] == ["sideband", side], (name, lines)
            else:
                words = {"description:"} if name == "unsaid.yaml" else {"file:", "`stream:", "upper}`"}
                assert words | {"not"} <= set(lines[0]), (name, lines)


if __name__ == "__main__":
    harness.main([test_who_says_it, test_capture_says_it, test_files_that_differ, test_nonsense,
                  test_attributes_of_any_type, test_one_note_where_nobody_knows,
                  test_every_stage_hands_it_on, test_one_channel, test_convert, test_info])
