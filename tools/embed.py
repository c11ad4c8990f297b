"""embed.py FILE HEADER "TYPE NAME": a C header with the bytes of a file, and a 0, as a constant array.

A script beside the file, <script src="NAME.js"></script>, is put in its place."""
import os
import re
import sys

source, header, array = sys.argv[1:]


def script(match):
    with open(os.path.join(os.path.dirname(source), match[1].decode()), "rb") as js:
        return b"<script>\n" + js.read() + b"</script>"


with open(source, "rb") as file:
    content = re.sub(rb'<script src="(\w+\.js)"></script>', script, file.read()) + b"\0"
rows = [",".join(str(byte) for byte in content[i:i + 24]) for i in range(0, len(content), 24)]
with open(header, "w", encoding="ascii") as out:
    out.write(f"static const {array}[] = {{\n" + ",\n".join(rows) + "};\n")
