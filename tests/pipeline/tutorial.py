"""docs/tutorial.md, from top to bottom in an empty directory: a block with a name is written as a file, the
commands of `sh` run in order, and the lines of a `text` block must be in what these printed.
And all pages: links lead somewhere, and none is too long to be read."""
import contextlib
import glob
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
    """The program on the path as `beamring`, free ports, and the Python that has NumPy and h5py."""
    os.mkdir(os.path.join(directory, "bin"))
    programs = {"beamring": os.path.abspath(harness.PROGRAM), "python3": sys.executable}
    for name, program in programs.items():
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


def follow(blocks, directory):
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


def stood_still(directory):
    """Whether the page's first capture says that this machine was not there for packets."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(directory, "capture.log")) as f:
        return re.search(r"[1-9][0-9]* (no_frame|behind)|kernel lost [1-9]", f.read())
    return False


def test_tutorial():
    with open(PAGE) as f:
        blocks = BLOCK.findall(f.read())
    assert {name for _, name, _ in blocks} >= {"telescope.yaml", "board.yaml", "node.yaml"}, blocks
    for attempt in range(4):
        with harness.scratch() as directory:
            try:
                follow(blocks, directory)
                return
            except AssertionError:
                if attempt == 3 or not stood_still(directory):
                    raise


def anchors(text):
    """The names that GitHub gives to the titles of a page."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pages():
    top = os.path.realpath(os.path.join(os.path.dirname(PAGE), ".."))
    names = [os.path.join(top, "README.md")]
    names += glob.glob(os.path.join(top, "docs", "*.md"))
    pages = {name: open(name).read() for name in names}
    wrong = []
    for name, text in pages.items():
        if text.count("\n") > 300 and not name.endswith(("stages.md", "changelog.md")):
            wrong.append(f"{name} has {text.count(chr(10))} lines, at most 300")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if "://" in link:
                continue
            if not os.path.exists(to) or (anchor and anchor not in anchors(pages.get(to, ""))):
                wrong.append(f"{name}: {link} leads nowhere")
    # Programs and messages that name a page name one that there is.
    rooms = ("tools", "python", "config", "stages", "runtime", "formats", "kernels", "buffers")
    named = {}
    for name in (one for room in rooms for one in glob.glob(os.path.join(top, room, "**"), recursive=True)):
        if os.path.isfile(name):
            with open(name, errors="replace") as f:
                named.update((page, name) for page in re.findall(r"docs/[a-z0-9-]+\.md", f.read()))
    assert len(named) > 3, named
    wrong += [f"{name}: {page} is not there" for page, name in named.items()
              if not os.path.exists(os.path.join(top, page))]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    if shutil.which("curl") is None:
        print("no curl")
        sys.exit(77)
    harness.main([test_pages, test_tutorial])
