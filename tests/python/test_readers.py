"""Files of every kind: what this package reads of them is what other people's readers find in them."""

import glob
import pathlib
import socket

import numpy as np
import pytest

import beamring as br
from conftest import EPOCH_NS, HEAD, TELESCOPE, same

TESTS = pathlib.Path(__file__).resolve().parents[1]
FIELD = HEAD + """
pipeline:
  - {stage: simulate, out: field, samples: 2000, seed: 3, frame_samples: 500,
     missing: [{first: 1000, count: 250}]}
"""
HINTS = {"sample_ns": 2560, "epoch_ns": EPOCH_NS, "sideband": "upper", "freq_mhz": [400, 401, 402, 403]}


@pytest.fixture
def oracle(monkeypatch):
    """The writers and readers of the tests of pipelines, which know nothing of this package."""
    monkeypatch.setenv("BEAMRING", br.program())
    for folder in ("pipeline", "oracle"):
        monkeypatch.syspath_prepend(str(TESTS / folder))


def quiet(message):
    pass


def test_vdif_by_baseband():
    vdif = pytest.importorskip("baseband.vdif")
    units = pytest.importorskip("astropy.units")
    text = FIELD.replace("sample_ns: 2560", "sample_ns: 1000")
    text += "  - {stage: record, in: field, format: vdif, vdif_samples: 250, prefix: x}\n"
    br.Pipeline(text).run(on_message=quiet)
    path = glob.glob("x*.vdif")[0]
    with vdif.open(path, "rs", sample_rate=1e6 * units.Hz) as reader:
        theirs = reader.read() * 2.95  # [time][thread][channel], in baseband's units
        start = reader.start_time
    pathlib.Path("t.yaml").write_text(TELESCOPE)
    r = br.open(path, format="vdif", stream=HINTS | {"sample_ns": 1000}, telescope="t.yaml")
    ours = r.data.transpose(0, 2, 3, 1).reshape(r.shape[0], 12, 4)
    good = (r.valid == 255).all(1)
    assert theirs.shape == ours.shape == (2000, 12, 4) and good.sum() == 1750
    assert np.abs(ours - theirs)[good].max() < 1e-3 and np.abs(ours[good]).max() > 3
    assert not good[1000:1250].any() and (r.valid[1000:1250] == 0).all()
    assert abs(start.unix * 1e9 - r.times_ns[0]) < 1000


def test_vdif_and_guppi_of_observatories():
    """The samples that baseband ships."""
    data = pytest.importorskip("baseband.data")
    from astropy import units
    from baseband import guppi, vdif

    with vdif.open(data.SAMPLE_AROCHIME_VDIF, "rs", sample_rate=1e9 / 2560 * units.Hz) as reader:
        theirs = reader.read() * 2.95
    hints = {"sample_ns": 2560, "freq_mhz": {"first": 800, "step": -0.390625, "count": 1024}}
    r = br.open(data.SAMPLE_AROCHIME_VDIF, stream=hints)
    assert r.shape == (len(theirs), 1024, 2, 1) and len(theirs) > 4
    assert np.abs(r.data[..., 0].transpose(0, 2, 1) - theirs).max() < 1e-3
    with guppi.open(data.SAMPLE_PUPPI, "rs") as reader:
        theirs = reader.read()  # [time][pol][channel]
        start = reader.start_time
    r = br.open(data.SAMPLE_PUPPI)
    assert same(r.data[: len(theirs), :, :, 0].transpose(0, 2, 1), theirs)
    assert abs(start.unix * 1e9 - r.times_ns[0]) < 1000


def test_filterbanks_by_your(made):
    your = pytest.importorskip("your")
    folder, result = made
    paths = sorted(map(str, (folder / "fil").glob("*.fil")))
    assert len(paths) >= 4
    for path in paths:
        r = br.open(path)
        theirs = your.Your(path)
        h = theirs.your_header
        assert same(r.data[:, 0], theirs.get_data(0, h.nspectra).astype(np.float32))
        assert np.allclose(r.freqs_mhz, h.fch1 + h.foff * np.arange(h.nchans), rtol=0, atol=1e-9)
        assert abs((h.tstart - 40587) * 86400e9 - r.times_ns[0]) < 10**6


def test_chime_by_h5py(oracle):
    h5py = pytest.importorskip("h5py")
    text = FIELD + "  - {stage: record, in: field, format: chime, lossy: true, prefix: x}\n"
    want = br.Pipeline(text).run(collect=["field"], on_message=quiet)["field"]
    paths = sorted(glob.glob("x*.h5"))
    assert len(paths) == 4
    pathlib.Path("t.yaml").write_text(TELESCOPE)
    r = br.open(paths, format="chime", stream={"sideband": "upper"}, telescope="t.yaml")
    of = {}
    for path in paths:
        with h5py.File(path) as file:
            stored = file["baseband"][()]
            of[float(file.attrs["freq"])] = ((stored >> 4) - 8.0) + 1j * ((stored & 15) - 8.0), stored != 0
    assert r.shape == (2000, 4, 2, 6)
    for c, mhz in enumerate(r.freqs_mhz):
        values, there = of[mhz]
        good = r.valid[:, c] == 255
        assert same(good, there.all(1)) and good.sum() == 1750
        assert same(r.data[good, c].reshape(-1, 12), values[good].astype(np.complex64))
    assert same(np.sort(r.freqs_mhz), want.freqs_mhz) and same(r.times_ns, want.times_ns)


def test_packets_of_a_capture_file(oracle):
    pytest.importorskip("yaml")
    from capture_common import LINKS, ip_udp, packets, write_pcap

    engine = packets.ChordCrs()
    raw = np.random.default_rng(3).integers(0, 256, engine.shape(1024), np.uint8)
    frames = [LINKS["ethernet"][1](ip_udp(p)) for *_, p in engine.packets(raw)]
    write_pcap("a.cap", 1, frames)
    channels = raw.shape[1]
    mhz = {"first": 400, "step": 0.1, "count": channels}
    hints = {"epoch_ns": EPOCH_NS, "sample_ns": 5120, "freq_mhz": mhz}
    replay = {"packet": engine.name, "sources": list(engine.sources), "streams": list(engine.streams)}
    with pytest.raises(br.FormatError, match="unpack"):
        br.open("a.cap", stream=hints, **replay)
    dishes = ", ".join(f"[0, {i}]" for i in range(12))
    telescope = f"""
telescope: {{name: row, grid: {{m: 1, n: 12}}, spacing_m: {{m: 8, n: 6}}, dishes: [{dishes}]}}
"""
    pathlib.Path("t.yaml").write_text(telescope)
    document = {
        "include": "t.yaml",
        "stream": {**hints, "sideband": "upper"},
        "pipeline": [
            {"stage": "replay", "files": "a.cap", "frame_samples": 512, "out": "packets",
             "values": "offset_binary", "real": "high", **replay},
            {"stage": "unpack", "in": "packets", "out": "field"},
        ],
    }
    field = br.Pipeline(document).run(collect=["field"], on_message=quiet)["field"]
    values = ((raw >> 4) - 8.0) + 1j * ((raw & 15) - 8.0)  # [time][channel][input]
    good = (field.valid == 255).all(1)
    assert field.shape == (1024, channels, 2, 12) and good.sum() >= 1008
    ours = field.data[good].reshape(-1, channels, 24)  # the default order: one polarisation after the other
    assert same(ours, values[good].astype(np.complex64))


def test_what_receive_records(oracle, tmp_path):
    pytest.importorskip("yaml")
    import frb_node
    from wires_common import STEP, document, free_port, random_minichunks, receive_tool

    rng, port = np.random.default_rng(8), free_port()
    where = (f"127.0.0.1:{port}", "--directory", "out")
    tool = receive_tool(str(tmp_path), "frb-node", *where, "--until-closed")
    levels, side = random_minichunks(rng, 20, 2, 4)
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(frb_node.hello(document(channels=(0, 1, 4, 5)), flags=1))
        for n in range(20):
            if n not in (7, 8):
                s.sendall(frb_node.minichunk(n * STEP, side[n], levels[n]))
                assert s.recv(1) == b"\1"
    tool.communicate(timeout=30)
    r = br.open(str(tmp_path / "out" / "received_*.dada"))
    want = levels.transpose(1, 2, 0, 3).reshape(2, 4, -1)  # [beam][freq][time]
    there = np.ones(20 * 256, bool)
    there[7 * 256 : 9 * 256] = False
    assert r.axes == ("beam", "freq", "time") and r.shape == want.shape and r.stream.downsample == 4
    assert same(r.decoded()[..., there], want[..., there].astype(np.float32))
    assert same(r.valid > 0, (want != -8).any(0) & there)  # -8: masked
    chunks = [n for n in range(20) if n not in (7, 8)]
    assert [(first, samples) for first, samples, _ in r.side] == [(n * STEP, STEP) for n in chunks]
    assert all(same(s, side[n].astype(np.float32)) for n, (_, _, s) in zip(chunks, r.side))
    assert same(r.times_ns, 1500000000 * 10**9 + 5120 * 4 * np.arange(20 * 256))
