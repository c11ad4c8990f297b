"""The FRB-node protocol beside peers that break it, stop reading, reset or are not there, and mistakes in the
configuration."""
import contextlib
import json
import os
import socket
import struct
import subprocess
import time

import numpy as np
import yaml

import harness
from wires_common import (
    CONFIG, document, frb_receiver, free_port, head, l0_head, random_minichunks, recorded_levels, recordings,
    STEP, turned_away)
import frb_node  # noqa: E402


def frb_bad_peers():
    """Name, what is sent, which counter it must raise."""
    good = frb_node.hello(document())
    chunk = frb_node.minichunk(STEP, np.ones((2, 3, 2)), np.zeros((2, 3, 256), np.int8))
    prefix = lambda magic=frb_node.MAGIC, flags=0, length=10: struct.pack("<IIi", magic, flags, length)
    for name, head_ in (("magic", prefix(magic=0xf4bf4b01)), ("http", b"GET / HTTP/1.1\r\n\r\n"),
                        ("flags", prefix(flags=2)), ("length 0", prefix(length=0)),
                        ("length -1", prefix(length=-1)), ("length 2^31 - 1", prefix(length=2**31 - 1)),
                        ("length 1 MiB + 1", prefix(length=(1 << 20) + 1)), ("no final zero",
                                                                             prefix(length=3) + b"a: ")):
        yield name, head_, "malformed"
    texts = {
        "not YAML": "{[", "a list": "[1, 2]", "a number": "3", "an alias": "a: &x 1\nb: *x",
        "a key twice": "version: 2\nversion: 2", "nested": "zone_nfreq: [[4]]", "a bomb": "a: " + "[" * 900,
        "zero byte": "version: \"\\0\""
    }
    for name, text in texts.items():
        yield name, frb_node.hello(text), "malformed"
    wrong = {
        "version": [1, 3, "x", 2**63, None], "zone_nfreq": [[], [0, 2], [4], [-1, 2], None],
        "unknown_key": [1], "zone_freq_edges": [[400.0, 401.0], [401.0, 400.0, 402.0], [0.0, 1.0, 2.0],
                                                [float("nan")] * 3], "freq_channels": [[], [0, 0], [6], [-1],
                                                                                       [2**31], [2**63 - 1],
                                                                                       [0.5], None, [0, 1,
                                                                                                     5]],
        "beamset": [2, None], "beam_ids": [[10], [10, 10],
                                           [10, 11, 12], ["a", "b"]], "beam_positions_x": [[0.9, 0.9, 0.9],
                                                                                           [2.0, 0.0], [0.0]],
        "beam_positions_y": [[0.0,
                              1.5]], "unix_ns_at_seq_0": [0, -1, 1.5,
                                                          2**63 - 1], "dt_ns_per_seq": [0, -5, 1.5, 5121],
        "seq_per_frb_time_sample": [0, -1, 2**31,
                                    2**63 - 1], "tel_origin_itrs_lat_deg": [91.0, float("inf"), None],
        "tel_origin_itrs_lon_deg": [1e9], "tel_grid_x_axis": [[1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        "tel_grid_y_axis": [[0.0, 0.0,
                             0.0]], "tel_dish_elev_axis": [[0.0, 0.0,
                                                            1.0]], "tel_dish_vert_axis": [[1.0, 0.0, 0.0]],
        "tel_dish_coelev_deg": [float("nan")], "tel_dish_separation_x_m": [0.0, -1.0],
        "tel_dish_separation_y_m": [0.0], "noise_variance": [0.0, -1.0, [1.0, 1.0, 1.0], []]
    }
    for key, values in wrong.items():
        for value in values:
            yield f"{key}: {value}", frb_node.hello(document(**{key: value})), "malformed"
    for name, seq in (("odd seq", STEP + 1), ("seq 2^63", 2**63), ("seq 2^64 - 1024", 2**64 - STEP)):
        yield name, good + frb_node.minichunk(seq, np.ones((2, 3, 2)), np.zeros(
            (2, 3, 256), np.int8)), "malformed"
    yield "chunk's magic", good + b"\0" + chunk[1:], "malformed"
    yield "seq stands still", good + chunk + chunk, "malformed"
    yield "seq goes back", good + frb_node.minichunk(2 * STEP, np.ones(
        (2, 3, 2)), np.zeros((2, 3, 256), np.int8)) + chunk, "malformed"
    whole = good + chunk
    for n in [
            *range(0, 12), 12, 13,
            len(good) // 2,
            len(good) - 1, *range(len(good) + 1,
                                  len(good) + 24),
            len(whole) - 1
    ]:
        yield f"cut at {n}", whole[:n], "broken"


def test_frb_node_bad_peers():
    """Whatever peers do is counted, and a good sender beside them is received as if they were not there."""
    rng = np.random.default_rng(2)
    with harness.scratch() as d:
        port = free_port()
        run = frb_receiver(d, port, document(), "until_closed: true, hold_s: 20, handshake_s: 3")
        silent = socket.create_connection(("127.0.0.1", port))
        levels, side = random_minichunks(rng, 120, 2, 3)
        good = socket.create_connection(("127.0.0.1", port))
        good.sendall(frb_node.hello(document()))
        deaf = socket.create_connection(("127.0.0.1", port))
        deaf.sendall(frb_node.hello(document(), flags=1))
        want = {"malformed": 0, "broken": 0}
        bad = list(frb_bad_peers())
        for n in range(120):
            good.sendall(frb_node.minichunk((1000 + n) * STEP, side[n], levels[n]))
            for name, data, counter in bad[2 * n:2 * n + 2]:
                want[counter] += 1
                turned_away(port, data, then_ends=counter == "broken", name=name)
        assert len(bad) <= 240
        reset = socket.create_connection(("127.0.0.1", port))
        reset.sendall(frb_node.hello(document()) + b"\x02\x4b")
        time.sleep(0.1)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        assert silent.recv(1) == b""
        good.close()
        deaf.close()
        stats = run.finish()
        counts = run.counts()
        assert counts["malformed"] == want["malformed"] and counts["broken"] == want["broken"] + 1, (counts,
                                                                                                     want)
        assert counts["silent"] == 1 and counts["connections"] == len(bad) + 4, counts
        assert stats["receive"]["lost"]["malformed"] == want["malformed"] * STEP
        got = [f for f in recordings(d) if f[0] >= 1000 * STEP]
        assert [f[0] for f in got] == [(1000 + n) * STEP for n in range(120)]
        for n, (_, x, y) in enumerate(got):
            assert np.array_equal(x, levels[n]) and np.array_equal(y, side[n].astype(np.float32))
        silent.close()


def test_frb_node_strangers():
    """64 that are silent, or send their document byte by byte, shut no sender out; none has more than
    handshake_s."""
    rng = np.random.default_rng(3)
    hello = frb_node.hello(document())
    with harness.scratch() as d:
        port = free_port()
        run = frb_receiver(d, port, document(), "until_closed: true, hold_s: 30, handshake_s: 1000")
        connect = lambda: socket.create_connection(("127.0.0.1", port), timeout=20)
        strangers = [connect() for _ in range(64)]
        for n, s in enumerate(strangers):
            s.sendall(hello[:n])
        levels, side = random_minichunks(rng, 3, 2, 3)
        with connect() as good:
            good.sendall(hello)
            assert strangers[0].recv(1) == b""
            for n in range(3):
                good.sendall(frb_node.minichunk(n * STEP, side[n], levels[n]))
        for s in strangers:
            s.close()
        run.finish()
        counts = run.counts()
        assert counts["received"] == 3 and counts["silent"] == 1 and counts["refused"] == 0, counts
        assert counts["broken"] == 63 and len(recordings(d)) == 3, counts
    with harness.scratch() as d:
        run = frb_receiver(d, port := free_port(), document(), "until_closed: true, handshake_s: 0.5")
        with socket.create_connection(("127.0.0.1", port)) as s:
            with contextlib.suppress(ConnectionError):
                for byte in hello:
                    s.sendall(bytes([byte]))
                    time.sleep(0.02)
                raise AssertionError("the time of all bytes was not too long")
        run.finish()
        assert "its handshake took more than 0.5 s" in run.text() and run.counts()["silent"] == 1, run.text()


def record_levels(d, duration=0.5, beams="[2, 4]"):
    harness.run(d, head(0, duration).replace("[2, 4]", beams) + """
  - {stage: quantize, in: j, out: q, bits: 4, block: 256}
  - {stage: record, in: q, directory: ., prefix: q}
""")
    return recorded_levels(os.path.join(d, "q_000000.dada"))


def replay_levels(more, realtime="true", loop=1):
    return f"""
include: {CONFIG}/telescopes/pathfinder.yaml
pipeline:
  - {{stage: replay, files: q_*.dada, realtime: {realtime}, loop: {loop}, out: q}}
  - {{stage: packetize, in: q, format: frb-node, idle_s: 0.2, {more}}}
"""


def test_frb_node_reconnect():
    """A receiver that resets the connection after a few minichunks: the sender comes back, and seq has a gap,
    but never goes back. The recording is played until that has happened, however slow the machine is."""
    with harness.scratch() as d:
        frames = record_levels(d, 0.1)
        receiver = frb_node.Receiver(connections=3, cut_after={0: 5, 1: 8})
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(replay_levels(f"""retry_s: 0.1, destinations: [{{address: "{receiver.address}"}}]""",
                                  loop=0))
        with subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "p.yaml"], cwd=d, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                end = time.time() + 60
                while (len(receiver.got) < 3 or len(receiver.got[2][2]) < 11) and process.poll() is None:
                    assert time.time() < end, receiver.got
                    time.sleep(0.01)
                process.send_signal(2)
                said = process.communicate(timeout=60)[0]
            finally:
                process.kill()
        assert process.returncode == 130, said
        got = receiver.finish()
        parts = [chunks for _, _, chunks in got]
        assert len(parts) == 3 and len(parts[0]) == 5 and len(parts[1]) == 8 and len(parts[2]) > 10
        assert got[0][0] == got[1][0] == got[2][0]
        seqs = [seq for part in parts for seq, _, _ in part]
        assert all(b > a for a, b in zip(seqs, seqs[1:]))
        assert parts[1][0][0] > parts[0][-1][0] + STEP and parts[2][0][0] > parts[1][-1][0] + STEP, seqs
        levels, period = {first: x for first, x, _ in frames}, frames[-1][0] + STEP
        for part in parts:
            for seq, _, x in part:
                want = levels[seq % period]
                assert np.array_equal(x[..., :want.shape[2]], want) and np.all(x[..., want.shape[2]:] == -8)
        assert "a destination was not there" in said and "3 connections" in said, said
        receiver = frb_node.Receiver(connections=1, cut_after={0: 5})
        result = harness.run(
            d, replay_levels(f"""reconnect: false, destinations: [{{address: "{receiver.address}"}}]""",
                             loop=0), status=1)
        assert "reconnect: true" in result.err and receiver.address in result.err, result


def stop_reading(receiver, sock, index):
    magic, flags, length = struct.unpack("<IIi", receiver.take(sock, 12))
    receiver.take(sock, length)
    time.sleep(2.5)


def test_frb_node_deaf_peers():
    """One that stops reading and one that closes at once do not harm the one that works; that one never
    accepted anything is a failure of the run."""
    with harness.scratch() as d:
        frames = record_levels(d, 0.1, "[40, 60]")
        good = frb_node.Receiver()
        deaf = frb_node.Receiver(behave=stop_reading)
        deaf.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        closing = frb_node.Receiver(behave=lambda receiver, sock, index: None)
        result = harness.run(
            d,
            replay_levels(
                f"""stall_s: 0.3, retry_s: 100, connect_s: 1, destinations: [{{address: "{good.address}"}},
      {{address: "{deaf.address}"}}, {{address: "{closing.address}"}}]""", realtime="false"), status=1)
        (doc, _, chunks), = good.finish()
        deaf.finish()
        assert len(chunks) == len(frames) and len(doc["beam_ids"]) == 800
        for (_, _, x), (_, want, _) in zip(chunks, frames):
            assert np.array_equal(x[..., :want.shape[2]], want[:800])
        assert f"{deaf.address}: it stopped reading" in result.err and \
            f"{closing.address} ended 1 connection and never accepted anything" in result.err, result


def answers(how):
    """A receiver that takes all, and answers what how(n) says after n minichunks."""

    def behave(receiver, sock, index):
        _, _, length = struct.unpack("<IIi", receiver.take(sock, 12))
        doc = yaml.safe_load(receiver.take(sock, length)[:-1])
        size, n = 12 + 132 * len(doc["beam_ids"]) * len(doc["freq_channels"]), 0
        with contextlib.suppress(ConnectionError):
            sock.sendall(how(0))
            while len(receiver.take(sock, size)) == size:
                n += 1
                sock.sendall(how(n))

    return behave


def test_frb_node_answers():
    """Unacknowledged data is counted, for a receiver that never answers, for one that answers half of it, for
    one that answers nonsense or more than it was sent: that one is closed."""
    every = lambda n: b"\1" if n else b""
    for name, how, status, lost, words in (
        ("good", every, 0, 0, ", 0 not acknowledged"),
        ("dropped", lambda n: b"\0" if n else b"", 0, 0, ", 0 not acknowledged"),
        ("never", lambda n: b"", 1, 1, "and has acknowledged none"),
        ("half", lambda n: b"\1" if n % 2 else b"", 0, 0.4, "not everything that was sent has been answered"),
        ("many", lambda n: b"\1" * 100000 if n == 2 else every(n), 0, 0.1, "to nothing that was sent"),
        ("early", lambda n: b"\1\1" if n == 0 else every(n), 0, 0.5, "to nothing that was sent"),
        ("nonsense", lambda n: b"\7" if n == 3 else every(n), 0, 0.1, "it answered 7"),
    ):
        with harness.scratch() as d:
            receiver = frb_node.Receiver(behave=answers(how))
            wait_s = 0.3 if name in ("never", "half") else 60  # a receiver may stand still
            text = head(0, 0.2) + "  - {stage: quantize, in: j, out: q, bits: 4, block: 256}\n" + f"""
  - {{stage: packetize, in: q, format: frb-node, acks: true, close_s: {wait_s}, idle_s: 0.1, retry_s: 100,
     destinations: [{{address: "{receiver.address}"}}]}}
"""
            result = harness.run(d, text, "--stats", "s.json", status=status)
            stats = json.load(open(os.path.join(d, "s.json")))
            (stage,) = [s for s in stats["stages"] if s["name"] == "packetize"]
            count = sum(stage["lost"].get(x, 0) for x in ("not_acknowledged", "no_destination"))
            assert words in result.err and stats["balanced"], (name, result)
            assert count >= lost * int(0.2 / 5.12e-6) if lost else count == 0, (name, stage, result)


def test_interrupt_while_blocked():
    """Ctrl-C while a receiver does not read: ends within seconds, and cleanly."""
    with harness.scratch() as d:
        record_levels(d, 0.1, "[40, 60]")
        deaf = frb_node.Receiver(behave=lambda receiver, sock, index: time.sleep(12))
        deaf.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with open(os.path.join(d, "p.yaml"), "w") as f:
            f.write(
                replay_levels(f"""stall_s: 1000, close_s: 1, destinations: [{{address: "{deaf.address}"}}]""",
                              realtime="false"))
        process = subprocess.Popen([os.path.abspath(harness.PROGRAM), "run", "p.yaml"], cwd=d,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(2)
        began = time.time()
        assert process.wait(10) == 130, process.stderr.read()
        assert time.time() - began < 9


def test_refused():
    """Mistakes in the configuration, and addresses that cannot be used: each with a message that names it."""
    with harness.scratch() as d:
        levels = head() + """
  - {stage: quantize, in: j, out: q, bits: 4, block: BLOCK}
"""
        def refused(words, more, status=2, text=levels.replace("BLOCK", "256"), in_="q"):
            result = harness.run(d, text + f"\n  - {{stage: packetize, in: {in_}, {more}}}\n", status=status)
            assert words in result.err, (words, result)
        to = 'destinations: [{address: "127.0.0.1:9"}]'
        refused("bits: 4, block: 256", f"format: frb-node, {to}", text=levels.replace("BLOCK", "128"))
        refused("'nowhere' is not an address", "format: frb-node, destinations: [{address: nowhere}]")
        refused("not an address", 'format: frb-node, destinations: [{address: "a:70000"}]')
        refused("at most one per beam", "format: frb-node, destinations: [" +
                ", ".join(f'{{address: "127.0.0.1:{p}"}}' for p in range(5000, 5009)) + "]")
        refused("the stream has beams 0 to 7",
                'format: frb-node, destinations: [{address: "127.0.0.1:9", first_beam: 6, beams: 3}]')
        refused(
            "or none",
            'format: frb-node, destinations: [{address: "127.0.0.1:9", beams: 3}, {address: "127.0.0.1:8"}]')
        refused("twice",
                'format: frb-node, destinations: [{address: "127.0.0.1:9"}, {address: "127.0.0.1:9"}]')
        refused("is not a channel of zone",
                f"format: frb-node, {to}, zones: {{nfreq: [5], edges_mhz: [600, 601]}}")
        refused("expected 2", f"format: frb-node, {to}, zones: {{nfreq: [5], edges_mhz: [600, 601, 602]}}")
        refused("expected one, or one per zone", f"format: frb-node, {to}, noise_variance: [1, 2, 3]")
        refused("orthogonal", f"format: frb-node, {to}, site: {{m_axis: [1, 0, 0]}}")
        refused("this is not for format frb-node", f"format: frb-node, {to}, rate: 5")
        refused("this is not for format chime-l0",
                f"format: chime-l0, {to}, stall_s: 5")  # for both formats over TCP
        refused("leave out", f"format: frb-node, {to}", text=levels.replace("BLOCK", "256").replace(
            "{first: 600.09765625, step: 0.1953125, count: 3}", "[600, 600.1953125, 601]"))
        refused("protocol allows 1048576", f"format: frb-node, {to}",
                text=levels.replace("BLOCK", "256").replace("[2, 4]", "[200, 150]"))
        refused("cannot resolve the host of 'no.such.host.invalid:1'",
                'format: frb-node, destinations: [{address: "no.such.host.invalid:1"}]', status=1)
        refused("could not be reached within connect_s",
                f"format: frb-node, reconnect: false, connect_s: 0.3, {to}", status=1)
        refused("counts of chime-l0 last 2560 ns", f"format: chime-l0, {to}", in_="j", text=head())
        for words, more in (("power of two", "steps: 12"), ("at most 8910", "steps: 1024"),
                            ("at least one packet", "rate: 1e6, burst: 100"), ("16 bits",
                                                                               "first_beam_id: 65530")):
            refused(words, f"format: chime-l0, {to}, {more}", in_="j", text=l0_head())
        refused("is not a part of the channels", f"format: chime-l0, {to}", in_="j",
                text=l0_head().replace("795.3125", "795.3"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            yaml.safe_dump(document(), open(os.path.join(d, "d.yaml"), "w"))
            result = harness.run(d, f"""
pipeline:
  - {{stage: receive, format: frb-node, address: "127.0.0.1:{port}", document: d.yaml, out: q}}
  - {{stage: record, in: q, directory: ., prefix: r}}
""", status=1)
            assert "cannot listen" in result.err and "in use" in result.err, result
        # two senders of the same channels to one receiver, in one pipeline
        receiver = frb_node.Receiver(connections=1)
        both = f'destinations: [{{address: "{receiver.address}"}}]'
        result = harness.run(d, levels.replace("BLOCK", "256") + f"""
  - {{stage: packetize, name: one, in: q, format: frb-node, {both}}}
  - {{stage: packetize, name: two, in: q, format: frb-node, {both.replace("127.0.0.1", "localhost")}}}
""", status=1)
        assert "another sender on this machine sends some of the channels 0 to 2" in result.err, result


if __name__ == "__main__":
    harness.main([
        test_frb_node_bad_peers, test_frb_node_strangers, test_frb_node_reconnect, test_frb_node_deaf_peers,
        test_frb_node_answers, test_interrupt_while_blocked, test_refused
    ])
