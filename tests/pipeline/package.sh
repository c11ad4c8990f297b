#!/bin/bash
# Packages a build and installs the package into a fresh root, which is this machine's with a layer above it that is thrown
# away: it installs by its own dependencies, runs the demo's pipelines, builds a plugin, and leaves nothing when it is removed.
# Where layers cannot be mounted the package's tree is unpacked, and run where it lies.
# usage: package.sh BUILD_DIR
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")/../.." && pwd)
for tool in dpkg-deb dpkg-shlibdeps; do
    command -v $tool >/dev/null || { echo "skipped: no $tool" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH BEAMRING_CONFIG_PATH BEAMRING_PLUGIN_PATH
mkdir "$work/debs"
deb=$("$here/tools/package" --build "$build" "$work/debs")
name=beamring-cpu
[[ $(ldd "$build/tools/beamring") != *libcudart* ]] || name=beamring
[ "$(dpkg-deb -f "$deb" Package)" = $name ] || { echo "$deb is not a package $name" && exit 1; }
depends=$(dpkg-deb -f "$deb" Depends)
for library in libc6 libhdf5 libyaml libfftw3-single libjansson; do
    [[ $depends == *$library* ]] || { echo "$library is not among: $depends" && exit 1; }
done
dpkg-deb -c "$deb" | awk '{print $6}' >"$work/files"
for file in usr/bin/beamring usr/lib/systemd/system/beamring@.service usr/share/man/man1/beamring.1.gz usr/share/doc/beamring/copyright \
    usr/share/bash-completion/completions/beamring.bash usr/share/beamring/config/demo.yaml usr/include/beamring/runtime/stage.h; do
    grep -qx "./$file" "$work/files" || { echo "the package has no $file" && exit 1; }
done

cat >"$work/use" <<'USE'
set -euo pipefail
program=$1 config=$2
"$program" --version
"$program" stages | grep -q '^uvh5 '
cd "$(mktemp -d)"
export DEMO_OUT=$PWD/out
"$program" run "$config/demo_simulate.yaml" --quiet --set simulate.samples=8192
"$program" run "$config/demo.yaml" --quiet
[ "$(find out/filterbank -name '*.fil' | wc -l)" = 256 ]
USE
cat >"$work/inside" <<'INSIDE'
set -euo pipefail
work=$1 deb=$2
mkdir -p /run && rm -rf /run/systemd/system
for toolkit in /usr/local/cuda-*/; do # most machines have none
    [ ! -d "$toolkit" ] || mount -t tmpfs none "$toolkit"
done
name=$(dpkg-deb -f "$deb" Package)
dpkg -i "$deb" >/dev/null 2>"$work/said" || { cat "$work/said" && exit 1; }
[ "$(command -v beamring)" = /usr/bin/beamring ]
bash "$work/use" beamring /usr/share/beamring/config
getent passwd beamring >/dev/null
gzip -t /usr/share/man/man1/beamring.1.gz
! grep -q /opt/beamring/bin /usr/lib/systemd/system/beamring@.service
cd "$(mktemp -d)"
cp /usr/share/doc/beamring/example/mute_dishes.c .
# shellcheck disable=SC2046
cc -shared -fPIC -o mute_dishes.so mute_dishes.c $(pkg-config --cflags --libs beamring)
BEAMRING_PLUGIN_PATH=$PWD beamring stages mute_dishes | grep -q silence
dpkg -P "$name" >/dev/null
while read -r file; do
    case $file in */) continue ;; esac
    [ ! -e "/$file" ] || { echo "/$file is left behind" && exit 1; }
done <"$work/files"
[ ! -e /usr/share/beamring ] && [ ! -e /usr/include/beamring ]
INSIDE
cat >"$work/layer" <<'LAYER'
set -eu
mkdir "$1/fresh" && mount -t tmpfs none "$1/fresh" && mkdir "$1/fresh/upper" "$1/fresh/work" "$1/fresh/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/fresh/upper,workdir=$1/fresh/work" "$1/fresh/root"
mount --rbind /proc "$1/fresh/root/proc" && mount --rbind /dev "$1/fresh/root/dev"
LAYER
if [ "$(id -u)" = 0 ] && unshare -m sh "$work/layer" "$work" 2>/dev/null; then
    rmdir "$work/fresh"
    unshare -m sh -c "sh '$work/layer' '$work' && exec chroot '$work/fresh/root' bash '$work/inside' '$work' '$deb'"
    echo "installed, used and removed in a fresh root"
else
    dpkg-deb -x "$deb" "$work/tree"
    bash "$work/use" "$work/tree/usr/bin/beamring" "$work/tree/usr/share/beamring/config"
    echo "unpacked and used; a fresh root needs root and overlay mounts"
fi
