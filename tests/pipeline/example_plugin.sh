#!/bin/bash
# Installs a build into a temporary prefix, compiles the plugin example against the installed headers and pkg-config file
# only, and runs its pipeline with the installed program: what somebody who never sees this tree does.
# usage: example_plugin.sh BUILD_DIR
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json,sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
DESTDIR=$work meson install -C "$build" --no-rebuild --quiet
root=$work$prefix
pc=$(dirname "$(find "$root" -name beamring.pc)")
export PKG_CONFIG_PATH=$pc # of a tree that is not at its prefix: the file goes by its own place
unset LD_LIBRARY_PATH BEAMRING_CONFIG_PATH

mkdir "$work/plugin"
cp "$here"/docs/example/* "$work/plugin"
cd "$work/plugin"
[ "$(wc -l <mute_dishes.c)" -lt 100 ] || { echo "the example has outgrown 100 lines"; exit 1; }
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror -shared -fPIC -o mute_dishes.so mute_dishes.c $(pkg-config --cflags --libs beamring)
export BEAMRING_PLUGIN_PATH=$work/plugin OUT=$work/out
mkdir "$OUT"
"$root/bin/beamring" stages mute_dishes | grep -q 'silence' || { echo "the example's help does not show"; exit 1; }
"$root/bin/beamring" run mute.yaml

cc -Wall -Wextra -Werror -shared -fPIC -o power.so power.c $(pkg-config --cflags --libs beamring)
"$root/bin/beamring" run power.yaml
python3 - "$OUT"/field_*.dada "$OUT"/power_*.dada <<'P'
import struct
import sys


def payload(path):
    data = open(path, "rb").read()
    size = next(int(x.split()[1]) for x in data[:1 << 16].decode("latin-1").splitlines() if x.startswith("HDR_SIZE"))
    return data[size:]


# The mean of |E|^2 over 64 dishes, 2 polarisations and the samples that came: 1000 to 1129 are missing.
signed = [(x ^ 8) - 8 for x in range(16)]
square = [signed[b & 15] ** 2 + signed[b >> 4] ** 2 for b in range(256)]
field, power = payload(sys.argv[1]), payload(sys.argv[2])
got = struct.unpack(f"<{len(power) // 4}f", power)
assert len(field) == 9950 * 4 * 128 and len(got) == 100 * 4, (len(field), len(got))
for step in range(100):
    times = [t for t in range(100 * step, min(100 * step + 100, 9950)) if not 1000 <= t < 1130]
    for f in range(4):
        sums = sum(sum(map(square.__getitem__, field[(4 * t + f) * 128:(4 * t + f + 1) * 128])) for t in times)
        want = sums / 128 / len(times) if times else 0
        assert abs(got[4 * step + f] - want) <= 1e-5 * want, (step, f, got[4 * step + f], want)
gaps = open(sys.argv[2] + ".gaps").read().split("\n")
assert gaps[:3] == ["1000 100", "1100 100 0 4 179", "9900 100 0 4 128"], gaps
P

# The recording holds zeros at dishes 3 and 40 of every (time, channel, polarisation), and noise elsewhere.
python3 - "$OUT"/muted_*.dada <<'P'
import sys
head = open(sys.argv[1], "rb").read(1 << 16)
size = next(int(l.split()[1]) for l in head.decode("latin-1").splitlines() if l.startswith("HDR_SIZE"))
data = open(sys.argv[1], "rb").read()[size:]
assert len(data) % 64 == 0 and len(data) > 64 * 1000, len(data)
for dish in range(64):
    zero = not any(data[dish::64])
    assert zero == (dish in (3, 40)), f"dish {dish}: zero is {zero}"
P

# With an update: dish 7 is silent, and the others are not, from the first frame on that begins at sample 4000 or later;
# the file beside the recording says since when.
mkdir "$work/later"
OUT=$work/later "$root/bin/beamring" run mute_later.yaml
OUT=$work/later "$root/bin/beamring" info "$work"/later/muted_000000.dada | grep -q 'mute_dishes from sample .* storm'
python3 - "$work"/later/muted_000000.dada <<'P'
import sys
head = open(sys.argv[1], "rb").read(1 << 16)
keys = dict(l.split(None, 1) for l in head.decode("latin-1").splitlines() if len(l.split(None, 1)) == 2)
data = open(sys.argv[1], "rb").read()[int(keys["HDR_SIZE"]):]
sample = int(open(sys.argv[1] + ".updates").read().split(":")[1])
frame = int(keys["FRAME_SAMPLES"])
assert sample == -(-4000 // frame) * frame, (sample, frame)
row = 4 * 128
for dish in range(64):
    before, after = any(data[dish:sample * row:64]), any(data[sample * row + dish::64])
    assert before == (dish not in (3, 40)) and after == (dish != 7), (dish, before, after)
P
status=0
"$root/bin/beamring" check mute_later.yaml --set mute_dishes.dishes=5 >/dev/null
sed 's/\[7\]/[64]/' mute_later.yaml >wrong.yaml
"$root/bin/beamring" check wrong.yaml 2>err || status=$?
[ "$status" = 2 ] && grep -q 'wrong.yaml:4:.*dish 64 does not exist' err || { cat err; echo "exit $status"; exit 1; }

# A dish that does not exist is refused at its place in the file.
status=0
"$root/bin/beamring" check mute.yaml --set mute_dishes.dishes=64 2>err || status=$?
[ "$status" = 2 ] && grep -q 'dish 64 does not exist' err || { cat err; echo "exit $status"; exit 1; }

# The installation as a whole may be moved, and be called through PATH, a link, or from anywhere, under any name: its stages and
# configurations are those of its own tree.
unset BEAMRING_PLUGIN_PATH
mv "$root" "$work/moved"
ln -s "$work/moved/bin/beamring" "$work/link"
[ -f "$work/moved/share/doc/beamring/example/mute.yaml" ] || { echo "documents and examples are not installed"; exit 1; }
cat >"$work/simple.yaml" <<Y
include: telescopes/pathfinder.yaml
stream: {epoch_ns: 1700000000000000000, sample_ns: 5120, freq_mhz: [400]}
pipeline:
  - {stage: simulate, samples: 128, out: field}
  - {stage: record, in: field, directory: $work/moved_out, prefix: field}
Y
mkdir -p "$work/elsewhere/bin" "$work/elsewhere/lib/beamring/stages"
touch "$work/elsewhere/lib/beamring/stages/simulate.so" # found by whoever follows argv[0] or the working directory
cd "$work/elsewhere/bin"
for program in "$work/moved/bin/beamring" "$work/link" ../../moved/bin/beamring; do
    rm -rf "$work/moved_out"
    bash -c 'exec -a "$0" "$@"' "$work/elsewhere/bin/beamring" "$program" run "$work/simple.yaml" >/dev/null
    [ -s "$work/moved_out/field_000000.dada" ] || { echo "$program recorded nothing"; exit 1; }
done
pth=$(find "$work/moved" -name beamring.pth)
if [ -n "$pth" ]; then # so does the package for Python
    python3 -c 'import site, sys; site.addsitedir(sys.argv[1]); p = [d for d in sys.path if d.startswith(sys.argv[2])]
assert any(d.endswith("/beamring/python") for d in p), sys.path' "$(dirname "$pth")" "$work/moved"
    package=$(dirname "$(find "$work/moved" -path '*/python/beamring/__init__.py' | head -1)")
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import numpy' 2>/dev/null || continue
        PYTHONPATH=$(dirname "$package") "$python" -c 'import sys, beamring
assert beamring.program() == sys.argv[1] + "/bin/beamring", beamring.program()
assert beamring.Pipeline(sys.argv[2]).check().queues' "$work/moved" "$work/simple.yaml"
        break
    done
fi
PATH=$work/moved/bin:$PATH beamring stages | grep -q '^uvh5 ' || { echo "no stages through PATH"; exit 1; }

# Alone it says where it has looked.
mkdir -p "$work/alone/bin" "$work/alone/lib"
cp "$work/moved/bin/beamring" "$work/alone/bin"
find "$work/moved" -name 'libbeamring.so*' -exec cp -P {} "$work/alone/lib" \;
export LD_LIBRARY_PATH=$work/alone/lib BEAMRING_CONFIG_PATH=$work/moved/share/beamring/config
for command in stages "check $work/simple.yaml"; do
    status=0
    # shellcheck disable=SC2086
    "$work/alone/bin/beamring" $command 2>"$work/err" || status=$?
    [ "$status" != 0 ] && grep -q "there are no stages in $work/alone/bin/.*BEAMRING_PLUGIN_PATH" "$work/err" ||
        { cat "$work/err"; echo "exit $status"; exit 1; }
done
