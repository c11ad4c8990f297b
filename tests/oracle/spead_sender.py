"""A sender of SPEAD that is not ours: the package spead2 sends heaps as MeerKAT Extension's F-engines do,
with a descriptor in between and a stop at the end, and capture takes them in with the description `spead`.

Needs BEAMRING (the program) and BEAMRING_READERS_PYTHON (an interpreter that has numpy and spead2); skips
without the latter."""
import os
import socket
import subprocess
import sys

SKIP = 77
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES, FREQUENCY, SPECTRA, CHANNELS = (5, 9), 128, 256, 64


def send(port, path):
    """raw[time][channel][source x pol] as heaps [channel][spectrum][pol]."""
    import numpy as np
    import spead2
    import spead2.send
    raw = np.load(path)
    config = spead2.send.StreamConfig(max_packet_size=72 + 8192, rate=4e6, max_heaps=64)
    stream = spead2.send.UdpStream(spead2.ThreadPool(), [("127.0.0.1", int(port))], config)
    flavour = spead2.Flavour(4, 64, 48, 0)
    immediate = [("u", 48)]

    def items(timestamp, source, data):
        return [spead2.Item(0x1600, "timestamp", "", (), format=immediate, value=timestamp),
                spead2.Item(0x4101, "feng_id", "", (), format=immediate, value=source),
                spead2.Item(0x4103, "frequency", "", (), format=immediate, value=FREQUENCY),
                spead2.Item(0x4300, "feng_raw", "", data.shape, dtype=data.dtype, value=data)]
    for k in range(len(raw) // SPECTRA):
        for s, source in enumerate(SOURCES):
            block = raw[k * SPECTRA:(k + 1) * SPECTRA, :, 2 * s:2 * s + 2]
            heap = spead2.send.Heap(flavour)
            heap.repeat_pointers = True
            made = items(k * SPECTRA * 8192, source, np.ascontiguousarray(block.transpose(1, 0, 2)))
            for item in made:
                heap.add_item(item)
            stream.send_heap(heap, cnt=1 + 2 * k + s)
            if k == 1:
                descriptors = spead2.send.Heap(flavour)
                for item in made:
                    descriptors.add_descriptor(item)
                stream.send_heap(descriptors, cnt=1000 + s)
    end = spead2.send.Heap(flavour)
    end.add_end()
    stream.send_heap(end, cnt=2000)


def main():
    if len(sys.argv) == 3:
        send(*sys.argv[1:])
        return 0
    python = os.environ.get("BEAMRING_READERS_PYTHON")
    if not python or subprocess.run([python, "-c", "import spead2, numpy"],
                                    capture_output=True).returncode != 0:
        print("skipped: BEAMRING_READERS_PYTHON does not name a Python that has the package spead2")
        return SKIP
    sys.path.append(os.path.join(HERE, "..", "pipeline"))
    import harness
    import numpy as np
    from capture_common import capture, counters, free_port, packets, recorded
    fengine, frame, frames = packets.Spead(), 512, 8
    assert (fengine.sources, fengine.streams[0]) == (SOURCES, FREQUENCY)
    with harness.scratch() as d:
        raw = np.random.default_rng(4).integers(0, 256, fengine.shape(frames * frame), np.uint8)
        np.save(os.path.join(d, "raw.npy"), raw)
        port = free_port(socket.SOCK_DGRAM)
        run = capture(d, fengine, port, frame, "start_sample: 0", frames=frames)
        subprocess.run([python, __file__, str(port), os.path.join(d, "raw.npy")], check=True, timeout=60)
        run.finish_after(len(raw) // SPECTRA * 2 * 4 + 3)  # two heaps of descriptors and the end
        got, there, share, first = recorded(d, fengine, frame)
        by_source, total = counters(run.text())
        assert first == 0 and there.all() and (share == 255).all() and np.array_equal(got, raw), run.text()
        assert total["accepted"] == len(raw) // SPECTRA * 2 * 4 and total["malformed"] == 0, run.text()
        assert total["foreign"] >= 3, run.text()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
