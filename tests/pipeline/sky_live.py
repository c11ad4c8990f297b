"""The true sky as packets: an F-engine's field over UDP, whose description says the sideband, or `stream:`,
or capture, or nobody; the source is in the beam that looks at it and the carriers in their channels."""
import concurrent.futures
import os
import socket

import numpy as np

import harness
import sky_common as sky
from capture_common import ip_udp, LINKS, write_pcap
from sky_common import fe
from sky_files import LOOK, QUIET, Truth
from wires_common import free_port, Running

# Boards, axes of the payload and nibbles in every zone another way.
FORMS = {1: fe.Packets(8, 4, 12), 2: fe.Packets(4, 8, 24, ("freq", "time", "dish", "pol"), "high"),
         3: fe.Packets(16, 2, 8, ("freq", "pol", "time", "dish"), "high"),
         4: fe.Packets(2, 8, 6, ("time", "pol", "dish", "freq"), "low")}
NODE = """
device: {device}
stream: {{epoch_ns: {epoch}{stream}}}
pipeline:
  - {{{source}, packet: ./board.yaml, sources: {boards}, frame_samples: 512, out: packets}}
  - {{stage: unpack, in: packets, out: field}}
"""


def node_text(truth, form, source, stream=""):
    """A pipeline from packets to beams and fine channels."""
    boards = list(range(truth.field.e.shape[3] // form.dishes))
    return truth.array.yaml + NODE.format(device=harness.DEVICE, epoch=sky.EPOCH_NS, stream=stream,
                                          source=source, boards=boards) + \
        LOOK.replace("LOOKS", sky.text(truth.looks))


def describe(d, truth, form, sideband):
    with open(os.path.join(d, "board.yaml"), "w") as f:
        f.write(fe.packet_description(truth.field, form, sideband))


def live(zone):
    """A node that listens, and the field sent to it. In zones 1 and 2 the description says the sideband, in
    zone 3 `stream:` does, in zone 4 capture."""
    truth, form, port = Truth(zone), FORMS[zone], free_port(socket.SOCK_DGRAM)
    side = truth.field.sideband
    with harness.scratch() as d:
        describe(d, truth, form, side if zone < 3 else None)
        source = f'stage: capture, addresses: ["127.0.0.1:{port}"], backend: socket, open: 4, ' \
            "start_sample: 0" + (f", sideband: {side}" if zone == 4 else "")
        run = Running(d, node_text(truth, form, source, f", sideband: {side}" if zone == 3 else ""))
        rows = fe.packets(truth.field, form)
        fe.transmit(rows, truth.field.e.shape[0], "127.0.0.1", port, 2e6)
        run.finish_after(len(rows))
        assert "sideband of the channels" not in run.text(), run.text()
        truth.check(d)


def test_live():
    with concurrent.futures.ThreadPoolExecutor(len(sky.ZONES)) as pool:
        for done in [pool.submit(live, zone) for zone in sky.ZONES]:
            done.result()


def test_capture_files():
    """Packets of both sidebands from pcap files; where nobody says the sideband the run says so once, and the
    wrong one puts the source into the mirror direction's beam."""
    for zone in (1, 4):
        truth, form = Truth(zone), FORMS[zone]
        side = truth.field.sideband
        with harness.scratch() as d:
            link, wrap = LINKS["raw"]
            write_pcap(os.path.join(d, "x.pcap"), link,
                       [wrap(ip_udp(p.tobytes())) for p in fe.packets(truth.field, form)])
            for said, stream in ((side, ""), (None, f", sideband: {side}"), (None, ""),
                                 (truth.other, f", sideband: {side}, override: [sideband]"),
                                 (truth.other, "")):
                describe(d, truth, form, said)
                result = harness.run(d, node_text(truth, form, "stage: replay, files: x.pcap", stream))
                assert result.err.count("sideband of the channels") == (said is None and not stream), result
                if side == (said or "upper") or stream:
                    truth.check(d)
                    continue
                i, _ = sky.intensities(os.path.join(d, "seen"), "list")
                brightest = truth.looks[np.argmax(np.nansum(i[:, :QUIET // 64], (0, 1)))]
                assert np.allclose(brightest, -np.array(sky.xy(truth.place))), brightest


if __name__ == "__main__":
    harness.main([test_live, test_capture_files])
