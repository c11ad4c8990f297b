"""`beamring receive`."""
import json
import os
import socket
import time

import numpy as np
import yaml

import harness
from wires_common import (check_l0, document, EPOCH, free_port, l0_packets, random_minichunks, receive_tool,
                          recordings, STEP)
import frb_node  # noqa: E402


def test_receive_tool():
    """The recorder: what two senders bring, or packets, as files that replay reads; the document; the
    counters."""
    rng = np.random.default_rng(8)
    with harness.scratch() as d:
        port = free_port()
        tool = receive_tool(d, "frb-node", f"127.0.0.1:{port}", "--directory", "out", "--senders", 2,
                            "--until-closed")
        levels, side = random_minichunks(rng, 30, 2, 4)
        socks = []
        for channels in ((4, 1), (0, 5)):
            s = socket.create_connection(("127.0.0.1", port))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(frb_node.hello(document(channels=channels), flags=1))
            socks.append(s)
        for n in range(30):
            for s, w in zip(socks, ([2, 1], [0, 3])):  # channels 0, 1, 4, 5 in the order of the recording
                if n not in (11, 12):
                    s.sendall(frb_node.minichunk(n * STEP, side[n][:, w], levels[n][:, w]))
                    assert s.recv(1) == b"\1"
        for s in socks:
            s.close()
        out, _ = tool.communicate(timeout=20)
        counts = json.loads(out)
        assert tool.returncode == 0 and counts["received"] == 56 and counts["missing"] == 8 and \
            counts["blocks"] == 28, counts
        assert yaml.safe_load(open(os.path.join(d, "out",
                                                "document.yaml"))) == document(channels=(0, 1, 4, 5))
        got = recordings(os.path.join(d, "out"), "received")
        assert [f[0] for f in got] == [n * STEP for n in range(30) if n not in (11, 12)]
        for first, x, y in got:
            assert np.array_equal(x, levels[first // STEP]) and \
                np.array_equal(y, side[first // STEP].astype(np.float32))
        harness.run(d, """
pipeline:
  - {stage: replay, files: out/received_*.dada, out: q}
  - {stage: filterbank, in: q, directory: fil, values: intensity}
""")
        info = harness.beamring("info", os.path.join(d, "out", "received_000000.dada"))
        assert info.status == 0 and "int4" in info.out, info
    with harness.scratch() as d:
        port = free_port(socket.SOCK_DGRAM)
        packets, data, scale, offset = l0_packets(rng, 40)
        tool = receive_tool(d, "chime-l0", f"127.0.0.1:{port}", "--directory", ".", "--beams", 4,
                            "--first-beam", 100, "--channels", 6, "--first-channel", 20, "--nupfreq", 2,
                            "--epoch-ns", EPOCH, "--idle", 0.5)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            for i, p in enumerate(packets):
                if i != 50:
                    s.send(p[3])
                if i % 16 == 0:
                    time.sleep(0.001)
        out, _ = tool.communicate(timeout=20)
        counts = json.loads(out)
        assert tool.returncode == 0 and counts["received"] == 159 and counts["missing"] == 6, counts
        os.rename(os.path.join(d, "received_000000.dada"), os.path.join(d, "r_000000.dada"))
        check_l0(d, {p[:3] for i, p in enumerate(packets) if i != 50}, data, scale, offset)
    for args in (["frb-node"], ["udp", "*:1"], ["frb-node", "nowhere"], ["chime-l0", "*:1"],
                 ["frb-node", "*:1", "--window", "x"], ["frb-node", "*:1",
                                                        "--window"], ["frb-node", "*:1", "--directory"]):
        assert harness.beamring("receive", *args).status == 2, args


def test_largest_documents():
    """Documents of nearly the 1 MiB of the protocol, written more tersely than ours, or with more digits: of
    many beams, of many channels."""
    beams = lambda n, x, y: document(n, (0, ), beam_ids=list(range(n)), beam_positions_x=x,
                                     beam_positions_y=y)
    for name, d, least in (
        ("beams", beams(60000, [b % 500 / 1000 for b in range(60000)], [0.5] * 60000), 0.9e6),
        ("digits", beams(33000, [b % 7 / 1000 for b in range(33000)], [1 / 3] * 33000), 0.95e6),
        ("channels", document(2, range(20000), zone_nfreq=[20000, 2]), 1e5),
    ):
        text = yaml.dump(d, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), default_flow_style=True,
                         width=10**9).replace(", ", ",")
        assert least < len(text) < 1 << 20, (name, len(text))
        shape = len(d["beam_ids"]), len(d["freq_channels"])
        with harness.scratch() as directory:
            port = free_port()
            tool = receive_tool(directory, "frb-node", f"127.0.0.1:{port}", "--directory", ".",
                                "--until-closed")
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(frb_node.hello(text))
                levels, side = np.ones((*shape, 256), np.int8), np.ones((*shape, 2))
                for n in range(2):
                    s.sendall(frb_node.minichunk(n * STEP, side, levels))
            out, _ = tool.communicate(timeout=60)
            assert tool.returncode == 0 and json.loads(out)["received"] == 2, (name, out)
            saved = open(os.path.join(directory, "document.yaml")).read()
            assert frb_node.frb_document.read(saved.encode()) == d, name


if __name__ == "__main__":
    harness.main([test_receive_tool, test_largest_documents])
