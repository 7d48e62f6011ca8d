#!/usr/bin/env bash
# The demo of regions: three regions on this machine, each with a Redis and servers, relays between them that take their time, and
# traffic that follows the sun. From time to time one region is cut off. Ctrl-C ends it and everything that it started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tollgate=${TOLLGATE:?set TOLLGATE to the path of the binary}
delay=${DEMO_DELAY:-20}
rate=${DEMO_RATE:-600}
servers=${DEMO_SERVERS:-2}
cut_after=${DEMO_CUT_AFTER:-45}
cut_for=${DEMO_CUT_FOR:-30}

regions=(us-east us-west eu-west)
# The one that is cut off.
lost=eu-west

data=$(mktemp -d)
pids=() timer=''

stop() {
	trap '' HUP INT TERM
	[[ -z $timer ]] || kill "$timer" 2>/dev/null || true
	# In the order in which they depend on each other: traffic, servers, relays, Redis.
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

# Where servers write that they are ready. The traffic reports here.
exec {output}>/dev/null

# Each in a session of its own, so that Ctrl-C reaches only this script, which then ends them in order.
start() {
	setsid "$@" >&"$output" &
	pids+=($!)
}

# Sets `address` to one on loopback that nobody listens on. Those below 32768 are not taken by outgoing connections.
declare -A taken
find_address() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		[[ -n ${taken[$port]:-} ]] && continue
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
		taken[$port]=1
		address=127.0.0.1:$port
		return
	done
}

# Waits, and ends the demo if something else ends meanwhile.
pause() {
	sleep "$1" &
	timer=$!
	wait -n "${pids[@]}" "$timer" || true
	if kill -0 "$timer" 2>/dev/null; then
		echo "  one of the demo's processes has ended" >&2
		exit 1
	fi
	timer=''
}

say() { printf '  %(%H:%M:%S)T UTC  %s\n\n' -1 "$1"; }
export TZ=UTC

declare -A store relay relay_pid
for region in "${regions[@]}"; do
	find_address
	store[$region]=$address
	mkdir "$data/redis-$region"
	start redis-server --bind 127.0.0.1 --port "${address##*:}" --save '' --appendonly no --dir "$data/redis-$region" \
		--logfile "$data/redis-$region/log"
done

# A relay for each way, so that one region can be cut off from the others.
for from in "${regions[@]}"; do
	for to in "${regions[@]}"; do
		[[ $from == "$to" ]] && continue
		find_address
		relay[$from,$to]=$address
		start "$tollgate" demo-relay --listen "$address" --to "${store[$to]}" --delay "$delay"
		relay_pid[$from,$to]=$!
	done
done

load=() dashboards=() first=''
for from in "${regions[@]}"; do
	urls=''
	for to in "${regions[@]}"; do
		[[ $from == "$to" ]] || urls+="${urls:+,}$to=redis://${relay[$from,$to]}"
	done
	listeners=''
	for ((number = 1; number <= servers; number++)); do
		find_address
		http=$address
		find_address
		# That of the first one can be set.
		[[ $from == "${regions[0]}" && $number == 1 ]] && address=${DEMO_ADMIN:-$address}
		start "$tollgate" serve --rules "$here/regions/rules.yaml" --data "$data/$from-$number" --server-name "$from-$number" \
			--region "$from" --store "redis://${store[$from]}" --regions "$urls" --region-deadline 100ms \
			--store-deadline 100ms --http "$http" --admin "$address" --grpc off --workers 1 --log-level error
		listeners+="${listeners:+,}$http"
		[[ $number == 1 ]] && dashboards+=("$(printf '%-9s http://%s/#/regions' "$from" "$address")")
		first=${first:-http://$address}
	done
	load+=(--region "$from=$listeners")
done

cat <<TEXT

  The dashboards, one in each region:
$(printf '    %s\n' "${dashboards[@]}")
  In a terminal: $tollgate regions --server ${first}

  ${#regions[@]} regions with $servers servers each, $((2 * delay)) ms apart. $rate checks per second of one caller follow the sun from region to region.
  Five rules have the same limit, 600 in 10 seconds, in different modes: each, split, home (us-east), global, and global
  with \`apart: share\`. What they admitted is printed every 10 seconds, by region.
  After $cut_after s $lost is cut off for $cut_for s, and again every $((2 * (cut_after + cut_for))) s: look at the page Regions of both sides.
  Press Ctrl-C to end the demo. At the end it prints what each mode admitted at most.

TEXT

output=1 start "$tollgate" demo-regions "${load[@]}" --rate "$rate"

cut() {
	for other in "${regions[@]}"; do
		[[ $other == "$lost" ]] || kill -s "$1" "${relay_pid[$lost,$other]}" "${relay_pid[$other,$lost]}"
	done
}

while :; do
	pause "$cut_after"
	say "$lost is cut off from the others, for $cut_for s."
	cut USR1
	pause "$cut_for"
	say "$lost can be reached again."
	cut USR2
	pause "$((cut_after + cut_for))"
done
