#!/usr/bin/env bash
# The demo of the gateway: an upstream that slows down, a gateway in front of it, and traffic. Ctrl-C ends it and
# everything that it started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tollgate=${TOLLGATE:?set TOLLGATE to the path of the binary}
gateway=${DEMO_GATEWAY:-127.0.0.1:8000}
upstream=${DEMO_UPSTREAM:-127.0.0.1:9000}
admin=${DEMO_ADMIN:-127.0.0.1:8070}
rate=${DEMO_RATE:-500}
slow_after=${DEMO_SLOW_AFTER:-45}

data=$(mktemp -d)
pids=()

stop() {
	trap '' HUP INT TERM
	# In the order in which they depend on each other: traffic, gateway, upstream.
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill "${pids[i]}" 2>/dev/null || true
		wait "${pids[i]}" 2>/dev/null || true
	done
	rm -rf "$data"
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Each in a session of its own, so that Ctrl-C reaches only this script, which then ends them in order.
start() {
	setsid "$tollgate" "$@" &
	pids+=($!)
}

sed "s/127\.0\.0\.1:8000/$gateway/; s/127\.0\.0\.1:9000/$upstream/" "$here/gateway/gateway.yaml" >"$data/gateway.yaml"
start demo-upstream --listen "$upstream" --slow-after "$slow_after"
start serve --gateway "$data/gateway.yaml" --rules "$here/gateway/rules.yaml" --data "$data" \
	--admin "$admin" --http off --grpc off --log-level error
start demo-load --gateway "$gateway" --rate "$rate" --deploy-after $((slow_after + 75))

cat <<TEXT

  The dashboard:  http://$admin/#/gateway
  The gateway:    curl -i -H 'X-Api-Key: ada' http://$gateway/products

  $rate requests per second go through the gateway to an upstream that serves 16 at once, of 20 ms each.
  noisy-neighbour is far above its limit: its requests are refused with 429, and no other caller's.
  After $slow_after s the upstream needs three times as long, for a minute, and again every three minutes: it can no longer
  serve everybody. The adaptive cap refuses tests and reads with 503, and orders still pass.
  After $((slow_after + 75)) s a bad deploy, checkout-v2, sends orders in a loop for a minute: its limit stops it.
  Press Ctrl-C to end the demo.

TEXT

# The demo ends when one of them does.
wait -n
