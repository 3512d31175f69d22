# Shared by the engines that `make run WITH=…` and `make e2e` bring to a cluster that pulls nothing. Who sources this says
# `engine`, `title`, `version`, `user` and the Debian `package`, how to `fill` a tree and which `hints` follow; `serve "$@"` does
# the rest:
#   image                builds the image from what is on this machine, once, and prints the archive's path
#   install [namespace]  starts it where KUBECONFIG points to, and waits until it is ready
engines=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$engines/../.."
. e2e/tools/lib.sh
PATH=$(e2e/tools/kubernetes.sh):$PATH:/usr/sbin

# What an engine may say besides.
sources=()            # what else the image is made of, of the files of this repository
settings=(--env PATH=/bin)
prepare() { [ -n "$version" ] || die "$title is needed: apt-get install $package"; }
identity() { :; }     # what else tells one image from another
more_secrets() { :; } # besides user and password

copy_libraries() { # tree programs…: what they are linked to, where the loader looks
  local tree=$1
  shift
  ldd "$@" | sed -nE 's|^\t(.* => )?(/.*) \(0x[0-9a-f]+\)$|\2|p' | grep -vF "$tree/" | sort -u >"$tree.libraries"
  xargs -d '\n' cp --dereference --parents --target-directory "$tree" <"$tree.libraries"
}

copy_programs() { # tree programs…: of this machine, and what they need
  local tree=$1 program
  shift
  mkdir -p "$tree/bin"
  for program in "$@"; do
    cp --dereference "$(command -v "$program")" "$tree/bin/$program"
  done
  copy_libraries "$tree" "${@/#/$tree/bin/}"
}

copy_commands() { # tree: busybox, ours, and where they may write
  local command
  mkdir -p "$1"/{bin,etc,tmp,data,secret}
  cp e2e/image/files/etc/{passwd,group} "$1/etc/"
  cp "$(command -v busybox)" "$1/bin/busybox"
  for command in base64 cat chmod cp date env grep head id kill ls mkdir mv nc nslookup printf ps rm sed sh sleep tail timeout touch tr xxd; do
    ln -s busybox "$1/bin/$command"
  done
  find "$engines/$engine" -type f -perm -u=x -exec install -m 755 --target-directory "$1/bin" {} +
}

build_image() { # into $1
  local tree=$1/tree
  say "building the image of $title $version from what is on this machine, once"
  mkdir "$tree"
  step "$engine" fill "$tree"
  step commands copy_commands "$tree"
  step archive "$(program image)" tree --name "localhost/$engine:$version" --arch "$(machine_arch)" \
    --entrypoint /bin/start --user 65532:65532 "${settings[@]}" --out "$1/$engine.tar" "$tree"
  rm -rf "$tree" "$tree.libraries"
}

image() {
  local key folder=target/image old
  command -v busybox >/dev/null || die "busybox is needed: apt-get install busybox-static"
  prepare
  key=$({ echo "$version"; identity; cat "$engines"/{engine,"$engine"}.sh "$engines/$engine"/* "${sources[@]}" e2e/image/src/*.rs; } |
    sha256sum | cut -c1-12)
  once "$folder/$engine-$key" build_image 1000
  for old in "$folder/$engine"-*; do
    [[ $old == "$folder/$engine-$key"* ]] || rm -rf "$old"
  done
  echo "$folder/$engine-$key/$engine.tar"
}

random() { head -c 24 /dev/urandom | sha256sum | cut -c1-32; }

install_into() { # namespace
  local kubectl=(kubectl --namespace "$1") began=$SECONDS
  kubectl create namespace "$1" --dry-run=client --output=yaml | kubectl apply --filename - >/dev/null
  kubectl label namespace "$1" --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
  # Through a pipe: the arguments of a command can be seen by everybody.
  "${kubectl[@]}" get secret "$engine" >/dev/null 2>&1 || "${kubectl[@]}" create --filename - >/dev/null <<END
apiVersion: v1
kind: Secret
metadata: {name: $engine}
stringData: {${user:+username: $user, }password: $(random)$(more_secrets)}
END
  sed "s|IMAGE|localhost/$engine:$version|" "$engines/$engine.yaml" | "${kubectl[@]}" apply --filename - >/dev/null
  step "$title in the namespace $1" "${kubectl[@]}" rollout status "statefulset/$engine" --timeout=5m || {
    "${kubectl[@]}" get pods,events >&2
    "${kubectl[@]}" logs "$engine-0" --tail=20 >&2 || true
    die "$title is not ready: its last words are above, and kubectl --namespace $1 describe pod $engine-0 tells more"
  }
  say "$title is ready $((SECONDS - began)) s after the first command"
  echo
  "${kubectl[@]}" get pods
  hints "$1"
}

serve() {
  case ${1:-} in
    image) image ;;
    install) install_into "${2:-$engine}" ;;
    *) die "usage: $engine.sh image, or $engine.sh install [namespace]" ;;
  esac
}
