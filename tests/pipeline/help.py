"""`beamring help`, the manual page and the completion: they come from one table, and it tells the truth."""
import os
import re
import shutil
import subprocess

import harness

PROGRAM = os.path.abspath(harness.PROGRAM)


def said(*arguments, status=0):
    done = subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, timeout=60)
    assert done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def commands():
    lines = said("help").split("usage:")[1].splitlines()
    return [l.split()[0] for l in lines if l.startswith("  ") and not l.strip()[0].isdigit()]


def options(command):
    """[(option, what follows it, or None)]"""
    return [(m[1], m[2]) for m in re.finditer(r"^  (--[\w-]+)(?: (\S+))?  ", said("help", command), re.M)]


def test_usage():
    text = said("help")
    assert text == said("--help") == said(status=2)
    for group in ("Pipelines", "Recordings and networks", "The program"):
        assert f"\n{group}\n" in text, text
    assert max(len(l) for l in text.splitlines()) <= 120, text
    assert {"run", "check", "graph", "stages", "info", "convert", "receive", "bench",
            "help"} <= set(commands())
    for command in commands():
        one = said("help", command)
        assert one == said(command, "--help") and one.startswith(f"usage: beamring {command}"), one
        assert max(len(l) for l in one.splitlines()) <= 120, one
    assert "no command 'rnu'; did you mean 'run'" in said("rnu", status=2)
    assert "no command 'rnu'" in said("help", "rnu", status=2)
    assert "unexpected 'x'" in said("help", "run", "x", status=2)


def test_options_are_accepted():
    """Every option of the table is one that its command knows; an option that no table has is refused."""
    values = {"KEY=VALUE": "a=1", "FILE": "/dev/null", "DIR": ".", "YAML": "a: 1", "ADDRESS": "127.0.0.1"}
    for command in commands():
        for option, value in options(command):
            if command in ("bench", "help"):
                continue  # they do what is asked for
            words = [option] + ([values.get(value,
                                            value.split("|")[0] if "|" in value else "4")] if value else [])
            with harness.scratch() as d:
                done = subprocess.run([PROGRAM, command, *words], text=True, capture_output=True, timeout=60,
                                      cwd=d)
            assert "unknown option" not in done.stderr and \
                f"unexpected '{option}'" not in done.stderr, (command, words, done)
        if command != "bench":
            done = subprocess.run([PROGRAM, command, "--no-such-option"], text=True, capture_output=True,
                                  timeout=60)
            assert done.returncode == 2, (command, done)
    source = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "beamring", "receive.c")
    if os.path.exists(source):  # a bundle has no sources
        known = {option for option, _ in options("receive")}
        read = set(re.findall(r'"(--[\w-]+)"', open(source).read()))
        assert read == known, read ^ known


def test_manual_page():
    page = said("help", "--man")
    for command in commands():
        assert "\\fB" + command.replace("-", "\\-") + "\\fR" in page, command
        for option, _ in options(command):
            assert "\\fB" + option.replace("-", "\\-") + "\\fR" in page, option
    if shutil.which("groff") is None:
        print("no groff: not rendered")
        return
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, text=True,
                          capture_output=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou"], input=page, text=True, capture_output=True,
                          check=True).stdout
    assert "NAME" in text and "from the electric field" in text and "EXIT STATUS" in text and \
        "--until-closed" in text, text
    if shutil.which("lexgrog") is not None:  # what apropos sees
        with harness.scratch() as d:
            path = os.path.join(d, "beamring.1")
            open(path, "w").write(page)
            got = subprocess.run(["lexgrog", path], text=True, capture_output=True)
            assert "beamring - from the electric field" in got.stdout, got


def complete(directory, *words):
    """The completions that bash offers for the last of the words."""
    script = said("help", "--bash") + """
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_beamring
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", script, "bash", *words], text=True, capture_output=True, timeout=60,
                          cwd=directory)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split()


def test_completion():
    with harness.scratch() as d:
        for name in ("one.yaml", "two.yml", "notes.txt"):
            open(os.path.join(d, name), "w").close()
        os.mkdir(os.path.join(d, "more"))
        assert complete(d, PROGRAM, "ru") == ["run"]
        assert set(complete(d, PROGRAM, "")) == set(commands()) | {"--help", "--version"}
        assert set(complete(d, PROGRAM, "run", "")) == {"one.yaml", "two.yml", "more"}
        assert set(complete(d, PROGRAM, "info", "n")) == {"notes.txt"}
        assert complete(d, PROGRAM, "run", "--st") == ["--stats"]
        assert set(complete(d, PROGRAM, "receive", "--")) == {option for option, _ in options("receive")}
        assert complete(d, PROGRAM, "run", "x.yaml", "--stats", "no") == ["notes.txt"]
        assert complete(d, PROGRAM, "run", "--set", "") == []
        assert complete(d, PROGRAM, "convert", "--to", "g") == ["guppi"]
        assert complete(d, PROGRAM, "receive", "frb") == ["frb-node"]
        assert set(complete(d, PROGRAM, "stages", "frb_")) == {"frb_grid", "frb_beams"}
        assert set(complete(d, PROGRAM, "help", "re")) == {"receive", "recover"}


if __name__ == "__main__":
    harness.main([test_usage, test_options_are_accepted, test_manual_page, test_completion])
