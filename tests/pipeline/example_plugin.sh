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
export PKG_CONFIG_PATH=$pc PKG_CONFIG_SYSROOT_DIR=$work
export LD_LIBRARY_PATH=$(dirname "$pc")

mkdir "$work/plugin"
cp "$here"/docs/example/mute_dishes.c "$here"/docs/example/mute.yaml "$work/plugin"
cd "$work/plugin"
[ "$(wc -l <mute_dishes.c)" -lt 100 ] || { echo "the example has outgrown 100 lines"; exit 1; }
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror -shared -fPIC -o mute_dishes.so mute_dishes.c $(pkg-config --cflags --libs beamring)
export BEAMRING_PLUGIN_PATH=$work/plugin OUT=$work/out
mkdir "$OUT"
"$root/bin/beamring" stages mute_dishes | grep -q 'silence' || { echo "the example's help does not show"; exit 1; }
"$root/bin/beamring" run mute.yaml

# The recording holds zeros at dishes 3 and 40 of every (time, channel, polarisation), and noise elsewhere.
python3 - "$OUT"/*.dada <<'P'
import sys
head = open(sys.argv[1], "rb").read(1 << 16)
size = next(int(l.split()[1]) for l in head.decode("latin-1").splitlines() if l.startswith("HDR_SIZE"))
data = open(sys.argv[1], "rb").read()[size:]
assert len(data) % 64 == 0 and len(data) > 64 * 1000, len(data)
for dish in range(64):
    zero = not any(data[dish::64])
    assert zero == (dish in (3, 40)), f"dish {dish}: zero is {zero}"
P

# A dish that does not exist is refused at its place in the file.
status=0
"$root/bin/beamring" check mute.yaml --set mute_dishes.dishes=64 2>err || status=$?
[ "$status" = 2 ] && grep -q 'dish 64 does not exist' err || { cat err; echo "exit $status"; exit 1; }
