"""The document of the FRB-node protocol: what `beamring check` lets pass, a receiver with all rules takes;
and what becomes of a run whose document a receiver does not take."""
import os
import socket
import struct
import time

import yaml

import harness
from wires_common import document, frb_receiver, free_port, head
import frb_node  # noqa: E402

Q = "  - {stage: quantize, in: j, out: q, bits: 4, block: 256}\n"


def sender(address, more="", text=None, duration=0.006):
    return (text or head(0, duration)) + Q + f"""
  - {{stage: packetize, in: q, format: frb-node, idle_s: 0.05, connect_s: 3, {more}
       destinations: [{{address: "{address}"}}]}}
"""


def at_place(latitude, longitude):
    """The pathfinder's pipeline elsewhere on the Earth."""
    return f"""
telescope: {{name: t, grid: {{m: 2, n: 2}}, spacing_m: {{m: 8.5, n: 6.3}}, dishes: [[0, 0], [0, 1], [1, 0]],
  latitude_deg: {latitude}, longitude_deg: {longitude}}}
stream: {{epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: [600, 600.1953125, 600.390625]}}
pipeline:
  - {{stage: simulate, out: e, seed: 7, frame_samples: 2048, duration_s: 0.006}}
  - {{stage: frb_grid, in: e, out: i, integrate: 4}}
  - {{stage: frb_beams, in: i, out: j, beams: {{grid: [2, 4], spacing_deg: 0.3}}}}
"""


# The pipeline's values, and a word of the refusal (None: accepted).
LIMITS = [
    (dict(more="site: {coelev_deg: 90},"), None),
    (dict(more="site: {coelev_deg: -90},"), None),
    (dict(more="site: {coelev_deg: 90.5},"), "coelev_deg"),
    (dict(more="site: {coelev_deg: -91},"), "coelev_deg"),
    (dict(more="site: {n_axis: [1.0000004, 0, 0]},"), None),
    (dict(more="site: {n_axis: [1.0000006, 0, 0]},"), "tel_grid_x_axis: its length"),
    (dict(more="site: {vert_axis: [0, 0, 0.9999994]},"), "tel_dish_vert_axis: its length"),
    (dict(more="site: {m_axis: [9.0e-7, 1, 0]},"), None),
    (dict(more="site: {m_axis: [1.1e-6, 1, 0]},"), "not orthogonal"),
    (dict(more="site: {elev_axis: [0, 0, 1]},"), "not orthogonal"),
    (dict(more="site: {elev_axis: [.nan, 0, 1]},"), "elev_axis"),
    (dict(more="noise_variance: 1e-12,"), None),
    (dict(more="noise_variance: [1, 2],"), "noise_variance: 2 numbers for 1 zones"),
    (dict(more="noise_variance: 0,"), "noise_variance"),
    (dict(text=at_place(90, 360)), None),
    (dict(text=at_place(-90, -300)), None),  # written as 60 degrees
    (dict(text=at_place(90.01, 0)), "latitude_deg"),
    (dict(text=at_place(0, 361)), "longitude_deg"),
    (dict(text=head(0, 0.006).replace("grid: [2, 4], spacing_deg: 0.3", "directions: [[0.6, 0.8], [0, 1]]")),
     None),
    (dict(text=head(0, 0.006).replace("grid: [2, 4], spacing_deg: 0.3", "directions: [[0.6, 0.8001]]")),
     "direction"),
]


def test_limits():
    """Each limit of the rules from both sides; what is taken goes to a receiver that knows all of them."""
    with harness.scratch() as d:
        for args, word in LIMITS:
            if word is not None:
                with open(os.path.join(d, "p.yaml"), "w") as f:
                    f.write(sender("127.0.0.1:9", **args))
                result = harness.beamring("check", "p.yaml", cwd=d)
                assert result.status == 2 and word in result.err and "p.yaml:" in result.err, (args, result)
                continue
            receiver = frb_node.Receiver()
            harness.run(d, sender(receiver.address, **args))
            (doc, _, chunks), = receiver.finish()
            assert chunks, args
            if args.get("text") == at_place(-90, -300):
                assert (doc["tel_origin_itrs_lat_deg"], doc["tel_origin_itrs_lon_deg"]) == (-90, 60)


def refuse(receiver, sock, index):
    """As a receiver that does not like the document: it has read it, and goes."""
    _, _, length = struct.unpack("<IIi", receiver.take(sock, 12))
    receiver.take(sock, length)
    receiver.got.append(index)


def test_refused_by_receiver():
    """The run ends with 1 and says whose log to read; a receiver next to it gets everything."""
    with harness.scratch() as d:
        for acks in ("true", "false"):
            good, bad = frb_node.Receiver(), frb_node.Receiver(behave=refuse)
            text = sender(good.address, f"acks: {acks}, retry_s: 100,", duration=0.1).replace(
                "destinations: [", f'destinations: [{{address: "{bad.address}"}}, ')
            result = harness.run(d, text, status=1)
            assert f"{bad.address} ended 1 connection and never accepted anything" in result.err, result
            assert "balance: every" in result.out, result
            (_, _, chunks), = good.finish()
            assert len(chunks) > 10 and bad.finish() == [0]
        # one that has taken something and then goes is a destination that is lost, not a refusal
        lasting = frb_node.Receiver(cut_after={0: 5})
        result = harness.run(d, sender(lasting.address, "acks: true, retry_s: 100,", duration=0.1))
        assert "never accepted" not in result.err and "missed" in result.err, result


def talk(port, data):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(data)
        try:
            assert s.recv(1) == b""
        except ConnectionError:
            pass


def test_only_sender_refused():
    """`until_closed` is over when the only sender was refused, the stage's and the command's; why is said in
    full."""
    long = "x" * 300
    bad = {
        "coelevation": (document(tel_dish_coelev_deg=95.0), "tel_dish_coelev_deg: 95; expected -90 to 90"),
        "place": (document(tel_origin_itrs_lon_deg=-181.0),
                  "tel_origin_itrs_lon_deg: -181; expected -180 to 360"),
        "channel": (document(channels=(0, 5)), "it sends channel 5, which is not expected"),
        "key": (document(**{long: 1}), "unknown key"),
    }
    with harness.scratch() as d:
        for doc, words in bad.values():
            port = free_port()
            run = frb_receiver(d, port, document(), "until_closed: true, hold_s: 30")
            talk(port, frb_node.hello(doc))
            run.finish(timeout=20)
            assert words in run.text() and run.counts()["malformed"] == 1, run.text()
        port = free_port()
        begun = time.time()
        from wires_common import receive_tool
        tool = receive_tool(d, "frb-node", f"127.0.0.1:{port}", "--until-closed")
        talk(port, frb_node.hello(bad["place"][0]))
        out, err = tool.communicate(timeout=20)
        assert tool.returncode == 0 and "-181; expected -180 to 360" in err and '"malformed": 1' in out, (out,
                                                                                                          err)
        assert time.time() - begun < 20


def test_moving_beams_refused():
    """A document has one direction for each beam."""
    with harness.scratch() as d:
        text = sender("127.0.0.1:9")
        grid = "beams: {grid: [2, 4], spacing_deg: 0.3}"
        assert grid in text
        directions = ", ".join(f"[{k / 100}, 0]" for k in range(8))
        rates = ", ".join(["[1e-5, 0]"] * 8)
        still, moving = (text.replace(grid, f"beams: {{directions: [{directions}]{more}}}")
                         for more in ("", f", rates: [{rates}], reference_ns: 0"))
        harness.run(d, still, command="check")
        result = harness.run(d, moving, command="check", status=2)
        assert "its beams move, which frb-node cannot describe" in result.err, result


def test_zeros_behind_the_document():
    """A sender may fill its document up with zeros; nothing else may follow a zero."""
    with harness.scratch() as d:
        port = free_port()
        run = frb_receiver(d, port, document())
        text = yaml.safe_dump(document(), default_flow_style=None).encode()
        say = lambda data: struct.pack("<IIi", frb_node.MAGIC, 0, len(data)) + data
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(say(text + bytes(17)))
            talk(port, say(text + b"\0x\0"))
            talk(port, say(text))
        run.finish()
        assert run.counts()["malformed"] == 2 and "goes on behind the zero byte" in run.text(), run.text()


if __name__ == "__main__":
    harness.main([f for name, f in sorted(globals().items()) if name.startswith("test_")])
