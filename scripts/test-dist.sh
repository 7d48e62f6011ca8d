#!/usr/bin/env bash
# What a new user does with a tarball, by the commands in README.md: unpack it, start the server, send requests until one is
# refused, open the dashboard, change a rule. Without anything of this repository, and in less than two minutes.
#
#   test-dist.sh [ARCH]   x86_64, aarch64; by default this machine's. Another one runs in QEMU, if that is installed
set -euo pipefail
cd "$(dirname "$0")/.."

max_seconds=120
repository=$PWD
home=$(mktemp -d)
server=
arch=${1:-$(uname -m)}
# What runs the binary: nothing, or an emulator.
runner=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$home"' EXIT

fail() {
  printf 'test-dist: %s\n' "$*" >&2
  cat "$home/log" >&2 2>/dev/null || :
  exit 1
}

if [ "$arch" != "$(uname -m)" ]; then
  runner=$(command -v "qemu-$arch-static" || command -v "qemu-$arch") || fail "QEMU is missing: install qemu-user-static"
fi

# The commands of the first block of README.md, and the first request.
mapfile -t commands < <(awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md)
request=$(sed -n 's/^\$ \(curl localhost:8080.*\)$/\1/p' README.md | head -n 1)
change=$(sed -n "s/^\(sed -i .* rules.yaml\)$/\1/p" README.md | head -n 1)
[ "${#commands[@]}" = 2 ] && [ -n "$request" ] && [ -n "$change" ] || fail 'README.md does not begin as this test expects'

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
http=127.0.0.1:$(free_port) admin=127.0.0.1:$(free_port)
export TOLLGATE_HTTP=$http TOLLGATE_ADMIN=$admin TOLLGATE_GRPC=off
request=${request/localhost:8080/$http}

cp target/dist-out/SHA256SUMS target/dist-out/*"-$arch-linux.tar.gz" "$home"
began=$(date +%s)
cd "$home"
sha256sum --quiet --check --ignore-missing SHA256SUMS
eval "${commands[0]//x86_64/$arch}"
for file in tollgate LICENSE README.md rules.yaml; do [ -s $file ] || fail "$file is missing in the tarball"; done
if ldd ./tollgate 2>/dev/null | grep -q '=>'; then fail 'the binary is not static'; fi
eval "exec $runner ${commands[1]}" >"$home/log" 2>&1 &
server=$!

# status COMMAND: the status of a response, 000 without one.
status() { eval "$1 -s -o /dev/null -w '%{http_code}'" || :; }
# wait_for STATUS COMMAND
wait_for() {
  for _ in $(seq 100); do
    [ "$(status "$2")" != "$1" ] || return 0
    sleep 0.1
  done
  fail "no $1 from: $2"
}
wait_for 200 "curl http://$admin/readyz"
grep -q "http://$admin/ " "$home/log" || fail 'the URL of the dashboard is not shown'

statuses=$(for _ in 1 2 3 4; do status "$request"; echo; done | xargs)
[ "$statuses" = '200 200 200 429' ] || fail "four requests got $statuses"
first=$(($(date +%s) - began))
page=$(curl -s "http://$admin/")
script=$(grep -o '/assets/[^"]*\.js' <<<"$page") || fail 'the page is not the dashboard'
wait_for 200 "curl http://$admin$script"
eval "$change"
wait_for 200 "$request"
took=$(($(date +%s) - began))
[ $took -lt $max_seconds ] || fail "it took $took s"
kill "$server"
wait "$server" || fail 'the server did not end well'
server=
cd "$repository"
echo "test-dist: $arch: first refusal after $first s, a changed rule in force after $took s"
