#!/usr/bin/env bash
# Installs Orrery by Helm into the cluster that KUBECONFIG points to, as a user would, applies the samples and waits until
# they are Ready. IMAGE names the image. With --stay it then starts the engines that follow (see e2e/engines), whose images
# the nodes must have, and shows what changes, until Ctrl-C. What could not be finished is taken back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
# A user of a cluster has these; who has not gets ours.
command -v kubectl >/dev/null || PATH=$(e2e/tools/kubernetes.sh):$PATH
command -v helm >/dev/null || PATH=$(e2e/tools/helm.sh):$PATH

namespace=orrery-system
samples=orrery-samples # where nobody's own objects are
image=${IMAGE:?}
repository=${image%:*}
tag=${image##*:}
[[ $image == */*:* && $tag != */* ]] || die "IMAGE=$image is not registry/name:tag, such as registry.example.com/orrery:1.0.0"

in_system() { kubectl --namespace $namespace "$@"; }
# Both print nothing if there is no such thing, and fail if nobody says whether there is: what is taken for absent is removed
# when an install fails.
name_of() { in_system get "$1" --ignore-not-found --output=name || die "the cluster does not say whether it has $1: nothing was changed, try again"; }
status_of() {
  local said
  if said=$(helm status "$1" --namespace $namespace 2>&1); then
    sed -n 's/^STATUS: //p' <<<"$said"
  else
    [[ $said == *"release: not found"* ]] || die "helm does not say whether the release $1 is there, nothing was changed: $said"
  fi
}

check_cluster() {
  local version deployed released owner release status
  version=$(kubectl version --output=json --request-timeout=10s 2>/dev/null | sed -n '/serverVersion/,$ s/.*"gitVersion": "v\([0-9.]*\).*/\1/p') || true
  [ -n "$version" ] || die "no Kubernetes answers at $(kubectl config view --minify --output='jsonpath={.clusters[0].cluster.server}' 2>/dev/null || echo "the cluster of KUBECONFIG"): check KUBECONFIG, or leave CLUSTER out to get a cluster of your own"
  at_least "$version" 1.33 || die "the cluster has Kubernetes $version, but 1.33 or newer is needed"
  deployed=$(name_of deployment/orrery-operator)
  released=$(status_of orrery)
  [ -z "$deployed" ] || [ -n "$released" ] ||
    die "Orrery is in the namespace $namespace already, but was not installed by Helm: upgrade it the way it was installed, or remove it first (docs/installing.md)"
  owner=$(kubectl get crd checksumruns.orrery.dev --ignore-not-found \
    --output='jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}/{.metadata.annotations.meta\.helm\.sh/release-name}')
  case $owner in
    "" | $namespace/orrery-crds) ;;
    /) die "the cluster has Orrery's definitions already, but not from Helm: remove them, or install as docs/installing.md says for kustomize" ;;
    *) die "the Helm release $owner has Orrery's definitions already: upgrade that one, as docs/installing.md says" ;;
  esac
  for release in orrery-crds orrery; do
    status=$(status_of $release)
    [[ $status != pending-* ]] ||
      die "the Helm release $release is $status: wait for who installs it, or, if nobody does, helm rollback (or uninstall) $release --namespace $namespace"
  done
}

# What a failure leaves: what there was before.
look_around() {
  had_samples=$(name_of namespace/$samples)
  had_namespace=$(name_of namespace/$namespace)
  had_definitions=$(name_of crd/checksumruns.orrery.dev)
  had_release=$(status_of orrery)
}
exec {told}>&2
fail() { # why
  trap '' INT TERM
  # Who is interrupted in a function that says nothing still has something to say.
  exec 2>&"$told"
  say "taking back what was begun"
  [ -n "$had_samples" ] || kubectl delete namespace $samples --ignore-not-found --timeout=1m >/dev/null 2>&1 || true
  if [ -n "$had_release" ]; then
    helm rollback orrery --namespace $namespace --wait --timeout 2m >/dev/null 2>&1 || true
  else
    helm uninstall orrery --namespace $namespace --wait --timeout 2m >/dev/null 2>&1 || true
    in_system wait --for=delete pods --selector=app.kubernetes.io/name=orrery-operator --timeout=1m >/dev/null 2>&1 || true
  fi
  if [ -z "$had_definitions" ]; then
    helm uninstall orrery-crds --namespace $namespace >/dev/null 2>&1 || true
    kubectl delete -k config/crd --ignore-not-found --timeout=1m >/dev/null 2>&1 || true
  fi
  [ -n "$had_namespace" ] || kubectl delete namespace $namespace --ignore-not-found --timeout=1m >/dev/null 2>&1 || true
  die "$1"
}

await_operator() {
  local deadline=$((SECONDS + 180)) reasons
  until in_system rollout status deployment/orrery-operator --timeout=1s >/dev/null 2>&1; do
    reasons=$(in_system get pods --selector=app.kubernetes.io/name=orrery-operator \
      --output='jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}') || true # asked again
    case $reasons in
      *ImagePullBackOff* | *InvalidImageName* | *ErrImageNeverPull*)
        fail "no node finds the image $image: push it to a registry that the cluster can pull from (docs/image.md)" ;;
      *CrashLoopBackOff*)
        fail "the operator ends right after its start: $(in_system logs deployment/orrery-operator --tail=1 2>&1)" ;;
    esac
    [ $SECONDS -lt $deadline ] || fail "the operator is not ready after 3 minutes: $(in_system get pods --no-headers | tr -s ' ' | head -n 2 | tr '\n' ';')"
  done
}

until_leading() { # seconds between two lines of the leader's log
  local pod first last
  pod=$(in_system get lease/orrery-operator --output='jsonpath={.spec.holderIdentity}')
  { read -r first && read -r last; } < <(in_system logs "${pod%_*}" |
    sed -nE '1s/.*"timestamp":"([^"]*)".*/\1/p; /controllers started/s/.*"timestamp":"([^"]*)".*/\1/p') || { echo "?"; return; }
  awk "BEGIN {printf \"%.1f\", $(date --date "$last" +%s.%N) - $(date --date "$first" +%s.%N)}"
}

write_files() { # only who has the cluster for himself: volumes of others have files
  kubectl --namespace $samples apply --filename scripts/run/files.yaml &&
    kubectl --namespace $samples wait --for=condition=Complete --timeout=2m job/write-files
}

apply_samples() {
  kubectl create namespace $samples --dry-run=client --output=yaml | kubectl apply --filename - &&
    kubectl label namespace $samples --overwrite pod-security.kubernetes.io/enforce=restricted &&
    { [ -z "$stays" ] || write_files; } &&
    kubectl --namespace $samples apply --kustomize config/samples &&
    # A run is ready when it has ended well.
    kubectl --namespace $samples wait --for=condition=Ready --timeout=3m checksumschedules,checksumruns --all
}

stays=
[ "${1:-}" != --stay ] || stays=yes
check_cluster
look_around
# A private cluster ends as a whole.
[ -n "$stays" ] || trap 'fail "interrupted"' INT TERM
began=$SECONDS
step "helm install orrery-crds" helm upgrade --install orrery-crds charts/orrery-crds --namespace $namespace --create-namespace --wait --timeout 2m ||
  fail "helm could not install the definitions"
kubectl label namespace $namespace --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null ||
  fail "the namespace $namespace could not be labelled"
step "helm install orrery" helm upgrade --install orrery charts/orrery --namespace $namespace \
  --set "image.repository=$repository" --set-string "image.tag=$tag" ||
  fail "helm could not install the operator"
await_operator
say "all pods are ready $((SECONDS - began)) s after the first command; the operator led $(until_leading) s after its start"
step "samples, in the namespace $samples" apply_samples ||
  fail "the samples did not become Ready: $(kubectl --namespace $samples get orrery --no-headers 2>&1 | tr -s ' ' | tr '\n' ';')"
trap - INT TERM
[ -z "${RUN_BEGAN:-}" ] ||
  say "make run took $((EPOCHSECONDS - RUN_BEGAN)) s; control plane, node and pods use $("$(target_dir)/debug/testbed" memory) MB"

echo
kubectl get orrery --all-namespaces
cat <<END

Orrery runs in the namespace $namespace. Go on with:

  export KUBECONFIG=${KUBECONFIG:-$HOME/.kube/config}${KUBECTL_AT:+ PATH=$KUBECTL_AT:\$PATH}
  kubectl get orrery --all-namespaces          # what there is, and how it is
  kubectl --namespace $samples describe orrery  # why
  kubectl explain checksumrun.spec             # what can be said
  kubectl --namespace $namespace logs deployment/orrery-operator

END
[ -n "$stays" ] || exit 0

for engine in "${@:2}"; do
  "e2e/engines/$engine.sh" install
done
state() { kubectl get orrery --all-namespaces --no-headers 2>/dev/null | awk '{NF--; print}'; } # without ages
seen=$(state) || true
echo "Ctrl-C ends the cluster. Changes:"
while sleep 2; do
  now=$(state) || continue
  if [ "$now" != "$seen" ]; then
    date +%H:%M:%S
    kubectl get orrery --all-namespaces
  fi
  seen=$now
done
