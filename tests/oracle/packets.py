"""F-engines' packets, written from the tables of their makers and independently of beamring's descriptions.

Each class encodes what one F-engine sends of a raw field raw[time][channel][input] (bytes as they are on the
wire): channels ascending by id, inputs source after source. packets(raw, first) yields (source, stream,
sample, bytes)."""
import struct

import numpy as np


class FEngine:
    """t samples, c channels, i inputs in a packet; sources and streams by id."""
    sources, streams = (), ()

    def channels(self, stream):
        """Ids of a packet's channels."""
        return [stream + k for k in range(self.c)]

    def channel_ids(self):
        return sorted(c for s in self.streams for c in self.channels(s))

    def shape(self, time):
        return time, len(self.streams) * self.c, len(self.sources) * self.i

    def places(self, stream):
        """Where the channels of a stream's packets are among channel_ids()."""
        return np.searchsorted(self.channel_ids(), self.channels(stream))

    def block(self, raw, sample, first, source, places):
        """[t][c][i] of one packet."""
        slot = list(self.sources).index(source)
        return raw[sample - first:sample - first + self.t, :, slot * self.i:(slot + 1) * self.i][:, places]

    def packets(self, raw, first=0):
        places = {stream: self.places(stream) for stream in self.streams}
        for sample in range(first, first + len(raw), self.t):
            for source in self.sources:
                for stream in self.streams:
                    block = self.block(raw, sample, first, source, places[stream])
                    yield source, stream, sample, self.packet(sample, source, stream, block)

    def packet(self, sample, source, stream, block):
        return self.header(sample, source, stream) + np.ascontiguousarray(block.transpose(
            self.order)).tobytes()

    def unpacked(self, payloads):
        """[n][t][c][i] of payloads [n][bytes]."""
        lengths = [(self.t, self.c, self.i)[k] for k in self.order]
        return payloads.reshape(-1, *lengths).transpose(0, *(1 + np.argsort(self.order)))


class ChordCrs(FEngine):
    """22 bytes little-endian: cookie 0xCF, information, u16 source, u16 stream, u16, u64 seq, u32, u16;
    payload [48][16][8]."""
    name, t, c, i, order = "chord-crs", 16, 48, 8, (1, 0, 2)
    sources, streams = (0, 2, 1), (3, 19)

    def channels(self, stream):
        return [1536 + stream + 128 * k for k in range(48)]

    def header(self, sample, source, stream):
        return struct.pack("<BBHHHQIH", 0xCF, 0x5A, source, stream, 0x1234, sample, 0xDEADBEEF, 0x7777)


class ChimeIce(FEngine):
    """16 bytes little-endian: u16 at 2 = link, slot, crate (4 bits each); u32 at 8: bits 47..32 of seq; u32
    at 12: bits 31..0. 2 samples of [4][512]; 768 bytes; u32 flags; 2 bytes. Channel = slot + 16 crate + 32
    link + 256 index, crate of a pair."""
    name, t, c, i, order = "chime-ice", 2, 4, 512, (0, 1, 2)
    sources, streams = (0, 2), (3 + 16 + 32 * 5, 3 + 32 * 5)

    def channels(self, stream):
        return [stream + 256 * k for k in range(4)]

    def header(self, sample, source, stream):
        link, crate, slot = stream // 32, stream // 16 % 2 + 2 * source, stream % 16
        return struct.pack("<HHIII", 0xABCD, link | slot << 4 | crate << 8 | 0xF000, 0x11223344, sample >> 32,
                           sample & 0xFFFFFFFF)

    def packet(self, sample, source, stream, block, flags=0):
        body = super().packet(sample, source, stream, block)
        return body + bytes(768) + struct.pack("<IH", flags, 0)


class CasmSnap(FEngine):
    """16 bytes big-endian: u64 timestamp, u16 chan0, u16 board, u16 n_chans, u16 n_antpols; payload
    [512][12]."""
    name, t, c, i, order = "casm-snap", 1, 512, 12, (1, 0, 2)
    sources, streams = (4, 1), (512, 1024)

    def header(self, sample, source, stream):
        return struct.pack(">QHHHH", sample, stream, source, 512, 12)


class LwaSnap2(FEngine):
    """32 bytes big-endian; sources by first input; payload [96][64]."""
    name, t, c, i, order = "lwa-snap2", 1, 96, 64, (1, 0, 2)
    sources, streams = (0, 64, 640), (192, 288)

    def header(self, sample, source, stream):
        return struct.pack(">QIHHHHIII", sample, 1700000000, 64, 704, 96, 192, stream // 96, stream, source)


class AtaSnap(FEngine):
    """16 bytes big-endian: version, type, n_chans, chan, feng_id, timestamp; payload [256][16][2]."""
    name, t, c, i, order = "ata-snap", 16, 256, 2, (1, 0, 2)
    sources, streams = (7, 3), (512,)

    def header(self, sample, source, stream):
        return struct.pack(">BBHHHQ", 1, 2, 256, stream, source, sample & (2**38 - 1))


class Dsa110Snap(FEngine):
    """8 bytes big-endian: 35 bits spectrum, 13 bits first channel, 16 bits first antenna; payload
    [3][384][2][2]. The inputs of a packet: antenna, polarisation."""
    name, t, c, i = "dsa110-snap", 2, 384, 6
    sources, streams = (3, 0), (384,)

    def header(self, sample, source, stream):
        return struct.pack(">Q", (sample & (2**35 - 1)) << 29 | stream << 16 | source)

    def packet(self, sample, source, stream, block):
        body = block.reshape(2, 384, 3, 2).transpose(2, 1, 0, 3)
        return self.header(sample, source, stream) + np.ascontiguousarray(body).tobytes()

    def unpacked(self, payloads):
        return payloads.reshape(-1, 3, 384, 2, 2).transpose(0, 3, 2, 1, 4).reshape(-1, 2, 384, 6)


class Spead(FEngine):
    """SPEAD-64-48: 8 items behind 8 bytes, payload of 16 of 64 channels, [16][256][2]. Streams are first
    channel + 16 x part."""
    name, t, c, i, order = "spead", 256, 16, 2, (1, 0, 2)
    sources, streams = (5, 9), (128, 144, 160, 176)

    def header(self, sample, source, stream):
        frequency, part = stream // 64 * 64, stream % 64 // 16
        items = [(1, sample * 64 + source), (2, 32768), (3, 8192 * part), (4, 8192), (0x1600, sample * 8192),
                 (0x4101, source), (0x4103, frequency)]
        head = struct.pack(">BBBBHH", 0x53, 4, 2, 6, 0, len(items) + 1)
        head += b"".join(struct.pack(">Q", 1 << 63 | key << 48 | value) for key, value in items)
        return head + struct.pack(">Q", 0x4300 << 48)  # a pointer: offset 0 of the heap


ALL = [ChordCrs(), ChimeIce(), CasmSnap(), LwaSnap2(), AtaSnap(), Dsa110Snap(), Spead()]
