"""No writer replaces an earlier file without being told: each runs twice in one folder."""
import glob
import json
import os
import subprocess

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
            assert f"--stats: {name} is there" in result.err, result
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
            result = again("1.5", "false", 2)
            assert "out/scales.yaml exists and would be lost" in result.err, result
            return result
        check_twice(d, lambda: again("2.5", "false"), second, lambda: again("1.5", "true"))


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
        assert "out/d.yaml is there already" in result.err and "overwrite: true" in result.err, result
        return result
    with harness.scratch() as d:
        check_twice(d, lambda: again("1.5", "false"), second, lambda: again("2.5", "true"))


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


if __name__ == "__main__":
    harness.main([
        test_writers_of_pipelines, test_file_where_a_directory_is_wanted, test_statistics,
        test_scales_of_requantize, test_document_of_packetize, test_receive_command
    ])
