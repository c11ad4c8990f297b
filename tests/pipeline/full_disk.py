"""Every writer onto a file system that becomes full: the run fails, and what its message says is there can be
read, by others' software too, and is what a run with room enough wrote.

File systems are a limit of a file's length, a small tmpfs, and a small ext4 on a loop device; the last two
are left out where they cannot be mounted. BEAMRING_READERS_PYTHON names a Python that has baseband, sigpyproc
and pyuvdata; without it h5py and numpy look at the files alone."""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess

import harness
from overwrite import FIELD, VISIBILITIES, WRITERS

SAMPLES = 65536
BLOCKS, VDIF_FRAMES = SAMPLES // 1024, SAMPLES // 64
FORMATS = {name: WRITERS[name] for name in ("dada", "vdif", "guppi", "kotekan", "chime")}
FORMATS["vdif"] = FORMATS["vdif"].replace("MORE", "vdif_samples: 64, MORE")
FORMATS["filterbank"] = WRITERS["filterbank"].replace("levels, dir", "levels, beams: [0, 3], dir") \
    .replace("integrate: 16", "integrate: 1")
FORMATS["uvh5"] = VISIBILITIES.replace("MORE", "integrations: 0, MORE")
# What a message says is whole.
NAMED = {"dada": r"the (\d+) samples before that are in the file",
         "vdif": r"its first (\d+) frames of every thread are whole, and nothing follows",
         "guppi": r"its first (\d+) blocks are whole, and nothing follows",
         "kotekan": r"it is removed, and the (\d+) files before it are whole",
         "chime": r"the (\d+) samples before this are there",
         "filterbank": r"the (\d+) bytes before this are good",
         "uvh5": r"the (\d+) integrations before this are in it"}


def text_of(name):
    text = FIELD.replace("SEED", "1").replace("16384", str(SAMPLES))
    return text + FORMATS[name].replace("MORE", "overwrite: true")


def files_of(d):
    found = glob.glob(os.path.join(d, "out", "*"))
    return sorted(p for p in found if os.path.isfile(p) and not p.endswith((".gaps", ".csv")))


@contextlib.contextmanager
def full(kind, path, size):
    """A directory whose file system is full after `size` bytes, or None; and a limit of a file's length."""
    if kind == "limit":
        os.mkdir(path)
        yield path, size
    else:
        with harness.small_disk(path, size, kind) as mounted:
            yield mounted, None


def prefix(data, whole, what):
    assert 0 < len(data) <= len(whole) and data == whole[:len(data)], (what, len(data), len(whole))


def check_files(name, cut, whole, count):
    """Byte for byte, as far as the message goes."""
    import h5py
    assert len(cut) == (count if name == "kotekan" else len(whole)), (name, cut)
    for a, b in zip(cut, whole):
        if name in ("chime", "uvh5"):
            with h5py.File(a) as one, h5py.File(b) as other:
                key = "baseband" if name == "chime" else "Data/visdata"
                rows = count if name == "chime" else count * one["Header/Nbls"][()]
                assert len(one[key]) == rows, (name, len(one[key]), count)
                assert (one[key][()] == other[key][:rows]).all(), name
            continue
        with open(a, "rb") as one, open(b, "rb") as other:
            one, other = one.read(), other.read()
        start = 4096 if name == "dada" else 0  # whose header says at the end how long the file is
        length = {"dada": 4096 + 32 * count, "filterbank": count, "vdif": len(other) // VDIF_FRAMES * count,
                  "guppi": len(other) // BLOCKS * count, "kotekan": len(other)}[name]
        assert len(one) >= length, (name, len(one), count)
        assert len(one) == length or name in ("dada", "filterbank"), (name, len(one), length)
        one = one[:length]
        prefix(one[start:], other[start:], name)


def read_by_others(pairs):
    python = os.environ.get("BEAMRING_READERS_PYTHON")
    if not python:
        print("left out: others' readers, for BEAMRING_READERS_PYTHON names no Python that has them")
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle", "full_disk_readers.py")
    done = subprocess.run([python, script], input=json.dumps(pairs), text=True, capture_output=True,
                          timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())


def check_one(name, kind, d, whole):
    total = sum(os.path.getsize(p) for p in whole)
    share = 0.85 if name == "uvh5" else 0.6  # HDF5 takes its room early
    size = int(share * (max(os.path.getsize(p) for p in whole) if kind == "limit" else total))
    os.mkdir(d)
    with full(kind, os.path.join(d, "out"), size) as (out, limit):
        if out is None:
            return None
        with open(os.path.join(d, "pipeline.yaml"), "w") as f:
            f.write(text_of(name))
        result = harness.beamring("run", "pipeline.yaml", cwd=d, file_bytes=limit)
        why = "File too large" if limit else "No space left on device"
        assert result.status == 1 and why in result.err, (name, kind, result)
        found = re.search(NAMED[name], result.err)
        assert found, (name, kind, result)
        count = int(found[1])
        cut = files_of(d)
        check_files(name, cut, whole, count)
        kept = [shutil.copy(a, f"{d}_{os.path.basename(a)}") for a in cut]
        return count, [[name, a, b, count] for a, b in zip(kept, whole)]


def test_full_disks():
    with contextlib.ExitStack() as stack:
        pairs = []
        for name in FORMATS:
            d = stack.enter_context(harness.scratch())
            os.mkdir(os.path.join(d, "whole"))
            harness.run(os.path.join(d, "whole"), text_of(name))
            whole = files_of(os.path.join(d, "whole"))
            done = {kind: check_one(name, kind, os.path.join(d, kind), whole)
                    for kind in ("limit", "tmpfs", "ext4")}
            print(f"{name}: " + ", ".join(f"{kind} {'left out' if one is None else one[0]}"
                                          for kind, one in done.items()))
            pairs += [pair for one in done.values() if one for pair in one[1]]
        read_by_others(pairs)


if __name__ == "__main__":
    harness.main([test_full_disks])
