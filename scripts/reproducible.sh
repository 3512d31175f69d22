#!/usr/bin/env bash
# Builds the image of the last commit twice, in two folders, with two folders of crates, and compares them byte by byte.
# What was built before counts for one of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: an image tells of its commit, so commit them first"
arch=$(machine_arch) name=localhost/orrery:dev
archive=target/image/orrery-$arch.tar

scripts/image.sh $name "$arch"
# Elsewhere, and deeper.
mkdir -p "$(target_dir)"
place=$(mktemp -d "$(target_dir)/reproducible.XXXXXX")
trap 'rm -rf "$place"' EXIT
place=$(realpath "$place")
again=$place/another/folder/orrery
git clone --quiet . "$again"
# The same crates at another path.
mkdir "$place/cargo"
for part in config.toml credentials.toml registry git; do
  [ ! -e "${CARGO_HOME:-$HOME/.cargo}/$part" ] || ln -s "${CARGO_HOME:-$HOME/.cargo}/$part" "$place/cargo/$part"
done
say "building it again, in $again"
(cd "$again" && CARGO_HOME=$place/cargo CARGO_TARGET_DIR=target scripts/image.sh $name "$arch")
cmp "$archive" "$again/$archive" ||
  die "the two differ: compare the programs below */release, with diffoscope or strings, for what tells of the folder, the time or the order of the build"
say "both are the same, byte by byte: $(sha256sum <"$archive" | cut -c1-64)"
