"""Runs the beamring program on YAML texts in temporary directories, and reads recordings independently of its
C code.

The program under test is named by BEAMRING (set by the build). BEAMRING_TEST_DEVICE=cuda:0 puts every stage
that can run there on that device, so that the same tests hold for the GPU."""
import contextlib
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

import numpy as np

PROGRAM = os.environ.get("BEAMRING", "build/tools/beamring")
DEVICE = os.environ.get("BEAMRING_TEST_DEVICE", "cpu")
C_M_PER_S = 299792458.0

_TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# The pipelines and telescopes that are installed: in the sources, and in a bundle.
CONFIG = next(d for d in (os.path.join(_TOP, "config"), os.path.join(_TOP, "share", "beamring", "config"))
              if os.path.isdir(d))


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return f"exit {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def beamring(*args, cwd=None, timeout=100, env=None, file_bytes=None):
    """`file_bytes`: how long files may become; what is more cannot be written, as on a disk that is full."""
    limit = file_bytes and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes)))
    done = subprocess.run([os.path.abspath(PROGRAM), *map(str, args)], cwd=cwd, capture_output=True,
                          text=True, timeout=timeout, env={**os.environ, **(env or {})}, preexec_fn=limit)
    return Result(done.returncode, done.stdout, done.stderr)


def run(directory, text, *args, status=0, command="run", name="pipeline.yaml", **more):
    """Writes `text` to directory/name, runs it there, and insists on the exit status."""
    with open(os.path.join(directory, name), "w") as f:
        f.write(text)
    if "\ndevice:" not in "\n" + text and text:
        args = (*args, "--set", f"device={DEVICE}")
    result = beamring(command, name, *args, cwd=directory, **more)
    assert result.status == status, f"expected exit {status}: {result}"
    return result


def memory_of(directory, text):
    """What `check` says of memory: by name of a stage, and `queues` and `together`, the bytes of [host,
    locked, GPU]."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    checked = run(directory, text, command="check")
    table = checked.out[checked.out.index("  memory "):]
    rows = {}
    for line in table.splitlines()[1:]:
        size = re.findall(r"([0-9.]+) (B|KiB|MiB|GiB)(?= |$)", line)
        rows[line.split()[0]] = [float(value) * units[unit] for value, unit in size[:3]]
    return rows


def promised_and_resident(directory, text):
    """Bytes of the host that `check` says queues and stages need, and the most that were resident while the
    pipeline ran."""
    promised = sum(memory_of(directory, text)["together"][:2])
    child = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL, "
        "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    out = subprocess.run([
        sys.executable, "-c", child,
        os.path.abspath(PROGRAM), "run", "pipeline.yaml", "--set", f"device={DEVICE}"
    ], cwd=directory, capture_output=True, text=True, timeout=150, check=True)
    return promised, int(out.stdout.split()[-1]) * 1024


@contextlib.contextmanager
def small_disk(path, size, kind="tmpfs"):
    """A file system of `size` bytes at `path`, or None where it cannot be mounted: tmpfs, or ext4 on a loop
    device, of which some kilobytes are its own."""
    os.mkdir(path)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path]
    made = True
    if kind == "ext4":
        image = path + ".image"
        with open(image, "wb") as f:
            f.truncate(size + 100000)
        made = shutil.which("mkfs.ext4") is not None and subprocess.run(
            ["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", "-N", "64", image],
            capture_output=True).returncode == 0
        mount = ["mount", "-o", "loop", image, path]
    mounted = made and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield path if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def scratch():
    with tempfile.TemporaryDirectory(prefix="beamring-") as directory:
        yield directory


def damage_hdf5(path):
    """Damages an HDF5 file in the address of its end, in its root group's header, and in the address of the
    group's B-tree; one byte at a time, each time yielding which. Left alone, the library would say at exit
    what it could not close of such a file."""
    with open(path, "rb") as f:
        whole = f.read()
    for at in (41, 106, 122):
        with open(path, "wb") as f:
            f.write(whole[:at] + b"\xff" + whole[at + 1:])
        yield at


def send_outside(path, name):
    """Moves the dataset `name` of an HDF5 file out of it in every way that the format has; one way at a time,
    each time yielding which. The values stay what they were, but for the pipe, to which nobody writes."""
    import h5py
    with open(path, "rb") as f:
        whole = f.read()
    with open(path + ".other", "wb") as f:
        f.write(whole)
    if not os.path.exists(path + ".pipe"):
        os.mkfifo(path + ".pipe")
    with h5py.File(path) as f:
        data = f[name][()]
    data.tofile(path + ".raw")
    for way in ("link", "pipe", "group", "storage", "virtual"):
        with open(path, "wb") as f:
            f.write(whole)
        with h5py.File(path, "a") as f:
            del f[name]
            if way in ("link", "pipe"):
                f[name] = h5py.ExternalLink(path + (".other" if way == "link" else ".pipe"), name)
            elif way == "group":
                f["elsewhere"] = h5py.ExternalLink(path + ".other", "/")
                f[name] = h5py.SoftLink("/elsewhere/" + name)
            elif way == "storage":
                f.create_dataset(name, data.shape, data.dtype, external=[(path + ".raw", 0, data.nbytes)])
            else:
                layout = h5py.VirtualLayout(data.shape, data.dtype)
                layout[...] = h5py.VirtualSource(path + ".other", name, data.shape)
                f.create_virtual_dataset(name, layout)
        yield way
    with open(path, "wb") as f:
        f.write(whole)


def header(path):
    with open(path, "rb") as f:
        text = f.read(4096).decode("latin-1")
        size = int(next(l.split()[1] for l in text.splitlines() if l.startswith("HDR_SIZE")))
        f.seek(0)
        text = f.read(size).rstrip(b"\0").decode("latin-1")
    keys = {}
    for line in text.splitlines():
        part = line.split(None, 1)
        if part:
            keys[part[0]] = part[1].split("#")[0].strip() if len(part) > 1 else ""
    return keys, size


BITS = {
    "int4x2": 8, "int8x2": 16, "int8": 8, "uint8": 8, "int4": 4, "f16": 16, "f32": 32,
    "uint32": 32, "int32x2": 64
}


def read_e(path):
    """E[time][freq][pol][dish] as complex128 (values 0 where missing) and valid[time][freq] from .gaps, first
    sample."""
    keys, size = header(path)
    assert keys["DTYPE"] == "int4x2" and keys["AXES"] == "time,freq,pol,dish", keys
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    raw = np.fromfile(path, np.uint8, offset=size)
    raw = raw.reshape(-1, *shape[1:])
    down = int(keys.get("DOWNSAMPLE", 1))
    first = int(keys["SAMPLE0"]) // down
    valid = read_gaps(path, first, raw.shape[0], shape[1], down) == 255
    e = unpack(raw)
    e[~valid] = 0
    return e, valid, first, keys


def read_e_prefix(path, steps):
    """The first `steps` time steps of an E recording that may end in mid-sample."""
    keys, size = header(path)
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    raw = np.fromfile(path, np.uint8, offset=size, count=steps * int(np.prod(shape[1:])))
    return unpack(raw.reshape(steps, *shape[1:])), None, 0, keys


_NIBBLES = (np.arange(16) ^ 8) - 8
_FIELD = (_NIBBLES + 1j * _NIBBLES[:, None]).reshape(-1)  # by the byte: copies are what large fields cost


def unpack(raw):
    """int4x2 bytes -> complex128, real part in the low nibble, two's complement."""
    return _FIELD[raw]


def read_gaps(path, first, steps, channels, down):
    """valid[time][freq] as bytes from the sidecar: `first count [channel nchannels weight]`, in base
    samples."""
    valid = np.full((steps, channels), 255, np.uint8)
    if not os.path.exists(path + ".gaps"):
        return valid
    for line in open(path + ".gaps"):
        line = line.split("#")[0].split()
        if not line:
            continue
        v = [int(x) for x in line]
        a = v[0] // down - first
        b = -(-(v[0] + v[1]) // down) - first
        c0, c1, w = (v[2], v[2] + v[3], v[4]) if len(v) > 2 else (0, channels, 0)
        valid[max(a, 0):b, c0:c1] = w
    return valid


def read_frames(path):
    """A recording whose time axis is not the slowest: the whole as one array with the axes of the file, plus
    first step."""
    keys, size = header(path)
    axes = keys["AXES"].split(",")
    shape = [int(x) for x in keys["SHAPE"].split(",")]
    t = axes.index("time")
    down = int(keys.get("DOWNSAMPLE", 1))
    per = int(keys["FRAME_SAMPLES"])
    begin = int(keys["SAMPLE0"])
    pairs = keys["DTYPE"] == "int8x2"  # a last axis of 2
    dtype = {"f16": np.float16, "f32": np.float32, "int8x2": np.int8}.get(keys["DTYPE"], np.uint8)
    raw = np.fromfile(path, np.uint8, offset=size)
    side = int(np.prod([int(x) for x in keys["AUX_SHAPE"].split(",")])) * 4 if "AUX_SHAPE" in keys else 0
    row = int(np.prod([n for i, n in enumerate(shape) if i != t])) * np.dtype(dtype).itemsize * (1 + pairs)
    at, k, parts, sides = 0, begin, [], []
    while at < raw.size:
        end = (k // per + 1) * per
        steps = -(-end // down) - k // down
        steps = min(steps, (raw.size - at - side) // row)
        s = list(shape)
        s[t] = steps
        s += [2] if pairs else []
        parts.append(raw[at:at + steps * row].view(dtype).reshape(s))
        at += steps * row
        if side:
            sides.append(raw[at:at + side].view(np.float32))
            at += side
        k = end
    return np.concatenate(parts, axis=t), begin // down, keys, sides


def upchannelize(e, valid, factor, taps, gain=None):
    """reference equation: int components, (T, F, P, D) -> (T/U, F*U, P, D); start of e is a multiple of U and
    of the stream."""
    steps, channels = e.shape[0] // factor, e.shape[1]
    s = np.arange(taps * factor)
    x = (s - (taps * factor - 1) / 2) / (taps * factor + 1)
    w = np.cos(np.pi * x) ** 2 * np.sinc(taps * x) / factor
    gain = np.sqrt(factor) if gain is None else gain
    out = np.zeros((steps, channels, factor) + e.shape[2:], complex)
    ok = np.zeros((steps, channels), bool)
    u = np.arange(factor)
    phase = np.exp(1j * np.pi * s *
                   (factor - 1) / factor)[None] * np.exp(-2j * np.pi * u[:, None] * s[None] / factor)
    kernel = phase * w
    for t in range(taps - 1, steps):
        window = slice((t - taps + 1) * factor, (t + 1) * factor)
        out[t] = np.einsum("us,sfpd->fupd", kernel, e[window])
        ok[t] = valid[window].all(axis=0)
    z = gain * out
    q = np.clip(np.round(z.real), -7, 7) + 1j * np.clip(np.round(z.imag), -7, 7)
    tie = np.minimum(abs(abs(z.real % 1) - 0.5), abs(abs(z.imag % 1) - 0.5)) < 1e-4
    q = q.reshape(steps, channels * factor, *e.shape[2:])
    return q, np.repeat(ok, factor, axis=1), tie.reshape(q.shape)


def beam_intensity(e, valid, dishes, spacing, freq_mhz, beams, block, first, threshold=0.5):
    """Direct sums for an upper sideband: J[freq][block][beam] = R sum_t sum_pol |sum_d E exp(-2 pi i (m x sm
    + n y sn) / lambda)|^2, and the valid fraction; blocks of `block` steps aligned to the counter, the first
    step being number `first`."""
    dishes = np.asarray(dishes, float)
    blocks = -(-(first + len(e)) // block) - first // block
    out = np.zeros((len(freq_mhz), blocks, len(beams)))
    fraction = np.zeros((len(freq_mhz), blocks))
    index = (first + np.arange(len(e))) // block - first // block
    for f, mhz in enumerate(freq_mhz):
        lam = C_M_PER_S / (mhz * 1e6)
        path = beams[:, 0, None] * dishes[None, :, 0] * spacing[0] + \
            beams[:, 1, None] * dishes[None, :, 1] * spacing[1]
        a = np.exp(-2j * np.pi * path / lam)
        power = (abs(np.einsum("bd,tpd->tpb", a, e[:, f])) ** 2).sum(axis=1) * valid[:, f, None]
        for b in range(blocks):
            here = index == b
            good = valid[here, f].sum()
            fraction[f, b] = good / block
            if good and good / block >= threshold:
                out[f, b] = power[here].sum(axis=0) * block / good
    return out, fraction


_held = []


def free_port(kind=socket.SOCK_STREAM):
    """A port that no other test gets while this one runs, nor, by chance, any socket without a port of its
    own: it lies below those that the kernel gives. The lock is a name in the abstract namespace, which goes
    with the process."""
    while True:
        port, lock = random.randrange(20000, 32000), socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0beamring test port {port}")
            with socket.socket(socket.AF_INET, kind) as s:
                s.bind(("0.0.0.0", port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port


def has_device(device=DEVICE if DEVICE != "cpu" else "cuda:0"):
    """Whether a pipeline can be put on a device: the program says so itself."""
    with scratch() as d:
        result = run(d, f"device: {device}\npipeline: []\n", command="check", status=2)
        return "asks for a GPU" not in result.err


def main(tests):
    """Runs the functions whose names are given on the command line, or all; prints which failed. Skips where
    the device that the tests are to run on is not there."""
    if DEVICE != "cpu" and not has_device():
        print(f"no GPU: {DEVICE} skipped")
        sys.exit(77)
    failed = 0
    names = sys.argv[1:] or [t.__name__ for t in tests]
    for test in tests:
        if test.__name__ not in names:
            continue
        try:
            test()
            print(f"ok   {test.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"FAIL {test.__name__}: {error}")
    sys.exit(1 if failed else 0)
