"""Mistakes that once passed in silence: wrong units, descriptions that cannot be meant, names that do not
exist. Each is an error, or a warning that says what to write."""
import os
import re
import socket
import subprocess
import sys
import threading

import harness
from capture_common import Sender
from wires_common import free_port

TELESCOPE = """
telescope: {name: t, grid: {m: 1, n: 2}, spacing_m: {m: 8, n: 6}, dishes: [[0, 0], [0, 1]]}
"""
STREAM = """stream: {epoch_ns: 1700000000000000000, sample_ns: 5120,
  freq_mhz: {first: 400, step: 0.1953125, count: 4}}
"""
SIMULATE = """pipeline:
  - {stage: simulate, samples: 1024, out: e}
  - {stage: record, in: e, prefix: e}
"""


def check(text, status=0):
    with harness.scratch() as d:
        return harness.run(d, text, command="check", status=status)


def test_epoch_in_other_units():
    for epoch, unit in (("1700000000", "seconds"), ("1700000000000", "milliseconds"),
                        ("1700000000000000", "microseconds")):
        said = check(TELESCOPE + STREAM.replace("1700000000000000000", epoch) + SIMULATE, 2).err
        assert f"looks like Unix time in {unit}; expected nanoseconds: 1700000000000000000" in said, said
        assert "pipeline.yaml:3:" in said, said
    for epoch in ("0", "5", "1700000000000000000"):
        assert check(TELESCOPE + STREAM.replace("1700000000000000000", epoch) + SIMULATE).err == ""


def test_units_of_channels():
    """The warning comes for every source: simulate, and capture."""
    capture = """pipeline:
  - {stage: capture, packet: lwa-snap2, addresses: "127.0.0.1:1", sources: [0], streams: [0],
     frame_samples: 64, out: p}
  - {stage: record, in: p, prefix: p}
"""
    comb = STREAM.replace("0.1953125, count: 4", "0.024, count: 96").replace("5120", "125000/3")
    for stream, pipeline in ((STREAM, SIMULATE), (comb, capture)):
        assert "warning" not in check(TELESCOPE + stream + pipeline).err
        short = re.sub("sample_ns: [^,]*", "sample_ns: 3.84", stream)  # channels of 260 MHz
        for text, words in ((stream.replace("400, step: 0.", "0.4, step: 0.000"), "`freq_mhz`, not GHz"),
                            (stream.replace("sample_ns", "width_mhz: 0.1, sample_ns"),
                             "width x sample time is"),
                            (short, "can `sample_ns`, in nanoseconds, be meant?")):
            said = check(TELESCOPE + text + pipeline).err
            assert words in said and "warning" in said, (text, said)


DESCRIPTION = """bytes: 40
fields:
  seq: {offset: 0, bytes: 4}
  board: {offset: 4, bytes: 4}
sequence: {fields: seq}
source: {fields: board}
payload: {offset: 8, axes: [freq, input], lengths: [4, 8]}
coding: {values: twos_complement, real: high}
"""


def test_packet_descriptions():
    """A field that reaches into the payload; and a counter is as wide as its field unless told otherwise."""
    with harness.scratch() as d:
        path = os.path.join(d, "board.yaml")
        for good, bad, words in (
                ("board: {offset: 4, bytes: 4}", "board: {offset: 4, bytes: 8}",
                 "but the field 'board' stands at bytes 4 to 11"),
                ("bytes: 4}\nseq", "bytes: 4}\nseq", None)):
            with open(path, "w") as f:
                f.write(DESCRIPTION.replace(good, bad))
            result = harness.beamring("info", path)
            assert (result.status != 0 and words in result.err) if words else result.status == 0, result
        assert "2^32" in result.out or "4294967296" in result.out, result


def test_packet_names():
    for name, words in (("chord-csr", "did you mean 'chord-crs'?"),
                        ("nothing", "expected chord-crs, chime-ice")):
        said = check(STREAM + f"""pipeline:
  - {{stage: capture, packet: {name}, addresses: "127.0.0.1:1", frame_samples: 64, out: p}}
  - {{stage: record, in: p, prefix: p}}
""", 2).err
        assert f"there is no packet description '{name}'" in said and words in said, said
        assert "include" not in said and "./" + name + ".yaml" in said, said


def test_polarisations():
    said = check("""
stream: {epoch_ns: 0, sample_ns: 32768, freq_mhz: {first: 500, step: -0.030517578125, count: 512}}
pipeline:
  - {stage: capture, packet: casm-snap, addresses: "127.0.0.1:1", sources: [0, 1], streams: [0],
     frame_samples: 64, out: p}
  - {stage: unpack, in: p, out: e}
  - {stage: record, in: e, prefix: e}
""", 2).err
    assert "24 inputs divide; write `pols: 2` for 12 dishes with two polarisations, `pols: 1`" in said, said


def test_history_larger_than_the_machine():
    text = TELESCOPE + STREAM.replace("count: 4", "count: 4096") + """pipeline:
  - {stage: simulate, duration_s: 1, frame_samples: 65536, out: e}
  - {stage: dump, in: {from: e, history: {seconds: SECONDS}}}
"""
    said = check(text.replace("SECONDS", "1000")).err
    assert "wants" in said and "the longest history keeps 1000 s: shorten it" in said, said
    assert "shorten it" not in check(text.replace("SECONDS", "0.01")).err


def test_unknown_options():
    for words in (["convert", "--loss", "a", "b/c"], ["info", "--beam", "x"],
                  ["capture-report", "--second", "1", ":1"], ["receive", "--idel", "3"],
                  ["check", "--dot", "x"], ["status", "--wtach"], ["stages", "--mardown"],
                  ["calibrate", "--sorce", "sun"], ["bench", "--onyl"], ["run", "--quit", "x"]):
        result = harness.beamring(*words)
        option = next(w for w in words if w.startswith("--"))
        assert result.status == 2 and option in result.err, (words, result)


def test_capture_report():
    """Without a description the first bytes are shown, and nothing explained is a failure."""
    port = free_port(socket.SOCK_DGRAM)
    stop = threading.Event()

    def send():
        sender = Sender(port, rate=50)
        while not stop.is_set():
            sender.send(b"\xde\xad\xbe\xef" + bytes(96))
    thread = threading.Thread(target=send)
    thread.start()
    try:
        result = harness.beamring("capture-report", "--seconds", "0.5", f"127.0.0.1:{port}")
    finally:
        stop.set()
        thread.join()
    assert result.status == 1 and "no description that is known" in result.out, result
    assert "100 bytes: de ad be ef 00" in result.out, result


def test_plot_without_modules():
    """gains_report.py says which module is missing; calibrate tries other Pythons without a word."""
    script = os.path.join(harness.CONFIG, "..", "tools", "plots", "gains_report.py")
    if not os.path.exists(script):
        print("no sources here")
        return
    with harness.scratch() as d:
        with open(os.path.join(d, "h5py.py"), "w") as f:
            f.write("raise ImportError('No module named h5py')\n")
        for more, words in (([], "No module named h5py; it needs numpy, h5py"), (["--try"], "")):
            done = subprocess.run([sys.executable, script, "g.h5", "g.png", *more], text=True,
                                  capture_output=True, env={**os.environ, "PYTHONPATH": d}, timeout=60)
            assert done.returncode == 3 and words in done.stderr and bool(words) == bool(done.stderr), done


if __name__ == "__main__":
    harness.main([test_epoch_in_other_units, test_units_of_channels, test_packet_descriptions,
                  test_packet_names, test_polarisations, test_history_larger_than_the_machine,
                  test_unknown_options, test_capture_report, test_plot_without_modules])
