"""Runs notebooks without Jupyter and compares what their cells print with the outputs that they hold.

notebooks.py NOTEBOOK...             exit status 1 where an output differs
notebooks.py --update NOTEBOOK...    writes the outputs into the notebooks, without pictures
"""

import ast
import contextlib
import io
import json
import sys
import traceback


def run_cell(source, names):
    """The output of a cell, and the value of its last expression, as a notebook shows it."""
    out, body = io.StringIO(), ast.parse(source).body
    last = (
        body.pop() if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    )
    with contextlib.redirect_stdout(out):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last is not None else None
    return out.getvalue() + (repr(value) + "\n" if value is not None else "")


def stored(cell):
    """The text of a cell's outputs."""
    text = ""
    for output in cell["outputs"]:
        if output["output_type"] == "stream" and output["name"] == "stdout":
            text += "".join(output["text"])
    return text


def run(path, update=False):
    """The differences, as texts."""
    with open(path) as file:
        notebook = json.load(file)
    names, wrong = {"__name__": "__main__"}, []
    for number, cell in enumerate(c for c in notebook["cells"] if c["cell_type"] == "code"):
        try:
            got = run_cell("".join(cell["source"]), names)
        except Exception:
            return wrong + [f"{path}, cell {number + 1}:\n{traceback.format_exc()}"]
        if update:
            cell["execution_count"] = number + 1
            cell["outputs"] = (
                [{"output_type": "stream", "name": "stdout", "text": got.splitlines(True)}] if got else []
            )
        elif got != stored(cell):
            wrong.append(f"{path}, cell {number + 1} prints\n{got}instead of\n{stored(cell)}")
    if update:
        with open(path, "w") as file:
            json.dump(notebook, file, indent=1)
            file.write("\n")
    return wrong


if __name__ == "__main__":
    args = sys.argv[1:]
    problems = [p for path in args if path != "--update" for p in run(path, "--update" in args)]
    print("\n".join(problems), end="")
    sys.exit(1 if problems else 0)
