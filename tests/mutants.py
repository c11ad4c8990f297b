"""Do the tests notice? Changes one token of one C source at a time, in a copy, and sees whether a test fails.

    tests/mutants.py --count 100 --seed 1          over all rooms
    tests/mutants.py --only stages/replay          over files whose path begins so
    tests/mutants.py --at stages/x/y.c:123:8       one mutant again (line and column, counted from 1)
    tests/mutants.py --near                        a first sieve: unit tests of the room and of like name
    tests/mutants.py --from TREE                   of another checkout than the one it stands in

A mutant changes an operator, a bound or a constant. It is killed by the first test that fails; tests of
the same room run first. Those that wait for most of their time (WAITING) run only for the folder that they
are named after: pipeline/control for runtime/control. A survivor is printed with its line.
Those in tests/mutants_known.txt (FILE | TEXT -> TEXT | LINE | reason) are expected:
nothing could see them. Code that only CUDA compiles is left alone. Exit status: 0 all killed or expected,
1 survivors, 2 usage. Needs what tools/test needs; takes about a minute a mutant.
"""
import argparse
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("buffers/", "runtime/", "kernels/", "stages/")
SWAPS = {
    "<=": "<", "<": "<=", ">=": ">", ">": ">=", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-",
    "-": "+", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "%": "/", "|": "&", "true": "false",
    "false": "true"
}
# Tests that wait for most of their time, or need a quiet machine: not for every mutant: Copy.order().
WAITING = re.compile(
    r"^pipeline/(capture|capture_\w+|control\w*|watchdog|memory|bench|interrupts|live\w*|wires_sweep)$")
TOKEN = re.compile(
    r"(?<=\s)(?:<=|>=|==|!=|&&|\|\||\+=|-=|<<|>>|<|>|\+|-|%|\|)(?=\s)|"
    r"\b(?:true|false)\b|(?<![\w.])\d+(?![\w.])"
)


def blanked(text):
    """The text with comments, strings and preprocessor lines as spaces, at the same places."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', spaces, text, flags=re.S)
    text = re.sub(r"^#if BR_WITH_CUDA\n.*?^#(?:else|elif|endif)", spaces, text, flags=re.S | re.M)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.M)


def places(name, text):
    """(offset, token, replacement) inside function bodies."""
    code = blanked(text)
    for match in TOKEN.finditer(code):
        line = code.rfind("\n", 0, match.start()) + 1
        if code[line: line + 1] not in (" ", "\t"):
            continue  # not in a body
        before = code[line: match.start()].rstrip()
        token = match.group(0)
        if "static_assert" in before or before.lstrip().startswith(("case ", "enum")):
            continue
        yield match.start(), token, SWAPS.get(token) or str(int(token) + 1)


class Copy:
    """A copy of a tree with a build of it, without the GPU's parts."""

    def __init__(self, source, directory, near_only):
        self.top = pathlib.Path(directory) / "tree"
        names = subprocess.run(["git", "ls-files"], cwd=source, text=True, capture_output=True,
                               check=True).stdout.split("\n")
        for name in filter(None, names):
            if (source / name).is_file():
                (self.top / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self.top / name)
        self.build = self.top / "build"
        self.run(["meson", "setup",
                  str(self.build), "-Dcuda=disabled", "-Dbuildtype=debugoptimized"], check=True)
        if not self.make():
            raise SystemExit("mutants.py: the tree does not build as it is")
        listed = subprocess.run(
            ["meson", "test", "-C", str(self.build), "--list", "--no-rebuild"], text=True,
            capture_output=True, check=True).stdout
        self.tests = re.findall(r"/ (\S+/\S+)$", listed, flags=re.M)
        self.waiting = [test for test in self.tests if WAITING.search(test)]
        self.tests = [test for test in self.tests if not WAITING.search(test)]
        if near_only:
            self.tests = [test for test in self.tests if not test.startswith("pipeline/")]
        bad = [test for test in self.tests if self.fails([test])]
        if bad:
            raise SystemExit(f"mutants.py: without any mutant fail {', '.join(bad)}")

    def run(self, command, check=False, timeout=None):
        return subprocess.run(command, cwd=self.top, capture_output=True, text=True, check=check,
                              timeout=timeout)

    def make(self):
        return self.run(["ninja", "-C", str(self.build)]).returncode == 0

    def fails(self, tests):
        """Whether one of the tests fails; a test that takes far too long has failed."""
        if not tests:
            return False
        try:
            return self.run(
                ["meson", "test", "-C",
                 str(self.build), "--no-rebuild", "--maxfail", "1", *tests], timeout=900).returncode != 0
        except subprocess.TimeoutExpired:
            return True

    def order(self, name):
        """The tests, those first that are likely to see a mutant of this file."""
        parts = set(re.split(r"[/._]", name)) - {"c", "h", "common"}
        near = [test for test in self.tests if parts & set(re.split(r"[/_]", test.split("/")[-1]))]
        room = [test for test in self.tests if test.startswith(name.split("/")[0]) and test not in near]
        rest = [test for test in self.tests if test not in near and test not in room]
        folder = name.split("/")[-2]
        room += [test for test in self.waiting if re.split(r"[/_]", test)[1] == folder]
        return near, room, rest


def choose(source, only, count, seed):
    names = subprocess.run(["git", "ls-files", "*.c"], cwd=source, text=True, capture_output=True,
                           check=True).stdout.split("\n")
    names = [
        name for name in names if name.startswith(only or ROOMS) and not name.endswith(("gpu.c", "cuda.c"))
    ]
    drawn, everything = random.Random(seed), []
    for name in names:
        everything += [(name, *place) for place in places(name, (source / name).read_text())]
    return drawn.sample(everything, min(count, len(everything)))


def known(source):
    """(file, change, line) of the mutants that nothing could see: FILE | TEXT -> TEXT | LINE | reason."""
    path = source / "tests" / "mutants_known.txt"
    found = set()
    for line in path.read_text().split("\n") if path.exists() else []:
        if line and not line.startswith("#"):
            name, change, rest = line.split(" | ", 2)
            found.add((name, change, rest.rsplit(" | ", 1)[0]))
    return found


def try_one(copy, name, offset, token, replacement, near_only):
    """'killed', 'survived' or 'does not compile', and the line."""
    path = copy.top / name
    text = path.read_text()
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    shown = text.split("\n")[line - 1].strip()
    path.write_text(text[:offset] + replacement + text[offset + len(token):])
    try:
        if not copy.make():
            result = "does not compile"
        else:
            groups = copy.order(name)[:2 if near_only else 3]
            result = "killed" if any(copy.fails(tests) for tests in groups) else "survived"
    finally:
        path.write_text(text)
    return result, f"{name}:{line}:{column}", f"{token} -> {replacement}", shown


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--at")
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--from", dest="source", type=pathlib.Path, default=TOP)
    options = parser.parse_args()
    if options.at:
        name, line, column = options.at.split(":")
        text = (options.source / name).read_text()
        chosen = [(name, *place) for place in places(name, text) if text.count("\n", 0, place[0]) +
                  1 == int(line) and place[0] - text.rfind("\n", 0, place[0]) == int(column)]
        if not chosen:
            parser.error(f"there is nothing to change at {options.at}")
    else:
        chosen = choose(options.source, options.only, options.count, options.seed)
    expected, counts, unexpected = known(options.source), {}, 0
    with tempfile.TemporaryDirectory(prefix="beamring-mutants-") as directory:
        copy = Copy(options.source.resolve(), directory, options.near)
        for number, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            result, where, change, line = try_one(copy, *mutant, options.near)
            if result == "survived" and (where.split(":")[0], change, line) in expected:
                result = "survived, as expected"
            unexpected += result == "survived"
            counts[result] = counts.get(result, 0) + 1
            print(f"{number:4d} {result:16s} {where} {change}   {line}   ({time.monotonic() - began:.0f} s)",
                  flush=True)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
