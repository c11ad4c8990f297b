"""Files of which a full disk has cut the end off, as others' software reads them. Standard input is a list of
[format, cut file, whole file, count or null]: what baseband, sigpyproc and pyuvdata read of the first must be
the beginning of what they read of the second, and as much as the count says."""
import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # it has a baseband.py of its own
warnings.simplefilter("ignore")


def guppi_raw(path):
    """All whole blocks."""
    import numpy as np
    from baseband import guppi
    found = []
    with guppi.open(path, "rb") as f:
        while True:
            try:
                found.append(np.asarray(f.read_frame(memmap=False).data))
            except (EOFError, ValueError, OSError):
                return np.concatenate(found)


def vdif_file(path):
    """All whole frames."""
    import numpy as np
    from baseband import vdif
    found = []
    with vdif.open(path, "rb") as f:
        while True:
            try:
                frame = f.read_frame()
            except (EOFError, AssertionError, ValueError, OSError):
                return np.array(found)
            header = frame.header
            found.append((header["thread_id"], header["frame_nr"], *np.asarray(frame.data).ravel()))


def filterbank(path):
    from sigpyproc.readers import FilReader
    f = FilReader(path)
    return f.read_block(0, f.header.nsamples).data.T


def uvh5(path):
    from pyuvdata import UVData
    uv = UVData()
    uv.read(path)
    return uv.data_array.reshape(uv.Ntimes, -1)


READERS = {"guppi": guppi_raw, "vdif": vdif_file, "filterbank": filterbank, "uvh5": uvh5}


def main():
    for name, cut, whole, count in json.load(sys.stdin):
        if name not in READERS:
            continue
        try:
            got, wanted = READERS[name](cut), READERS[name](whole)
        except ImportError as error:
            print(f"left out: {name}: {error}")
            continue
        assert 0 < len(got) < len(wanted), (name, len(got), len(wanted))
        assert (got == wanted[:len(got)]).all(), name
        assert name != "uvh5" or len(got) == count, (len(got), count)
        print(f"{name}: {len(got)} of {len(wanted)} are read")


if __name__ == "__main__":
    main()
