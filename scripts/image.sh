#!/usr/bin/env bash
# Writes target/image/orrery-<arch>.tar, an OCI image of the programs in e2e/image/binaries. Needs neither Docker nor a base
# image. Arguments: the image's name, amd64 or arm64, and `bill` to write also what they are made of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
name=${1:-localhost/orrery:dev} arch=${2:-$(machine_arch)}

case $arch in
  amd64) cpu=x86_64 ;;
  arm64) cpu=aarch64 ;;
  *) die "ARCH is amd64 or arm64, not $arch" ;;
esac
mkdir -p "$(target_dir)"
need_space "$(target_dir)" 3000 CARGO_TARGET_DIR
target=$cpu-unknown-linux-musl
variable=${target//-/_}
image=$(program image)
"$image" name "$name"

# ring is partly C. Rust brings its own linker and musl, so that a compiler is all that other machines need.
if [ "$cpu" = "$(uname -m)" ]; then
  compiler=musl-gcc packages=(musl-tools)
else
  compiler=$cpu-linux-gnu-gcc packages=("gcc-${cpu//_/-}-linux-gnu" "libc6-dev-$arch-cross")
  export "CARGO_TARGET_${variable^^}_LINKER=rust-lld"
fi
if ! command -v "$compiler" >/dev/null; then
  packages_possible "${packages[@]}"
  install_packages "${packages[@]}"
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  command -v rustup >/dev/null || die "Rust has no $target: install its standard library as you installed Rust, or use rustup"
  step "$target" rustup target add "$target"
fi

# Where crates were, and what their build scripts wrote, is no part of the programs; our own files are named relatively.
export "CC_$variable=$compiler"
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export "CARGO_TARGET_${variable^^}_RUSTFLAGS=--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$(realpath "$(target_dir)")=/orrery/target"
# In one go, so that what they share is built once.
programs=() binaries=() build=()
while read -r package binary; do
  build+=(--package "$package" --bin "$binary")
  programs+=("$(target_dir)/$target/release/$binary")
  binaries+=("$binary")
done <e2e/image/binaries
step "programs of the image" cargo build --quiet --locked --release --target "$target" "${build[@]}"

revision=$(git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || true)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p target/image
out=target/image/orrery-$arch
# Who says where or when it was built is another program in another folder, or tomorrow.
told=("$PWD/crds/" "$PWD/operator/" "$PWD/agents/" "$(realpath "$(target_dir)")/" "$cargo_home/" "$(LC_ALL=C date '+%b %e %Y')")
"$image" archive --name "$name" --arch "$arch" ${revision:+--revision "$revision"} --out "$out.tar" \
  "${told[@]/#/--without=}" "${programs[@]}"

[ "${3:-}" = bill ] || exit 0

install_cyclonedx() { # into $1
  say "installing cargo-cyclonedx $CARGO_CYCLONEDX_VERSION, once"
  unset RUSTFLAGS CARGO_TARGET_DIR
  step cargo-cyclonedx cargo install --quiet --locked --root "$1" --target-dir "$1/target" "cargo-cyclonedx@$CARGO_CYCLONEDX_VERSION"
  rm -rf "$1/target"
}
tool=$(cache_dir)/cargo-cyclonedx-$CARGO_CYCLONEDX_VERSION
once "$tool" install_cyclonedx 1000

# It writes beside every Cargo.toml of the workspace: into a copy.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
find . \( -path ./target -o -path ./.git \) -prune -o -type f \( -name '*.rs' -o -name Cargo.toml -o -name Cargo.lock \) -print0 |
  tar --null --files-from=- --create | tar --extract --directory "$copy"
PATH=$tool/bin:$PATH cargo cyclonedx --quiet --manifest-path "$copy/Cargo.toml" --format json --spec-version 1.5 \
  --describe binaries --no-build-deps --target "$target"
bills=()
for binary in "${binaries[@]}"; do
  bills+=("$(find "$copy" -name "${binary}_bin.cdx.json")")
done
"$image" sbom --root "$copy" --require kube "${binaries[@]/#/--require=}" --out "$out.cdx.json" "${bills[@]}"
