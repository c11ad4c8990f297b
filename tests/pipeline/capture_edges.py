"""Trouble that capture must survive: bad packets, wrong protocols, resets, late starts, missing rights; and
what it says of them."""
import glob
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np

import harness
from capture_common import ask, capture, counters, free_port, packets, recorded, Sender

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "live"))
from controller import Controller, time_of_sample_0  # noqa: E402

FS = 512


def crs_field(frames, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, packets.ChordCrs().shape(frames * FS), np.uint8)


def test_every_header_field_wrong_in_turn():
    """Bytes of the header that mean something, cut and long packets, other protocols: each in its counter,
    none in the data."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        port, raw = free_port(socket.SOCK_DGRAM), crs_field(2)
        run = capture(d, fengine, port, FS)
        sender, extra, foreign, malformed, stray = Sender(port), [], 0, 0, 0
        whole = list(fengine.packets(raw))
        good = whole[0][3]

        def with_bytes(offset, new):
            return good[:offset] + new + good[offset + len(new):]
        extra += [with_bytes(0, b"\x00"), with_bytes(0, b"\xfc")]               # cookie
        extra += [with_bytes(2, struct.pack("<H", s)) for s in (3, 200, 65535)]  # source: not of this node
        extra += [with_bytes(4, struct.pack("<H", s)) for s in (4, 127, 65535)]  # stream
        extra += [b"", b"x", b"LLDP" * 20, bytes(len(good)), b"?" + os.urandom(1499)]
        foreign = len(extra)
        cut = [good[:n] for n in (1, 2, 21, 22, 23, 6165)] + [good + b"\0", good + bytes(900)]
        odd = [with_bytes(8, struct.pack("<Q", s)) for s in (1, 15, 17)]         # no multiple of 16
        malformed = len(cut) + len(odd)
        far = [with_bytes(8, struct.pack("<Q", s)) for s in (2**63, 2**64 - 16, 2**40, 2**62)]
        stray = len(far)
        extra += cut + odd + far
        rng = np.random.default_rng(5)
        rng.shuffle(extra)
        for k, (*_, packet) in enumerate(whole):
            if k >= len(whole) // 4 and extra:
                sender.send(extra.pop())
            sender.send(packet)
        assert not extra
        run.finish_after(sender.sent)
        got, there, share, _ = recorded(d, fengine, FS)
        _, total = counters(run.text())
        assert there.all() and np.array_equal(got, raw), run.text()
        assert [total[k] for k in ("foreign", "malformed", "stray", "duplicate", "resets")] == \
            [foreign, malformed, stray, 0, 0], (total, foreign, malformed, stray)
        assert total["accepted"] == len(whole)


def test_flagged_packets_are_missing():
    """ICE: an error of either shuffle makes the packet a lost one; sticky overflow bits do not."""
    fengine = packets.ChimeIce()
    with harness.scratch() as d:
        rng = np.random.default_rng(2)
        raw = rng.integers(0, 256, fengine.shape(64), np.uint8)
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, 32)
        sender, bad = Sender(port, 2000), []
        for k, (source, stream, sample, _) in enumerate(fengine.packets(raw)):
            flags = (0, 1 << 8, 1 << 9, 1 << 10, 1 << 28, 1 << 29, 1 << 30, 1 << 11, 1 << 31, 0xFF)[k % 10]
            if flags & 0x70000700:
                bad.append((source, stream, sample))
            block = fengine.block(raw, sample, 0, source, fengine.places(stream))
            sender.send(fengine.packet(sample, source, stream, block, flags))
        run.finish_after(sender.sent)
        got, there, share, _ = recorded(d, fengine, 32)
        by_source, total = counters(run.text())
        assert total["flagged"] == len(bad) and total["never came"] == 0, run.text()
        want = np.ones(raw.shape, bool)
        ids = fengine.channel_ids()
        for source, stream, sample in bad:
            at = fengine.sources.index(source) * fengine.i
            these = [ids.index(c) for c in fengine.channels(stream)]
            want[np.ix_(range(sample, sample + 2), these, range(at, at + 512))] = False
        n = len(got)
        assert np.array_equal(there, want[:n]) and np.array_equal(got[there], raw[:n][there])


def test_counters_are_told_while_it_runs():
    """By the control interface and in the metrics: packets of each source, by what became of them."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        port, raw = free_port(socket.SOCK_DGRAM), crs_field(2)
        run = capture(d, fengine, port, FS)
        sender = Sender(port)
        for source, stream, sample, packet in fengine.packets(raw):
            if source != 2 or sample != 64:
                sender.send(packet)
            if source == 1:
                sender.send(packet)
        sender.send(b"LLDP" * 20)
        each = 2 * FS // 16 * 2
        want = {"source 0": (each, 0), "source 1": (each, each), "source 2": (each - 2, 0)}
        for _ in range(400):
            told = run.counted()
            got = {s: (told[s]["accepted"], told[s]["duplicate"]) for s in want}
            if got == want and told["no known source"]["foreign"] == 1:
                break
            time.sleep(0.05)
        assert got == want and told["no known source"]["foreign"] == 1, told
        metrics = ask(run.url + "/metrics")
        for s, (accepted, duplicate) in want.items():
            for what, n in (("accepted", accepted), ("duplicate", duplicate), ("malformed", 0)):
                line = f'beamring_stage_counted_total{{stage="capture",of="{s}",what="{what}"}} {n}'
                assert line in metrics.splitlines(), (line, metrics)
        run.process.send_signal(2)
        stats = run.finish(130)
        assert stats["capture"]["counted"]["source 2"]["never_came"] == 2, stats["capture"]["counted"]


def test_counters_wrap():
    """DSA's 35 bits and ATA's 38 begin again in the middle: the stream goes on."""
    for fengine, bits, fs in ((packets.Dsa110Snap(), 35, 32), (packets.AtaSnap(), 38, 256)):
        with harness.scratch() as d:
            first = 2**bits - 2 * fs
            raw = np.random.default_rng(bits).integers(0, 256, fengine.shape(4 * fs), np.uint8)
            port = free_port(socket.SOCK_DGRAM)
            run = capture(d, fengine, port, fs, f"start_sample: {first}")
            sender = Sender(port, 2000)
            for *_, packet in fengine.packets(raw, first):
                sender.send(packet)
            run.finish_after(sender.sent)
            got, there, share, begin = recorded(d, fengine, fs)
            assert begin == first and there.all() and np.array_equal(got, raw), (fengine.name, run.text())


def test_a_machine_that_stood_still():
    """It has heard nothing for longer than idle_s, but nor has it looked: what comes then is taken."""
    fengine = packets.ChordCrs()
    for _ in range(10):
        with harness.scratch() as d:
            port, raw = free_port(socket.SOCK_DGRAM), crs_field(4)
            run = capture(d, fengine, port, FS, "start_sample: 0, idle_s: 1")
            sender, sent, last, longest = Sender(port), list(fengine.packets(raw)), time.monotonic(), 0
            for n, (*_, packet) in enumerate(sent):
                stopped = 1.6 * (n == len(sent) // 2)
                if stopped:
                    time.sleep(0.3)
                    run.process.send_signal(signal.SIGSTOP)
                    time.sleep(stopped)
                    run.process.send_signal(signal.SIGCONT)
                    time.sleep(0.3)
                sender.send(packet)
                longest, last = max(longest, time.monotonic() - last - stopped), time.monotonic()
            run.finish()
            if longest > 0.9:
                continue  # we stood still ourselves
            got, there, *_ = recorded(d, fengine, FS)
            assert there.all() and np.array_equal(got, raw), run.text()
            return


def test_begins_when_all_sources_send():
    """At a frame's edge, after the last declared source has been seen; absent ones are not waited for, and
    not missed."""
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        port, raw, first = free_port(socket.SOCK_DGRAM), crs_field(6), 1000 * FS + 160
        run = capture(d, fengine, port, FS, "wait_s: 30, absent: [2]")
        sender, late = Sender(port, 3000), True
        for source, stream, sample, packet in fengine.packets(raw, first):
            if source == 2 or (source == 1 and sample < first + FS):
                continue
            sender.send(packet)
            if source == 1 and late:
                late = False
                end = time.monotonic() + 20
                while "begins with" not in run.text():
                    assert time.monotonic() < end, run.text()
                    time.sleep(0.01)
        run.finish_after(sender.sent)
        got, there, share, begin = recorded(d, fengine, FS)
        assert begin % FS == 0 and first + FS < begin <= first + 3 * FS, begin
        slot = fengine.sources.index(2)
        here = np.delete(np.arange(24), np.arange(8 * slot, 8 * slot + 8))
        assert there[:, :, here].all() and not there[:, :, 8 * slot:8 * slot + 8].any() and \
            (share == 255).all(), run.text()
        assert np.array_equal(got[:, :, here], raw[begin - first:begin - first + len(got)][:, :, here])


def test_epoch_of_the_controller():
    controller = Controller(time_of_sample_0(1700000001000000000))
    text = f"""
stream: {{freq_mhz: {{first: 400, step: 0.1, count: 384}}}}
pipeline:
  - {{stage: capture, packet: chord-crs, addresses: "127.0.0.1:4000", epoch_url: "{controller.url}", out: p}}
  - {{stage: record, in: p, directory: ., prefix: raw}}
"""
    with harness.scratch() as d:
        harness.run(d, text, command="check")
        assert controller.asked > 0
        bad = (('{"error": "no GPS"}', "no GPS"), ("{", "frame0_nano"), ('{"frame0_nano": "soon"}',
                                                                         "frame0_nano"))
        for answer, message in bad:
            controller.answer = answer
            result = harness.run(d, text, status=1)
            assert message in result.err and "epoch_url" in result.err, result
        controller.close()
        # The file is right: `check` passes, and a service tries again after exit status 1.
        away = text.replace(controller.url, "http://127.0.0.1:9/x")
        for command, status in (("check", 0), ("run", 1)):
            result = harness.run(d, away, command=command, status=status)
            assert "cannot get the time of sample 0 from http://127.0.0.1:9/x" in result.err, result


def test_mistakes_are_said():
    base = """
stream: {epoch_ns: 1700000000000000000}
pipeline:
  - {stage: capture, packet: PACKET, addresses: "127.0.0.1:4000", MORE out: p}
  - {stage: record, in: p, directory: ., prefix: raw}
"""
    with harness.scratch() as d:
        with open(os.path.join(d, "mine.yaml"), "w") as f:
            f.write("bytes: 20\nfields: {a: {offset: 19, bytes: 4}}\nsequence: {fields: b}\n"
                    "payload: {offset: 4, axes: [freq], lengths: [16]}\n")
        for packet, more, message in (("chord-csr", "", "'chord-csr'; did you mean 'chord-crs'"),
                                      ("./mine.yaml", "",
                                       "mine.yaml:2:13: fields.a: ends at byte 23; the packet has 20 bytes"),
                                      ("./mine.yaml", "",
                                       "mine.yaml:3:20: sequence.fields: there is no field 'b'"),
                                      ("casm-snap", "", "does not say which sources"),
                                      ("ata-snap", "sources: [1], streams: [0],",
                                       "does not say how a nibble is coded"), ("chord-crs", "absent: [77],",
                                                                               "77 is not a source"),
                                      ("chord-crs", "frame_samples: 100,", "not a whole number of packets"),
                                      ("chord-crs", "reset_samples: 9e18,", "expected at most a day"),
                                      ("chord-crs", "reset_samples: 9000000000000000000,", "at most a day"),
                                      ("chord-crs", "reset_samples: 1e12,", "at most a day"),
                                      ("chord-crs", "start_utc: noon,",
                                       "'noon' is not a time"), ("chord-crs", "interfaces: [a, b],",
                                                              "2 interfaces for 1 addresses"),
                                      ("dsa110-snap",
                                       "sources: [0], streams: [0], values: twos_complement, real: high,",
                                       "frequencies")):
            result = harness.run(d,
                                 base.replace("PACKET", packet).replace("MORE", more), command="check",
                                 status=2)
            assert message in result.err, (message, result)
        result = harness.run(d,
                             base.replace("PACKET", "chord-crs").replace("MORE", "interfaces: nosuch0,"),
                             status=1)
        assert "nosuch0" in result.err, result


def test_without_the_right_it_falls_back():
    """In a user namespace of its own the process has no rights over the network: auto says so and uses
    sockets."""
    if subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode != 0:
        print("skipped: no user namespaces here")
        return
    with harness.scratch() as d:
        for backend, status in (("auto", None), ("packet", 1), ("xdp", 1)):
            with open(os.path.join(d, "p.yaml"), "w") as f:
                f.write(f"""
stream: {{epoch_ns: 1700000000000000000}}
pipeline:
  - {{stage: capture, packet: chord-crs, backend: {backend}, frame_samples: 512,
       addresses: "127.0.0.1:{free_port(socket.SOCK_DGRAM)}", out: p}}
  - {{stage: record, in: p, directory: ., prefix: raw, overwrite: true}}
""")
            os.chmod(d, 0o777)
            child = subprocess.Popen(
                ["unshare", "-U", os.path.abspath(harness.PROGRAM), "run", "p.yaml"], cwd=d, text=True,
                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            err = ""
            while status is None and "listening" not in err and child.poll() is None:
                err += child.stderr.readline()
            if status is None:
                child.send_signal(2)
            err += child.communicate(timeout=60)[1]
            assert "CAP_NET_RAW" in err, err
            if status is None:
                assert "`xdp` is not used" in err and "`packet` is not used" in err and \
                    "with `socket`" in err, err
            else:
                assert child.returncode == 1, err


def test_info_and_report_say_what_comes():
    """Rates and channels of a CRS node from the facts; who listens finds the description and what it does not
    explain."""
    path = os.path.join(harness.CONFIG, "packets", "chord-crs.yaml")
    out = harness.beamring("info", path).out
    for text in ("6166 bytes, of which 6144 samples", "cookie, always 0xcf", "1.5625e+06 packets/s",
                 "9.6 GB/s", "77.9 Gb/s", "384 channels of 128 inputs", "300 to 1496.875 MHz"):
        assert text in out, (text, out)
    assert harness.beamring("info", os.path.join(harness.CONFIG, "packets", "nothing.yaml")).status == 1
    fengine, port = packets.CasmSnap(), free_port(socket.SOCK_DGRAM)
    child = subprocess.Popen(
        [os.path.abspath(harness.PROGRAM), "capture-report", "--seconds", "2", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, text=True)
    assert "listening" in child.stdout.readline()
    sender = Sender(port, 400)
    for *_, packet in fengine.packets(np.zeros(fengine.shape(20), np.uint8)):
        sender.send(packet)
    sender.send(b"what is this")
    sender.send(packet[:100])
    out, _ = child.communicate(timeout=20)
    assert "by 'casm-snap': 80 explained, 0 flagged as no good, 1 malformed, 1 of another protocol" in \
        out, out
    for text in ("6160                     80 packets", "    4                        40 packets",
                 "    1                        40 packets", "stream 512       512 to 1023",
                 "stream 1024      1024 to 1535", "77 68 61 74 20 69 73 20 74 68 69 73"):
        assert text in out, (text, out)
    silent = harness.beamring("capture-report", "--seconds", "0.2", f"127.0.0.1:{port}")
    assert silent.status == 1 and "nothing arrived" in silent.out, silent
    assert harness.beamring("capture-report", "nonsense").status == 2


if __name__ == "__main__":
    harness.main([test_every_header_field_wrong_in_turn, test_flagged_packets_are_missing,
                  test_counters_are_told_while_it_runs, test_counters_wrap, test_a_machine_that_stood_still,
                  test_begins_when_all_sources_send, test_epoch_of_the_controller,
                  test_mistakes_are_said,
                  test_without_the_right_it_falls_back, test_info_and_report_say_what_comes])
