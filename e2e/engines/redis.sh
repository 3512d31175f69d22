#!/usr/bin/env bash
# Redis for a cluster that pulls nothing: redis.sh image, or redis.sh install [namespace]. See engine.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
engine=redis title=Redis package=redis-server user=
version=$(redis-server --version 2>/dev/null | sed -nE 's/.* v=([0-9.]+).*/\1/p' || true)

fill() { # tree
  copy_programs "$1" redis-server redis-cli
}

hints() { # namespace
  cat <<END

Redis listens at redis.$1:6379, for pods. Its password is in the Secret $1/redis. Go on with:

  kubectl --namespace $1 exec redis-0 -- ask INFO server

END
}

serve "$@"
