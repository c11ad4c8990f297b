"""Phases of the true sky: what `calibrate` finds are the receivers' own phases, for upper and lower
sidebands, and with them the beams look at the source. UVH5 files, phased by pyuvdata to where the source
stands, are coherent (`uvh5`, for which BEAMRING_READERS_PYTHON must name a Python that has pyuvdata)."""
import os
import sys
import warnings

import numpy as np

import harness
import sky_common as sky
from sky_common import fe

TIMES = 4096
FLUX = 1.0
NOISE = 1.2
VISIBILITIES = """
pipeline:
  - {stage: replay, files: field*.dada, out: field}
  - {stage: correlate, in: field, out: v, integrate: 2048}
  - {stage: record, in: v, directory: vis, prefix: v}
  - {stage: uvh5, in: v, directory: vis}
"""
BEAMS = """
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: frb_grid, in: field, out: image, integrate: 4096{gains}}}
  - {{stage: frb_beams, in: image, out: beams, beams: {beams}}}
  - {{stage: record, in: beams, directory: ., prefix: {prefix}}}
  - {{stage: baseband_beamform, in: field, out: j, shift: 10, beams: {beams}{gains}}}
  - {{stage: record, name: r_j, in: j, directory: ., prefix: j_{prefix}}}
"""


def observe(d, zone, seed=1, kind=sky.Array, **receivers):
    """Visibilities of one source in directory d: the array, where the source is, and the field."""
    board = sky.board(zone, noise_rms=NOISE)
    array = kind(board)
    place = sky.places(zone)[2]
    field = fe.simulate(board, fe.Receivers(array.positions, **receivers), [fe.Source(*place, FLUX)], TIMES,
                        seed=seed, epoch_ns=sky.EPOCH_NS)
    sky.write(d, field)
    harness.run(d, array.yaml + VISIBILITIES)
    return array, place, field


def done_to(field):
    """A receiver's effect on the field, [freq][pol][dish]: its gain at RF, of which a lower sideband holds
    the conjugate, as fengine.py says."""
    return field.gains if field.sideband == "upper" else field.gains.conj()


def phase_errors(gain, receiver):
    """Degrees by which gain x receiver is off, up to one phase for each channel and polarisation."""
    product = gain * receiver
    product = product / abs(product)
    return np.degrees(np.angle(product / product.mean(-1, keepdims=True)))


def calibrated(d, *arguments):
    """The gains that `calibrate` finds, [freq][pol][dish]."""
    import h5py
    result = harness.beamring("calibrate", *arguments, "--overwrite", cwd=d)
    assert result.status == 0 and "sideband of the channels" not in result.err, result
    with h5py.File(os.path.join(d, "gains.h5")) as f:
        assert not f["flag"][()].any(), "good inputs are flagged"
        return f["gain"][()]


def test_calibrate():
    """Any phases, amplitudes and cables; from UVH5 files and from recordings; all four zones."""
    for zone in sky.ZONES:
        rng = np.random.default_rng([9, zone])
        with harness.scratch() as d:
            array, place, field = observe(d, zone, amplitude=rng.uniform(0.7, 1.3, (2, 24)),
                                          phase_rad=rng.uniform(-np.pi, np.pi, (2, 24)),
                                          cable_ns=rng.uniform(0, 20, (2, 24)))
            x, y = sky.xy(place)
            for files in (["vis/vis_000000.uvh5"], ["vis/v_000000.dada", "--telescope", "pipeline.yaml"]):
                gain = calibrated(d, *files, "--direction", f"{x!r},{y!r}")
                off = phase_errors(gain, done_to(field))
                rms = np.sqrt((off ** 2).mean())
                assert rms < 3, f"zone {zone}, {files[0]}: {rms:.2f} degrees rms"
                wrong = np.sqrt((phase_errors(gain, done_to(field).conj()) ** 2).mean())
                assert wrong > 30, f"zone {zone}: these receivers test nothing"
            looks = sky.looks_at(place, rng)
            seen = {}
            for name, gains in (("with", ", gains: gains.h5"), ("without", "")):
                harness.run(d, array.yaml + BEAMS.format(gains=gains, beams=sky.text(looks), prefix=name),
                            name=f"{name}.yaml")
                seen[name] = sky.intensities(d, name)[0].sum((0, 1))
                seen[f"{name}, voltages"] = (abs(sky.voltages(d, f"j_{name}")[0]) ** 2).sum((1, 2, 3))
            looking = np.argmin(np.hypot(*(looks - [x, y]).T))
            mirror = np.argmin(np.hypot(*(looks + [x, y]).T))
            for kind in ("", ", voltages"):
                right, wrong = seen["with" + kind], seen["without" + kind]
                assert np.argmax(right) == looking and right[looking] > 5 * right[mirror], (zone, kind, seen)
                assert wrong[looking] < 2 * np.median(wrong), (zone, kind, seen)
            print(f"zone {zone}: phases {rms:.2f} degrees rms off; the beam on the source has "
                  f"{seen['with'][looking] / seen['with'][mirror]:.1f} times what the mirror direction's has")


def stands(place, read):
    """The source's place in ICRS at the time of the observation, by astropy."""
    import astropy.units as units
    from astropy.coordinates import AltAz, SkyCoord
    from astropy.time import Time
    return SkyCoord(AltAz(az=place[0] * units.deg, alt=place[1] * units.deg,
                          obstime=Time(read.time_array.mean(), format="jd"),
                          location=read.telescope.location)).icrs


def uvh5():
    """The sum of all baselines of a file that pyuvdata has phased to the source, over what a noise-free
    source of this flux gives; calibrate towards the same RA and Dec."""
    from astropy.utils import iers
    from pyuvdata import UVData
    iers.conf.auto_download = False
    for zone in sky.ZONES:
        with harness.scratch() as d:
            kind = sky.Array if zone < 3 else lambda board: sky.Irregular(board, 5)
            array, place, field = observe(d, zone, seed=zone, kind=kind)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read = UVData()
                read.read(os.path.join(d, "vis", "vis_000000.uvh5"), file_type="uvh5")
            assert abs(read.telescope.location.height.to_value("m") - (0 if zone < 3 else 1222)) < 1e-6
            where = read.telescope.get_enu_antpos()
            assert np.abs(where - array.positions).max() < 1e-6
            assert np.allclose(np.sort(read.freq_array), np.sort(field.freq_mhz) * 1e6, rtol=0, atol=1)
            at = stands(place, read)
            read.phase(lon=at.ra.rad, lat=at.dec.rad, cat_type="sidereal", cat_name="s", phase_frame="icrs")
            pairs = read.ant_1_array != read.ant_2_array
            v = (read.data_array / read.nsample_array)[pairs][:, :, :2]
            early = array.positions @ fe.direction(*place) / fe.C
            apart = abs(early[read.ant_1_array[pairs]] - early[read.ant_2_array[pairs]])
            free = 2 * NOISE ** 2 * FLUX * np.mean(1 - apart * 400 / 64)
            coherence = v.mean() / free
            assert abs(coherence) > 0.98 and coherence.real > 0.98, f"zone {zone}: {coherence}"
            gain = calibrated(d, "vis/vis_000000.uvh5", "--source", f"{at.ra.deg:.9f},{at.dec.deg:.9f}")
            off = np.sqrt((phase_errors(gain, done_to(field)) ** 2).mean())
            assert off < 3, f"zone {zone}: gains of {off} degrees towards astropy's source"
            print(f"zone {zone}: coherence {coherence.real:.4f} {coherence.imag:+.4f}i, "
                  f"calibrate is {off:.2f} degrees rms off")


if __name__ == "__main__":
    if sys.argv[1:] == ["uvh5"]:
        uvh5()
    else:
        harness.main([test_calibrate])
