#!/bin/sh
# Hold a bundle against its gates, in a CI job or on a board.
#
#   examples/ci/gate.sh SOURCE OUT [options of `edgefold profile`]
#   examples/ci/gate.sh bundles/sensor out --fail-if 'update.p99 > 2ms' --baseline baseline.json
#
# SOURCE is a bundle, or what `edgefold export` takes: a run or FILE.py:CLASS. OUT receives the
# records check.json, budget.json, profile.json and profile.prom, also of a step that failed.
#
#   EDGEFOLD   the command                      (edgefold)
#   BOARD      the budget's board               (raspberry-pi-5)
#   MEMORY     its limit of memory              (96MiB)
#   RATE       arrivals a second                (50)
#   ATTEMPTS   profiles until one is not unsure (3): a busy runner disturbs a measurement
#
# Exits with the code of the first command that fails; docs/records.md has the table. Nothing runs
# after it.
set -u

if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
source=$1 out=$2
shift 2

edgefold() {
    command ${EDGEFOLD:-edgefold} "$@" # the program, not this function again
}

step() {
    echo "== $*"
    "$@"
    code=$?
    if [ $code -ne 0 ]; then
        echo "== failed with exit code $code: $*" >&2
        exit $code
    fi
}

mkdir -p "$out" || exit 1
bundle=$source
if [ ! -e "$source/manifest.json" ]; then
    bundle=$out/bundle
    step edgefold export "$source" --out "$bundle" --force
fi
step edgefold check "$bundle" --json "$out/check.json"
step edgefold budget "$bundle" --device "${BOARD:-raspberry-pi-5}" --memory "${MEMORY:-96MiB}" \
    --rate "${RATE:-50}" --json "$out/budget.json"

profile() {
    left=${ATTEMPTS:-3}
    while :; do
        edgefold profile "$bundle" --rate "${RATE:-50}" --json "$out/profile.json" \
            --prometheus "$out/profile.prom" "$@"
        code=$? left=$((left - 1))
        [ $code -eq 4 ] && [ $left -gt 0 ] || return $code
        echo "== unsure, $left attempts left" >&2
    done
}
step profile "$@"
echo "== passed: $bundle"
