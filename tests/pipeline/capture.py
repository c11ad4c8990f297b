"""Packets of every F-engine that is described, through capture: what is recorded is what was sent, or
marked."""
import numpy as np

import harness
from capture_common import capture, counters, free_port, packets, recorded, Sender, share_of
import socket

FRAME = {
    "chord-crs": 64, "chime-ice": 16, "casm-snap": 16, "lwa-snap2": 16, "ata-snap": 64, "dsa110-snap": 16,
    "spead": 512
}


def field(fengine, frames, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, fengine.shape(frames * FRAME[fengine.name]), np.uint8)


def arrive_whole(backend, fengines=packets.ALL):
    """Every packet of every F-engine arrives, and is recorded bit for bit."""
    for fengine in fengines:
        with harness.scratch() as d:
            port, raw = free_port(socket.SOCK_DGRAM), field(fengine, 3)
            run = capture(d, fengine, port, FRAME[fengine.name],
                          f"start_sample: 0, backend: {backend}")
            sender = Sender(port)
            for *_, packet in fengine.packets(raw):
                sender.send(packet)
            run.finish_after(sender.sent)
            assert f"with `{backend}`" in run.text(), run.text()
            got, there, share, first = recorded(d, fengine, FRAME[fengine.name])
            assert first == 0 and there.all() and (share == 255).all(), (fengine.name, run.text())
            assert np.array_equal(got, raw), fengine.name
            by_source, total = counters(run.text())
            assert total["accepted"] == total["packets"] == sender.sent and \
                total["never came"] == 0, total
            assert all(by_source[s]["accepted"] == sender.sent // len(fengine.sources)
                       for s in fengine.sources)


def test_every_fengine_arrives_whole():
    for backend in ("packet", "socket"):
        arrive_whole(backend)


def test_loss_duplicates_and_reordering_are_told():
    """sent = accepted + late + duplicate + foreign + malformed + lost for every source; survivors bit for
    bit."""
    for k, loss in enumerate((0, 1e-3, 1e-2, 1e-1)):
        for fengine in (packets.ChordCrs(), packets.CasmSnap()):
            with harness.scratch() as d:
                rng = np.random.default_rng(100 + k)
                port, raw, per = free_port(socket.SOCK_DGRAM), field(fengine, 16, k), 8 * FRAME[fengine.name]
                run = capture(d, fengine, port, per)
                sender = Sender(port)
                held, lost, twice, all_sent = [], set(), {}, {}
                for source, stream, sample, packet in fengine.packets(raw):
                    all_sent[source] = all_sent.get(source, 0) + 1
                    if rng.random() < loss:
                        lost.add((source, stream, sample))
                        continue
                    held.append((packet, source))
                    if rng.random() < 0.02:
                        held.append((packet, source))
                        twice[source] = twice.get(source, 0) + 1
                    if len(held) > 12:  # much less than a quarter of a frame's packets
                        rng.shuffle(held)
                        while held:
                            sender.send(held.pop()[0])
                for packet, _ in held:
                    sender.send(packet)
                stats = run.finish_after(sender.sent)
                got, there, share, first = recorded(d, fengine, per)
                want = np.ones(raw.shape, bool)
                ids = fengine.channel_ids()
                for source, stream, sample in lost:
                    at = fengine.sources.index(source) * fengine.i
                    want[np.ix_(range(sample,
                                      sample + fengine.t), [ids.index(c) for c in fengine.channels(stream)],
                                range(at, at + fengine.i))] = False
                n = len(got)
                assert first == 0 and len(raw) - n < 2 * fengine.t and want[n:].sum() == 0 or n == len(raw)
                assert np.array_equal(there, want[:n]), (fengine.name, loss, run.text())
                assert np.array_equal(got[there], raw[:n][there])
                assert np.array_equal(share, share_of(want[:n].mean(axis=2)))
                by_source, total = counters(run.text())
                for s in fengine.sources:
                    c, gone = by_source[s], sum(1 for x in lost if x[0] == s)
                    assert c["accepted"] == all_sent[s] - gone and \
                        c["duplicate"] == twice.get(s, 0) and c["late"] == 0, (s, c)
                    assert c["never came"] == gone, (s, c, gone)
                    told = stats["capture"]["counted"][f"source {s}"]
                    assert told == {k.replace(" ", "_"): n for k, n in c.items()}, (told, c)


if __name__ == "__main__":
    harness.main([test_every_fengine_arrives_whole, test_loss_duplicates_and_reordering_are_told])
