"""The measures of the house: how long functions, files and lines may be, where comments stand, what a room may
include, and words that do not come back.

    tests/house.py            what breaks a measure, one line each; exit status 1 if there is anything
    tests/house.py --numbers  lines of code by room, and the longest functions and files

A word is listed here when the field has a better one (docs/contributing.md says which). Where a listed word
is the right one after all, the rule says so by what may stand next to it; there are no exceptions by file.
"""
import ast
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
LINE, FUNCTION, FILE = 110, 100, 500
DOC_LINE = 140  # tables of figures
CODE = {".c", ".h", ".cu", ".cuh"}
PROSE = {".md"}
WORDED = {".build", ".css", ".html", ".in", ".js", ".sh", ".txt", ".yaml", ""}  # only their words are looked at

# Folders of runtime/, lowest first: each includes those before it, and the headers of runtime/ itself.
STEPS = ["base", "config", "graph", "ranks", "run", "control"]
# The headers that each room may include, as docs/architecture.md says; a room that is not here is free.
ARROWS = {
    "buffers": r"buffers/",
    "kernels": r"kernels/|buffers/(?:half|dtype)\.h",
    "formats": r"formats/|buffers/|runtime/(?:base|config)/",
    "runtime": r"buffers/|runtime/(?:[^/]+$|(?:{below})/)",
    "stages": r"buffers/|kernels/|formats/|runtime/[^/]+$|stages/(?:common/|{folder}/|{folder}_description\.h)",
    "tools": r"(?!tests/)",
}

# What is looked for, what to say instead. Case does not count; identifiers are divided at underscores first.
WORDS = [
    (r"(?<!in )(?<!take )(?<!by )(?<!corner )(?<!corner-)\bturns?\b(?! "
     r"(?:into|out|off|on|it|them|that|up|the|a)\b)",
     "iteration, step; of a Fourier transform: twiddle factor"),
    (r"\bwalk(?:s|ed|ing)?\b(?! the | through the )", "loop over tiles, persistent loop"),
    (r"\bblocks (?:of threads )?stay\b", "persistent kernel"),
    (r"\bseats?\b", "phase parameters"),
    (r"\blost (?:outputs?|steps?)\b|\boutputs? (?:is|are) lost\b", "missing output"),
    (r"\bwish(?:es)?\b", "options"),
    (r"\bbeside each other\b", "concurrently, or next to"),
    (r"\bforeign (?:files?|formats?|recordings?|keys?|readers?|writers?|programs?)\b",
     "external"),  # packets may be foreign
    (r"\bhdf5 numbers\b|\bnumbers (?:of|in) (?:an |the )?hdf5\b", "tables"),
]
# Patterns of sentences that read like a translation; each has a better form (docs/contributing.md). The number
# of those left is a measure too: each has its reason, such as a heading that is a question.
SENTENCES = re.compile(r"(?<![Tt]here )\b(?:is|are|was|were) no\b(?! longer| more)|"
                       r"(?:^|[.:;!?]\s+|/\*+\s*|//\s*|#\s+|\"|\*\s+)(?:What|Of)\s+[a-z]|"
                       r"\bgo(?:es)? on having\b|\bcalled off\b|\bdid not come back\b|\bdone without\b|"
                       r"\bcannot be (?:had|told)\b")
MOST_SENTENCES = 20
# Names of code that say how instead of what: never in an identifier of a kernel.
KERNEL_NAMES = re.compile(r"\b\w*(?:dense|decimat|folded|banded|walk_along|transform_densely)\w*\b", re.I)


def tracked():
    names = subprocess.run(["git", "ls-files"], cwd=TOP, text=True, capture_output=True,
                           check=True).stdout.split("\n")
    return [name for name in names if name and (TOP / name).is_file()]


def c_functions(lines):
    """(first line, name, length) of each function: its brace stands alone, as .clang-format has it."""
    for at, line in enumerate(lines):
        if line.strip() != "{" or at == 0:
            continue
        indent = line[: len(line) - 1]
        first = at - 1
        while first > 0 and not (lines[first].startswith(indent) and
                                 not lines[first][len(indent):len(indent) + 1].isspace()):
            first -= 1
        signature = " ".join(lines[first:at])
        if "(" not in signature or signature.lstrip().startswith(
            ("struct", "enum", "union", "namespace")) and "(" not in signature:
            continue
        end = next((k for k in range(at, len(lines)) if lines[k].startswith(indent + "}")), len(lines) - 1)
        name = re.findall(r"(\w+)\s*\(", signature)
        yield first + 1, name[-1] if name else signature.strip()[:40], end - first + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1


def functions(path, text):
    return python_functions(text) if path.suffix == ".py" else c_functions(text.split("\n"))


STRUCT = re.compile(r"[^;()=]*\b(?:struct|union)\b[^;()=]*\{$")
CONDITION = re.compile(r"(?:\} )?(?:else )?(?:if|for|while) \(")


def depth(line):
    return len(line) - len(line.lstrip())


def misplaced(lines):
    """(line, what to do) of the comments that seem to describe something else than the code behind them."""
    last = -1
    for first, line in enumerate(lines):
        if first <= last or not line.lstrip().startswith("/*"):
            continue
        last = next((k for k in range(first, len(lines)) if "*/" in lines[k]), len(lines) - 1)
        if not lines[last].endswith("*/") or last + 2 >= len(lines):
            continue
        text, before = " ".join(lines[first:last + 1]).strip(), lines[first - 1]
        member, behind = lines[last + 1], lines[last + 2].split("/*")[0]
        if member.lstrip().startswith("/*"):
            yield first + 1, "a comment directly before another one: which line does it describe?"
        around = next((k for k in reversed(lines[:first]) if k.strip() and depth(k) < depth(line)), "")
        if before.endswith(")") and CONDITION.match(around.lstrip()) and not around.endswith("{"):
            yield first + 1, "a comment between a condition and its statement"
        if not STRUCT.match(around) or not member.endswith(";") or "(" in member:
            continue
        if "/*" not in member and first == last and before.strip() and not before.endswith("{") and \
                len(member) + 1 + len(text) <= LINE:
            yield first + 1, "a title of members has an empty line before it; else it stands behind its member"
        function = re.search(r"(\w+)\)?\(", behind)
        if function and not re.search(rf"\b{function[1]}\b", text):
            yield first + 1, f"a comment before a member, and none before {function[1]}() behind it"


def arrows_up(name, lines):
    """(line, header) of each include that the arrows between rooms do not allow."""
    room, folder = name.split("/")[:2]
    below = "|".join(STEPS[:STEPS.index(folder) + 1]) if folder in STEPS else "-"
    allowed = re.compile(ARROWS.get(room, "").format(below=below, folder=folder))
    for at, line in enumerate(lines, 1):
        header = re.match(r'\s*#\s*include\s+(?:"|<(?=(?:%s)/))([^">]+)' % "|".join(ARROWS), line)
        if header and not allowed.match(header[1]):
            yield at, header[1]


def measure(name, found, sentences):
    path = TOP / name
    if path.suffix not in CODE | PROSE | WORDED | {".py"} or name.startswith("tests/fuzz/corpus/"):
        return
    if path == pathlib.Path(__file__).resolve():
        return
    text = path.read_text(encoding="utf-8")
    lines = text.rstrip("\n").split("\n")
    if path.suffix in CODE | {".py"}:
        if len(lines) > FILE:
            found.append(f"{name}: {len(lines)} lines; at most {FILE}: one idea a file")
        for first, function, length in functions(path, text):
            if length > FUNCTION:
                found.append(
                    f"{name}:{first}: {function}() has {length} lines; at most {FUNCTION}: divide it into "
                    f"named steps"
                )
        for at, line in enumerate(lines, 1):
            if len(line) > LINE:
                found.append(f"{name}:{at}: {len(line)} characters; at most {LINE}")
    if path.suffix in CODE:
        found += [f"{name}:{at}: {what}" for at, what in misplaced(lines)]
        found += [f"{name}:{at}: includes {header}, an arrow up (docs/architecture.md): move down what both need"
                  for at, header in arrows_up(name, lines)]
    if path.suffix in PROSE:
        for at, line in enumerate(lines, 1):
            if len(line) > DOC_LINE:
                found.append(f"{name}:{at}: {len(line)} characters; at most {DOC_LINE}")
    if name.startswith(("docs/log/", "docs/changelog")):
        return  # what was written then stays as it was
    for at, line in enumerate(lines, 1):
        if SENTENCES.search(line):
            sentences.append(f"{name}:{at}: {line.strip()}")
        spoken = line.replace("_", " ")
        for pattern, better in WORDS:
            for hit in re.finditer(pattern, spoken, re.I):
                found.append(f"{name}:{at}: '{hit.group(0)}'; say {better}")
        if name.startswith("kernels/") and not line.lstrip().startswith("#include"):
            for hit in KERNEL_NAMES.finditer(line):
                found.append(f"{name}:{at}: '{hit.group(0)}'; say what it computes")


def numbers():
    rooms, long_functions, long_files = {}, [], []
    for name in tracked():
        path = TOP / name
        if path.suffix not in CODE | {".py"}:
            continue
        text = path.read_text(encoding="utf-8")
        count = text.count("\n")
        room = name.split("/")[0]
        rooms[room] = rooms.get(room, 0) + count
        long_files.append((count, name))
        long_functions += [(length, f"{name}:{first} {function}")
                           for first, function, length in functions(path, text)]
    for room, count in sorted(rooms.items()):
        print(f"{count:7d} lines  {room}/")
    for title, rows in (("functions", long_functions), ("files", long_files)):
        print(f"longest {title}:")
        for length, what in sorted(rows, reverse=True)[:8]:
            print(f"{length:7d} lines  {what}")


def main():
    if sys.argv[1:] == ["--numbers"]:
        numbers()
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    found, sentences = [], []
    for name in tracked():
        measure(name, found, sentences)
    if len(sentences) > MOST_SENTENCES:
        found += sentences + [f"{len(sentences)} sentences to rewrite; at most {MOST_SENTENCES} may be left"]
    print("\n".join(found) if found else "the house is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
