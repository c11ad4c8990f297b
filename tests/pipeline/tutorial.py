"""docs/tutorial.md, from top to bottom in an empty directory: a block with a name is written as a file, the commands
of `sh` run in order, and the lines of a `text` block must be in what the commands before it printed."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import harness
from capture_common import free_port

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tutorial.md")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def environment(directory):
    """The program on the path as `beamring`, ports that are free here, and the Python that has NumPy and h5py."""
    os.mkdir(os.path.join(directory, "bin"))
    for name, program in (("beamring", os.path.abspath(harness.PROGRAM)), ("python3", sys.executable)):
        with open(os.path.join(directory, "bin", name), "w") as f:
            f.write(f'#!/bin/sh\nexec "{program}" "$@"\n')
        os.chmod(os.path.join(directory, "bin", name), 0o755)
    return {**os.environ, "PATH": os.path.join(directory, "bin") + ":" + os.environ["PATH"],
            "PORT": str(free_port(socket.SOCK_DGRAM)), "CONTROL": str(free_port())}


def run(script, directory, env):
    """In a session of its own, which ends with the script."""
    with subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", script], cwd=directory, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as shell:
        try:
            out, _ = shell.communicate(timeout=90)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"exit {shell.returncode} of:\n{script}\n{out}"
    return out


def test_tutorial():
    with open(PAGE) as f:
        blocks = BLOCK.findall(f.read())
    assert {name for _, name, _ in blocks} >= {"telescope.yaml", "board.yaml", "node.yaml"}, blocks
    with harness.scratch() as directory:
        env, out = environment(directory), ""
        for language, name, body in blocks:
            if name:
                with open(os.path.join(directory, name), "w") as f:
                    f.write(body)
            elif language == "sh":
                out = run(body, directory, env)
            else:
                assert language == "text", language
                for line in body.splitlines():
                    assert line in out, f"'{line}' is not in:\n{out}"


if __name__ == "__main__":
    if shutil.which("curl") is None:
        print("no curl")
        sys.exit(77)
    harness.main([test_tutorial])
