#!/usr/bin/env bash
# Installs Orrery by Helm into the cluster that KUBECONFIG points to, as a user would, applies the samples and waits until
# they are Ready. IMAGE names the image; with --stay it then shows what changes, until Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
PATH=$(e2e/tools/kubernetes.sh):$(e2e/tools/helm.sh):$PATH

namespace=orrery-system
image=${IMAGE:?}
repository=${image%:*}
tag=${image##*:}
[[ $image == */*:* && $tag != */* ]] || die "IMAGE=$image is not registry/name:tag, such as registry.example.com/orrery:1.0.0"

version=$(kubectl version --output=json --request-timeout=10s 2>/dev/null | sed -n '/serverVersion/,$ s/.*"gitVersion": "v\([0-9.]*\).*/\1/p') || true
[ -n "$version" ] || die "no Kubernetes answers at $(kubectl config view --minify --output='jsonpath={.clusters[0].cluster.server}' 2>/dev/null || echo "the cluster of KUBECONFIG"): check KUBECONFIG, or leave CLUSTER out to get a cluster of your own"
at_least "$version" 1.33 || die "the cluster has Kubernetes $version, but 1.33 or newer is needed"

began=$SECONDS
step "helm install orrery-crds" helm upgrade --install orrery-crds charts/orrery-crds --namespace $namespace --create-namespace --wait --timeout 2m
kubectl label namespace $namespace --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
step "helm install orrery" helm upgrade --install orrery charts/orrery --namespace $namespace --wait --timeout 3m \
  --set "image.repository=$repository" --set-string "image.tag=$tag" ||
  { kubectl --namespace $namespace get pods >&2; die "the operator is not ready: is $image where the nodes find it?"; }
say "all pods are ready $((SECONDS - began)) s after the first command"
kubectl apply --filename config/samples/checksumschedule.yaml >&2
kubectl wait --for=condition=Ready --timeout=1m --filename config/samples/checksumschedule.yaml >/dev/null ||
  die "the sample did not become Ready: $(kubectl get --filename config/samples/checksumschedule.yaml --output='jsonpath={.status.conditions}')"

echo
kubectl get orrery --all-namespaces
cat <<END

Orrery runs in the namespace $namespace. Go on with:

  export KUBECONFIG=${KUBECONFIG:-$HOME/.kube/config}
  kubectl get orrery --all-namespaces          # what there is, and how it is
  kubectl describe checksumschedules           # why
  kubectl explain checksumschedule.spec        # what can be said
  kubectl --namespace $namespace logs deployment/orrery-operator

END
[ "${1:-}" = --stay ] || exit 0

echo "Ctrl-C ends the cluster. Changes:"
seen=
while sleep 2; do
  now=$(kubectl get orrery --all-namespaces --no-headers 2>/dev/null | awk '{NF--; print}') || continue
  if [ "$now" != "$seen" ] && [ -n "$seen" ]; then
    date +%H:%M:%S
    kubectl get orrery --all-namespaces
  fi
  seen=$now
done
