"""Mistakes of users, and failures around them: a clear error with its place, the right exit status,
nothing started, and nothing lost that was already taken in."""
import glob
import os
import re
import resource
import signal
import subprocess
import time

import harness
from small import STREAM, TELESCOPE, one, record_field

GOOD = TELESCOPE + STREAM + """
pipeline:
  - {stage: simulate, samples: 4096, seed: 1, out: field}
  - {stage: upchannelize, in: field, out: fine, factor: 16}
  - {stage: frb_grid, in: fine, out: grid, integrate: 192}
  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [2, 2], spacing_deg: 1}}
  - {stage: record, in: beams, directory: ., prefix: beams}
"""


def wrong(text, *expected, where=None):
    """The text is refused with exit 2, each of `expected` in the message, at line `where`, and no file is
    written."""
    with harness.scratch() as d:
        result = harness.run(d, text, status=2)
        for words in expected:
            assert words in result.err, f"'{words}' not in: {result}"
        if where is not None:
            assert f"pipeline.yaml:{where}:" in result.err, f"line {where} not in: {result}"
        assert os.listdir(d) == ["pipeline.yaml"], os.listdir(d)


def line(text, part):
    return next(i for i, l in enumerate(text.splitlines(), 1) if part in l)


def test_good():
    with harness.scratch() as d:
        harness.run(d, GOOD)


def test_fuse():
    """A key of earlier versions: accepted, and said once that it has no effect."""
    quantize = "  - {stage: quantize, in: beams, out: q, bits: 4, fuse: FUSE}\n"
    text = GOOD.replace("in: beams, dir", "in: q, dir")
    text = text.replace("  - {stage: record", quantize + "  - {stage: record")
    with harness.scratch() as d:
        for fuse in ("auto", "true", "false"):
            result = harness.run(d, text.replace("FUSE", fuse).replace("prefix: beams", f"prefix: {fuse}"))
            assert result.err.count("`fuse` has no effect") == 1, result
    wrong(text.replace("FUSE", "never"), "fuse", "expected one of auto, true, false")


def test_keys():
    up = line(GOOD, "upchannelize")
    wrong(GOOD.replace("factor: 16", "factr: 16"), "factr", "did you mean 'factor'", where=up)
    wrong(GOOD.replace("factor: 16", "factor: 16, factor: 8"), "factor", where=up)
    wrong(GOOD.replace("factor: 16", "factor: many"), "factor", where=up)
    wrong(GOOD.replace("factor: 16", "factor: 256"), "factor", "128", where=up)
    wrong(GOOD.replace("factor: 16", "factor: 12"), "factor", "12", where=up)
    wrong(GOOD.replace("stage: upchannelize", "stage: upchanelize"), "upchanelize",
          "did you mean 'upchannelize'", where=up)
    wrong(GOOD.replace("pipeline:", "pipline:"), "pipline", "did you mean 'pipeline'")


def test_all_errors_at_once():
    text = GOOD.replace("factor: 16", "factr: 16").replace("integrate: 192",
                                                           "integrate: -1").replace("in: beams", "in: beems")
    wrong(text, "factr", "integrate", "beems")


def test_one_mistake_one_message():
    """Consequences of a mistake are not reported as further mistakes."""
    for good, bad in (("in: field, out: fine", "in: feild, out: fine"), ("in: beams, dir", "in: x, dir"),
                      ("in: fine, out", "out"), ("out: grid, ", ""), ("in: fine", "in: [fine, fine]"),
                      ("telescope:", "telescop:"), ("stream:", "streem:"), ("pipeline:", "pipelne:"),
                      ("stage: frb_grid", "stage: frb_gird"), ("factor: 16", "factor: 3"),
                      ("out: fine", "out: {nam: fine}"), ("[0, 4]", "[0, 99]")):
        assert good in GOOD, good
        with harness.scratch() as d:
            result = harness.run(d, GOOD.replace(good, bad, 1), status=2)
            assert result.err.count("pipeline.yaml:") == 1, (bad, result)


def test_graph():
    wrong(GOOD.replace("in: fine", "in: fin"), "fin", "did you mean 'fine'")
    wrong(GOOD.replace("in: field, out: fine", "in: beams, out: fine"), "cycle")
    wrong(GOOD.rsplit("\n", 2)[0] + "\n", "beams", "read")
    wrong(GOOD.replace("out: grid", "out: fine"), "fine")
    wrong(GOOD.replace("stage: frb_beams", "stage: baseband_beamform"), "baseband_beamform")


def test_telescope():
    wrong(GOOD.replace("[0, 4]", "[0, 12]", 1), "outside", "12")
    wrong(GOOD.replace("[0, 4]", "[0, 0]", 1), "dish", "same cell")


def test_yaml():
    wrong(GOOD.replace("pipeline:", "pipeline: ["), "pipeline.yaml:")
    wrong("", "empty")
    wrong(GOOD.replace("seed: 1", "seed: ${NO_SUCH_VARIABLE}"), "NO_SUCH_VARIABLE", where=line(GOOD, "seed"))
    wrong("include: nowhere.yaml\n" + GOOD, "nowhere.yaml", where=1)
    result = harness.beamring("run", "no_such_file.yaml")
    assert result.status == 2 and "no_such_file.yaml" in result.err, result


def test_device():
    wrong("device: cuda:99\n" + GOOD, "cuda:99", "GPU", where=1)
    if not os.path.exists("/dev/nvidiactl"):
        with harness.scratch() as d:
            said = harness.run(d, "device: cuda:0\n" + GOOD, status=2).err
        assert "this machine has no NVIDIA driver" in said or "was built without CUDA" in said, said
    wrong("device: tpu\n" + GOOD, "tpu", "expected auto, cpu or cuda:N", where=1)
    wrong(GOOD.replace("seed: 1", "seed: 1, device: cuda:0"), "cuda:0", where=line(GOOD, "seed"))


def replay(extra=""):
    return TELESCOPE + "pipeline:\n" + f"""
  - {{stage: replay, files: field*.dada, out: field{extra}}}
  - {{stage: record, in: field, directory: out, prefix: copy}}
"""


def damaged(damage, *expected, status=2, telescope=TELESCOPE):
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        os.mkdir(os.path.join(d, "out"))
        damage(path)
        result = harness.run(d, replay().replace(TELESCOPE, telescope), status=status)
        for words in expected:
            assert words in result.err, f"'{words}' not in: {result}"


def edit(key, value):
    def change(path):
        data = open(path, "rb").read()
        size = harness.header(path)[1]
        lines = data[:size].rstrip(b"\0").decode("latin-1").splitlines()
        lines = [f"{key} {value}" if l.split()[:1] == [key] else l for l in lines]
        lines = [l for l in lines if l != f"{key} None"]
        head = ("\n".join(lines) + "\n").encode("latin-1")
        assert len(head) <= size
        open(path, "wb").write(head + b"\0" * (size - len(head)) + data[size:])
    return change


def test_lowest_frequency():
    """A channel lies above its own width."""
    text = """stream: {sample_ns: 1000, epoch_ns: 0, freq_mhz: [FREQ]}
telescope: {name: t, grid: {m: 1, n: 1}, spacing_m: {m: 1, n: 1}, dishes: [[0, 0]]}
pipeline:
  - {stage: simulate, samples: 100, out: field}
  - {stage: record, in: field, directory: ., prefix: x}
"""
    wrong(text.replace("FREQ", "0.99"),
          "channel 0 is at 0.99 MHz; expected more than the 1 MHz of one channel")
    with harness.scratch() as d:
        harness.run(d, text.replace("FREQ", "1.001"))


def test_no_such_recording():
    for files, said in (("none_*.dada", "no file matches 'none_*.dada'"), ("none.dada",
                                                                           "there is no file 'none.dada'")):
        wrong(f"pipeline:\n  - {{stage: replay, files: {files}, out: e}}\n"
              "  - {stage: record, in: e, directory: .}\n", said, where=2)


def test_recordings():
    damaged(os.remove, "field*.dada")
    damaged(lambda p: open(p, "wb").close(), "field", "empty")
    damaged(lambda p: os.truncate(p, 1000), "field", "header")
    damaged(lambda p: open(p, "r+b").write(b"\xff" * 512), "field")
    damaged(edit("HDR_SIZE", "-4096"), "HDR_SIZE")
    damaged(edit("HDR_SIZE", "9223372036854775807"), "HDR_SIZE")
    damaged(edit("DTYPE", "int5x2"), "DTYPE", "int5x2")
    damaged(edit("AXES", "time,time,pol,dish"), "AXES")
    damaged(edit("SHAPE", "0,5,2,-12"), "SHAPE")
    damaged(edit("SHAPE", "0,5,2,18446744073709551615"), "SHAPE")
    damaged(edit("SAMPLE_NS", "0/1"), "SAMPLE_NS")
    damaged(edit("FREQ_MHZ", "400,401"), "FREQ_MHZ")
    fewer = TELESCOPE.replace("[[0, 0], ", "[")
    damaged(lambda p: None, "11", "12", "dish", telescope=fewer)


def test_numbers():
    """Gains and weights that cannot be meant: the file, the element and what was expected."""
    try:
        import h5py
        import numpy as np
    except ImportError:
        print("skipped: no h5py")
        return
    gains, weights = np.ones((1, 2, 12), np.complex64), np.ones((1, 2, 3, 12, 2), np.int8)
    blind, low = gains.copy(), weights.copy()
    blind[0, 1, 7], low[0, 1, 2, 5, 1] = np.nan, -128
    grid = "{stage: frb_grid, in: field, out: out, integrate: 192, gains: n.h5}"
    baseband = "{stage: baseband_beamform, in: field, out: out, weights: n.h5}"
    shift = np.ones((1, 2, 3), np.int32)
    with harness.scratch() as d:
        with h5py.File(os.path.join(d, "n.h5"), "w") as file:
            file["gain"] = gains
        for way in harness.send_outside(os.path.join(d, "n.h5"), "gain"):
            result = harness.run(
                d, TELESCOPE + STREAM + "pipeline:\n  - {stage: simulate, samples: 4096, out: field}\n  - " +
                grid + "\n  - {stage: record, in: out, prefix: out}\n", status=2)
            assert "n.h5: dataset /gain refers to another file" in result.err, (way, result)
        for at in harness.damage_hdf5(os.path.join(d, "n.h5")):
            result = harness.run(
                d, TELESCOPE + STREAM + "pipeline:\n  - {stage: simulate, samples: 4096, out: field}\n  - " +
                grid + "\n  - {stage: record, in: out, prefix: out}\n", status=2)
            assert "n.h5" in result.err and "closing library" not in result.err, (at, result)
    for stage, numbers, expected in [(grid, {"gain": gains[:, :, 1:]}, ["[1][2][11]", "dish 12"]),
                                     (grid, {"gain": blind}, ["/gain[0][1][7]"]),
                                     (grid, {"gain": 0 * gains}, ["all gains are 0"]),
                                     (grid, {"gains": gains}, ["/gain"]),
                                     (baseband, {"weights": low,
                                                 "shift": shift}, ["/weights[0][1][2][5][1]", "-128"]),
                                     (baseband, {"weights": weights[:, :, :, 1:],
                                                 "shift": shift}, ["dish 11", "dish 12"]),
                                     (baseband, {"weights": weights}, ["/shift"]),
                                     (baseband, {"weights": weights, "shift": 40 * shift}, ["40",
                                                                                            "0 to 30"])]:
        with harness.scratch() as d:
            with h5py.File(os.path.join(d, "n.h5"), "w") as file:
                for name, value in numbers.items():
                    file[name] = value
            result = harness.run(
                d, TELESCOPE + STREAM + "pipeline:\n  - {stage: simulate, samples: 4096, out: field}\n  - " +
                stage + "\n  - {stage: record, in: out, prefix: out}\n", status=2)
            assert "n.h5" in result.err and all(words in result.err for words in expected), (expected, result)


def test_stage_fails():
    """A stage that fails in mid-stream: exit 1, the others drain, what was recorded is whole, and the balance
    adds up."""
    plugins = os.path.join(os.path.dirname(os.path.abspath(harness.PROGRAM)), "..", "tests", "runtime")
    if not os.path.exists(os.path.join(plugins, "t_pass.so")):
        print("skipped: no test plugins beside the program")
        return
    with harness.scratch() as d:
        result = harness.run(d, f"plugins: [{plugins}]\n" + """
pipeline:
  - {stage: t_source, out: a, samples: 5000}
  - {stage: t_pass, in: a, out: b, fail_at: 1000}
  - {stage: record, in: b, prefix: b}
  - {stage: t_sink, in: a}
""", status=1)
        assert "t_pass: error: told to fail" in result.err and \
            "every sample is accounted for" in result.out, result
        path = one(d, "b_*.dada")
        assert os.path.getsize(path) - harness.header(path)[1] == 1024, result


def test_truncated_payload():
    """A recording that stops in mid-sample: whole samples are replayed, the rest is said."""
    with harness.scratch() as d:
        path = record_field(d, samples=3000, missing="[]")
        os.truncate(path, os.path.getsize(path) - 1000 * 120 - 7)
        os.mkdir(os.path.join(d, "out"))
        harness.run(d, replay())
        got, valid, _, _ = harness.read_e(one(d, "out/copy*.dada"))
        want, _, _, _ = harness.read_e_prefix(path, 1999)
        assert (got[:1999] == want).all() and valid[:1999].all()


def test_disk_full():
    """The file size limit stands in for a full disk: the error names the file, what was written is
    readable."""
    with harness.scratch() as d:
        path = record_field(d, samples=60000, missing="[]")
        os.mkdir(os.path.join(d, "out"))
        limit = 2 << 20

        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(replay(", frame_samples: 1024"))
        done = subprocess.run([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                              capture_output=True, text=True, timeout=60, preexec_fn=limited)
        assert done.returncode == 1 and "copy" in done.stderr, done
        copy = one(d, "out/copy*.dada")
        got, valid, first, _ = harness.read_e(copy)
        assert first == 0 and len(got) >= 1024
        want, _, _, _ = harness.read_e_prefix(path, len(got))
        assert (got == want).all()


def test_no_echo():
    """One mistake is one message: a wrong depth, policy or telescope does not make others out of what depends
    on it."""
    for right, false in [("out: fine", "out: {name: fine, depth: 0}"),
                         ("in: fine", "in: {from: fine, policy: lossy}"), ("m: 8.5", "m: -1"),
                         ("step: 0.1953125", "step: 0")]:
        with harness.scratch() as d:
            result = harness.run(d, GOOD.replace(right, false), status=2)
            assert result.err.count("pipeline.yaml:") == 1, result


def test_thousands_of_stages():
    """A pipeline of 4000 stages, in the order of their data or against it, is checked in seconds of processor
    time; so is one whose mistakes are as many."""
    n = 4000
    first = "  - {stage: simulate, samples: 64, frame_samples: 64, out: q0}\n"
    chain = [f"  - {{stage: upchannelize, name: s{i}, factor: 1, in: q{i}, out: q{i + 1}}}\n"
             for i in range(n)]
    last = f"  - {{stage: record, in: q{n}, prefix: x}}\n"
    top = """telescope: {name: t, grid: {m: 1, n: 1}, spacing_m: {m: 8, n: 6}, dishes: [[0, 0]]}
stream: {freq_mhz: [800], sample_ns: 2560, epoch_ns: 0}
pipeline:
"""
    with harness.scratch() as d:
        for text, status in ((first + "".join(chain) + last, 0), (last + "".join(chain[::-1]) + first, 0),
                             (first + "".join(chain).replace("in: q", "in: r") + last, 2),
                             (first + "".join(chain).replace("name: s", "name: s1 #") + last, 2)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            result = harness.run(d, top + text, command="check", status=status, timeout=150)
            took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            print(f"exit {result.status} after {took:.2f} s")
            assert took < 5, took


def test_gains():
    """Gains with which everything would be clamped are told by `check`, with their place, as by `run`."""
    for gain in ("1e300", "1e9", "[4, 4, 4, 1e12]", "-1e30"):
        text = f"""telescope: {{name: t, grid: {{m: 1, n: 1}}, spacing_m: {{m: 8, n: 6}}, dishes: [[0, 0]]}}
stream: {{freq_mhz: [800], sample_ns: 2560, epoch_ns: 0}}
pipeline:
  - {{stage: simulate, samples: 4096, frame_samples: 4096, out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4, gain: {gain}}}
  - {{stage: record, in: fine, prefix: x}}
"""
        with harness.scratch() as d:
            for command in ("check", "run"):
                result = harness.run(d, text, command=command, status=2)
                assert "pipeline.yaml:5:" in result.err and "would be clamped" in result.err, result
            assert os.listdir(d) == ["pipeline.yaml"]


def test_full_output():
    """If a full disk loses the output of a command, its exit status tells."""
    with harness.scratch() as d:
        recorded = record_field(d)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(f"pipeline:\n  - {{stage: replay, files: {recorded}, out: x}}\n"
                    "  - {stage: record, in: x, prefix: y}\n")
        for words in (["check", "p.yaml"], ["graph", "p.yaml"], ["stages"], ["stages", "replay"],
                      ["info", recorded], ["help"], ["help", "check"], ["check", "--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([os.path.abspath(harness.PROGRAM), *words], cwd=d, stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 1 and "could be written" in done.stderr, (words, done)
            assert harness.beamring(*words, cwd=d).status == 0, words


ESCAPES = ["\x1b[2J", "\x1b]0;owned\x07", "\x08\x08", "\x7f", "\x9b31m", "\x0d"]


def test_escapes_of_files():
    """Texts of a file never move the cursor or rename the terminal, nor do errors that quote them."""
    with harness.scratch() as d:
        path = record_field(d)
        with open(path, "rb") as f:
            whole = f.read()
        at = whole.index(b"\n", whole.index(b"TELESCOPE "))
        for escape in ESCAPES:
            for place, key in ((at, b""), (whole.index(b"NBIT ") + 5, b""), (at, b"\nSOURCE x")):
                raw = key + escape.encode()
                with open(path, "wb") as f:  # the header is as long as before: blanks at its end make room
                    f.write(whole[:place] + raw + whole[place:4096 - len(raw)] + whole[4096:])
                for words in (["info", path], ["info", path + escape]):
                    done = subprocess.run([os.path.abspath(harness.PROGRAM), *words], capture_output=True,
                                          cwd=d)
                    said = done.stdout + done.stderr
                    assert said and not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", said), said
                with open(os.path.join(d, "p.yaml"), "w") as f:
                    f.write(f"pipeline:\n  - {{stage: replay, files: {path}, out: x}}\n"
                            "  - {stage: record, in: x, prefix: y, overwrite: true}\n")
                for command in ("check", "run"):
                    done = harness.beamring(command, "p.yaml", cwd=d)
                    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.out + done.err), done


def test_statistics():
    """A statistics file that cannot be written is said before anything starts."""
    with harness.scratch() as d:
        result = harness.run(d, GOOD, "--stats", "nowhere/stats.json", status=2)
        assert "nowhere/stats.json" in result.err and os.listdir(d) == ["pipeline.yaml"], result


def test_same_files():
    """No stage writes over what another one writes, or reads: refused before anything is touched, however the
    path is written."""
    with harness.scratch() as d:
        path = record_field(d, samples=3000)
        whole = open(path, "rb").read()
        os.mkdir(os.path.join(d, "out"))
        copy = replay().replace("directory: out, prefix: copy",
                                "directory: %s, prefix: field, overwrite: true")
        for directory in (".", "out/..", d):
            result = harness.run(d, copy % directory, status=2)
            assert "'replay' reads the same file" in result.err and "pipeline.yaml:" in result.err, result
        os.symlink(path, os.path.join(d, "out", "link.dada"))
        result = harness.run(d, (copy % ".").replace("files: field*", "files: out/*"), status=2)
        assert "'replay' reads the same file" in result.err, result
        assert open(path, "rb").read() == whole
        two = replay(
        ) + "  - {stage: record, name: again, in: field, directory: new/./., prefix: copy, overwrite: true}\n"
        result = harness.run(d, two.replace("directory: out", "directory: new"), status=2)
        assert "'record' writes the same files" in result.err, result
        gains = "  - {stage: frb_grid, in: field, out: grid, integrate: 4, gains: out/copy_000000.dada}\n"
        result = harness.run(d, replay() + gains, status=2)
        assert "'record' would write over" in result.err and "copy_000000.dada" in result.err, result
        os.remove(os.path.join(d, "out", "link.dada"))
        harness.run(d, two.replace("new/./., prefix: copy", "out, prefix: copy_2"))
        assert len(glob.glob(os.path.join(d, "out", "copy*.dada"))) == 2


def test_not_started():
    """A directory that cannot be made fails the run; nobody is told that no data came."""
    with harness.scratch() as d:
        result = harness.run(d, GOOD.replace("directory: .", "directory: /proc/below"), status=1)
        assert "/proc/below" in result.err and "no data came" not in result.err, result


def interrupted(number, hangup=signal.SIG_DFL):
    """Sends SIGHUP to a run that ignores it (as under nohup), or the signal that ends it. Who runs the tests
    may ignore SIGHUP."""
    with harness.scratch() as d:
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(TELESCOPE + STREAM + """
pipeline:
  - {stage: simulate, duration_s: 3600, seed: 1, frame_samples: 1024, out: field}
  - {stage: record, in: field, directory: ., prefix: field}
""")
        running = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "pipeline.yaml"], cwd=d,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup))
        deadline = time.time() + 30
        while time.time() < deadline:
            if sum(os.path.getsize(p) for p in glob.glob(os.path.join(d, "field*.dada"))) > 1 << 20:
                break
            time.sleep(0.05)
        if hangup == signal.SIG_IGN:
            running.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert running.poll() is None, "under nohup a run outlives its terminal"
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
        assert running.returncode == 130, (running.returncode, out, err)
        keys, size = harness.header(one(d, "field*.dada"))
        payload = os.path.getsize(one(d, "field*.dada")) - size
        assert payload > 0 and payload % (5 * 2 * 12 * 1024) == 0 and \
            payload == int(keys["FILE_SIZE"]), (payload, keys)


def test_interrupt():
    """SIGINT, and a terminal that goes away, drain: exit 130, the balance adds up, and what was recorded is
    whole."""
    interrupted(signal.SIGINT)
    interrupted(signal.SIGHUP)
    interrupted(signal.SIGINT, signal.SIG_IGN)


def test_no_plugin():
    with harness.scratch() as d:
        open(os.path.join(d, "junk.so"), "wb").write(b"not a plugin")
        result = harness.run(d, "plugins: [junk.so]\n" + GOOD.replace("stage: upchannelize", "stage: junk"),
                             status=2)
        assert "junk.so" in result.err, result


if __name__ == "__main__":
    harness.main([
        test_good, test_fuse, test_keys, test_all_errors_at_once, test_one_mistake_one_message, test_graph,
        test_telescope, test_yaml, test_device, test_lowest_frequency, test_no_such_recording,
        test_recordings, test_numbers, test_stage_fails, test_truncated_payload, test_disk_full,
        test_no_echo, test_thousands_of_stages, test_gains, test_full_output, test_escapes_of_files,
        test_statistics, test_same_files, test_not_started, test_interrupt, test_no_plugin
    ])
