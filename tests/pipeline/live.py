"""The live nodes of config/live: each passes `check` as it is, and finds a simulated burst on this machine,
from packets of a simulated F-engine to packets of the FRB search."""
import concurrent.futures
import os
import subprocess
import sys

import harness

LIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "live")
sys.path.insert(0, LIVE)
from controller import Controller, time_of_sample_0  # noqa: E402

NODES = {"chord_pathfinder": "packets: uint8 [time 8192][freq 384][input 128]",
         "hirax": "packets: uint8 [time 4096][freq 16][input 512]",
         "casm": "packets: uint8 [time 2048][freq 512][input 48]"}


def test_nodes_are_checked_as_they_are():
    controller = Controller(time_of_sample_0(1700000000000000000))
    for name, shape in NODES.items():
        path = os.path.join(harness.CONFIG, "live", name)
        url = [] if name == "casm" else ["--set", f"capture.epoch_url={controller.url}"]
        result = harness.beamring("check", path + ".yaml", "--set", "device=cpu", *url)
        assert result.status == 0 and shape in result.out, result
        result = harness.beamring("check", path + "_fengine.yaml")
        assert result.status == 0, result
    controller.close()


def find_the_burst(telescope):
    with harness.scratch() as d:
        words = [os.path.join(LIVE, "live_demo.py"), "--test", "--device", harness.DEVICE, telescope]
        env = {**os.environ, "BEAMRING": os.path.abspath(harness.PROGRAM)}
        words.append(os.path.join(d, "out"))
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True,
                              timeout=150, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " 0 found no free frame" in done.stdout, done.stdout


def test_a_burst_from_packets_to_packets():
    """All three at a time: most of it is waiting."""
    with concurrent.futures.ThreadPoolExecutor(len(NODES)) as pool:
        for done in [pool.submit(find_the_burst, name) for name in NODES]:
            done.result()


if __name__ == "__main__":
    harness.main([test_nodes_are_checked_as_they_are, test_a_burst_from_packets_to_packets])
