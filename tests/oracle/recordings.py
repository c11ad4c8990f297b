"""Other people's recordings, written and read from the formats' descriptions in Python: never from the C
code.

The electric field is an array of complex numbers [time][freq][pol][dish] with integer parts; CHIME's coding
cannot say -8 - 8j, whose byte means "missing"."""
import struct

import numpy as np


# --- bytes of complex 4+4-bit samples -------------------------------------------------------------
def nibbles(e):
    return e.real.astype(int), e.imag.astype(int)


def pack_int4x2(e):
    re, im = nibbles(e)
    return ((re & 15) | (im & 15) << 4).astype(np.uint8)


def pack_chime(e):
    re, im = nibbles(e)
    return ((re + 8) << 4 | (im + 8)).astype(np.uint8)


def pack_vdif(e):
    re, im = nibbles(e)
    return ((re + 8) | (im + 8) << 4).astype(np.uint8)


def unpack_chime(raw):
    e = (raw >> 4).astype(int) - 8 + 1j * ((raw & 15).astype(int) - 8)
    return np.where(raw == 0, 0, e)


def noise(shape, seed, low=-7, high=7):
    rng = np.random.default_rng(seed)
    return rng.integers(low, high + 1, shape) + 1j * rng.integers(low, high + 1, shape)


# --- kotekan --------------------------------------------------------------------------------------
TYPES = {"int4p4": 6, "int4p4chime": 7, "float16": 12, "float32": 13, "int8": 8, "float64": 14}


def chord_metadata(dims, coarse, sample0, kind="int4p4", name="E", counter=0, half=0, upchan=1,
                   downsampling=1, **wrong):
    """21120 bytes; dims is [(name, length), ...], slowest first. `wrong` sets fields by (format, offset):
    value."""
    m = bytearray(21120)
    put = lambda form, at, *v: struct.pack_into("<" + form, m, at, *v)
    put("4i", 0, 10, 20, 1024, counter)
    m[16:16 + len(name)] = name.encode()
    put("2i", 36, TYPES[kind], len(dims))
    stride = 1
    for i, (label, length) in reversed(list(enumerate(dims))):
        put("i", 44 + 4 * i, length)
        m[84 + 20 * i:84 + 20 * i + len(label)] = label.encode()
        put("q", 288 + 8 * i, stride)
        stride *= length
    put("q", 624, sample0)
    put("i", 632, len(coarse))
    for i, c in enumerate(coarse):
        put("i", 636 + 4 * i, c)
        put("i", 4732 + 4 * i, upchan)
        put("q", 8832 + 8 * i, half)
        put("i", 17024 + 4 * i, downsampling)
    return m


def kotekan_frame(e, coarse, sample0, kind="int4p4", order="TFPD", **more):
    """Size, metadata and bytes of E[T][F][P][D]."""
    array = e.transpose(["TFPD".index(c) for c in order])
    pack = pack_chime if kind == "int4p4chime" else pack_int4x2
    metadata = chord_metadata(list(zip(order, array.shape)), coarse, sample0, kind, **more)
    return struct.pack("<I", len(metadata)) + bytes(metadata) + pack(array).tobytes()


def kotekan_array(array, dims, coarse, sample0, kind, **more):
    """A frame of any array; dims are its dimensions' names, slowest first. Complex ones become int4p4."""
    metadata = chord_metadata(list(zip(dims, array.shape)), coarse, sample0, kind, **more)
    return struct.pack("<I", len(metadata)) + bytes(metadata) + (pack_int4x2(array)
                                                                 if kind == "int4p4" else array).tobytes()


def read_kotekan(data):
    """The frames of a file: (dims as a dict in order, coarse, sample0, type code, bytes)."""
    at, frames = 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        assert size == 21120, size
        m = data[at + 4:at + 4 + size]
        get = lambda form, where: struct.unpack_from("<" + form, m, where)
        assert get("3i", 0) == (10, 20, 1024)
        code, dims = get("2i", 36)
        shape = get(f"{dims}i", 44)
        labels = [m[84 + 20 * i:104 + 20 * i].rstrip(b"\0").decode() for i in range(dims)]
        stride = get(f"{dims}q", 288)
        assert list(stride) == [int(np.prod(shape[i + 1:])) for i in range(dims)], stride
        assert get("q", 368) == (0,)
        (sample0,), (nfreq,) = get("q", 624), get("i", 632)
        coarse = get(f"{nfreq}i", 636)
        count = int(np.prod(shape)) * {6: 1, 7: 1, 12: 2}[code]
        at += 4 + size
        frames.append((dict(zip(labels, shape)), list(coarse), sample0, code, data[at:at + count]))
        at += count
    return frames


# --- CHIME baseband -------------------------------------------------------------------------------
def bitshuffle_block(raw):
    """Bit k of all bytes together: plane after plane."""
    return np.packbits(np.unpackbits(raw[:, None], axis=1, bitorder="little").T.copy(),
                       bitorder="little").tobytes()


def lz4_literals(raw):
    """An LZ4 block that only copies: one sequence of literals."""
    n = len(raw)
    if n < 15:
        return bytes([n << 4]) + raw
    rest = n - 15
    return bytes([0xf0]) + b"\xff" * (rest // 255) + bytes([rest % 255]) + raw


def lz4_runs(raw):
    """An LZ4 block with matches: runs of one byte become a literal and a match at offset 1. The last 5 bytes
    are literals."""
    out, at, n = bytearray(), 0, len(raw)
    start = 0
    while at < n - 13:
        run = at + 1
        while run < n - 5 and raw[run] == raw[at]:
            run += 1
        length = run - at - 1
        if length < 4:
            at = max(run, at + 1)
            continue
        literals = raw[start:at + 1]
        token = min(len(literals), 15) << 4 | min(length - 4, 15)
        out.append(token)
        if len(literals) >= 15:
            rest = len(literals) - 15
            out += b"\xff" * (rest // 255) + bytes([rest % 255])
        out += literals + b"\x01\x00"
        if length - 4 >= 15:
            rest = length - 19
            out += b"\xff" * (rest // 255) + bytes([rest % 255])
        at = start = run
    return bytes(out) + lz4_literals(raw[start:])


def bitshuffle_chunk(raw, block=8192, compress=lz4_literals):
    """The filter's output in the file for a chunk of bytes: with LZ4, or (compress None) only shuffled."""
    raw = np.ascontiguousarray(raw).reshape(-1)
    out, at = b"" if compress is None else struct.pack(">QI", raw.size, block), 0
    while raw.size - at >= 8:
        n = min(block, (raw.size - at) // 8 * 8)
        shuffled = bitshuffle_block(raw[at:at + n])
        out += shuffled if compress is None else (lambda c: struct.pack(">I", len(c)) + c)(compress(shuffled))
        at += n
    return out + raw[at:].tobytes()


def write_chime(path, raw, freq_id, count0, ctime0, *, chunks=None, shuffle=None, attributes=None, skip=(),
                offset=0.0):
    """One frequency: raw is (ntime, ninput) bytes. shuffle: None, "lz4", "runs" or "plain"; skip: chunks (i,
    j) never written."""
    import h5py
    with h5py.File(path, "w") as f:
        values = {
            "freq_id": freq_id, "freq": 800 - 0.390625 * freq_id, "delta_time": 2.56e-6,
            "time0_fpga_count": np.uint64(count0), "time0_ctime": ctime0, "time0_ctime_offset": offset,
            "event_id": 42, **(attributes or {})
        }
        for key, value in values.items():
            if value is not None:
                f.attrs[key] = value
        f.create_dataset("index_map/input", data=np.arange(raw.shape[1], dtype=np.uint16))
        if chunks is None:
            f.create_dataset("baseband", data=raw)
            return
        if shuffle is None:
            d = f.create_dataset("baseband", raw.shape, "u1", chunks=chunks, maxshape=(None, None))
        else:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk(chunks)
            # the filter itself need not be there: the chunks are written as they are
            plist.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, (0, 3, 1, 0, 0 if shuffle == "plain" else 2))
            space = h5py.h5s.create_simple(raw.shape, (h5py.h5s.UNLIMITED, h5py.h5s.UNLIMITED))
            d = h5py.Dataset(h5py.h5d.create(f.id, b"baseband", h5py.h5t.STD_U8LE, space, plist))
        for i in range(0, raw.shape[0], chunks[0]):
            for j in range(0, raw.shape[1], chunks[1]):
                if (i // chunks[0], j // chunks[1]) in skip:
                    continue
                block = np.zeros(chunks, np.uint8)
                part = raw[i:i + chunks[0], j:j + chunks[1]]
                block[:part.shape[0], :part.shape[1]] = part
                if shuffle is None:
                    d.id.write_direct_chunk((i, j), block.tobytes())
                else:
                    compress = {"lz4": lz4_literals, "runs": lz4_runs, "plain": None}[shuffle]
                    d.id.write_direct_chunk((i, j), bitshuffle_chunk(block, compress=compress))


# --- GUPPI RAW ------------------------------------------------------------------------------------
def guppi_header(directio=True, **keys):
    cards = b""
    for key, value in keys.items():
        if value is None:
            continue
        text = f"'{value:<8}'" if isinstance(value, str) else f"{value!r:>20}"
        cards += f"{key:<8}= {text}".encode().ljust(80)
    cards += b"END".ljust(80)
    if directio:
        cards += b" " * (-len(cards) % 512)
    return cards


def guppi_blocks(v, per, overlap=0, first_packet=0, packets=None, directio=True, skip=(), centre=1400.0,
                 band=None, start=(60000, 3600, 0.25), **more):
    """v: complex [time][chan][pol][antenna] with int8 parts; blocks of `per` samples, the last `overlap` of
    which come again."""
    ntime, nchan, npol, nants = v.shape
    band = nchan * 0.390625 if band is None else band
    packets = per - overlap if packets is None else packets
    out = []
    for i, at in enumerate(range(0, ntime - overlap, per - overlap)):
        if i in skip or at + per > ntime:
            continue
        block = v[at:at + per].transpose(3, 1, 0, 2)
        data = np.stack([block.real, block.imag], axis=-1).astype(np.int8).tobytes()
        keys = {
            "BACKEND": "GUPPI", "BLOCSIZE": len(data), "PIPERBLK": packets,
            "PKTIDX": first_packet + i * packets, "OBSFREQ": centre, "OBSBW": band, "OBSNCHAN": nchan * nants,
            "NPOL": 4 if npol == 2 else 1, "NBITS": 8, "TBIN": nchan / abs(band) * 1e-6, "OVERLAP": overlap,
            "PKTSTART": 0, "STT_IMJD": start[0], "STT_SMJD": start[1], "STT_OFFS": start[2],
            "SRC_NAME": "B0329+54",
            "TELESCOP": "GBT", "DIRECTIO": int(directio), "NANTS": nants if nants > 1 else None, **more
        }
        out.append(guppi_header(directio, **keys) + data)
    return out


# --- VDIF -----------------------------------------------------------------------------------------
def vdif_header(seconds, number, epoch, nchan, frame_bytes, thread=0, invalid=0, bits=4, complex_data=1,
                legacy=0, version=1, station=0, edv=0, rate=0, log2=None, length=None):
    """32 bytes (16 if legacy); frame_bytes counts them. log2 and length override what nchan and frame_bytes
    say."""
    log2 = int(nchan).bit_length() - 1 if log2 is None else log2
    length = frame_bytes // 8 if length is None else length
    words = [
        seconds | legacy << 30 | invalid << 31, number | epoch << 24, length | log2 << 24 | version << 29,
        station | thread << 16 | bits - 1 << 26 | complex_data << 31
    ]
    return struct.pack("<8I", *words, rate | edv << 24, 0, 0, 0)[:16 if legacy else 32]


def pack_vdif8(e):
    """8 + 8 bits, offset binary, real part first: [..., 2]."""
    return np.stack([e.real.astype(int) + 128, e.imag.astype(int) + 128], -1).astype(np.uint8)


def vdif_file(e, spread, seconds, number, epoch, sample_rate, **more):
    """E[time][freq][pol][dish] from frame `number` of a second on: all threads of a time, then the next."""
    ntime, nchan, npol, ndish = e.shape
    out, per_second = [], sample_rate // spread
    for i in range(ntime // spread):
        pack = pack_vdif8 if more.get("bits") == 8 else pack_vdif
        block = pack(e[i * spread:(i + 1) * spread]).reshape(spread, nchan, npol * ndish, -1)
        at = number + i
        for thread in range(npol * ndish):
            data = block[:, :, thread].tobytes()
            header = 16 if more.get("legacy") else 32
            out.append(
                vdif_header(seconds + at // per_second, at % per_second, epoch, nchan, header +
                            len(data), thread, **more) + data)
    return out


def read_vdif(data):
    """The frames of a file: dicts of the header's fields, with `data` as complex [time][chan]."""
    at, frames = 0, []
    while at < len(data):
        w = struct.unpack_from("<8I", data, at)
        f = {
            "seconds": w[0] & 0x3fffffff, "legacy": w[0] >> 30 & 1, "invalid": w[0] >> 31,
            "number": w[1] & 0xffffff, "epoch": w[1] >> 24 & 63, "bytes": 8 * (w[2] & 0xffffff), "nchan": 1 <<
            (w[2] >> 24 & 31), "version": w[2] >> 29, "station": w[3] & 0xffff, "thread": w[3] >> 16 & 1023,
            "bits": (w[3] >> 26 & 31) + 1, "complex": w[3] >> 31, "edv": w[4] >> 24, "rate": w[4] & 0xffffff,
            "sync": w[5]
        }
        raw = np.frombuffer(data, np.uint8, f["bytes"] - 32, at + 32)
        if f["bits"] == 8:
            re, im = raw.reshape(-1, f["nchan"], 2).astype(int).transpose(2, 0, 1) - 128
        else:
            re, im = (raw.reshape(-1, f["nchan"]).astype(int) >> shift & 15 for shift in (0, 4))
            re, im = re - 8, im - 8
        f["data"] = re + 1j * im
        frames.append(f)
        at += f["bytes"]
    return frames
