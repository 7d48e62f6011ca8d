#!/usr/bin/env bash
# The container image: small, read-only, without root and capabilities; it limits, and ends on SIGTERM.
set -euo pipefail
cd "$(dirname "$0")/.."

max_image=$((25 * 1024 * 1024))
max_stop_seconds=5
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
image=tollgate:$version
rules=$(mktemp -d)
container=
# Where Debian installs runc, for users without it on their path.
PATH=$PATH:/usr/sbin:/sbin
trap '[ -z "$container" ] || podman rm --force "$container" >/dev/null; rm -rf "$rules"' EXIT

fail() {
  printf 'test-image: %s\n' "$*" >&2
  [ -z "$container" ] || podman logs "$container" >&2
  exit 1
}

size=$(podman image inspect --format '{{.Size}}' "$image")
[ "$size" -le $max_image ] || fail "the image has $size bytes, at most $max_image"
[ "$(podman image inspect --format '{{.Config.User}}' "$image")" = 65532:65532 ] || fail 'the image runs as another user'

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
http=127.0.0.1:$(free_port) admin=127.0.0.1:$(free_port)
chmod 755 "$rules"
cp examples/rules/api.yaml "$rules/rules.yaml"
# Networks and higher limits need more than a container of a CI system has.
start() {
  podman --runtime runc run --detach --network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 \
    --read-only --cap-drop all --volume "$rules:/rules:ro" "$@"
}
container=$(start "$image" serve --rules /rules --http "$http" --admin "$admin" --grpc off)
for _ in $(seq 100); do
  curl -sf "http://$admin/readyz" >/dev/null && break
  sleep 0.1
done
check() {
  curl -s -o /dev/null -w '%{http_code}\n' "http://$http/v1/ratelimit/check" -d '{"api_key": "k1", "endpoint": "POST /api/v1/orders"}' || :
}
statuses=$(for _ in 1 2 3 4; do check; done | xargs)
[ "$statuses" = '200 200 200 429' ] || fail "four requests got $statuses"
curl -s "http://$admin/" | grep -q '/assets/' || fail 'the image has no dashboard'
pid=$(podman inspect --format '{{.State.Pid}}' "$container")
[ "$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")" = 65532 ] || fail 'the process has another user'
[ "$(awk '/^CapEff:/ { print $2 }' "/proc/$pid/status")" = 0000000000000000 ] || fail 'the process has capabilities'

began=$(date +%s)
kill -TERM "$pid"
code=$(podman wait "$container")
took=$(($(date +%s) - began))
[ "$code" = 0 ] && [ $took -le $max_stop_seconds ] || fail "after SIGTERM it ended with $code after $took s"
podman rm "$container" >/dev/null
container=

# Under its second name it reads the environment of envoyproxy/ratelimit.
mkdir -p "$rules/ratelimit/config"
mv "$rules/rules.yaml" "$rules/ratelimit/config/api.yaml"
http=127.0.0.1:$(free_port)
container=$(start --env HOST=127.0.0.1 --env "PORT=${http#*:}" --env GRPC_HOST=127.0.0.1 --env "GRPC_PORT=$(free_port)" \
  --env DEBUG_HOST=127.0.0.1 --env "DEBUG_PORT=$(free_port)" --env RUNTIME_ROOT=/rules --env RUNTIME_SUBDIRECTORY=ratelimit \
  --entrypoint /bin/ratelimit "$image")
for _ in $(seq 100); do
  [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$http/healthcheck" || :)" != 200 ] || break
  sleep 0.1
done
[ "$(curl -s "http://$http/healthcheck")" = OK ] || fail '/bin/ratelimit does not answer'
echo "test-image: $size bytes, ended $took s after SIGTERM"
