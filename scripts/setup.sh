#!/bin/sh
# Prepares this machine for the other make targets. Silent when nothing is missing.
#
#   setup.sh        cargo and a C linker: what every target needs
#   setup.sh c++    also a C++ compiler, from which libFuzzer is built
#   setup.sh bench  also what the server is measured with: Redis and its load, and protoc, which a peer is built with
set -eu

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
  # A fresh image has no package lists; one that has them need not fetch them again.
  # shellcheck disable=SC2086 # Several packages, and a command that may be empty.
  if ! $as_root env DEBIAN_FRONTEND=noninteractive sh -c \
    "apt-get install -y -qq --no-install-recommends $1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $1; }" \
    >/dev/null 2>&1; then
    say "apt-get could not install $1, for want of a network perhaps. Install by hand, then try again."
    exit 1
  fi
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
esac
