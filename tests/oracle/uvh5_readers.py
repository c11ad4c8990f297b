"""UVH5 files as pyuvdata reads them: without a warning, antennas where the telescope has them, and, phased to
where a simulated source far from the zenith stands, with flat phases.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has pyuvdata and astropy); skips
without."""
import os
import sys
import warnings

from external import HERE, run_with

sys.path.insert(0, os.path.join(HERE, "..", "pipeline"))
X_DEG, Y_DEG = 30.0, -20.0
PIPELINE = """
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {first: 400, step: 10, count: 4},
  sideband: SIDEBAND}
pipeline:
  - {stage: simulate, samples: 20000, seed: 1, noise: 1, sources: [{x_deg: 30, y_deg: -20, flux: 5}],
     missing: [{first: 3000, count: 8000}], out: field}
  - {stage: correlate, in: field, out: v, integrate: 4000}
  - {stage: uvh5, in: v, directory: out}
"""


def source_at(np, read, mirror):
    """Where the source, or its mirror image in the meridian, stands on the sky, by astropy."""
    import astropy.units as units
    from astropy.coordinates import AltAz, SkyCoord
    from astropy.time import Time
    north, east = np.sin(np.radians(X_DEG)), mirror * np.sin(np.radians(Y_DEG))
    return SkyCoord(AltAz(az=np.arctan2(east, north) * units.rad,
                          alt=np.arccos(np.hypot(north, east)) * units.rad,
                          obstime=Time(read.time_array.mean(), format="jd"),
                          location=read.telescope.location)).icrs


def residual(np, read, mirror):
    """rms of the phases, in degrees, of parallel polarisations phased to the source, or to its mirror image
    in the meridian; and their coherence, the length of their sum over the sum of their lengths."""
    phased, place = read.copy(), source_at(np, read, mirror)
    phased.phase(lon=place.ra.rad, lat=place.dec.rad, cat_type="sidereal", cat_name="s", phase_frame="icrs")
    pairs = phased.ant_1_array != phased.ant_2_array
    v = phased.data_array[pairs][:, :, :2]
    v = v[~phased.flag_array[pairs][:, :, :2]]
    return np.degrees(np.sqrt(np.mean(np.angle(v) ** 2))), v.sum().real / abs(v).sum()


def check(np, d, sideband):
    from pyuvdata import UVData
    import h5py
    import harness
    from small import DISHES, SPACING
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = UVData()
        read.read(os.path.join(d, "out", "vis_000000.uvh5"), file_type="uvh5")
    assert (read.Nbls, read.Ntimes, read.Nfreqs, read.Npols) == (78, 5, 4, 4)
    assert read.extra_keywords["sideband"] == sideband
    where = read.telescope.get_enu_antpos()
    want = (np.array(DISHES) * SPACING)[:, ::-1]
    assert np.abs(where[:, :2] - want).max() < 1e-6 and np.abs(where[:, 2]).max() < 1e-6
    assert read.flag_array.mean() == 0.2, "one integration of five is missing"
    # 1000 samples or more at S/N 5/7 each: 1.8 degrees a visibility of a quarter integration
    (right, coherence), (wrong, _) = residual(np, read, 1), residual(np, read, -1)
    assert right < 3 and coherence > 0.98 and wrong > 60, (right, coherence, wrong)
    place = source_at(np, read, 1)
    source = f"{place.ra.deg:.9f},{place.dec.deg:.9f}"
    result = harness.beamring("calibrate", "out/vis_000000.uvh5", "--source", source, cwd=d)
    assert result.status == 0 and result.err == "", result
    # what pyuvdata writes of it, phased, gives the same gains
    read.phase(lon=place.ra.rad + 0.1, lat=place.dec.rad, cat_type="sidereal", cat_name="t",
               phase_frame="icrs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read.write_uvh5(os.path.join(d, "again.uvh5"))
    again = harness.beamring("calibrate", "again.uvh5", "--source", source, "--out", "again.h5", cwd=d)
    assert again.status == 0 and again.err == "", again
    with h5py.File(os.path.join(d, "gains.h5")) as f, h5py.File(os.path.join(d, "again.h5")) as g:
        gain, more = f["gain"][()], g["gain"][()]
        assert f.attrs["sideband"] == g.attrs["sideband"] == sideband.encode()
    assert abs(gain - more).max() < 1e-5, abs(gain - more).max()
    # all receivers are alike: gains without phases; 16000 samples at R = 5 / 6 give 0.1 degrees
    phases = np.degrees(np.angle(gain))
    assert abs(phases).max() < 1.5, f"gains of {abs(phases).max()} degrees with astropy's source"
    print(f"{sideband}: phases of {right:.2f} degrees rms toward the source, coherence {coherence:.4f}")


def compare():
    import numpy as np
    from astropy.utils import iers
    import harness
    from small import TELESCOPE
    iers.conf.auto_download = False
    for sideband in ("upper", "lower"):
        with harness.scratch() as d:
            harness.run(d, TELESCOPE + PIPELINE.replace("SIDEBAND", sideband))
            check(np, d, sideband)


if __name__ == "__main__":
    sys.exit(run_with("pyuvdata", compare))
