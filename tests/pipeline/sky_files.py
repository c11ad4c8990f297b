"""The true sky from files: the F-engine's field in every format that `record` writes and `replay` reads, and
in files of others that the test writes itself. The source stays in its beam and the carriers in their
channels, whichever sideband the files hold and whoever says so."""
import dataclasses
import functools
import os
import sys

import numpy as np

import harness
import sky_common as sky
from sky_common import fe

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import recordings as other  # noqa: E402

QUIET, LOUD = 1024, 2048  # spectra with a source, then those with carriers
LOOK = """
  - {stage: frb_grid, in: field, out: image, integrate: 64}
  - {stage: frb_beams, in: image, out: beams, beams: LOOKS}
  - {stage: record, name: r_beams, in: beams, directory: seen, prefix: list, overwrite: true}
  - {stage: upchannelize, in: field, out: fine, factor: 16, gain: 1.5}
  - {stage: record, name: r_fine, in: fine, directory: seen, prefix: fine, overwrite: true}
"""


@functools.lru_cache
class Truth:
    """A field with one source and, later, carriers; and whether a run has seen them where they are."""

    def __init__(self, zone):
        rng = np.random.default_rng([7, zone])
        self.zone, self.place = zone, sky.places(zone)[zone]
        self.board = sky.board(zone)
        self.array = sky.Array(self.board)
        receivers = fe.Receivers(self.array.positions)
        self.looks = sky.looks_at(self.place, rng)
        source = fe.simulate(self.board, receivers, [fe.Source(*self.place, sky.FLUX)], QUIET, seed=zone,
                             epoch_ns=sky.EPOCH_NS)
        sharp = dataclasses.replace(self.board, taps=4, noise_rms=1.2)
        tones = [fe.Carrier(f, 0.5) for f in sky.carrier_places(sharp, 5)]
        carriers = fe.simulate(sharp, receivers, tones, LOUD, seed=zone)
        self.field = dataclasses.replace(source, e=np.concatenate([source.e, carriers.e]))
        self.carriers = carriers.carriers_mhz
        self.other = "lower" if zone % 2 else "upper"

    def run(self, d, files, stream="", more="", through="", status=0):
        """Replays the files and looks; checks what is seen. The result."""
        first = "" if through else "  - {stage: replay, files: '%s', out: field%s}\n" % (files, more)
        result = harness.run(d, self.array.yaml + stream + "pipeline:\n" + first +
                             through.replace("FILES", files) + LOOK.replace("LOOKS", sky.text(self.looks)),
                             status=status)
        if status == 0:
            self.check(d)
        return result

    def check(self, d):
        seen = os.path.join(d, "seen")
        i, keys = sky.intensities(seen, "list")
        i, mhz = i[:, :QUIET // 64], sky.numbers(keys, "FREQ_MHZ")
        samples = 64 * np.isfinite(i[..., 0]).sum(1).min()
        assert samples >= QUIET / 2, f"only {samples} samples came"
        i = np.nanmean(i, 1) / 64
        order = [np.argmin(abs(mhz - f)) for f in self.board.freq_mhz()]
        assert np.allclose(mhz[order], self.board.freq_mhz(), rtol=0, atol=1e-6), mhz
        sky.check_beams(self.array, self.place, self.looks, i[order], samples, label=f"zone {self.zone}")
        power, keys = sky.power_of(seen, "fine", first=QUIET + 64)
        found = sky.check_carriers(f"zone {self.zone}", self.carriers, power, sky.numbers(keys, "FREQ_MHZ"),
                                   np.full(len(power), self.field.width_mhz / 16))
        assert found == len(self.carriers), (found, self.carriers, keys["FREQ_MHZ"], keys["WIDTH_MHZ"])


def mhz_list(values):
    return "[" + ", ".join(f"{v!r}" for v in values.tolist()) + "]"


def turned(field):
    """The same field with its channels in the other order, and the keys that say so."""
    return dataclasses.replace(field, e=field.e[:, ::-1]), \
        {"FREQ_MHZ": mhz_list(field.freq_mhz[::-1])[1:-1].replace(" ", "")}


WIDE = """
  - {stage: replay, files: 'FILES', out: wide}
  - {stage: requantize, in: wide, out: field, scale: 1}
"""


def test_formats_there_and_back():
    """record -> replay in every format, of both sidebands, with channels in either order; where a format has
    no place for the sideband or for frequencies, `stream:` says them, as the note of `record` demands."""
    for zone in (2, 3):
        truth = Truth(zone)
        side = truth.field.sideband
        for straight in (True, False):
            field, extra = (truth.field, {}) if straight else turned(truth.field)
            mhz = mhz_list(truth.board.freq_mhz()[::1 if straight else -1])
            for form, suffix, keys in (("dada", "dada", ""), ("guppi", "raw", ""),
                                       ("chime", "h5", "npol: 2, width_mhz: 6.25"),
                                       ("vdif", "vdif", f"npol: 2, freq_mhz: {mhz}, sideband: {side}"),
                                       ("kotekan", "raw", f"freq_mhz: {mhz}, sample_ns: 160, "
                                        f"epoch_ns: {sky.EPOCH_NS}, sideband: {side}")):
                with harness.scratch() as d:
                    sky.write(d, field, keys=extra)
                    lossy = "" if form == "dada" else f", format: {form}, lossy: true"
                    result = harness.run(d, truth.array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 512}}
  - {{stage: record, in: field, directory: other, prefix: x{lossy}}}
""")
                    if "sideband" in keys:
                        assert f"stream: {{sideband: {side}}}" in result.err, result
                    assert ("in the other order" in result.err) == (form == "guppi" and not straight), result
                    truth.run(d, f"other/x*.{suffix}", "stream: {%s}\n" % keys if keys else "",
                              through=WIDE if form == "guppi" else "")


def test_guppi_of_others():
    """OBSBW > 0: channels ascend, and what they hold is an upper sideband; OBSBW < 0: the reverse."""
    for zone in (1, 4):
        truth = Truth(zone)
        band = float(truth.board.step_mhz) * 8
        blocks = other.guppi_blocks(truth.field.levels(), 512, centre=float(truth.board.freq_mhz().mean()),
                                    band=band)
        with harness.scratch() as d:
            with open(os.path.join(d, "x.0000.raw"), "wb") as f:
                f.write(b"".join(blocks))
            truth.run(d, "x.0000.raw", through=WIDE)


def foreign_dada(path, truth, **keys):
    """A DADA file of another program: nothing but its usual keys, 8 bits, the band and its sign."""
    freq, e = truth.board.freq_mhz(), truth.field.levels()
    header = {"HEADER": "DADA", "HDR_VERSION": "1.0", "HDR_SIZE": 4096, "TELESCOPE": "other", "SOURCE": "x",
              "FREQ": float(freq.mean()), "BW": float(truth.board.step_mhz) * len(freq), "NCHAN": len(freq),
              "NPOL": 2, "NANT": e.shape[3], "NBIT": 4, "NDIM": 2, "TSAMP": 0.16, "ORDER": "TFPA",
              "UTC_START": "2023-11-14-22:13:20", "PICOSECONDS": 0, "OBS_OFFSET": 0, **keys}
    text = "".join(f"{k} {v}\n" for k, v in header.items() if v is not None)
    with open(path, "wb") as f:
        f.write(text.encode().ljust(4096, b"\0") + other.pack_int4x2(e).tobytes())


def test_dada_of_others():
    """The sign of BW says which sideband it is, unless SIDEBAND does, or `stream:` if BW is missing."""
    for zone in (1, 4):
        truth = Truth(zone)
        side = truth.field.sideband
        with harness.scratch() as d:
            path = os.path.join(d, "x.dada")
            foreign_dada(path, truth)
            truth.run(d, "x.dada")
            foreign_dada(path, truth, SIDEBAND=side)
            truth.run(d, "x.dada")
            # a recorder that states the width of its band without a sign, and lists its channels
            freq = mhz_list(truth.board.freq_mhz())
            foreign_dada(path, truth, BW=None)
            result = truth.run(d, "x.dada", f"stream: {{freq_mhz: {freq}, sideband: {side}}}\n")
            assert "sideband of the channels" not in result.err, result
            # one whose BW runs against its sideband: the word wins
            foreign_dada(path, truth, SIDEBAND=truth.other)
            says = truth.run(d, "x.dada", f"stream: {{sideband: {side}}}\n", status=2).err
            assert truth.other in says and f"{side}" in says and "override" in says, says
            truth.run(d, "x.dada", f"stream: {{sideband: {side}, override: [sideband]}}\n")


if __name__ == "__main__":
    harness.main([test_formats_there_and_back, test_guppi_of_others, test_dada_of_others])
