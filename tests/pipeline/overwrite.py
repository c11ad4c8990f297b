"""No writer replaces an earlier file without being told: each runs twice in one folder."""
import glob
import json
import os
import stat
import subprocess
import time

import harness
from wires_common import free_port

FIELD = """
stream: {epoch_ns: 1700000000000000000, sample_ns: 1000, freq_mhz: {first: 400, step: 1, count: 4}}
telescope: {name: t, grid: {m: 2, n: 2}, spacing_m: {m: 6, n: 8}, dishes: [[0, 0], [0, 1], [1, 0], [1, 1]],
  latitude_deg: 49, longitude_deg: -119}
pipeline:
  - {stage: simulate, samples: 16384, frame_samples: 1024, seed: SEED, out: field}
"""
BEAMS = """  - {stage: frb_grid, in: field, out: grid, integrate: 16}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
"""
WRITERS = {
    "dada": "  - {stage: record, in: field, directory: out, prefix: x, MORE}\n",
    **{name: f"  - {{stage: record, in: field, format: {name}, directory: out, prefix: x, "
             "lossy: true, MORE}\n" for name in ("vdif", "guppi", "kotekan", "chime")},
    "filterbank": BEAMS + "  - {stage: quantize, in: beams, out: levels, bits: 8}\n"
    "  - {stage: filterbank, in: levels, directory: out, prefix: x, MORE}\n",
}


def contents(d):
    return {path: open(path, "rb").read() for path in sorted(glob.glob(os.path.join(d, "out", "*")))}


def check_twice(d, first, second, overwriting):
    """`second` is refused and changes nothing; told to overwrite, it replaces."""
    os.makedirs(os.path.join(d, "out"), exist_ok=True)
    first()
    before = contents(d)
    assert before
    text = second()
    assert contents(d) == before, text
    overwriting()
    after = contents(d)
    assert after and after != before, (sorted(before), sorted(after))


def test_writers_of_pipelines():
    for name, writer in WRITERS.items():
        def text(seed, overwrite):
            return FIELD.replace("SEED", str(seed)) + writer.replace("MORE", f"overwrite: {overwrite}")

        def refused():
            """A pipeline whose files are there can be drawn, but not run."""
            for command in ("check", "graph"):
                result = harness.beamring(command, "pipeline.yaml", cwd=d)
                assert result.status == 0 and "field" in result.out, (name, command, result)
                if name in ("dada", "filterbank"):
                    assert "would be lost" in result.err and "could not run now" in result.err, (name, result)
            result = harness.beamring("run", "pipeline.yaml", cwd=d)
            assert result.status in (1, 2) and "overwrite: true" in result.err, (name, result)
            return name

        with harness.scratch() as d:
            def second():
                with open(os.path.join(d, "pipeline.yaml"), "w") as f:
                    f.write(text(2, "false"))
                return refused()
            check_twice(d, lambda: harness.run(d, text(1, "false")), second,
                        lambda: harness.run(d, text(2, "true")))


def test_file_where_a_directory_is_wanted():
    """Said with its name before anything starts, also of a folder above; the file stays."""
    for name, writer in WRITERS.items():
        for directory in ("out", "out/", "out/deeper", "./out/a/b"):
            text = FIELD.replace("SEED", "1") + writer.replace("MORE", "overwrite: true")
            with harness.scratch() as d:
                with open(os.path.join(d, "out"), "w") as f:
                    f.write("precious")
                text = text.replace("directory: out", f"directory: {directory}")
                result = harness.run(d, text, status=2)
                assert "out is a file; expected a directory" in result.err, (name, directory, result)
                assert "pipeline.yaml:" in result.err and "directory: " in result.err, (name, result)
                assert harness.beamring("check", "pipeline.yaml", cwd=d).status == 2
                assert open(os.path.join(d, "out")).read() == "precious"


def test_statistics():
    """Statistics replace earlier ones and an empty file, and nothing else."""
    with harness.scratch() as d:
        text = FIELD.replace("SEED", "1") + WRITERS["dada"].replace("MORE", "overwrite: true")
        harness.run(d, text, "--stats", "s.json")
        with open(os.path.join(d, "empty"), "w"):
            pass
        for name in ("s.json", "empty", "s.json"):
            harness.run(d, text, "--stats", name)
            assert json.load(open(os.path.join(d, name)))["balanced"]
        for name in ("pipeline.yaml", "out/x_000000.dada", "precious"):
            path = os.path.join(d, name)
            with open(os.path.join(d, "precious"), "w") as f:
                f.write('{"versions": [1, 2, 3]}')
            before = open(path, "rb").read()
            result = harness.run(d, text, "--stats", name, status=2)
            assert f"--stats: {name} exists" in result.err, result
            assert open(path, "rb").read() == before, name


def test_scales_of_requantize():
    wide = """
pipeline:
  - {stage: replay, files: "guppi/*.raw", out: field}
  - {stage: requantize, in: field, out: fine, save: out/scales.yaml, rms: RMS, overwrite: OVERWRITE}
  - {stage: record, in: fine, directory: fine, prefix: x, overwrite: true}
"""
    with harness.scratch() as d:
        harness.run(
            d,
            FIELD.replace("SEED", "1") +
            "  - {stage: record, in: field, format: guppi, directory: guppi, prefix: g, lossy: true}\n")

        def again(rms, overwrite, status=0):
            return harness.run(d, wide.replace("RMS", rms).replace("OVERWRITE", overwrite), status=status)

        def second():
            result = again("1.5", "false", 1)
            assert "out/scales.yaml exists and would be lost" in result.err, result
            return result
        check_twice(d, lambda: again("2.5", "false"), second, lambda: again("1.5", "true"))
        stays(d, os.path.join(d, "out", "scales.yaml"),
              lambda: harness.beamring("run", "pipeline.yaml", cwd=d, timeout=20))


def test_document_of_packetize():
    """A node that starts again says the same; another document is not lost."""
    send = FIELD.replace("SEED",
                         "1") + BEAMS + """  - {stage: quantize, in: beams, out: levels, bits: 4, block: 256}
  - {stage: packetize, in: levels, format: frb-node, document: out/d.yaml, connect_s: 0, idle_s: 0.1,
     site: {coelev_deg: COEL}, overwrite: OVERWRITE, destinations: [{address: "127.0.0.1:9"}]}
"""

    def again(coelevation, overwrite, status=0):  # nobody listens there, and the run goes on
        text = send.replace("COEL", coelevation).replace("OVERWRITE", overwrite)
        return harness.run(d, text, status=status)

    def second():
        assert "out/d.yaml" not in again("1.5", "false").err
        result = again("2.5", "false", 1)
        assert "out/d.yaml exists already" in result.err and "overwrite: true" in result.err, result
        return result
    with harness.scratch() as d:
        check_twice(d, lambda: again("1.5", "false"), second, lambda: again("2.5", "true"))
        stays(d, os.path.join(d, "out", "d.yaml"),
              lambda: harness.beamring("run", "pipeline.yaml", cwd=d, timeout=20))


VISIBILITIES = """  - {stage: correlate, in: field, out: v, integrate: 512}
  - {stage: uvh5, in: v, directory: out, prefix: x, MORE}
"""
GAPS = FIELD.replace("seed", "missing: [{first: 100, count: 3}], seed")
OBSTACLES = {
    "pipe": ("a pipe", os.mkfifo),
    "link": ("a symbolic link", lambda path: os.symlink("../precious", path)),
    "broken link": ("a symbolic link", lambda path: os.symlink("../new", path)),
    "directory": ("a directory", os.mkdir),
    "device": ("a device", lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))),  # /dev/null
}


def stays(d, path, run):
    """`run` fails with what stands at `path`, whatever that is, and it stays; a link's target too."""
    for name, (words, make) in OBSTACLES.items():
        subprocess.run(["rm", "-rf", path], check=True)
        try:
            make(path)
        except PermissionError:
            print(f"{name}: left out, for root alone can make it")
            continue
        before = os.lstat(path)
        with open(os.path.join(d, "precious"), "w") as f:
            f.write("precious")
        result = run()
        assert result.status in (1, 2), (path, name, result)
        assert words in result.err or "cannot create" in result.err or "exists" in result.err, (path, name,
                                                                                                result)
        after = os.lstat(path)
        assert (before.st_mode, before.st_ino) == (after.st_mode, after.st_ino), (path, name, result)
        assert open(os.path.join(d, "precious")).read() == "precious", (path, name)
        assert not os.path.exists(os.path.join(d, "new")), (path, name)
    subprocess.run(["rm", "-rf", path], check=True)


def test_what_is_no_file_stays():
    """Every file that any writer makes, with a pipe, a link, a folder or a device in its place."""
    for name, writer in {**WRITERS, "uvh5": VISIBILITIES, "beams": BEAMS + WRITERS["dada"].replace(
            "in: field", "in: beams")}.items():
        text = GAPS.replace("SEED", "1") + writer.replace("MORE", "overwrite: true")
        with harness.scratch() as d:
            harness.run(d, text)
            paths = sorted(contents(d))
            assert paths, name
            for path in paths[:6]:
                stays(d, path, lambda: harness.beamring("run", "pipeline.yaml", cwd=d, timeout=20))
            print(f"{name}: {[os.path.basename(path) for path in paths[:6]]}")


def test_statistics_and_journal_are_files():
    text = FIELD.replace("SEED", "1") + WRITERS["dada"].replace("MORE", "overwrite: true")
    with harness.scratch() as d:
        harness.run(d, text)
        for name in ("s.json", "s.json.part"):
            stays(d, os.path.join(d, name), lambda: harness.beamring(
                "run", "pipeline.yaml", "--stats", "s.json", cwd=d, timeout=20))
        for device in ("/dev/null", "/dev/full"):
            before = os.lstat(device)
            done = harness.beamring("run", "pipeline.yaml", "--stats", device, cwd=d)
            assert done.status == 2 and "a device" in done.err, done
            assert os.lstat(device).st_rdev == before.st_rdev, device
            assert not os.path.exists(device + ".part"), device

        def run_with_journal():  # its values hold, without a journal
            with open(os.path.join(d, "pipeline.yaml"), "w") as f:
                f.write(text + "journal: j\n")
            done = harness.beamring("run", "pipeline.yaml", cwd=d, timeout=20)
            assert done.status == 0 and "nothing is resumed" in done.err, done
            return harness.Result(1, done.out, done.err)
        stays(d, os.path.join(d, "j"), run_with_journal)


def test_two_at_once():
    """The second of two runs with the same directory and prefix is refused, whatever it may overwrite, and
    harms nothing; others beside it are not. One that was killed is in nobody's way."""
    for name, writer in {**WRITERS, "uvh5": VISIBILITIES}.items():
        endless = FIELD.replace("SEED", "1").replace("samples: 16384", "samples: 100000000000") + \
            writer.replace("MORE", "overwrite: true")
        short = FIELD.replace("SEED", "2") + writer.replace("MORE", "overwrite: true")
        with harness.scratch() as d:
            with open(os.path.join(d, "endless.yaml"), "w") as f:
                f.write(endless)
            first = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "endless.yaml"], cwd=d,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                end = time.time() + 60
                while len(contents(d)) < 1:
                    assert time.time() < end and first.poll() is None, (name, first.poll())
                    time.sleep(0.01)
                kept = {path: os.stat(path).st_ino for path in contents(d)}
                result = harness.run(d, short, status=1)
                assert "another run writes files out/x" in result.err, (name, result)
                assert {path: os.stat(path).st_ino for path in kept} == kept, name
                harness.run(d, short.replace("prefix: x", "prefix: y"), name="other.yaml")
                assert harness.beamring("check", "pipeline.yaml", cwd=d).status == 0
            finally:
                first.kill()
                first.communicate()
            harness.run(d, short)
            assert not os.path.exists(os.path.join(d, "out", ".beamring.lock")), name


def begun(d, text, path, *more):
    """A run that goes on until it is killed, and has written the file."""
    with open(os.path.join(d, "first.yaml"), "w") as f:
        f.write(text)
    first = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "first.yaml", *more], cwd=d,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.time() + 60
    while not os.path.exists(os.path.join(d, path)) or os.path.getsize(os.path.join(d, path)) == 0:
        assert time.time() < end and first.poll() is None, (path, first.poll())
        time.sleep(0.01)
    return first


def test_two_at_once_beside_recordings():
    """The same of statistics, and of the scales that requantize keeps."""
    endless = FIELD.replace("SEED", "1").replace("samples: 16384", "samples: 100000000000") + \
        "  - {stage: record, in: field, prefix: long, overwrite: true}\n"
    short = FIELD.replace("SEED", "2") + "  - {stage: record, in: field, prefix: y, overwrite: true}\n"
    wide = """
pipeline:
  - {stage: replay, files: "guppi/*.raw", out: field, MORE}
  - {stage: requantize, in: field, out: fine, save: out/scales.yaml, overwrite: true}
  - {stage: record, in: fine, directory: fine, prefix: PREFIX, overwrite: true}
"""
    with harness.scratch() as d:
        os.makedirs(os.path.join(d, "out"))
        harness.run(d, FIELD.replace("SEED", "1") + "  - {stage: record, in: field, format: guppi, "
                    "directory: guppi, prefix: g, lossy: true}\n")
        for text, path, more, again in (
                (endless, "s.json", ("--stats", "s.json"), (short, "--stats", "s.json")),
                (wide.replace("MORE", "loop: 0, realtime: true").replace("PREFIX", "a"), "out/scales.yaml",
                 (), (wide.replace("MORE", "loop: 1").replace("PREFIX", "b"),))):
            first = begun(d, text, path, *more)
            try:
                before = os.stat(os.path.join(d, path))
                result = harness.run(d, *again, status=2 if more else 1)
                assert f"another run writes {'files ' * (not more)}{path}" in result.err, result
                after = os.stat(os.path.join(d, path))
                assert more or (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), path
                assert first.poll() is None
            finally:
                first.kill()
                first.communicate()
            harness.run(d, *again)
        assert json.load(open(os.path.join(d, "s.json")))["balanced"]


def test_receive_command():
    """The command that records refuses a folder that holds a recording, before it listens."""
    def receive(d, *more):
        return subprocess.run([
            harness.PROGRAM, "receive", "frb-node", f"127.0.0.1:{free_port()}", "--directory",
            os.path.join(d, "out"), *more
        ], capture_output=True, text=True, timeout=20)

    with harness.scratch() as d:
        os.makedirs(os.path.join(d, "out"))
        for name in ("received_000000.dada", "received_000012.dada", "document.yaml"):
            path = os.path.join(d, "out", name)
            with open(path, "w") as f:
                f.write("precious")
            done = receive(d, "--seconds", "5")
            assert done.returncode == 2 and name in done.stderr and "--overwrite" in done.stderr, done
            assert open(path).read() == "precious"
            done = receive(d, "--seconds", "0.1", "--overwrite")
            assert done.returncode == 0 and not os.path.exists(path), done

            def again():
                done = receive(d, "--seconds", "5", "--overwrite")
                return harness.Result(done.returncode, done.stdout, done.stderr)
            stays(d, path, again)


if __name__ == "__main__":
    harness.main([
        test_writers_of_pipelines, test_file_where_a_directory_is_wanted, test_statistics,
        test_scales_of_requantize, test_document_of_packetize, test_receive_command,
        test_what_is_no_file_stays, test_two_at_once, test_two_at_once_beside_recordings,
        test_statistics_and_journal_are_files
    ])
