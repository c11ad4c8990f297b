"""kotekan's chordMetadata as a reader must take it, from its description and not from the C: what the bytes
say, and which array of ours the frame is. Metadata that make no sense, or describe another array, are
refused."""
import struct

SIZE = 21120
# type code: name, bytes of an element
TYPES = {
    1: ("uint4x2", 1), 2: ("uint8", 1), 3: ("uint16", 2), 4: ("uint32", 4), 5: ("uint64", 8),
    6: ("int4x2", 1), 7: ("int4x2 in the coding chime", 1), 8: ("int8", 1), 9: ("int16", 2),
    10: ("int32", 4), 11: ("int64", 8), 12: ("float16", 2), 13: ("float32", 4), 14: ("float64", 8)
}
# Our name of each dimension.
NAMES = {
    "T": "time", "Tbar": "time", "Ttilde": "time", "F": "freq", "Fbar": "freq", "P": "pol", "D": "dish",
    "B": "beam", "R": "beam", "beamP": "gridp", "beamQ": "gridq"
}
# Our axes, the types that the frame may have.
ARRAYS = [("time freq pol dish", (6, 7)), ("beam freq pol time", (6,)), ("freq time beam", (12, 13)),
          ("freq time gridp gridq", (12,))]
MOST = 2 ** 20


class Refused(Exception):
    pass


def require(good, why):
    if not good:
        raise Refused(why)


def printable(name):
    return all(0x20 <= c <= 0x7e for c in name)


def text(m, at):
    return m[at:at + 20].split(b"\0")[0]


def fields(m, frame_bytes):
    """All that the bytes say."""
    get = lambda form, at: struct.unpack_from("<" + form, m, at)
    require(len(m) == SIZE and get("3i", 0) == (10, 20, 1024), "size or maxima")
    code, ndim = get("2i", 36)
    require(code in TYPES, "type")
    require(1 <= ndim <= 10, "dims")
    require(printable(text(m, 16)), "name")
    lengths, names = get(f"{ndim}i", 44), [text(m, 84 + 20 * i) for i in range(ndim)]
    require(all(n >= 1 for n in lengths), "lengths")
    require(all(n and printable(n) for n in names), "names")
    stride = 1
    for n, s in reversed(list(zip(lengths, get(f"{ndim}q", 288)))):
        require(s == stride, "strides")
        stride *= n
    require(stride * TYPES[code][1] == frame_bytes <= 2 ** 40, "frame size")
    require(get("q", 368) == (0,), "offset")
    require(-1 <= get("i", 376)[0] <= 10, "one-hot")
    nfreq, = get("i", 632)
    require(-1 <= nfreq <= 1024, "nfreq")
    n = max(nfreq, 0)
    d = {
        "code": code, "dims": list(zip((x.decode() for x in names), lengths)), "name": text(m, 16).decode(),
        "counter": get("i", 12)[0], "sample0": get("q", 624)[0], "coarse": get(f"{n}i", 636),
        "upchan": get(f"{n}i", 4732), "half": get(f"{n}q", 8832), "step": get(f"{n}i", 17024)
    }
    require(all(-1 <= x <= MOST for x in d["coarse"]), "coarse")
    for key in ("upchan", "step"):
        require(all(x == -1 or 1 <= x <= MOST for x in d[key]), key)
    require(all(x >= -1 for x in d["half"]), "half")
    return d


def times(d):
    """(samples of a step, half_fpga_sample0), the same for all channels; -1 is "not said"."""
    steps = [1 if s < 0 else s for s in d["step"]]
    halves = [s - 1 if h < 0 else h for h, s in zip(d["half"], steps)]
    require(len(set(zip(steps, halves))) <= 1, "channels of different times")
    return (steps[0], halves[0]) if steps else (1, 0)


def first_sample(d):
    """For a frame whose steps are samples of the F-engine: half_fpga_sample0 counts half ones."""
    step, half = times(d)
    twice = 2 * step * d["sample0"] + half - (step - 1)
    require(d["sample0"] >= 0 and 0 <= twice <= 2 ** 62 and twice % 2 == 0, "first sample")
    return twice // 2


def field(d):
    """E as the F-engine gives it, or None."""
    names, lengths = [n for n, _ in d["dims"]], dict(d["dims"])
    places = {n: names.index(n) for n in lengths}
    if d["code"] not in (6, 7) or len(lengths) < len(names) or set(names) - set("TFPD") or "T" not in names:
        return None
    slow = [places[n] for n in "TF" if n in places]
    if "P" in places and places["P"] < max(slow):
        return None
    if "D" in places and places["D"] < max(slow + [places.get("P", 0)]):
        return None
    if d["coarse"] and len(d["coarse"]) != lengths.get("F", 1) or any(u > 1 for u in d["upchan"]):
        return None
    try:
        first = first_sample(d)
    except Refused:
        return None
    if times(d)[0] != 1:
        return None
    return {"first": first, "step": 1, "factor": 1, **{NAMES[n]: lengths.get(n, 1) for n in "TFPD"}}


def array(d):
    """Which array of ours the frame is: first sample, samples of a step, upchannelization factor, lengths in
    our order."""
    if plain := field(d):
        return plain
    ours = [NAMES.get(n) for n, _ in d["dims"]]
    kinds = [axes.split() for axes, types in ARRAYS if d["code"] in types and sorted(axes.split()) == sorted(
        str(x) for x in ours)]
    require(kinds, "no array of ours")
    lengths = {name: n for name, (_, n) in zip(ours, d["dims"])}
    step, half = times(d)
    require(0 <= d["sample0"] <= 2 ** 61 // step and half < 64 * step, "times")
    first = d["sample0"] * step
    require(len(set(d["upchan"])) <= 1, "factors")
    factor = d["upchan"][0] if d["upchan"] and d["upchan"][0] > 0 else 1
    coarse = len(d["coarse"])
    if coarse and lengths["freq"] != coarse * factor:
        # kotekan's intensities have the samples of their steps in it
        require(d["code"] in (12, 13) and lengths["freq"] % coarse == 0 and factor == step, "nfreq")
        require(factor % (lengths["freq"] // coarse) == 0, "nfreq")
        factor = lengths["freq"] // coarse
    if step == 1:
        first = first_sample(d)
    require(kinds[0][0] != "time" or step == factor, "a step of the field")
    return {"first": first, "step": step, "factor": factor, **{axis: lengths[axis] for axis in kinds[0]}}
