"""A dispersed burst of the F-engine, in both sidebands: in the FRB beam that looks at it, at the time that
the dispersion law gives for each stated frequency; and, after a trigger, in a coherent beam of the voltages
that were kept."""
import functools
import os

import numpy as np

import dump_common
import harness
import sky_common as sky
from sky import read_filterbank
from sky_common import fe

TIMES = 4096
SAMPLE_S = 8e-6
DM = 40
ARRIVAL_S, FWHM_S = 0.006, 200e-6
ZONES = (101, 102)  # of 4 MHz, below and above 404 MHz


@functools.lru_cache
class Event:
    """A burst of 10 ms in a band of 1 MHz; DM 40 keeps it 0.6 ms in a channel, three times its width."""

    def __init__(self, zone):
        rng = np.random.default_rng(zone)
        self.board = sky.board(zone, fs_mhz=8, taps=4)
        self.array = sky.Array(self.board, 4, 3)
        self.place = next(p for p in sky.places(zone, 20) if 62 < p[1] < 68)
        self.looks = sky.looks_at(self.place, rng)
        self.ref_mhz = float(self.board.freq_mhz().max())
        self.burst = fe.Burst(*self.place, DM, ARRIVAL_S, self.ref_mhz, FWHM_S, 2.0)
        self.field = fe.simulate(self.board, fe.Receivers(self.array.positions), [self.burst], TIMES,
                                 seed=zone, epoch_ns=sky.EPOCH_NS)
        self.at = int(np.argmin(np.hypot(*(self.looks - sky.xy(self.place)).T)))
        self.mirror = int(np.argmin(np.hypot(*(self.looks + sky.xy(self.place)).T)))

    def late(self, mhz):
        """When it arrives, s after the first sample."""
        return ARRIVAL_S + self.burst.delay_s(mhz)

    def brightness(self, power, begin_s, step_s, mhz):
        """Mean power [step][channel] within half a width of when the law has it, in units of the median."""
        t = begin_s + (np.arange(len(power)) + 0.5) * step_s
        power = power / np.nanmedian(power, 0)
        return np.mean([np.nanmean(power[abs(t - late) < FWHM_S / 2, c])
                        for c, late in enumerate(self.late(mhz))])

    def check_beams(self, label, bright):
        """The beam that looks at it is the brightest by far; the one in the mirror direction has noise."""
        assert len(bright) == len(self.looks) and np.argmax(bright) == self.at, (label, bright)
        assert bright[self.at] > 3 * bright[self.mirror], (label, bright)
        print(f"{self.field.sideband}, {label}: {bright[self.at]:.1f} times the noise, "
              f"{bright[self.mirror]:.1f} in the mirror direction")

    def check_times(self, power, begin_s, step_s, mhz):
        """It arrives in every fine channel, stated in MHz, when the law says."""
        off = arrivals(power, begin_s, step_s, self.late(mhz)) - self.late(mhz)
        # noise of duration FWHM in a fine channel and two polarisations has so many independent samples
        sigma = FWHM_S / 2.355 / np.sqrt(2 * FWHM_S * 1e6 * self.field.width_mhz / 4)
        assert abs(off).max() < 5 * sigma and abs(off.mean()) < 5 * sigma / np.sqrt(len(off)), \
            (off.mean(), abs(off).max(), sigma)
        print(f"  {1e6 * off.mean():.1f} us off, each of {len(mhz)} channels {1e6 * off.std():.0f} us rms")


def arrivals(power, begin_s, step_s, around):
    """The centroid of the power [step][channel] above the noise, s, of each channel, within two widths of
    where it is looked for."""
    t = begin_s + (np.arange(len(power)) + 0.5) * step_s
    noise = np.nanmedian(power, 0)
    out = []
    for c, late in enumerate(around):
        here = abs(t - late) < 2 * FWHM_S
        extra = np.fmax(power[here, c] - 2 * noise[c], 0)
        out.append((extra * t[here]).sum() / extra.sum())
    return np.array(out)


def test_in_the_beam_at_its_time():
    """Every fine channel of a filterbank file has it when the law says, by fch1, foff, tstart and tsamp."""
    for zone in ZONES:
        event = Event(zone)
        with harness.scratch() as d:
            sky.write(d, event.field)
            harness.run(d, event.array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field, frame_samples: 512}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: image, integrate: 4}}
  - {{stage: frb_beams, in: image, out: beams, beams: {sky.text(event.looks)}}}
  - {{stage: filterbank, in: beams, directory: fil}}
""")
            total = []
            for path in sky.files(d, "fil/*.fil"):
                data, mhz, keys = read_filterbank(path)
                begin = (keys["tstart"] - 40587) * 86400 - sky.EPOCH_NS * 1e-9
                total.append(event.brightness(data, begin, keys["tsamp"], mhz))
                if len(total) - 1 == event.at:
                    looked = np.array([keys["az_start"] % 360, 90 - keys["za_start"]])
                    assert np.allclose(looked, event.place, rtol=0, atol=1e-3), (looked, event.place)
                    event.check_times(data, begin, keys["tsamp"], mhz)
            event.check_beams("FRB beams", total)


NODE = """
pipeline:
  - {stage: replay, files: field*.dada, out: field, loop: 0, realtime: true, frame_samples: 512}
  - {stage: dump, in: {from: field, history: {seconds: 1}}, directory: dumps}
"""
COHERENT = """
pipeline:
  - {{stage: replay, files: '{files}', out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: baseband_beamform, in: fine, out: voltages, shift: 10, beams: {beams}}}
  - {{stage: record, in: voltages, directory: formed, prefix: j, overwrite: true}}
"""


def dump(node, event, number, form):
    """Asks for the burst's voltages, 1 ms on either side of it in each channel, until a dump lacks nothing;
    how many samples before them the burst's period began."""
    for attempt in range(20):
        begin = (node.newest() // TIMES - 2) * TIMES
        start_ns = sky.EPOCH_NS + begin * 8000 + round((ARRIVAL_S - 0.001) * 1e9)
        node.dump(id=number + attempt, format=form, start={"time_ns": start_ns}, duration_s=0.002, dm=DM,
                  freq_ref_mhz=event.ref_mhz, directory=f"{form}{attempt}")
        document = node.wait_for(number + attempt)
        if document["state"] == "done" and not any(c["missing_samples"] for c in document["channels"]):
            return begin, document["directory"]
    raise AssertionError(f"every dump lacks something: {document}")


def test_in_the_voltages_that_were_kept():
    """A trigger, the files of both formats, and coherent beams of their fine channels."""
    for zone in ZONES:
        event = Event(zone)
        with harness.scratch() as d:
            sky.write(d, event.field)
            node = dump_common.DumpNode(d, event.array.yaml + NODE)
            try:
                node.wait_past(4 * TIMES)
                done = {form: dump(node, event, 100 * i, form) for i, form in enumerate(("dada", "chime"), 1)}
                node.end(130)
            finally:
                if node.process.poll() is None:
                    node.process.kill()
                node.process.wait()
            for form, (begin, where) in done.items():
                stream, suffix = ("", "dada") if form == "dada" else \
                    ("stream: {npol: 2, width_mhz: 0.125}", "h5")
                result = harness.run(d, event.array.yaml + stream + COHERENT.format(
                    files=f"{where}/*.{suffix}", beams=sky.text(event.looks)), name="form.yaml")
                assert "sideband of the channels" not in result.err, result
                j, first, keys = sky.voltages(os.path.join(d, "formed"), "j")
                assert keys["SIDEBAND"] == event.field.sideband, keys
                power, mhz = (abs(j) ** 2).sum(2), sky.numbers(keys, "FREQ_MHZ")
                # the filter's window is centred 6 base samples before the centre of its output
                start = (first * 4 - 6 - begin) * SAMPLE_S
                event.check_beams(f"{form}, coherent",
                                  [event.brightness(p.T, start, 4 * SAMPLE_S, mhz) for p in power])
                event.check_times(power[event.at].T, start, 4 * SAMPLE_S, mhz)


if __name__ == "__main__":
    harness.main([test_in_the_beam_at_its_time, test_in_the_voltages_that_were_kept])
