"""Packets from capture files, pcap and pcapng, of several link types: what is recorded is what was in the
file, and what is not is marked."""
import os

import numpy as np

import harness
from capture_common import ip_udp, LINKS, packets, recorded, share_of, write_pcap, write_pcapng

FS = 512


def replay(d, fengine, more="", status=0, command="run"):
    channels = len(fengine.channel_ids())
    return harness.run(
        d, f"""
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: {{first: 400, step: 0.1,
  count: {channels}}}}}
pipeline:
  - {{stage: replay, files: "*.cap", packet: {fengine.name}, sources: {list(fengine.sources)},
       streams: {list(fengine.streams)},
     frame_samples: {FS}, out: packets {more}}}
  - {{stage: record, in: packets, directory: ., prefix: raw}}
""", status=status, command=command)


def test_files_of_every_link():
    fengine, rng = packets.ChordCrs(), np.random.default_rng(3)
    for write in (write_pcap, write_pcapng):
        for name, (link, wrap) in LINKS.items():
            with harness.scratch() as d:
                first = 7 * FS + 32
                raw = rng.integers(0, 256, fengine.shape(5 * FS), np.uint8)
                sent, lost = [], []
                for source, stream, sample, packet in fengine.packets(raw, first):
                    if rng.random() < 0.05 and sample > first + 64:
                        lost.append((source, stream, sample - first))
                        continue
                    sent.append(wrap(ip_udp(packet)))
                    if rng.random() < 0.05:
                        sent.append(wrap(ip_udp(b"something else" * 9)))
                        sent.append(wrap(ip_udp(packet, protocol=6)))
                        sent.append(wrap(ip_udp(packet, fragment=0x2000)))
                    if len(sent) % 9 == 0:
                        sent[-2:] = sent[:-3:-1]
                half = len(sent) // 2
                write(os.path.join(d, "a.cap"), link, sent[:half])
                write(os.path.join(d, "b.cap"), link, sent[half:])
                result = replay(d, fengine)
                got, there, share, begin = recorded(d, fengine, FS)
                assert begin == 7 * FS, begin
                want = np.zeros((32 + len(raw),) + raw.shape[1:], bool)
                want[32:] = True
                ids = fengine.channel_ids()
                for source, stream, sample in lost:
                    at = fengine.sources.index(source) * fengine.i
                    want[np.ix_(range(32 + sample,
                                      48 + sample), [ids.index(c) for c in fengine.channels(stream)],
                                range(at, at + fengine.i))] = False
                n = len(got)
                assert len(want) - n <= 16 and np.array_equal(there, want[:n]), (name, result)
                assert np.array_equal(got[32:][there[32:]], raw[:n - 32][there[32:]])
                assert np.array_equal(share, share_of(want[:n].mean(axis=2)))


def test_queues_that_lag():
    """A NIC's queues hand on streams, or boards, frames apart: nothing is late."""
    fengine = packets.ChordCrs()
    raw = np.random.default_rng(5).integers(0, 256, fengine.shape(24 * FS), np.uint8)
    sent = list(fengine.packets(raw))
    for key in (0, 1):  # by source, by stream
        for chunk in (200, 700):
            order = [x for k in range(0, len(sent), chunk)
                     for x in sorted(sent[k:k + chunk], key=lambda packet: -packet[key])]
            with harness.scratch() as d:
                write_pcap(os.path.join(d, "a.cap"), 1, [LINKS["ethernet"][1](ip_udp(p)) for *_, p in order])
                result = replay(d, fengine)
                assert f"{len(sent)} packets, {len(sent)} accepted\n" in result.err, result
                got, there, _, begin = recorded(d, fengine, FS)
                assert begin == 0 and there.all() and np.array_equal(got, raw)


def test_files_that_end_early_or_are_none():
    fengine = packets.ChordCrs()
    with harness.scratch() as d:
        raw = np.random.default_rng(1).integers(0, 256, fengine.shape(2 * FS), np.uint8)
        path = os.path.join(d, "a.cap")
        write_pcap(path, 1, [LINKS["ethernet"][1](ip_udp(p)) for *_, p in fengine.packets(raw)])
        size = os.path.getsize(path)
        os.truncate(path, size - 3000)
        result = replay(d, fengine)
        assert "ends early" in result.err, result
        got, there, share, begin = recorded(d, fengine, FS)
        assert begin == 0 and np.array_equal(got[there], raw[:len(got)][there]) and len(got) == 2 * FS
        os.truncate(path, 30)
        for p in os.listdir(d):
            if p.startswith("raw"):
                os.remove(os.path.join(d, p))
        result = replay(d, fengine, status=1)
        assert "none of the first" in result.err, result
        result = replay(d, fengine, more=", loop: 2", status=2, command="check")
        assert "played once" in result.err, result


if __name__ == "__main__":
    harness.main([test_files_of_every_link, test_queues_that_lag, test_files_that_end_early_or_are_none])
