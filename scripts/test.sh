#!/usr/bin/env bash
# Runs all tests but the documentation's. What cargo is run with is in the environment; arguments are for cargo.
#
# The tests of the whole server, which mostly wait for other processes, run at the same time as those of the other crates. Tests that
# judge how long something takes run at the end, when nothing else does.
set -euo pipefail
# A process group for each job, so that an interrupted run ends its jobs whole.
set -m

log=$(mktemp)
others=(--lib --bins --examples)
for name in $(printf '%s\n' crates/*/tests/*.rs crates/*/tests/*/main.rs | sed 's|/main\.rs$||; s|.*/||; s|\.rs$||' | sort -u); do
    [ "$name" = end_to_end ] || others+=(--test "$name")
done
failed=0

cargo test "$@" --no-run --lib --bins --examples --tests
cargo test "$@" --no-fail-fast --test end_to_end -- --skip timing:: >"$log" 2>&1 &
server=$!
trap 'kill -- -$server 2>/dev/null || true; rm -f "$log"' EXIT
cargo test "$@" --no-fail-fast "${others[@]}" || failed=1
wait "$server" || failed=1
cat "$log"
cargo test "$@" --no-fail-fast --test end_to_end -- timing:: || failed=1
exit $failed
