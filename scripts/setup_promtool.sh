#!/usr/bin/env bash
# promtool, with which the alert rules are tested: found, or taken out of Debian's package prometheus into the cache.
# The package is not installed, since that would start a server. Without Debian it says so and goes on.
set -euo pipefail

cache=${HEADRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headrace}/promtool
if command -v promtool >/dev/null || [[ -x $cache/promtool ]]; then
  echo "setup: promtool is there"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "setup: no promtool, and no Debian packages to take it from; the test of the alert rules is skipped"
  exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if ! apt-get download prometheus >log 2>&1; then
  if [[ $(id -u) -ne 0 ]]; then
    echo "setup: no promtool: the package lists are old, and only root can update them; the test of the alert rules is skipped"
    exit 0
  fi
  { apt-get update && apt-get download prometheus; } >log 2>&1 || { cat log >&2; echo "setup: no promtool" >&2; exit 1; }
fi
dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract ./usr/bin/promtool
mkdir -p "$cache"
mv usr/bin/promtool "$cache/.new.$$" # then in one step, for others that look
mv "$cache/.new.$$" "$cache/promtool"
echo "setup: promtool is in the cache"
