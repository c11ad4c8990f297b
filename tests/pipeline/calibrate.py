"""`beamring calibrate` where things are not as they should be, in both sidebands, and for a node that
runs."""
import glob
import os
import shutil
import time

import h5py
import numpy as np

import circle_common as circle
import harness
from circle_common import ND, NF, NP, PATHFINDER, SOURCE
from control_common import Node
from small import TELESCOPE


def test_command_line():
    with harness.scratch() as d:
        for arguments, words in (
            ((), "usage: beamring calibrate"),
            (("x.uvh5",), "usage: beamring calibrate"),
            (("x.uvh5", "--direction", "0.9,0.9"), "below the horizon"),
            (("x.uvh5", "--direction", "0.9"), "expected X,Y"),
            (("x.uvh5", "--direction", "0,0", "--at", "noon"), "expected now, sample:N or time:NS"),
            (("x.uvh5", "--direction", "0,0", "--at", "now"), "--at goes with --post"),
            (("x.uvh5", "--direction", "0,0", "--ref-input", "1.5"), "expected a dish's number"),
            (("x.uvh5", "--direction", "0,0", "--min-snr", "many"), "expected a number from 0"),
            (("x.uvh5", "--direction", "0,0", "--sideband", "both"), "expected upper or lower"),
            (("x.uvh5", "--direction"), "expected X,Y"),
            (("x.uvh5", "--dircetion", "0,0"), "unknown option '--dircetion'"),
            (("x.uvh5", "--direction", "0,0", "--telescope", "none.yaml"), "none.yaml"),
        ):
            result = circle.calibrate(d, *arguments, status=2)
            assert words in result.err and "%s" not in result.err, (words, result)
        if circle.has_erfa():
            for source in ("1", "1,2,3", "25:00:00,0", "400,0", "10,91", "1:70:00,3", "a,b", "1:2:3:4,5"):
                result = circle.calibrate(d, "x", "--source", source, status=2)
                assert f"--source '{source}': expected" in result.err, result
            both = circle.calibrate(d, "x", "--source", "1,2", "--direction", "0,0", status=2)
            assert "both --source and --direction" in both.err


def recording(d, name):
    path, = glob.glob(os.path.join(d, name, "*.dada"))
    return path


def test_files():
    """Files that are not what they should be, or do not belong together; nothing is written for them, and
    what was there stays."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        vis = "vis/vis_000000.uvh5"
        dada = recording(d, "vis")
        place = ("--direction", circle.at(SOURCE))
        circle.simulate(d, "    samples: 100", """
  - {stage: correlate, in: field, out: v, integrate: 100, autocorrelations: only}
  - {stage: uvh5, in: v, directory: autos}
  - {stage: record, in: v, directory: autos, prefix: v}""")
        circle.simulate(d, "    samples: 100", "  - {stage: record, in: field, directory: e, prefix: e}")
        with open(os.path.join(d, "text"), "w") as f:
            f.write("no visibilities\n")
        with open(os.path.join(d, "none.yaml"), "w") as f:
            f.write("pipeline: []\n")
        shutil.copy(os.path.join(d, vis), os.path.join(d, "other.uvh5"))
        with h5py.File(os.path.join(d, "other.uvh5"), "a") as f:
            f["Header/freq_array"][...] += 50e6
        shutil.copy(os.path.join(d, vis), os.path.join(d, "near.uvh5"))
        with h5py.File(os.path.join(d, "near.uvh5"), "a") as f:
            del f["Header/phase_center_catalog/0/cat_type"]
            f["Header/phase_center_catalog/0/cat_type"] = np.bytes_("near_field")
        shutil.copy(os.path.join(d, vis), os.path.join(d, "headless.uvh5"))
        with h5py.File(os.path.join(d, "headless.uvh5"), "a") as f:
            del f["Header/freq_array"]
        shutil.copy(os.path.join(d, vis), os.path.join(d, "huge.uvh5"))  # 64 GiB of times, it says
        with h5py.File(os.path.join(d, "huge.uvh5"), "a") as f:
            del f["Header/time_array"]
            f.create_dataset("Header/time_array", (1 << 33,), "f8", chunks=(1024,))
        with open(os.path.join(d, dada), "rb") as f, open(os.path.join(d, "placeless.dada"), "wb") as to:
            to.write(f.read().replace(b"\nGRID", b"\n#RID"))  # as recordings of earlier versions
        for files, words in (
            (("huge.uvh5",), "Header/time_array is missing, damaged or of another form"),
            (("nothing.uvh5",), "nothing.uvh5: No such file"),
            (("text",), "is neither UVH5 nor DADA"),
            (("placeless.dada",), "give --telescope FILE"),
            ((recording(d, "e"), "--telescope", PATHFINDER), "expected visibilities"),
            ((recording(d, "autos"), "--telescope", PATHFINDER), "autocorrelations alone have no phases"),
            (("autos/vis_000000.uvh5",), "no channel has a result"),
            (("autos/vis_000000.uvh5", "--sideband", "lower"), "its stream holds the upper sideband"),
            ((vis, "other.uvh5"), "channel 0 is at 400 and at 450 MHz"),
            ((vis, dada, "--telescope", PATHFINDER), "expected every integration once"),
            (("near.uvh5",), "a phase centre of the kind 'near_field' cannot be undone"),
            (("headless.uvh5",), "Header/freq_array"),
            ((vis, "--ref-input", "11"), "flagged in all channels of polarisation 0"),
            ((vis, "--ref-input", "64"), "expected a dish, 0 to 63"),
            ((vis, "--min-snr", "1000"), "the source is too weak"),
        ):
            result = circle.calibrate(d, *files, *place, "--out", "out.h5", status=1)
            assert words in result.err, (words, result)
            assert not os.path.exists(os.path.join(d, "out.h5")), words
        result = circle.calibrate(d, dada, *place, "--telescope", "none.yaml", status=2)
        assert "has no `telescope:`" in result.err, result
        for size in (500, 3000, 6000):  # a disk that is full
            result = circle.calibrate(d, vis, *place, status=1, file_bytes=size)
            assert "gains.h5 cannot be written: File too large" in result.err, result
            assert not [n for n in os.listdir(d) if n.startswith("gains")]
        circle.calibrate(d, vis, *place)
        before = open(os.path.join(d, "gains.h5"), "rb").read()
        assert "--overwrite replaces it" in circle.calibrate(d, vis, *place, status=1).err
        assert open(os.path.join(d, "gains.h5"), "rb").read() == before
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("gains.h5", path)):
            for name in ("stays.h5", "stays.h5.part"):
                make(os.path.join(d, name))
                result = circle.calibrate(d, vis, *place, "--out", "stays.h5", "--overwrite", status=1)
                assert f"{name} is a " in result.err and "not replaced" in result.err, result
                assert not os.path.isfile(os.path.join(d, name)) or os.path.islink(os.path.join(d, name))
                (os.rmdir if os.path.isdir(os.path.join(d, name)) else os.unlink)(os.path.join(d, name))
        assert open(os.path.join(d, "gains.h5"), "rb").read() == before
        shutil.copy(os.path.join(d, vis), os.path.join(d, "outside.uvh5"))
        for name in ("Header/freq_array", "Data/nsamples"):
            for way in harness.send_outside(os.path.join(d, "outside.uvh5"), name):
                result = circle.calibrate(d, "outside.uvh5", *place, "--out", "out.h5", status=1)
                assert "outside.uvh5: " in result.err and name.split("/")[1] in result.err, (way, result)
        for byte in harness.damage_hdf5(os.path.join(d, "other.uvh5")):
            result = circle.calibrate(d, "other.uvh5", *place, "--out", "out.h5", status=1)
            assert "other.uvh5: " in result.err, (byte, result)


def test_missing():
    """Missing data do not count, in UVH5 files and in recordings alike: a whole integration, parts of
    others, and integrations that the recording cuts."""
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        circle.see_source(d, samples=7001, flux=0.8,
                          missing="[{first: 100, count: 900}, {first: 1600, count: 1700}]")
        place = ("--direction", circle.at(SOURCE))
        circle.calibrate(d, "vis/vis_000000.uvh5", *place)
        circle.calibrate(d, recording(d, "vis"), *place, "--out", "dada.h5")
        one, two = (circle.read_gains(os.path.join(d, n)) for n in ("gains.h5", "dada.h5"))
        assert abs(one[0] - two[0]).max() < 1e-5
        snr = one[2]["snr"].mean()
        # 4401 samples; R of the source's part of the power, with the noise of rounding
        R = 0.8 / (1.8 + 1 / 12 / 4)
        want = R / (1 - R) * np.sqrt(2 * (7001 - 2600))
        assert abs(snr / want - 1) < 0.08, (snr, want)
        assert abs(snr / two[2]["snr"].mean() - 1) < 1e-3
        phase, _ = circle.errors(*one[:2], g)
        weight = circle.good_weights(*one[1:3])
        said = (np.radians(phase) * np.sqrt(weight)).std()
        assert 0.85 < said < 1.2, f"errors are {said:.2f} times what the weights say"


def test_one_dish():
    with harness.scratch() as d:
        one = TELESCOPE[:TELESCOPE.index("  dishes:")] + "  dishes: [[0, 0]]\n  latitude_deg: 1\n" \
            "  longitude_deg: 2\n"
        harness.run(d, one + circle.STREAM + """
pipeline:
  - {stage: simulate, samples: 500, out: field}
  - {stage: correlate, in: field, out: v, integrate: 500}
  - {stage: uvh5, in: v, directory: vis, npol: 2}
""")
        result = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", "0,0", status=1)
        assert "1 of 1 inputs are left; a fit needs 4" in result.err, result


def test_sideband():
    """The stream's gains come out of either sideband, from its recording and from its UVH5 file; unknown is
    taken for upper, and said; what is stated otherwise is refused."""
    with harness.scratch() as d:
        g = circle.write_receivers(d)
        stream = circle.STREAM
        for sideband in ("upper", "lower"):
            circle.STREAM = stream.rstrip() + f"\n  sideband: {sideband}\n"
            try:
                circle.see_source(d, samples=6400, flux=0.3)
            finally:
                circle.STREAM = stream
            vis, dada = os.path.join(d, "vis", "vis_000000.uvh5"), recording(d, "vis")
            place = ("--direction", circle.at(SOURCE), "--overwrite")
            with_places = (dada, "--telescope", PATHFINDER, *place)
            other = "lower" if sideband == "upper" else "upper"
            found = []
            for arguments in ((vis, *place), with_places):
                done = circle.calibrate(d, *arguments)
                assert done.err == "" and f"{sideband} sideband\n" in done.out, done
                gain, flag, _, attributes = circle.read_gains(os.path.join(d, "gains.h5"))
                assert attributes["sideband"] == sideband.encode()
                found.append(gain)
                phase, _ = circle.errors(gain, flag, g)
                assert np.sqrt((phase ** 2).mean()) < 1.5, (arguments, np.sqrt((phase ** 2).mean()))
                refused = circle.calibrate(d, *arguments, "--sideband", other, status=1)
                assert f"holds the {sideband} sideband, --sideband says {other}" in refused.err, refused
            # without the word, stated, taken, and stated wrongly
            raw = open(dada, "rb").read()
            with open(dada, "wb") as f:
                f.write(raw.replace(b"\nSIDEBAND ", b"\nNOTHING_ "))
            with h5py.File(vis, "a") as f:
                replace = f["Header/extra_keywords"]
                del replace["sideband"]
                replace["sideband"] = np.bytes_("unknown")
                f["Data/visdata"][...] = conjugated(f["Data/visdata"][()]) if sideband == "lower" \
                    else f["Data/visdata"][()]             # as `uvh5` writes a stream of unknown sideband
            for arguments in ((vis, *place), with_places):
                stated = circle.calibrate(d, *arguments, "--sideband", sideband)
                assert stated.err == "" and np.array_equal(circle.read_gains(os.path.join(d, "gains.h5"))[0],
                                                           found[arguments == with_places])
                taken = circle.calibrate(d, *arguments)
                assert taken.err.count("upper is assumed") == 1, taken
                gain, flag, _, attributes = circle.read_gains(os.path.join(d, "gains.h5"))
                assert attributes["sideband"] == b"upper"
                rms = np.sqrt((circle.errors(gain, flag, g)[0] ** 2).mean())
                assert rms < 1.5 if sideband == "upper" else rms > 30, rms
            shutil.rmtree(os.path.join(d, "vis"))


def conjugated(vis):
    vis["i"] *= -1
    return vis


def test_other_channels():
    """A node refuses gains of other channels, if there are as many, and of the other sideband; those of its
    coarse channels fit behind upchannelize."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE))
        words = "its gains are those of the upper sideband, the stream holds the lower one"
        with h5py.File(os.path.join(d, "gains.h5")) as f, h5py.File(os.path.join(d, "own.h5"), "w") as own:
            own["gain"] = f["gain"][()]
        for name, sideband, status in (("gains.h5", "upper", 0), ("gains.h5", "lower", 2),
                                       ("own.h5", "lower", 0), ("own.h5", "upper", 2)):
            if (name, sideband) == ("own.h5", "upper"):
                with h5py.File(os.path.join(d, "own.h5"), "a") as own:
                    own.attrs["sideband"] = "lower"        # of variable length
                words = "its gains are those of the lower sideband, the stream holds the upper one"
            for stage in ("baseband_beamform, beams: {directions: [[0, 0]]}", "frb_grid, integrate: 64"):
                result = harness.run(d, f"""include: {PATHFINDER}
{circle.STREAM.rstrip()}
  sideband: {sideband}
pipeline:
  - {{stage: simulate, samples: 100, out: field}}
  - {{stage: {stage}, in: field, out: j, gains: {name}}}
  - {{stage: record, in: j, directory: ., prefix: j}}
""", command="check", status=status)
                assert status == 0 or words in result.err, result
        for first, status in ((400, 0), (500, 2)):
            for stages in (
                "  - {stage: baseband_beamform, in: field, out: j, gains: gains.h5,\n"
                "     beams: {directions: [[0, 0]]}}",
                "  - {stage: upchannelize, in: field, out: fine, factor: 4}\n"
                "  - {stage: frb_grid, in: fine, out: j, integrate: 64, gains: gains.h5}"):
                stream = circle.STREAM.replace("first: 400.0", f"first: {first}")
                text = f"""include: {PATHFINDER}
{stream}
pipeline:
  - {{stage: simulate, samples: 100, out: field}}
{stages}
  - {{stage: record, in: j, directory: ., prefix: j}}
"""
                result = harness.run(d, text, command="check", status=status)
                words = "they are gains of other channels: number 0 is at 400 MHz there, and at 500 MHz here"
                assert status == 0 or words in result.err, result


def test_picture():
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--plot", "gains.png")
        with open(os.path.join(d, "gains.png"), "rb") as f:
            assert f.read(8) == b"\x89PNG\r\n\x1a\n"
        os.remove(os.path.join(d, "gains.h5"))
        for make in (os.mkfifo, lambda path: os.symlink("elsewhere", path)):
            make(os.path.join(d, "link.png"))
            result = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--plot",
                                      "link.png", status=1)
            assert "link.png" in result.err and "not replaced" in result.err, result
            os.remove(os.path.join(d, "link.png"))
        assert not os.path.exists(os.path.join(d, "gains.h5")) and "elsewhere" not in os.listdir(d)


NODE = """
  - {stage: baseband_beamform, name: beam, in: field, out: j, beams: {directions: [[%r, %r]]}%s}
  - {stage: record, in: j, directory: %s, prefix: j}
"""


def test_node():
    """Gains that are posted to a running node hold from the sample on that was asked for, as if the pipeline
    had been started anew there."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=6400)
        x, y = (float(c) for c in circle.cosines(*SOURCE))
        circle.simulate(d, f"""    samples: 5000
    seed: 3
    sources: [{{x_deg: {SOURCE[0]}, y_deg: {SOURCE[1]}, flux: 0.1}}]""",
                        "  - {stage: record, in: field, directory: ., prefix: field}", name="field.yaml")
        replay = f"device: {harness.DEVICE}\ninclude: {PATHFINDER}\npipeline:\n  - {{stage: replay, " \
                 "files: 'field_*.dada', out: field, frame_samples: 1000, loop: %d%s}"
        node = Node(d, replay % (4000, ", realtime: true") + NODE % (x, y, "", "live"), command="serve")
        try:
            node.wait_until(lambda s: s["state"] == "running")
            vis = ("vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--overwrite", "--post", node.url)
            refused = circle.calibrate(d, *vis, "--stages", "baem:gains", status=1)
            assert "did you mean 'beam'?" in refused.err, refused
            late = circle.calibrate(d, *vis, "--at", "sample:1", status=1)
            assert "status 409" in late.err and "too late" in late.err, late
            sample = node.get("/v1/updates").json["earliest"] + 500001
            done = circle.calibrate(d, *vis, "--at", f"sample:{sample}")
            assert f"scheduled, from sample {sample} on" in done.out, done
            node.wait_for_line(f"holds from sample {sample}", 60)
            time.sleep(0.3)
        finally:
            node.end(status=0)
        live = harness.read_frames(recording(d, "live"))[0]
        samples = live.shape[3]
        assert live.shape[:3] == (1, NF, NP) and sample + 1000 < samples, (live.shape, sample)
        loops = -(-samples // 5000)
        for name, more in (("before", ""), ("after", ", gains: gains.h5")):
            harness.run(d, replay % (loops, "") + NODE % (x, y, more, name), name=f"{name}.yaml")
        before, after = (harness.read_frames(recording(d, name))[0] for name in ("before", "after"))
        assert np.array_equal(live[..., :sample], before[..., :sample])
        assert np.array_equal(live[..., sample:], after[..., sample:samples])
        assert not np.array_equal(before[..., sample:samples], after[..., sample:samples])
        # it is not there any more
        gone = circle.calibrate(d, *vis, status=1)
        assert f"{node.url}/v1/graph: " in gone.err, gone


def test_every_stage_of_a_node():
    """Without --stages all that take gains get them, at one sample."""
    with harness.scratch() as d:
        circle.write_receivers(d)
        circle.see_source(d, samples=3200)
        circle.simulate(d, "    samples: 4096\n    seed: 3",
                        "  - {stage: record, in: field, directory: ., prefix: field}", name="field.yaml")
        node = Node(d, f"""device: {harness.DEVICE}
include: {PATHFINDER}
pipeline:
  - {{stage: replay, files: 'field_*.dada', out: field, loop: 4000}}
  - {{stage: upchannelize, in: field, out: fine, factor: 16}}
  - {{stage: frb_grid, name: first, in: fine, out: grid, integrate: 192}}
  - {{stage: frb_beams, in: grid, out: intensity, beams: {{grid: [2, 2], spacing_deg: 1}}}}
  - {{stage: record, name: keep, in: intensity, directory: frb, prefix: i}}
""" + NODE % (0, 0, "", "voltage"), command="serve")
        try:
            node.wait_until(lambda s: s["state"] == "running")
            done = circle.calibrate(d, "vis/vis_000000.uvh5", "--direction", circle.at(SOURCE), "--post",
                                    node.url)
            assert "scheduled, from sample" in done.out, done
            line = node.wait_for_line("holds from sample", 60)
            assert "(first, beam)" in line or "(beam, first)" in line, line
        finally:
            node.end(status=0)


if __name__ == "__main__":
    assert ND == 64
    harness.main([
        test_command_line, test_files, test_missing, test_sideband, test_one_dish, test_other_channels,
        test_picture, test_node, test_every_stage_of_a_node
    ])
