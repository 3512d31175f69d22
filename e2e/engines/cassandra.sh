#!/usr/bin/env bash
# Cassandra for a cluster that pulls nothing.
#   cassandra.sh image                builds its image from what is on this machine, once, and prints the archive's path
#   cassandra.sh install [namespace]  starts it where KUBECONFIG points to, and waits until it is ready
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
. e2e/tools/lib.sh
PATH=$(e2e/tools/kubernetes.sh):$PATH

# Of Java: what draws, plays and prints, what compiles and links, and what explains.
without=(--exclude=./{docs,include,jmods,legal,man} --exclude=./lib/{src.zip,ct.sym}
  --exclude=./lib/lib{atk-wrapper,awt,awt_headless,awt_xawt,fontmanager,freetype,javajpeg,jawt,jsound,lcms,mlib_image,splashscreen,j2pcsc}.so)

copy_java() { # home tree
  mkdir -p "$2/opt/java"
  # Debian keeps the configuration in /etc, and links to it.
  tar --create --dereference --directory "$1" "${without[@]}" . | tar --extract --no-same-owner --directory "$2/opt/java"
}

copy_libraries() { # tree: what its Java is linked to, and what libraries inside of jars may be, where the loader looks
  local tree=$1 libc
  find "$tree/opt/java" \( -name '*.so' -o -path '*/bin/java' \) -exec ldd {} + |
    sed -nE 's|^\t(.* => )?(/.*) \(0x[0-9a-f]+\)$|\2|p' | grep -vF "$tree/" | sort -u >"$tree.libraries"
  libc=$(grep '/libc\.so' "$tree.libraries")
  find "$(dirname "$libc")/" -maxdepth 1 -regextype posix-extended \
    -regex '.*/lib(dl|gcc_s|m|nss_dns|nss_files|pthread|resolv|rt)\.so\.[0-9]+' >>"$tree.libraries"
  xargs -d '\n' cp --dereference --parents --target-directory "$tree" <"$tree.libraries"
}

copy_commands() { # tree: busybox, and ours
  local tree=$1 command
  mkdir -p "$tree/bin"
  cp "$(command -v busybox)" "$tree/bin/busybox"
  for command in base64 cat cp date env grep head id kill ls mkdir nc nslookup printf ps rm sed sh sleep tail timeout touch tr xxd; do
    ln -s busybox "$tree/bin/$command"
  done
  install -m 755 "$here"/cassandra/{start,answers,jolokia,status,cql} "$tree/bin/"
}

copy_cassandra() { # java jars tree
  local own=$3/opt/cassandra
  mkdir -p "$own/conf" "$own/tools" "$3/etc" "$3/tmp" "$3/data" "$3/secret"
  cp -r "$2/lib" "$own/lib"
  cp "$2"/agent/*.jar "$own/agent.jar"
  # Options and logs are those of the testbed's nodes; pod.options come later and win.
  cp e2e/testbed/src/cassandra/{jvm.options,logback.xml} "$here"/cassandra/{pod.options,cassandra.yaml,rackdc.properties,quiet.xml} "$own/conf/"
  cp e2e/image/files/etc/{passwd,group} "$3/etc/"
  # Cassandra brings a compiler along for its functions; Java itself may be without.
  "$1" -classpath "$2/lib/*" org.eclipse.jdt.internal.compiler.batch.Main "-$JAVA_MAJOR" \
    -classpath "$(printf '%s:' "$2"/lib/{cassandra-driver-core,guava}-*.jar)" -d "$own/tools" "$here/cassandra/Cql.java"
}

build_image() { # into $1
  local tree=$1/tree
  say "building the image of Cassandra $CASSANDRA_VERSION from Java, jars and busybox of this machine, once"
  step java copy_java "${java%/bin/java}" "$tree"
  step libraries copy_libraries "$tree"
  step commands copy_commands "$tree"
  step cassandra copy_cassandra "$java" "$jars" "$tree"
  step archive cargo run --quiet --package image -- tree --name "localhost/cassandra:$CASSANDRA_VERSION" --arch "$(machine_arch)" \
    --entrypoint /bin/start --user 65532:65532 --env PATH=/bin:/opt/java/bin --env JAVA_HOME=/opt/java \
    --out "$1/cassandra.tar" "$tree"
  rm -rf "$tree" "$tree.libraries"
}

image() {
  local java jars key folder=target/image old
  command -v busybox >/dev/null || die "busybox is needed: apt-get install busybox-static"
  java=$(readlink -f "$(e2e/tools/java.sh)")
  jars=$(e2e/tools/cassandra.sh)
  # The image of one Java, one set of jars and one set of our own files.
  key=$({ "$java" -version 2>&1; echo "$jars"; cat "${BASH_SOURCE[0]}" "$here"/cassandra/* e2e/testbed/src/cassandra/{jvm.options,logback.xml} e2e/image/src/*.rs; } |
    sha256sum | cut -c1-12)
  once "$folder/cassandra-$key" build_image 1000
  for old in "$folder"/cassandra-*; do
    [[ $old == "$folder/cassandra-$key"* ]] || rm -rf "$old"
  done
  echo "$folder/cassandra-$key/cassandra.tar"
}

random() { head -c 24 /dev/urandom | sha256sum | cut -c1-32; }

install_into() { # namespace
  local kubectl=(kubectl --namespace "$1") began=$SECONDS
  kubectl create namespace "$1" --dry-run=client --output=yaml | kubectl apply --filename - >/dev/null
  kubectl label namespace "$1" --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
  # Through a pipe: the arguments of a command can be seen by everybody.
  "${kubectl[@]}" get secret cassandra >/dev/null 2>&1 || "${kubectl[@]}" create --filename - >/dev/null <<END
apiVersion: v1
kind: Secret
metadata: {name: cassandra}
stringData: {username: cassandra, password: $(random), jolokia-password: $(random)}
END
  sed "s|IMAGE|localhost/cassandra:$CASSANDRA_VERSION|" "$here/cassandra.yaml" | "${kubectl[@]}" apply --filename - >/dev/null
  step "Cassandra in the namespace $1" "${kubectl[@]}" rollout status statefulset/cassandra --timeout=5m || {
    "${kubectl[@]}" get pods,events >&2
    "${kubectl[@]}" logs cassandra-0 --tail=20 >&2 || true
    die "Cassandra is not ready: its last words are above, and kubectl --namespace $1 describe pod cassandra-0 tells more"
  }
  say "Cassandra is ready $((SECONDS - began)) s after the first command"
  echo
  "${kubectl[@]}" get pods
  cat <<END

Cassandra listens at cassandra.$1:9042, for pods. Its role and password are in the Secret $1/cassandra. Go on with:

  kubectl --namespace $1 exec cassandra-0 -- status                # what the node thinks of itself and of others
  kubectl --namespace $1 exec cassandra-0 -- cql 'SELECT cluster_name, release_version FROM system.local'
  kubectl --namespace $1 scale statefulset cassandra --replicas 3  # about a minute for each

END
}

case ${1:-} in
  image) image ;;
  install) install_into "${2:-cassandra}" ;;
  *) die "usage: cassandra.sh image, or cassandra.sh install [namespace]" ;;
esac
