#!/bin/bash
# Runs tests again and again beside two busy loops, and says which ones fail now and then.
#
#   tests/steady.sh [-C BUILD] [-n RUNS] [-s] [TEST...]    default: build, 20, the tests that wait for something
#
# With -s no loops are busy; instead the processes of the test stand still for a second or two now and then (tests/stall.py).
# TEST is a name that meson takes, such as pipeline/dump or 'pipeline/wires_*'. The log of each failure is kept. Exit status 1: a test
# has failed.
set -uo pipefail
cd "$(dirname "$0")/.."
build=build runs=20 stall=no patience=1
while getopts C:n:s option; do
    case $option in
    C) build=$OPTARG ;;
    n) runs=$OPTARG ;;
    s) stall=yes patience=4 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
waiting='^pipeline/(capture.*|control|documented_http|dump.*|field_packets|hostile.*|inject.*|interrupts|live.*|monitoring|ranks.*'
waiting+='|recording_node|service|sky_live|sky_wires|tutorial|update.*|watchdog|wires_.*)$|^runtime/watchdog$|^stages/(sockets|spead_sender)$'
[ $# -gt 0 ] || set -- $(meson test -C "$build" --no-rebuild --list 2>/dev/null | sed 's/.* //' | grep -E "$waiting" | sort -u)
[ $# -gt 0 ] || exit 2
logs=$(mktemp -d /tmp/steady.XXXXXX)
loops=()
trap 'kill "${loops[@]}"' EXIT
if [ $stall = yes ]; then
    tests/stall.py $$ &
    loops+=($!)
else
    for _ in 1 2; do
        while :; do :; done &
        loops+=($!)
    done
fi
failed=0
for name in "$@"; do
    bad=0
    for ((run = 1; run <= runs; run++)); do
        log=$logs/${name//[\/*]/_}.$run
        if meson test -C "$build" --no-rebuild --print-errorlogs --num-processes 1 --timeout-multiplier "$patience" "$name" >"$log" 2>&1; then
            if grep -q 'No suitable tests' "$log"; then
                echo "there is no test '$name'; expected a name of meson test --list, such as pipeline/dump" && exit 2
            fi
            rm "$log"
        else
            bad=$((bad + 1))
            echo "  failed: $log"
        fi
    done
    echo "$name: $bad of $runs runs failed"
    failed=$((failed + bad))
done
[ "$failed" = 0 ]
