"""The interface of libbeamring: the functions that the installed headers declare, as listed in
exported_symbols.txt, and no others.

    exported_symbols.py LIBRARY HEADER...    compares the three
    nm -D --defined-only LIBRARY | awk '{print $3}' | sort > tests/exported_symbols.txt    after a change that
    is meant
"""
import pathlib
import re
import subprocess
import sys

LISTED = pathlib.Path(__file__).resolve().parent.parent / "exported_symbols.txt"


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], text=True, capture_output=True,
                         check=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def declared(headers):
    names = set()
    for header in headers:
        names |= set(re.findall(r"^BR_API\b[^;(]*?\b(\w+)\(", pathlib.Path(header).read_text(), re.M))
    return names


def main():
    library, headers = sys.argv[1], sys.argv[2:]
    got, said, listed = exported(library), declared(headers), set(LISTED.read_text().split())
    assert len(said) > 40, said
    wrong = [f"{name}: exported, but no installed header declares it" for name in sorted(got - said)]
    wrong += [f"{name}: declared in an installed header, but not exported" for name in sorted(said - got)]
    wrong += [
        f"{name}: exported, but not in {LISTED.name}: a new promise to plugins"
        for name in sorted(got - listed)
    ]
    wrong += [
        f"{name}: in {LISTED.name}, but no longer exported: plugins that call it break"
        for name in sorted(listed - got)
    ]
    print("\n".join(wrong) or f"{len(got)} functions")
    sys.exit(1 if wrong else 0)


main()
