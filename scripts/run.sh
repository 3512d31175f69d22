#!/usr/bin/env bash
# Runs Orrery: in a private cluster of one node, or with CLUSTER=current in the one that the kubeconfig points to.
# DETACH=1 leaves the private cluster running in the background; `run.sh stop` ends it. WITH lists what else to start in it.
# RUN_STATE is where is noted what runs in the background, for a second one beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/tools/lib.sh
state=${RUN_STATE:-$(target_dir)/run}

born() { awk '{print $22}' "/proc/$1/stat" 2>/dev/null; } # tells a process from a later one with the same id

running() { # the process of a detached run
  local pid born
  read -r pid born 2>/dev/null <"$state/process" && [ "$(born "$pid")" = "$born" ] && echo "$pid"
}

stop() {
  local pid deadline=$((SECONDS + 60))
  pid=$(running) || { rm -rf "$state"; say "nothing runs in the background"; return 0; }
  kill -TERM "$pid"
  while running >/dev/null; do
    # All that it started is tied to it, and ends too.
    [ $SECONDS -lt $deadline ] || { say "it does not end, and is killed"; kill -KILL "$pid"; break; }
    sleep 0.2
  done
  rm -rf "$state"
  say "stopped"
}

if [ "${1:-}" = stop ]; then
  stop
  exit
fi

known=" cassandra mariadb redis "
IFS=', ' read -ra engines <<<"${WITH:-}"
for engine in "${engines[@]}"; do
  [[ $known == *" $engine "* ]] || die "WITH=$WITH asks for $engine, but there is only:$known"
done

case ${CLUSTER:-private} in
  private) ;;
  current)
    [ ${#engines[@]} = 0 ] || die "WITH=$WITH needs the private cluster: its images are built here, and yours could not pull them"
    [ -n "${IMAGE:-}" ] || die "CLUSTER=current needs IMAGE, a registry/name:tag that your cluster can pull: make image, push target/image/*.tar, then make run CLUSTER=current IMAGE=…"
    exec scripts/install.sh
    ;;
  *) die "CLUSTER=$CLUSTER is neither private (the default) nor current" ;;
esac
[ "$(id -u)" = 0 ] || die "a private node needs root: run as root, or use your own cluster with make run CLUSTER=current IMAGE=…"
nodes_possible
! running >/dev/null || die "a run is in the background already: make stop ends it"

export RUN_BEGAN=$EPOCHSECONDS
for need in run "${engines[@]}"; do
  scripts/prepare.sh "$need"
done
export IMAGE=${IMAGE:-localhost/orrery:dev}
arch=$(machine_arch)
scripts/image.sh "$IMAGE" "$arch"
images=("target/image/orrery-$arch.tar")
for engine in "${engines[@]}"; do
  images+=("$("e2e/engines/$engine.sh" image)")
done
step testbed program testbed
run=("$(target_dir)/debug/testbed" nodes "${images[@]/#/--image=}" -- scripts/install.sh --stay "${engines[@]}")
command -v kubectl >/dev/null || export KUBECTL_AT=$(e2e/tools/kubernetes.sh)
PATH=$(e2e/tools/kubernetes.sh):$(e2e/tools/helm.sh):$PATH
say "starting a private cluster"
[ -n "${DETACH:-}" ] || exec "${run[@]}"

mkdir -p "$state"
interrupted='' # who interrupts it from now on wants no cluster
trap 'interrupted=yes' INT TERM
setsid nohup "${run[@]}" >"$state/log" 2>&1 </dev/null &
echo "$! $(born $!)" >"$state/process"
tail --pid $! --follow "$state/log" &
follow=$!
until [ -n "$interrupted" ] || grep -q '^Ctrl-C ends' "$state/log"; do
  running >/dev/null || [ -n "$interrupted" ] || { wait $follow; rm -rf "$state"; die "the run ended"; }
  sleep 0.5 || true
done
if [ -n "$interrupted" ]; then
  stop
  exit 130
fi
trap - INT TERM
kill $follow
say "goes on in the background; make stop ends it"
