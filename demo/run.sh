#!/usr/bin/env bash
# The demo: a server on loopback, and traffic with a story. Ends with Ctrl-C, and with it all that it started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tollgate=${TOLLGATE:?the program to show}
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

# In sessions of their own: Ctrl-C is for this script, which ends them one after the other.
setsid "$tollgate" serve --rules "$here/rules" --data "$data" --http "$http" --admin "$admin" --grpc off --log-level error &
server=$!
setsid "$tollgate" demo-load --http "$http" --rate "$rate" &
load=$!

cat <<TOLD

  The dashboard:  http://$admin/
  In a terminal:  $tollgate top --server http://$admin

  500 callers ask $rate times a second, few of them most of it. noisy-neighbour is far above its limit from the start.
  After 45 s a bad deploy, checkout-v2, retries whatever is refused, for a minute, and again every three.
  tighter-free-plan is in shadow mode: it refuses nobody, and says whom it would.
  Ctrl-C ends it.

TOLD

# Either of them ends: so does the demo.
wait -n
