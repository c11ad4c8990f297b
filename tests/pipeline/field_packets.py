"""Packets as they are met in the field: counters that start again, live and in capture files; files in any
order and with holes; tags and strangers; cut packets. Each packet says in its samples when it was taken."""
import concurrent.futures
import os
import re
import socket
import struct
import time

import numpy as np

import harness
from capture_common import ip_udp, write_pcap
from wires_common import free_port, Running

T, CHANNELS, INPUTS, FS = 16, 4, 4, 256

BOARD = """
bytes: {bytes}
fields:
  stamp: {{offset: 0, bytes: {width}{field}}}
  board: {{offset: 8, bytes: 2}}
  n: {{offset: 10, bytes: 2, expect: 4660}}
sequence: {{fields: stamp{sequence}}}
source: {{fields: board}}
payload: {{offset: 12, axes: [time, freq, input], lengths: [16, 4, 4]}}
coding: {{values: twos_complement, real: high}}
sample_ns: {sample_ns}
freq_mhz: {{first: 400, step: {step}}}
sources: {{first: 0, step: 1, count: {boards}}}
streams: {{first: 0, step: 4, count: 1}}
"""


class Board:
    """bits: of the counter, in a field of `width` bytes; units: of the field in a count; said: whether
    `bits` is given, or the field's width says it."""

    def __init__(self, bits, width, sample_ns, units=1, boards=1, said=True):
        self.bits, self.width, self.sample_ns, self.units, self.boards = bits, width, sample_ns, units, boards
        self.text = BOARD.format(
            bytes=12 + T * CHANNELS * INPUTS, width=width, sample_ns=sample_ns, boards=boards,
            step=1000 / sample_ns,
            field=f", divide: {units}" if units > 1 else "", sequence=f", bits: {bits}" if said else "")
        self.period = 1 << bits

    def seconds(self, samples):
        return samples * self.sample_ns * 1e-9

    def packet(self, sample, board=0):
        stamp = sample % self.period * self.units
        head = stamp.to_bytes(self.width, "big").ljust(8, b"\0") + struct.pack(">HH", board, 4660)
        return head + levels(sample, board).tobytes()

    def ethernet(self, sample, board=0):
        return bytes(12) + b"\x08\x00" + ip_udp(self.packet(sample, board))


def levels(sample, board):
    """Bytes [time][freq][input] that are of this sample and board alone, as far as that goes."""
    t = (sample + np.arange(T))[:, None]
    return ((t * 7 + t // 16 * 31 + t // 4096 * 13 + np.arange(CHANNELS * INPUTS) + 5 * board) % 251).astype(
        np.uint8)


def check(path, board, first, samples, there=lambda t: True):
    """The recording at `path` begins with `first` and holds what was sent of `samples`, all others
    missing."""
    e, valid, begin, _ = harness.read_e(path)
    assert begin == first, (begin, first)
    for t in range(first, first + samples, T):
        at = slice(t - first, t - first + T)
        assert bool(valid[at].all()) == bool(there(t)) and valid[at].any() == valid[at].all(), t
        if there(t):
            raw = np.concatenate([levels(t, b).reshape(T, CHANNELS, INPUTS) for b in range(board.boards)], 2)
            re, im = (raw >> 4 ^ 8).astype(int) - 8, (raw & 15 ^ 8).astype(int) - 8
            assert np.array_equal(e[at].reshape(raw.shape), re + 1j * im), t
    assert not valid[samples:].any()


PIPELINE = """
stream: {{epoch_ns: {epoch}}}
pipeline:
  - {{stage: replay, files: {files}, packet: board.yaml, frame_samples: {fs}, out: p {more}}}
  - {{stage: unpack, in: p, pols: 2, out: e}}
  - {{stage: record, in: e, directory: ., prefix: r, overwrite: true}}
"""


def replay(d, board, epoch_s, files="a.pcap", more="", status=0, fs=FS):
    with open(os.path.join(d, "board.yaml"), "w") as f:
        f.write(board.text)
    return harness.run(
        d, PIPELINE.format(epoch=int(epoch_s * 1e9), files=files, more=more, fs=fs), status=status)


def times(board, samples, epoch_s, late=0.05):
    return [epoch_s + board.seconds(t) + late for t in samples]


# A counter of 24 bits in a field that is just as wide and says so by its width; of 32, with `bits`; ATA's of
# 38 in 64; MeerKAT's, of 48 bits of ADC samples: 35 of spectra.
BOARDS = (Board(24, 3, 100000, said=False), Board(32, 8, 10000), Board(38, 8, 4096), Board(35, 6, 4785, 8192))
EPOCH = 1500000000


def test_wraps_in_files():
    with harness.scratch() as d:
        for board in BOARDS:
            for start in (FS * 5, board.period // 2 + FS * 7, board.period - FS * 2):
                for periods in (0, 1, 7):
                    first = start + periods * board.period
                    sent = range(first, first + 8 * FS, T)
                    write_pcap(os.path.join(d, "a.pcap"), 1, [board.ethernet(t) for t in sent],
                               times(board, sent, EPOCH))
                    result = replay(d, board, EPOCH)
                    check(os.path.join(d, "r_000000.dada"), board, first, 8 * FS)
                    assert f"{8 * FS // T} packets, {8 * FS // T} accepted" in result.err, result
                    assert "warning" not in result.err and f"again {periods} times" in result.err, result
        told = harness.beamring("info", "a.pcap", cwd=d)
        assert told.status == 1 and "a packet description" in told.err, told


def utc(seconds):
    return time.strftime("%Y-%m-%d-%H:%M:%S", time.gmtime(seconds))


def test_open_periods_are_refused():
    """Times half a period off, none at all, and before the epoch: refused, until `start_utc` says it."""
    board = BOARDS[0]
    first = 3 * board.period + FS * 5
    sent, half = range(first, first + 4 * FS, T), board.seconds(board.period) / 2
    begin = EPOCH + board.seconds(first)
    with harness.scratch() as d:
        for when in (times(board, sent, EPOCH, half), [0.0] * len(sent),
                     times(board, sent, EPOCH - 9 * half)):
            write_pcap(os.path.join(d, "a.pcap"), 1, [board.ethernet(t) for t in sent], when)
            result = replay(d, board, EPOCH, status=1)
            assert "start_utc" in result.err and "1677.7" in result.err, result
            assert not os.path.exists(os.path.join(d, "r_000000.dada"))
            for off in (-300, 0.5, 300):
                replay(d, board, EPOCH, more=f", start_utc: {utc(begin + off)}")
                check(os.path.join(d, "r_000000.dada"), board, first, 4 * FS)
            os.remove(os.path.join(d, "r_000000.dada"))
        result = replay(d, board, EPOCH, more=", start_utc: yesterday", status=2)
        assert "YYYY-MM-DD" in result.err, result


def test_a_period_passes_between_two_files():
    """A silence of exactly one period does not continue the stream."""
    board = BOARDS[0]
    with harness.scratch() as d:
        for name, first in (("b", FS * 5), ("a", FS * 9 + board.period)):
            sent = range(first, first + 4 * FS, T)
            write_pcap(os.path.join(d, name + ".pcap"), 1, [board.ethernet(t) for t in sent],
                       times(board, sent, EPOCH))
        result = replay(d, board, EPOCH, "\"*.pcap\"", status=1)
        to = int(re.search(r"jump to sample (\d+)", result.err).group(1)) - FS * 9 - board.period
        assert 0 <= to < 4 * FS, result
        check(os.path.join(d, "r_000000.dada"), board, FS * 5, 4 * FS)


PAIR = Board(64, 8, 100000, boards=2)


def accepted(result):
    """{reason: packets} of the note at the end."""
    line = re.search(r"replay: \d+ packets(.*)", result.err).group(1)
    return {reason: int(n) for n, reason in re.findall(r"(\d+) ([^,]+)", line)}


def test_a_replay_waits():
    """Holes, a board far ahead of the other, one that falls silent, and headers that lie: nothing is lost but
    what the file lacks."""
    end = 40 * FS
    both = [(t, b) for t in range(0, end, T) for b in (0, 1)]
    cases = {
        "hole": [(t, b) for t, b in both if not 3 * FS <= t < 25 * FS + 5 * T],
        "holes": [(t, b) for t, b in both if t % (6 * FS) < 2 * FS + 3 * T],
        "skew": [x for k in range(0, len(both), 600) for b in (0, 1) for x in both[k:k + 600] if x[1] == b],
        "queues": [x for k in range(0, len(both), 400) for b in (1, 0) for x in both[k:k + 400] if x[1] == b],
        "silent": [(t, b) for t, b in both if b == 0 or t < 9 * FS]}
    with harness.scratch() as d:
        for name, sent in cases.items():
            write_pcap(os.path.join(d, "a.pcap"), 1, [PAIR.ethernet(t, b) for t, b in sent],
                       times(PAIR, (t for t, b in sent), EPOCH))
            whole = set(sent)
            for fs in (FS // 8, FS, 16 * FS):
                result = replay(d, PAIR, EPOCH, fs=fs)
                assert accepted(result) == {"accepted": len(sent)}, (name, fs, result)
                if name != "silent":
                    check(os.path.join(d, "r_000000.dada"), PAIR, 0, sent[-1][0] + T,
                          lambda t, w=whole: (t, 0) in w)
        lies = [PAIR.ethernet(t, b) for t, b in both]
        for k in (20, 500, 701, 900):
            lies[k] = PAIR.ethernet(both[k][0] + 300 * FS, both[k][1])
        write_pcap(os.path.join(d, "a.pcap"), 1, lies, times(PAIR, (t for t, b in both), EPOCH))
        result = replay(d, PAIR, EPOCH)
        assert accepted(result) == {"accepted": len(both) - 4, "stray": 4}, result


def test_order_of_files():
    """By the time of the first packet, whatever the names; files in another order are an error."""
    with harness.scratch() as d:
        for names in ([f"c.pcap{k or ''}" for k in range(12)], [f"{12 - k:02}.pcap" for k in range(12)],
                      [f"{'ba'[k % 2]}{k:02}.pcap" for k in range(12)]):
            for k, name in enumerate(names):
                sent = range(k * FS, (k + 1) * FS, T)
                write_pcap(os.path.join(d, name), 1, [PAIR.ethernet(t, b) for t in sent for b in (0, 1)],
                           [x for x in times(PAIR, sent, EPOCH) for b in (0, 1)])
            write_pcap(os.path.join(d, "a_empty.pcap"), 1, [], [])
            result = replay(d, PAIR, EPOCH, "\"*.pcap*\"")
            assert accepted(result) == {"accepted": 24 * FS // T}, result
            check(os.path.join(d, "r_000000.dada"), PAIR, 0, 12 * FS)
            for name in [*names, "a_empty.pcap"]:
                os.remove(os.path.join(d, name))
        sent = range(0, 20 * FS, T)
        for b in (0, 1):  # of two interfaces at the same time: the first is kept until the other comes
            write_pcap(os.path.join(d, f"{b}.pcap"), 1, [PAIR.ethernet(t, b) for t in sent],
                       times(PAIR, sent, EPOCH))
        result = replay(d, PAIR, EPOCH, "\"*.pcap\"")
        assert accepted(result) == {"accepted": 2 * len(sent)}, result
        check(os.path.join(d, "r_000000.dada"), PAIR, 0, 20 * FS)
        for name, first, late in (("0", 20 * FS, 0), ("1", 0, 90)):  # times that are not the packets'
            sent = range(first, first + 20 * FS, T)
            write_pcap(os.path.join(d, name + ".pcap"), 1,
                       [PAIR.ethernet(t, b) for t in sent for b in (0, 1)],
                       [EPOCH + late] * 2 * len(sent))
        result = replay(d, PAIR, EPOCH, "\"*.pcap\"", status=1)
        assert "mergecap" in result.err and "follow after their time" in result.err, result


def sll(*protocols):
    """Linux cooked: the header, and VLAN tags behind it."""
    return struct.pack(">HHH8sH", 0, 1, 6, bytes(8), protocols[0]) + b"".join(
        struct.pack(">HH", 7, p) for p in protocols[1:])


def sll2(*protocols):
    return struct.pack(">HHIHBB8s", protocols[0], 0, 2, 1, 0, 6, bytes(8)) + b"".join(
        struct.pack(">HH", 7, p) for p in protocols[1:])


def ethernet(*protocols):
    return bytes(12) + struct.pack(">H", protocols[0]) + b"".join(
        struct.pack(">HH", 7, p) for p in protocols[1:])


def test_tags():
    sent = range(0, 4 * FS, T)
    with harness.scratch() as d:
        for link, head in ((1, ethernet), (113, sll), (276, sll2)):
            for tags in ((), (0x8100,), (0x88a8,), (0x88a8, 0x8100), (0x9100, 0x8100, 0x8100)):
                write_pcap(os.path.join(d, "a.pcap"), link, [
                    head(*tags, 0x0800) + ip_udp(PAIR.packet(t, b)) for t in sent for b in (0, 1)])
                result = replay(d, PAIR, EPOCH)
                assert accepted(result) == {"accepted": 2 * len(sent)}, (link, tags, result)
                check(os.path.join(d, "r_000000.dada"), PAIR, 0, 4 * FS)


def test_strangers_and_cut_packets():
    """The board's packets may come late in a file. Where none comes, the error says what came instead."""
    mine = [PAIR.ethernet(t, b) for t in range(0, 4 * FS, T) for b in (0, 1)]
    other = [ethernet(0x0800) + ip_udp(bytes(120))] * 2500 + [ethernet(0x86dd) + bytes(60)] * 30 + [
        ethernet(0x0800) + ip_udp(b"tcp", protocol=6)] * 20 + [
            ethernet(0x0800) + ip_udp(bytes(9), 0x2000)] * 10
    counts = ("2500 malformed", "30 other than IPv4", "20 without UDP", "10 IP fragments")
    with harness.scratch() as d:
        path = os.path.join(d, "a.pcap")
        write_pcap(path, 1, other + mine)
        result = replay(d, PAIR, EPOCH)
        assert all(n in result.err for n in (*counts, f"{len(mine)} accepted")), result
        check(os.path.join(d, "r_000000.dada"), PAIR, 0, 4 * FS)
        write_pcap(path, 1, other)
        result = replay(d, PAIR, EPOCH, status=1)
        error = next(line for line in result.err.splitlines() if "error" in line)
        assert all(n in error for n in (*counts, "268 bytes")), error
        write_pcap(path, 1, mine, keep=96)
        result = replay(d, PAIR, EPOCH, status=1)
        error = next(line for line in result.err.splitlines() if "error" in line)
        assert f"{len(mine)} recorded in part" in error and "96" in error and "tcpdump -s 0" in error, error
        foreign = Board(64, 8, 100000, boards=1)
        write_pcap(path, 1, [PAIR.ethernet(t, 1) for t in range(0, 4 * FS, T)])
        error = replay(d, foreign, EPOCH, status=1).err
        assert f"{4 * FS // T} foreign" in error.split("error:")[1].splitlines()[0], error


LIVE = """
stream: {{epoch_ns: {epoch}}}
pipeline:
  - {{stage: capture, packet: board.yaml, addresses: "127.0.0.1:{port}", backend: socket, frame_samples: 2048,
      open: 8, wait_s: 1, idle_s: 3, out: p {more}}}
  - {{stage: unpack, in: p, pols: 2, out: e}}
  - {{stage: record, in: e, directory: ., prefix: r, overwrite: true}}
"""


def send_live(board, start, periods, clock_off=0, more="", status=0, seconds=1.5, resets=False):
    """Sends in real time; `start` is the sample within the period. Checks what was recorded; the log.
    `resets`: the second half counts from 0 again."""
    with harness.scratch() as d:
        with open(os.path.join(d, "board.yaml"), "w") as f:
            f.write(board.text)
        first = (start + periods * board.period) // FS * FS
        port = free_port(socket.SOCK_DGRAM)
        begin = time.time() + 1.5
        epoch = begin - board.seconds(first)
        node = Running(
            d, LIVE.format(epoch=int((epoch + clock_off) * 1e9), port=port,
                           more=more.format(utc=utc(begin + clock_off))))
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        last = first + int(seconds / board.seconds(1)) // FS * FS
        for t in range(first, last, T):
            ahead = epoch + board.seconds(t + T) - time.time()
            if ahead > 0:
                time.sleep(ahead)
            if node.process.poll() is not None:
                break
            again = resets and t >= (first + last) // 2
            out.sendto(board.packet(t - (first + last) // 2 // T * T if again else t), ("127.0.0.1", port))
        node.finish(status)
        if status == 0:
            path = os.path.join(d, "r_000000.dada")
            sample = int(harness.header(path)[0]["SAMPLE0"])
            # Frames have 2048 samples. The first one may begin before the first packet, and lack what came
            # before capture had made up its mind where to begin.
            assert first // 2048 * 2048 <= sample < last, (sample, first)
            begin = sample
            if sample < first:
                begin += int(harness.read_e(path)[1].all(axis=1).argmax())
                assert first <= begin < sample + 2048, (begin, first, sample)
            if not resets:
                check(path, board, sample, last - sample, there=lambda t: t >= begin)
        return node.text() if os.path.exists(node.log.name) else ""


def test_wraps_live():
    """Counters of 24, 32, 38 and 48 bits (as BOARDS, but slower) from the lower half, the upper half and just
    before a wrap, in their first, second and eighth period; and what cannot be known, or is told."""
    board = BOARDS[0]
    half = board.seconds(board.period) / 2
    slow = (board, Board(32, 4, 100000, said=False), Board(38, 8, 100000), Board(35, 6, 100000, 8192))
    cases = [(b, start, (0, 1, 7)[(n + m) % 3])
             for n, b in enumerate(slow)
             for m, start in enumerate((FS * 5, b.period // 2 + FS * 7, b.period - 20 * FS))]
    special = [(board, FS * 50, 3, half, "", 1), (board, FS * 50, 3, half, ", start_utc: \"{utc}\""),
               (board, board.period // 10 * 7, 2, 0, "", 0, 3, True)]
    with concurrent.futures.ThreadPoolExecutor(len(special + cases)) as pool:
        texts = list(pool.map(lambda case: send_live(*case), special + cases))
    # a counter that begins again at 0 does not jump ahead to the end of its period
    assert "began again, at sample" in texts[2] and " 1 resets" in texts[2], texts[2]
    assert "start_utc" in texts[0] and "this machine's clock" in texts[0], texts[0]


if __name__ == "__main__":
    harness.main([test_wraps_in_files, test_open_periods_are_refused, test_a_period_passes_between_two_files,
                  test_a_replay_waits, test_order_of_files, test_tags, test_strangers_and_cut_packets,
                  test_wraps_live])
