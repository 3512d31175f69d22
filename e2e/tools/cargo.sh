#!/usr/bin/env bash
# Installs the pinned cargo tools (cargo-deny, cargo-nextest) from crates.io, once per version,
# and prints the folder that holds them. Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

out=$(cache_dir)/cargo-tools-deny-$CARGO_DENY_VERSION-nextest-$CARGO_NEXTEST_VERSION

install_all() { # into $1
  command -v cargo >/dev/null || die "cargo is needed: install Rust 1.95 or newer"
  say "installing cargo-nextest $CARGO_NEXTEST_VERSION and cargo-deny $CARGO_DENY_VERSION, once: about 10 minutes on two cores"
  # The caller may be `make`, which exports RUSTFLAGS for our own code; the tools are not ours to lint.
  unset RUSTFLAGS CARGO_TARGET_DIR
  step cargo-nextest cargo install --quiet --locked --root "$1" --target-dir "$1/target" "cargo-nextest@$CARGO_NEXTEST_VERSION" --no-default-features --features default-no-update
  step cargo-deny cargo install --quiet --locked --root "$1" --target-dir "$1/target" "cargo-deny@$CARGO_DENY_VERSION" --no-default-features
  rm -rf "$1/target"
}

once "$out" install_all 3000
echo "$out/bin"
