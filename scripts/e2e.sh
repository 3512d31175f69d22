#!/usr/bin/env bash
# Runs the cases that need pods: starts two private nodes, brings our image and those of the engines to them, and ends them.
# ONLY is a part of the name of a case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
only=${1:-}
[ "$(id -u)" = 0 ] || die "nodes need root: run make e2e as root"
nodes_possible

scripts/prepare.sh e2e
PATH="$(e2e/tools/cargo.sh):$(e2e/tools/kubernetes.sh):$(e2e/tools/helm.sh):$PATH"
arch=$(machine_arch)
scripts/image.sh localhost/orrery:dev "$arch" bill
images=(--image "target/image/orrery-$arch.tar")
for engine in cassandra mariadb redis; do
  images+=(--image "$("e2e/engines/$engine.sh" image)")
done
# Of the whole workspace, as `make test` selects it: what that has built is not built again with fewer features.
cases=(--workspace --test node --test engines --test cluster)
step cases cargo test --quiet "${cases[@]}" --no-run
exec "$(target_dir)/debug/testbed" nodes --count 2 "${images[@]}" -- bash -euo pipefail -c '
  helm install orrery-crds charts/orrery-crds --namespace orrery-system --create-namespace --wait >/dev/null
  only=$1
  shift
  cargo nextest run --cargo-quiet "$@" --profile e2e ${only:+--filterset "test(/$only/)"}
' e2e "$only" "${cases[@]}"
