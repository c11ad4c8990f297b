"""page.py PAGE.html PAGE.c: the live page as an array in C, with the scripts that it names put into it."""
import os
import re
import sys


def script(match):
    with open(os.path.join(os.path.dirname(sys.argv[1]), match[1]), encoding="utf-8") as f:
        return f"<script>\n{f.read()}</script>"


with open(sys.argv[1], encoding="utf-8") as source:
    page = re.sub(r'<script src="(\w+\.js)"></script>', script, source.read()).encode()
rows = [",".join(str(byte) for byte in page[i:i + 24]) for i in range(0, len(page), 24)]
with open(sys.argv[2], "w", encoding="ascii") as out:
    out.write('#include "runtime/control/page.h"\n\nconst unsigned char control_page[] = {\n')
    out.write(",\n".join(rows) + "};\nconst size_t control_page_bytes = sizeof control_page;\n")
