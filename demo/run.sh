#!/usr/bin/env bash
# The demo: a server on loopback with traffic. Ctrl-C ends it and everything that it started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tollgate=${TOLLGATE:?set TOLLGATE to the path of the binary}
http=${DEMO_HTTP:-127.0.0.1:8080}
admin=${DEMO_ADMIN:-127.0.0.1:8070}
rate=${DEMO_RATE:-2000}

data=$(mktemp -d)
server='' load=''

stop() {
	trap '' HUP INT TERM
	for pid in $load $server; do kill "$pid" 2>/dev/null || true; done
	for pid in $load $server; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$data"
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Each in a session of its own, so that Ctrl-C reaches only this script, which then ends them in order.
setsid "$tollgate" serve --rules "$here/rules" --data "$data" --http "$http" --admin "$admin" --grpc off --log-level error &
server=$!
setsid "$tollgate" demo-load --http "$http" --rate "$rate" &
load=$!

cat <<TEXT

  The dashboard:  http://$admin/
  In a terminal:  $tollgate top --server http://$admin

  500 callers send $rate checks per second, and a few of them send most. noisy-neighbour is far above its limit from the start.
  After 45 s a bad deploy, checkout-v2, retries every refused request for a minute, and again every three minutes.
  The rule tighter-free-plan is in shadow mode: it refuses nobody, and reports whom it would refuse.
  Press Ctrl-C to end the demo.

TEXT

# The demo ends when either of them does.
wait -n
