# Shared by engines whose programs are Debian packages of this machine, for a cluster that pulls nothing. Who sources this says
# `engine`, `title`, `version` and `user`, and how to `fill` a tree; `packaged "$@"` does the rest:
#   image                builds the image from what is on this machine, once, and prints the archive's path
#   install [namespace]  starts it where KUBECONFIG points to, and waits until it is ready
engines=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$engines/../.."
. e2e/tools/lib.sh
PATH=$(e2e/tools/kubernetes.sh):$PATH:/usr/sbin

copy_programs() { # tree programs…: and what they are linked to, where the loader looks
  local tree=$1 program
  shift
  mkdir -p "$tree/bin" "$tree/etc" "$tree/tmp" "$tree/data" "$tree/secret"
  for program in "$@"; do
    cp --dereference "$(command -v "$program")" "$tree/bin/$program"
  done
  find "$tree/bin" -type f -exec ldd {} + | sed -nE 's|^\t(.* => )?(/.*) \(0x[0-9a-f]+\)$|\2|p' | sort -u >"$tree.libraries"
  xargs -d '\n' cp --dereference --parents --target-directory "$tree" <"$tree.libraries"
  cp e2e/image/files/etc/{passwd,group} "$tree/etc/"
}

copy_commands() { # tree: busybox, and ours
  local command
  cp "$(command -v busybox)" "$1/bin/busybox"
  for command in cat chmod cp date env grep head id kill ls mkdir mv printf ps rm sed sh sleep tail touch; do
    ln -s busybox "$1/bin/$command"
  done
  install -m 755 "$engines/$engine"/* "$1/bin/"
}

build_image() { # into $1
  local tree=$1/tree
  say "building the image of $title $version from this machine's packages and busybox, once"
  step "$engine" fill "$tree"
  step commands copy_commands "$tree"
  step archive cargo run --quiet --package image -- tree --name "localhost/$engine:$version" --arch "$(machine_arch)" \
    --entrypoint /bin/start --user 65532:65532 --env PATH=/bin --out "$1/$engine.tar" "$tree"
  rm -rf "$tree" "$tree.libraries"
}

image() {
  local key folder=target/image old
  command -v busybox >/dev/null || die "busybox is needed: apt-get install busybox-static"
  [ -n "$version" ] || die "$title is needed: apt-get install $package"
  key=$({ echo "$version"; cat "$engines"/{packaged,"$engine"}.sh "$engines/$engine"/* e2e/image/src/*.rs; } | sha256sum | cut -c1-12)
  once "$folder/$engine-$key" build_image 500
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
stringData: {${user:+username: $user, }password: $(random)}
END
  sed "s|IMAGE|localhost/$engine:$version|" "$engines/$engine.yaml" | "${kubectl[@]}" apply --filename - >/dev/null
  step "$title in the namespace $1" "${kubectl[@]}" rollout status "statefulset/$engine" --timeout=3m || {
    "${kubectl[@]}" get pods,events >&2
    "${kubectl[@]}" logs "$engine-0" --tail=20 >&2 || true
    die "$title is not ready: its last words are above, and kubectl --namespace $1 describe pod $engine-0 tells more"
  }
  say "$title is ready $((SECONDS - began)) s after the first command"
  echo
  "${kubectl[@]}" get pods
  hints "$1"
}

packaged() {
  case ${1:-} in
    image) image ;;
    install) install_into "${2:-$engine}" ;;
    *) die "usage: $engine.sh image, or $engine.sh install [namespace]" ;;
  esac
}
