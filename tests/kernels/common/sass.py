"""The machine code of the kernels whose speed hangs on their registers (baseband, the filterbank's, unpack,
FRB stages 1 and 2, the quantizer): what must be in it and what must not. And of all kernels in the files:
that no constant with a sign is operand b of a float16 product.

    sass.py FILE...    programs or objects with the kernels in them: tests/kernels/test_kernels_baseband_cuda
    ...

Needs cuobjdump of the CUDA toolkit; leaves with 77 (skipped) where there is none, or where the files have no
code for GPUs."""
import os
import re
import shutil
import subprocess
import sys

# Part of a kernel's (mangled) name: how many there are, what each must use, and what none may use. IGMMA: the
# warpgroup's int8 product, HGMMA its float16 one, UTMALDG and UTMASTG: boxes by the tensor memory
# accelerator, UBLKCP: its plain copies, IMMA: mma.sync on int8, LDGSTS: cp.async, USETMAXREG: registers
# handed over. LDL and STL: local memory, that is, registers that did not suffice.
KERNELS = [
    ("sm_90a", r"8baseband6hopper8beamform\w+endingE0", 5, ["IGMMA", "UTMALDG", "UTMASTG", "UBLKCP",
                                                           "SYNCS"], ["LDL", "STL", "HGMMA", "DFMA"]),
    ("sm_90a", r"8baseband6hopper8beamform\w+endingE[12]", 8, ["IGMMA", "UTMALDG", "UBLKCP",
                                                              "SYNCS"], ["LDL", "STL", "HGMMA", "DFMA"]),
    ("sm_90a", r"8baseband6hopper14beamform_small", 1, ["IGMMA", "UTMALDG", "UTMASTG",
                                                        "SYNCS"], ["LDL", "STL", "HGMMA", "DFMA"]),
    ("sm_80", r"8baseband8beamform\w+endingE0", 4, ["IMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_80", r"8baseband8beamform\w+endingE[12]", 8, ["IMMA", "LDGSTS"], ["DFMA"]),
    ("sm_80", r"8baseband12beamform_few", 4, ["IMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"wgmma_pfb_u\w+_mapped", 6, ["HGMMA", "UTMALDG", "UTMASTG", "SYNCS"], ["LDL", "STL", "DFMA"]),
    ("sm_80", r"6unpack4tile", 16, ["LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"6unpack4tile", 16, ["LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_80", r"4flag4sums", 4, ["PRMT", "IDP"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"4flag4sums", 4, ["PRMT", "IDP"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"15wgmma_arbitrary4form", 6, ["HGMMA", "UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG"],
     ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"8quantize4rows", 12, ["HMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"18autocorr_1d_images", 4, ["HGMMA", "HMMA", "LDGSTS", "SYNCS"], ["LDL", "STL", "DFMA"]),
    ("sm_80", r"18autocorr_1d_images", 4, ["HMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"autocorr_2d_(images|whole_blocks)", 5, ["HMMA"], ["LDL", "STL", "DFMA"]),
    ("sm_90a", r"6direct11make_images", 16, ["HMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
    ("sm_80", r"6direct11make_images", 16, ["HMMA", "LDGSTS"], ["LDL", "STL", "DFMA"]),
]

# The rows of the first one hold for the others too, as far as a build has code for them.
SAME = {"sm_80": ["sm_80", "sm_86", "sm_89"]}

# The form in which ptxas keeps a pair of float16 numbers below 0 as operand b: the sign of the upper one
# moved into the instruction, which then negates both (seen with CUDA 13.0).
NEGATED = re.compile(r"\sHMMA\.\S+\s+R\w+(?:\.reuse)?,\s*R\w+(?:\.reuse)?,\s*-R")


def functions(tool, path):
    """{(architecture, kernel): the opcodes in it, with "HMMA -b" for products whose operand b is negated}"""
    text = subprocess.run([tool, "--dump-sass", path], capture_output=True, text=True, check=False).stdout
    found, arch, name = {}, None, None
    for line in text.splitlines():
        if line.strip().startswith("arch ="):
            arch = line.split("=")[1].strip()
        elif "Function :" in line:
            name = line.split(":", 1)[1].strip()
            found[arch, name] = set()
        elif name is not None:
            opcode = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", line)
            if opcode:
                found[arch, name].add(opcode.group(1))
            if NEGATED.search(line):
                found[arch, name].add("HMMA -b")
    return found


def main():
    tool = shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not os.access(tool, os.X_OK):
        print("skipped: no cuobjdump here")
        sys.exit(77)
    found = {}
    for path in sys.argv[1:]:
        found.update(functions(tool, path))
    if not found:
        print(f"skipped: no code for GPUs in {' '.join(sys.argv[1:])}")
        sys.exit(77)
    wrong = 0
    for (arch, name), codes in sorted(found.items()):
        if "HMMA -b" in codes:
            print(f"{arch} {name}: operand b of a product is negated")
            wrong += 1
    there_is = {arch for arch, _ in found}
    print("code for", *sorted(there_is), "(the option gpu_archs)")
    rows = [(arch, *row[1:]) for row in KERNELS for arch in SAME.get(row[0], [row[0]]) if arch in there_is]
    for arch, pattern, count, wanted, unwanted in rows:
        kernels = {
            name: codes for (a, name), codes in found.items() if a == arch and re.search(pattern, name)
        }
        if len(kernels) != count:
            print(f"{arch}: {len(kernels)} kernels like {pattern}, expected {count}")
            wrong += 1
        for name, codes in sorted(kernels.items()):
            missing, there = [c for c in wanted if c not in codes], [c for c in unwanted if c in codes]
            wrong += bool(missing or there)
            print(f"{arch} {name}: {len(codes)} different instructions" +
                  (f", without {', '.join(missing)}" if missing else "") +
                  (f", with {', '.join(there)}" if there else ""))
    sys.exit(1 if wrong else 0)


main()
