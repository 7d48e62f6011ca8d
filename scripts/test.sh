#!/usr/bin/env bash
# Runs all tests but the documentation's. What cargo is run with is in the environment; arguments are for cargo.
#
# Most tests wait for other processes, so two streams run at the same time: the integration tests of the crates, and those of the
# whole server followed by unit tests. Tests that judge how long something takes run at the end, when nothing else does.
set -euo pipefail
# A process group for each job, so that an interrupted run ends its jobs whole.
set -m

log=$(mktemp)
integration=()
for name in $(printf '%s\n' crates/*/tests/*.rs crates/*/tests/*/main.rs | sed 's|/main\.rs$||; s|.*/||; s|\.rs$||' | sort -u); do
    [ "$name" = end_to_end ] || integration+=(--test "$name")
done
failed=0

cargo test "$@" --no-run --lib --bins --examples --tests
{
    cargo test "$@" --no-fail-fast --test end_to_end -- --skip timing:: || failed=1
    cargo test "$@" --no-fail-fast --lib --bins --examples || failed=1
    exit $failed
} >"$log" 2>&1 &
stream=$!
trap 'kill -- -$stream 2>/dev/null || true; rm -f "$log"' EXIT
cargo test "$@" --no-fail-fast "${integration[@]}" || failed=1
wait "$stream" || failed=1
cat "$log"
cargo test "$@" --no-fail-fast --test end_to_end -- timing:: || failed=1
exit $failed
