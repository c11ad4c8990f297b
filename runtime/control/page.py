"""page.py PAGE.html PAGE.c: the live page as an array in C."""
import sys

page = open(sys.argv[1], "rb").read()
rows = [",".join(str(byte) for byte in page[i:i + 24]) for i in range(0, len(page), 24)]
with open(sys.argv[2], "w", encoding="ascii") as out:
    out.write('#include "runtime/control/page.h"\n\nconst unsigned char control_page[] = {\n')
    out.write(",\n".join(rows) + "};\nconst size_t control_page_bytes = sizeof control_page;\n")
