#!/usr/bin/env bash
# Install the Debian packages that tests use: a Redis server, and what image tests need. Without root or apt it says
# what is missing and goes on: the demo needs none of them.
set -euo pipefail

declare -A package_of=([redis-server]=redis-server [buildah]=buildah [debootstrap]=debootstrap)
missing=()
for program in redis-server buildah debootstrap; do
  # debootstrap lives in sbin, which is not on every user's PATH.
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
if ((${#missing[@]} == 0)); then
  echo "setup: Debian packages are there"
  exit 0
fi
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "setup: not installed, since that needs root and apt: ${missing[*]}"
  echo "setup: without redis-server tests use the Valkey wheel; without buildah and debootstrap image tests are skipped"
  exit 0
fi

# The packages may not start services: tests run their own servers, on free loopback ports.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
log=$(mktemp)
quiet() { "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "setup: '$*' failed" >&2; exit 1; }; }

echo "setup: installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
quiet apt-get update
quiet apt-get install -y --no-install-recommends "${missing[@]}"
if [[ " ${missing[*]} " == *" redis-server "* ]] && command -v systemctl >/dev/null; then
  quiet systemctl disable redis-server.service
fi
rm -f "$log"
