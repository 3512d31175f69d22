#!/usr/bin/env bash
# Takes the definitions of what a Prometheus operator is told from its Go module, once per version, and prints the folder that
# holds them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

out=$(cache_dir)/monitoring-$PROMETHEUS_OPERATOR_VERSION
module=github.com/prometheus-operator/prometheus-operator

take_definitions() { # into $1
  local go answer kind
  go=$(go_toolchain)
  say "fetching the definitions of prometheus-operator $PROMETHEUS_OPERATOR_VERSION, once"
  # Outside of every module: nothing of it is built.
  answer=$(cd "$1" && GOTOOLCHAIN=local "$go" mod download -json "$module@$PROMETHEUS_OPERATOR_VERSION") ||
    die "prometheus-operator cannot be fetched: $answer"
  grep -qF "\"Sum\": \"$PROMETHEUS_OPERATOR_SUM\"" <<<"$answer" ||
    die "prometheus-operator $PROMETHEUS_OPERATOR_VERSION is not what versions.env says: $answer"
  for kind in podmonitors prometheusrules servicemonitors; do
    install -m 644 -t "$1" "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$answer")/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml"
  done
}

once "$out" take_definitions 500
echo "$out"
