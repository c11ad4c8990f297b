"""embed.py FILE HEADER "TYPE NAME": a C header with the bytes of a file as a constant array, and a 0 behind them."""
import sys

source, header, array = sys.argv[1:]
with open(source, "rb") as file:
    content = file.read() + b"\0"
rows = [",".join(str(byte) for byte in content[i:i + 24]) for i in range(0, len(content), 24)]
with open(header, "w", encoding="ascii") as out:
    out.write(f"static const {array}[] = {{\n" + ",\n".join(rows) + "};\n")
