#!/bin/bash
# Runs the fuzz targets, FUZZ_SECONDS each (60), all or those named: `integration/fuzz/run.sh path address`. What they find beyond the
# seeds is kept in target/fuzz/corpus; an input that breaks something is named, and left in target/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
export PATH="$PWD/target/tools/bin:$PATH" CARGO_TARGET_DIR=$out/build
command -v cargo-fuzz >/dev/null || {
  echo "Installing cargo-fuzz to target/tools."
  env -u CARGO_TARGET_DIR cargo install --locked --quiet --root target/tools cargo-fuzz
}
cargo +nightly --version >/dev/null 2>&1 || {
  echo "Fuzzing needs a nightly compiler: rustup toolchain install nightly --profile minimal" >&2
  exit 1
}
[ $# -gt 0 ] || set -- path address query cookie batch config pairs
cargo +nightly fuzz build --fuzz-dir integration/fuzz/targets --target-dir "$CARGO_TARGET_DIR"
mkdir -p "$out/artifacts"
for target; do
  mkdir -p "$out/corpus/$target"
  log=$out/$target.log
  if ! cargo +nightly fuzz run --fuzz-dir integration/fuzz/targets --target-dir "$CARGO_TARGET_DIR" "$target" \
    "$out/corpus/$target" "integration/fuzz/seeds/$target" -- -max_total_time="${FUZZ_SECONDS:-60}" -timeout=5 -max_len=1024 \
    -rss_limit_mb=2048 -artifact_prefix="$out/artifacts/$target-" >"$log" 2>&1; then
    tail -40 "$log" >&2
    echo "$target: FAILED, see $log" >&2
    exit 1
  fi
  echo "$target: $(grep -o 'Done [0-9]* runs in [0-9]* second(s)' "$log" | tail -1), nothing found"
done
