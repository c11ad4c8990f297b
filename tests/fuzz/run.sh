#!/bin/bash
# tests/fuzz/run.sh BUILD TARGET SECONDS: runs BUILD/tests/fuzz/fuzz_TARGET from the seeds in corpus/TARGET. Exit status 0: nothing
# found; 77: the build's compiler has no libFuzzer; else the input that failed is BUILD/tests/fuzz/failed-TARGET.
set -euo pipefail
if [ $# != 3 ]; then
    echo "usage: tests/fuzz/run.sh BUILD TARGET SECONDS" >&2
    exit 2
fi
build=$1 target=$2 seconds=$3
program=$build/tests/fuzz/fuzz_$target
if [ ! -x "$program" ]; then
    if [ -e "$build/tests/fuzz/unavailable" ]; then
        echo "no libFuzzer: $target is not fuzzed"
        exit 77
    fi
    echo "there is no $program; expected a build with CC=clang and -Dfuzzers=true" >&2
    exit 1
fi
program=$(realpath "$program")
seeds=$(dirname "$(realpath "$0")")/corpus/$target
work=$(mktemp -d -t beamring-fuzz-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus" "$work/here"
if [ -d "$seeds" ]; then cp "$seeds"/* "$work/corpus/"; fi

status=0
(cd "$work/here" && "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$work/" "$work/corpus") >"$work/log" 2>&1 || status=$?
if [ "$status" = 0 ]; then
    grep -E 'Done|number_of_executed_units|peak_rss_mb' "$work/log" || true
    exit 0
fi
tail -n 60 "$work/log"
# Not any input that lies there: a child process that was meant to die (formats/hdf5/hdf5_child.h) may have written one.
found=$(sed -n 's/.*Test unit written to //p' "$work/log" | tail -n 1)
if [ -e "$found" ]; then
    cp "$found" "$build/tests/fuzz/failed-$target"
    echo "the input that failed: $build/tests/fuzz/failed-$target"
fi
exit 1
