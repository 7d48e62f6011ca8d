#!/usr/bin/env bash
# Compares dashboard/dist, which is in git, with what its sources build.
set -euo pipefail
cd "$(dirname "$0")/../dashboard"

max_bytes=$((200 * 1024))
node_modules/.bin/vite build --outDir build/dist --emptyOutDir --logLevel warn
if ! diff -rq build/dist dist; then
  echo "dashboard/dist is not what dashboard/src builds: run make dashboard, and commit dashboard/dist" >&2
  exit 1
fi
bytes=$(cat dist/index.html dist/assets/* | wc -c)
if [ "$bytes" -gt $max_bytes ]; then
  echo "dashboard/dist has $bytes bytes, at most $max_bytes: it is in git and in every binary" >&2
  exit 1
fi
