"""The true sky from files: the F-engine's field in every format that `record` writes and `replay` reads, and in
files of others that the test writes itself. The source stays in its beam and the carriers in their channels,
whichever sideband the files hold and whoever says so."""
import dataclasses
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
        carriers = fe.simulate(sharp, receivers, [fe.Carrier(f, 0.5) for f in sky.carrier_places(sharp, 5)], LOUD,
                               seed=zone)
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
        steps = QUIET // 64
        i, mhz = i[:, :steps].sum(1) / QUIET, sky.numbers(keys, "FREQ_MHZ")
        order = [np.argmin(abs(mhz - f)) for f in self.board.freq_mhz()]
        assert np.allclose(mhz[order], self.board.freq_mhz(), rtol=0, atol=1e-6), mhz
        sky.check_beams(self.array, self.place, self.looks, i[order], QUIET, label=f"zone {self.zone}")
        power, keys = sky.power_of(seen, "fine", first=QUIET + 64)
        found = sky.check_carriers(f"zone {self.zone}", self.carriers, power, sky.numbers(keys, "FREQ_MHZ"),
                                   np.full(len(power), self.field.width_mhz / 16))
        assert found == len(self.carriers), (found, self.carriers, keys["FREQ_MHZ"], keys["WIDTH_MHZ"])


def mhz_list(values):
    return "[" + ", ".join(f"{v!r}" for v in values.tolist()) + "]"


def test_formats_there_and_back():
    """record -> replay in other formats; where a format has no place for the sideband or for frequencies,
    `stream:` says them, as the note of `record` demands."""
    for zone in sky.ZONES:
        truth = Truth(zone)
        side, mhz = truth.field.sideband, truth.board.freq_mhz()
        for form, suffix, keys in (("dada", "dada", ""), ("guppi", "raw", ""), ("chime", "h5", "npol: 2, width_mhz: 6.25"),
                                   ("vdif", "vdif", f"npol: 2, freq_mhz: {mhz_list(mhz)}, sideband: {side}"),
                                   ("kotekan", "raw", f"freq_mhz: {mhz_list(mhz)}, sample_ns: 160, "
                                    f"epoch_ns: {sky.EPOCH_NS}, sideband: {side}")):
            with harness.scratch() as d:
                sky.write(d, truth.field)
                lossy = "" if form == "dada" else f", format: {form}, lossy: true"
                result = harness.run(d, truth.array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 512}}
  - {{stage: record, in: field, directory: other, prefix: x{lossy}}}
""")
                if "sideband" in keys:
                    assert f"stream: {{sideband: {side}}}" in result.err, result
                wide = """
  - {stage: replay, files: 'FILES', out: wide}
  - {stage: requantize, in: wide, out: field, scale: 1}
"""
                truth.run(d, f"other/x*.{suffix}", "stream: {%s}\n" % keys if keys else "",
                          through=wide if form == "guppi" else "")


if __name__ == "__main__":
    harness.main([test_formats_there_and_back])
