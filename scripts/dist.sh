#!/usr/bin/env bash
# Builds static binaries and packs them: target/dist-out has a tarball for each processor, what the container image is made of,
# and SHA256SUMS. Nothing in a tarball depends on when or where it was packed.
#
#   dist.sh [ARCH…]   x86_64, aarch64; by default both
set -euo pipefail
cd "$(dirname "$0")/.."

out=target/dist-out
max_binary=$((20 * 1024 * 1024))
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

die() {
  printf 'dist: %s\n' "$*" >&2
  exit 1
}

# The name that container images have for a processor.
image_arch() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) die "unknown processor $1" ;; esac; }

# build ARCH: the binary, by the system's musl or, for another processor, by zig.
build() {
  local target=$1-unknown-linux-musl
  local build=(build --locked --profile dist --target "$target" -p tollgate-server --bin tollgate)
  if [ "$1" = "$(uname -m)" ]; then
    cargo "${build[@]}"
  else
    PATH=$PWD/target/venv-dist/bin:$PATH VIRTUAL_ENV=$PWD/target/venv-dist cargo zig"${build[0]}" "${build[@]:1}"
  fi
}

# strip_symbols ARCH BINARY STRIPPED: the system's linker leaves them in static binaries; that of zig does not.
strip_symbols() {
  if [ "$1" = "$(uname -m)" ]; then
    strip --strip-all -o "$3" "$2"
  else
    install -m 755 "$2" "$3"
  fi
  if readelf --section-headers --wide "$3" | grep -q ' \.symtab '; then die "$3 has symbols"; fi
  if readelf --program-headers --wide "$3" | grep -q INTERP; then die "$3 is not static"; fi
}

# add_completions BINARY FOLDER: they are the same for all processors, and come from a binary that can run here.
add_completions() {
  mkdir -p $out/completions
  for shell in bash zsh fish; do
    "$1" completions $shell >"$2/$shell" 2>/dev/null || cp $out/completions/$shell "$2/$shell" 2>/dev/null || rm -f "$2/$shell"
    [ ! -s "$2/$shell" ] || cp "$2/$shell" $out/completions/$shell
  done
  rmdir "$2" 2>/dev/null || :
}

# pack ARCH
pack() {
  local arch=$1 name=tollgate-$version-$1-linux
  local built=${CARGO_TARGET_DIR:-target}/$arch-unknown-linux-musl/dist/tollgate
  local binary=$out/tollgate-$arch
  local folder=$out/$name root
  root=$out/image/$(image_arch "$arch")
  strip_symbols "$arch" "$built" "$binary"
  [ "$(stat -c %s "$binary")" -le $max_binary ] || die "$binary has more than $max_binary bytes"
  mkdir -p "$folder/completions" "$root/bin" "$root/etc/ssl/certs" "$root/data"
  install -m 755 "$binary" "$folder/tollgate"
  install -m 644 LICENSE README.md "$folder"
  install -m 644 examples/rules/api.yaml "$folder/rules.yaml"
  add_completions "$binary" "$folder/completions"
  tar --create --gzip --file "$folder.tar.gz" --directory $out --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner "$name"
  rm -r "$folder"
  # What the image has: see deploy/container/Containerfile.
  install -m 755 "$binary" "$root/bin/tollgate"
  ln -s tollgate "$root/bin/ratelimit"
  install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  rm "$binary"
}

[ -s /etc/ssl/certs/ca-certificates.crt ] || die 'the CA certificates are missing: install ca-certificates'
[ $# -gt 0 ] || set -- x86_64 aarch64
rm -rf $out
mkdir -p $out
for arch; do
  build "$arch"
  pack "$arch"
done
rm -r $out/completions
(cd $out && sha256sum -- *.tar.gz >SHA256SUMS && cat SHA256SUMS)
