#!/usr/bin/env bash
# Builds the container image from what `make dist` made, as tollgate:VERSION and as a file in target/dist-out.
#
#   image.sh [ARCH]   x86_64, aarch64; by default this machine's
set -euo pipefail
cd "$(dirname "$0")/.."

arch=${1:-$(uname -m)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
case $arch in x86_64) image_arch=amd64 ;; aarch64) image_arch=arm64 ;; *) echo "unknown processor $arch" >&2 && exit 1 ;; esac
archive=target/dist-out/tollgate-$version-$arch-image.tar

# Isolation by chroot needs no user namespaces, and there is nothing to run.
buildah bud --quiet --isolation chroot --arch "$image_arch" --build-arg "TARGETARCH=$image_arch" \
  --label org.opencontainers.image.version="$version" \
  --tag "tollgate:$version" --file deploy/container/Containerfile target/dist-out/image
rm -f "$archive"
buildah push --quiet "tollgate:$version" "oci-archive:$archive:tollgate:$version"
ls -l "$archive"
