"""Fine channels of both sidebands on the wire and in kotekan's files: chime-l0, whose channels descend
whatever the stream's do; frb-node, whose document states them; upchannelized fields with chordMetadata."""
import os

import numpy as np

import harness
import sky_common as sky
from sky_burst import Event, SAMPLE_S, ZONES
from sky_common import fe
from wires_common import chime_l0
import frb_node  # noqa: E402

# CHIME's channels, 800 MHz less 0.390625 MHz times a number: as CHIME has them, and as a board that samples
# twice as fast in the first zone.
CHIME = {"lower": {"fs_mhz": 800, "zone": 2, "nfft": 2048, "first_channel": 700},
         "upper": {"fs_mhz": 1600, "zone": 1, "nfft": 4096, "first_channel": 1345}}


def test_chime_l0():
    """A carrier in every channel is in the fine channel that CHIME's rule says, by the packets."""
    for side, of_board in CHIME.items():
        board = fe.Board(channels=4, taps=4, noise_rms=1.2, **of_board)
        rng = np.random.default_rng(4)
        array = sky.Array(board, 1, 2)
        width = abs(float(board.step_mhz))
        offsets = (rng.permutation([-6, -3, 2, 5]) + 0.5 + rng.uniform(-0.3, 0.3, 4)) / 16
        carriers = [fe.Carrier(f, 0.5 * np.sqrt(64 / board.nfft)) for f in board.freq_mhz() + offsets * width]
        field = fe.simulate(board, fe.Receivers(array.positions), carriers, 1024, epoch_ns=sky.EPOCH_NS)
        assert field.sideband == side
        receiver = chime_l0.Receiver()
        with harness.scratch() as d:
            sky.write(d, field)
            harness.run(d, array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 16, gain: 1.5}}
  - {{stage: frb_grid, in: fine, out: image, integrate: 32}}
  - {{stage: frb_beams, in: image, out: beams, beams: {{directions: [[0, 0]]}}}}
  - stage: packetize
    in: beams
    format: chime-l0
    packet_beams: 1
    packet_channels: 2
    rate: 2e6
    destinations: [{{address: "{receiver.address}"}}]
""")
        power = {}
        for p in receiver.finish():
            mhz = chime_l0.frequencies(p["coarse"], 16)
            value = p["data"][0] * p["scale"][0][:, None, None] + p["offset"][0][:, None, None]
            for f, x in zip(mhz.ravel(), (value * (p["data"][0] > 0)).sum(-1).ravel()):
                power[f] = power.get(f, 0) + x
        mhz, power = np.array(list(power)), np.array(list(power.values()))
        assert len(mhz) == 64
        brightest = np.sort(mhz[np.argsort(power)[-4:]])
        assert (abs(brightest - np.sort(field.carriers_mhz)) <= width / 32).all(), (side, brightest)


def test_frb_node():
    """A dispersed burst is in every channel when the law says, by the document's frequencies and times."""
    for zone in ZONES:
        event, receiver = Event(zone), frb_node.Receiver()
        with harness.scratch() as d:
            sky.write(d, event.field)
            harness.run(d, event.array.yaml + f"""
pipeline:
  - {{stage: replay, files: field*.dada, out: field}}
  - {{stage: upchannelize, in: field, out: fine, factor: 4}}
  - {{stage: frb_grid, in: fine, out: image, integrate: 4}}
  - {{stage: frb_beams, in: image, out: beams, beams: {sky.text(event.looks)}}}
  - {{stage: quantize, in: beams, out: levels, bits: 4, block: 256}}
  - {{stage: packetize, in: levels, format: frb-node, acks: true,
      destinations: [{{address: "{receiver.address}"}}]}}
""")
        (document, _, chunks), = receiver.finish()
        mhz = frb_node.frequencies(document)
        assert len(chunks) == 4 and chunks[0][0] == 0 and len(mhz) == 32
        side = np.repeat(np.stack([side for _, side, _ in chunks], 2).astype(float), 256, 2)
        levels = np.concatenate([levels for _, _, levels in chunks], 2)
        # the noise has mean 0, rms 1
        value = np.where(levels == -8, 0, side[..., 0] * levels + side[..., 1]) + 2
        where = np.stack([document["beam_positions_y"], document["beam_positions_x"]], 1)
        assert np.allclose(where, event.looks, rtol=0, atol=1e-6), "positions are east first"
        # the filter's window is centred 6 base samples before the centre of its output
        begin = document["unix_ns_at_seq_0"] * 1e-9 - sky.EPOCH_NS * 1e-9 - 6 * SAMPLE_S
        bright = [value[b, :, :].T for b in range(len(where))]
        event.check_beams("frb-node", [event.brightness(p, begin, 4 * SAMPLE_S, mhz) for p in bright])
        event.check_times(bright[event.at], begin, 4 * SAMPLE_S, mhz)


def test_kotekan():
    """An upchannelized field with chordMetadata, which numbers coarse channels and knows no sideband."""
    for zone in sky.ZONES:
        board = sky.board(zone, noise_rms=1.2, taps=4)
        array = sky.Array(board, 2, 2)
        carriers = [fe.Carrier(f, 0.5) for f in sky.carrier_places(board, 6)]
        field = fe.simulate(board, fe.Receivers(array.positions), carriers, 2048, epoch_ns=sky.EPOCH_NS)
        with harness.scratch() as d:
            sky.write(d, field)
            result = harness.run(d, array.yaml + """
pipeline:
  - {stage: replay, files: field*.dada, out: field, frame_samples: 512}
  - {stage: upchannelize, in: field, out: fine, factor: 8, gain: 1.5}
  - {stage: record, in: fine, directory: k, prefix: x, format: kotekan, lossy: true}
""")
            assert f"stream: {{sideband: {field.sideband}}}" in result.err, result
            harness.run(d, array.yaml + f"""
stream: {{sample_ns: 160, epoch_ns: {sky.EPOCH_NS}, sideband: {field.sideband}}}
pipeline:
  - {{stage: replay, files: 'k/x*.raw', out: fine}}
  - {{stage: record, in: fine, directory: seen, prefix: fine}}
""")
            power, keys = sky.power_of(os.path.join(d, "seen"), "fine")
            mhz, width = sky.numbers(keys, "FREQ_MHZ"), np.full(64, field.width_mhz / 8)
            found = sky.check_carriers(f"zone {zone}", field.carriers_mhz, power, mhz, width)
            assert found == len(carriers) and keys["SIDEBAND"] == field.sideband


if __name__ == "__main__":
    harness.main([test_chime_l0, test_frb_node, test_kotekan])
