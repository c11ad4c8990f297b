"""The FRB-node protocol: `packetize` against a receiver written from the protocol's description, `receive`
against senders written from it, and one against the other. Levels, masks, scales and times are compared
exactly."""
import math
import os
import socket

import numpy as np
import yaml

import harness
from wires_common import (
    BEAMS, CHANNELS, document, frb_receiver, free_port, head, INTEGRATE, QUANTIZED, random_minichunks,
    recorded_levels, recordings, STEP)
import frb_node  # noqa: E402
from quantize_slow import Series  # noqa: E402


class Calibration:
    """Mean and noise of each (beam, channel) of what the levels stand for, followed over tau and at least
    four minichunks; tau 0: of each minichunk itself."""

    def __init__(self, noise_variance, minichunk_s, tau, shape):
        self.noise, self.tau = np.sqrt(np.atleast_1d(noise_variance)[:, None]) * np.ones((*shape, 1)), tau
        self.series = Series(shape, 256, 256 * max(tau / minichunk_s, 4))

    def __call__(self, levels, side):
        scale, offset = side[..., :1].astype(float), side[..., 1:].astype(float)
        valid = (levels != -8) & (scale > 0)
        values = np.where(valid, scale * levels + offset, 0)
        if self.tau == 0:
            self.series = Series(valid.shape[:2], 256, 1024)
        known = self.series.block(values, valid)
        if self.tau == 0:
            n = np.maximum(valid.sum(-1), 1)
            mean = values.sum(-1) / n
            known = mean, np.sqrt((valid * (values - mean[..., None]) ** 2).sum(-1) / n)
        mean, deviation = (np.where(valid.any(-1), x, 0)[..., None] for x in known)
        k = np.divide(self.noise, deviation, where=deviation > 0, out=np.zeros_like(deviation))
        return np.concatenate([scale * k, np.where(scale > 0, (offset - mean) * k, 0)], axis=-1)


def check_minichunks(chunks, frames, beams, tau=3, noise=1.0):
    """The received data against the recording in front of the sender."""
    calibration = Calibration(noise, 256 * INTEGRATE * 5120e-9, tau, (BEAMS, CHANNELS))
    assert [seq for seq, _, _ in chunks
            ] == [first // (256 * INTEGRATE) * 256 * INTEGRATE for first, _, _ in frames]
    for (seq, side, levels), (first, want, scales) in zip(chunks, frames):
        whole = np.full((BEAMS, CHANNELS, 256), -8, np.int8)
        at = (first - seq) // INTEGRATE
        whole[..., at:at + want.shape[2]] = want
        assert np.array_equal(levels, whole[beams])
        expected = calibration(whole, scales)[beams]
        got = side.astype(float)
        assert np.all(abs(got - expected) <= 1e-3 * abs(expected) + 1e-3 * abs(expected[..., :1])), np.max(
            abs(got - expected))


def test_frb_node_values():
    with harness.scratch() as d:
        first, second = frb_node.Receiver(), frb_node.Receiver()
        result = harness.run(
            d,
            head(1000) + QUANTIZED + f"""
  - stage: packetize
    in: q
    format: frb-node
    acks: true
    beamset: 3
    first_beam_id: 100
    document: sent.yaml
    destinations: [{{address: "{first.address}", beams: 5}}, {{address: "{second.address}", first_beam: 5,
      beams: 3}}]
""")
        (doc, flags, chunks), = first.finish()
        (doc2, _, chunks2), = second.finish()
        frames = recorded_levels(os.path.join(d, "q_000000.dada"))
        assert len(frames) > 4 and frames[0][1].shape[2] < 256, "a stream that begins within a minichunk"
        check_minichunks(chunks, frames, slice(0, 5))
        check_minichunks(chunks2, frames, slice(5, 8))
        assert flags == 1 and doc["beamset"] == 3
        assert doc["beam_ids"] == list(range(100, 105)) and doc2["beam_ids"] == [105, 106, 107]
        assert np.allclose(frb_node.frequencies(doc), 600.09765625 + 0.1953125 * np.arange(3), atol=1e-9)
        assert doc["dt_ns_per_seq"] == 5120 and doc["seq_per_frb_time_sample"] == INTEGRATE
        assert doc["unix_ns_at_seq_0"] == 1700000000000000000
        # beams are x (along m, north) slow, y (along n, east) fast; the wire's x is east
        angle = np.radians(0.3)
        north = np.sin((np.arange(2) - 0.5) * angle).repeat(4)
        east = np.tile(np.sin((np.arange(4) - 1.5) * angle), 2)
        assert np.allclose(doc["beam_positions_x"], east[:5], atol=1e-12)
        assert np.allclose(doc["beam_positions_y"], north[:5], atol=1e-12)
        assert doc["tel_grid_x_axis"] == [1, 0, 0] and doc["tel_grid_y_axis"] == [0, 1, 0]
        assert (doc["tel_dish_separation_x_m"], doc["tel_dish_separation_y_m"]) == (6.3, 8.5)
        assert abs(doc["tel_origin_itrs_lat_deg"] - 49.32075144444) < 1e-12
        assert yaml.safe_load(open(os.path.join(d, "sent.yaml"))) == doc
        assert f"{len(chunks)} assembled and 0 dropped there" in result.err, result.err


def test_frb_node_receive():
    """Two senders with a part of the channels each, a gap, one ahead of the other; acknowledgements."""
    rng = np.random.default_rng(1)
    with harness.scratch() as d:
        port = free_port()
        levels, side = random_minichunks(rng, 20, 2, 5)
        run = frb_receiver(d, port, document(channels=(5, 0, 1, 2, 3)))
        own = [(5, 2), (1, 3, 0)]
        where = [[0, 3], [2, 4, 1]]  # in the receiver's order
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in own]
        sent = [[n for n in range(20) if n not in (7, 8)], [n for n in range(20) if n != 9]]
        for s, ch in zip(socks, own):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY,
                         1)  # else one may lag by more than the window
            s.sendall(frb_node.hello(document(channels=ch), flags=1))
        for n in range(20):
            for s, w, mine in zip(socks, where, sent):
                if n in mine:
                    m = frb_node.minichunk((n + 3) * STEP, side[n][:, w], levels[n][:, w])
                    s.sendall(m[:100])
                    s.sendall(m[100:])
        for s, mine in zip(socks, sent):
            s.shutdown(socket.SHUT_WR)
            answers = b""
            while more := s.recv(100):
                answers += more
            assert answers == b"\1" * len(mine), (answers, len(mine))
            s.close()
        run.finish()
        got = recordings(d)
        assert [first for first, _, _ in got] == [(n + 3) * STEP for n in range(20)]
        for n, (_, x, y) in enumerate(got):
            want, scale = np.full((2, 5, 256), -8, np.int8), np.zeros((2, 5, 2), np.float32)
            for w, mine in zip(where, sent):
                if n in mine:
                    want[:, w], scale[:, w] = levels[n][:, w], side[n][:, w]
            assert np.array_equal(x, want) and np.array_equal(y, scale)
        assert run.counts() == {
            "received": 37, "late": 0, "duplicate": 0, "missing": 2 * 2 + 3, "malformed": 0, "connections": 2,
            "refused": 0, "broken": 0, "silent": 0
        }
        keys, _ = harness.header(os.path.join(d, "r_000000.dada"))
        assert int(keys["EPOCH_NS"]) == 1500000000000000000
        valid = harness.read_gaps(os.path.join(d, "r_000000.dada"), 3 * 256, 20 * 256, 5, 4)
        assert not valid[7 * 256:9 * 256, [0, 3]].any() and not valid[9 * 256:10 * 256, [1, 2, 4]].any()


def test_frb_node_there_and_back():
    """packetize into receive: the same levels, and the document that one wrote is what the other expects."""
    with harness.scratch() as d:
        port = free_port()
        sender = head(1000) + f"""
  - {{stage: quantize, in: j, out: q, bits: 4, block: 256}}
  - {{stage: record, in: q, directory: ., prefix: q, overwrite: true}}
  - {{stage: packetize, in: q, format: frb-node, document: d.yaml, connect_s: 0, idle_s: 0.2,
      destinations: [{{address: "127.0.0.1:{port}"}}]}}
"""
        first = harness.run(d, sender)  # nobody listens: all is missed, and the run goes on
        assert "0 minichunks sent" in first.err and "a destination was not there" in first.out, first
        run = frb_receiver(d, port, yaml.safe_load(open(os.path.join(d, "d.yaml"))))
        harness.run(d, sender.replace("connect_s: 0", "connect_s: 10"))
        run.finish()
        sent, got = recorded_levels(os.path.join(d, "q_000000.dada")), recordings(d)
        assert len(sent) == len(got) > 4
        for (a, x, _), (b, y, _) in zip(sent, got):
            at = (a - b) // INTEGRATE
            assert np.array_equal(y[..., at:at + x.shape[2]],
                                  x) and np.all(np.delete(y, np.s_[at:at + x.shape[2]], 2) == -8)


if __name__ == "__main__":
    harness.main([test_frb_node_values, test_frb_node_receive, test_frb_node_there_and_back])
