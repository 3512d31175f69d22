#!/usr/bin/env bash
# Cassandra for a cluster that pulls nothing: cassandra.sh image, or cassandra.sh install [namespace]. See engine.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
engine=cassandra title=Cassandra version=$CASSANDRA_VERSION user=cassandra
# Options and logs are those of the testbed's nodes; pod.options come later and win.
sources=(e2e/testbed/src/cassandra/{jvm.options,logback.xml})
settings=(--env PATH=/bin:/opt/java/bin --env JAVA_HOME=/opt/java)

prepare() {
  java=$(readlink -f "$(e2e/tools/java.sh)")
  jars=$(e2e/tools/cassandra.sh)
}

identity() {
  "$java" -version 2>&1
  echo "$jars"
}

more_secrets() { echo ", jolokia-password: $(random)"; }

# Of Java: what draws, plays and prints, what compiles and links, and what explains.
without=(--exclude=./{docs,include,jmods,legal,man} --exclude=./lib/{src.zip,ct.sym}
  --exclude=./lib/lib{atk-wrapper,awt,awt_headless,awt_xawt,fontmanager,freetype,javajpeg,jawt,jsound,lcms,mlib_image,splashscreen,j2pcsc}.so)

copy_java() { # tree: with what it is linked to, and what libraries inside of jars may be
  local tree=$1 programs libc
  mkdir -p "$tree/opt/java"
  # Debian keeps the configuration in /etc, and links to it.
  tar --create --dereference --directory "${java%/bin/java}" "${without[@]}" . |
    tar --extract --no-same-owner --directory "$tree/opt/java"
  mapfile -t programs < <(find "$tree/opt/java" -name '*.so' -o -path '*/bin/java')
  copy_libraries "$tree" "${programs[@]}"
  libc=$(grep '/libc\.so' "$tree.libraries")
  find "$(dirname "$libc")/" -maxdepth 1 -regextype posix-extended \
    -regex '.*/lib(dl|gcc_s|m|nss_dns|nss_files|pthread|resolv|rt)\.so\.[0-9]+' \
    -exec cp --dereference --parents --target-directory "$tree" {} +
}

fill() { # tree
  local own=$1/opt/cassandra
  copy_java "$1"
  mkdir -p "$own/conf" "$own/tools"
  cp -r "$jars/lib" "$own/lib"
  cp "$jars"/agent/*.jar "$own/agent.jar"
  cp "${sources[@]}" "$engines"/cassandra/{pod.options,cassandra.yaml,rackdc.properties,quiet.xml} "$own/conf/"
  # Cassandra brings a compiler along for its functions; Java itself may be without.
  "$java" -classpath "$jars/lib/*" org.eclipse.jdt.internal.compiler.batch.Main "-$JAVA_MAJOR" \
    -classpath "$(printf '%s:' "$jars"/lib/{cassandra-driver-core,guava}-*.jar)" -d "$own/tools" "$engines/cassandra/Cql.java"
}

hints() { # namespace
  cat <<END

Cassandra listens at cassandra.$1:9042, for pods. Its role and password are in the Secret $1/cassandra. Go on with:

  kubectl --namespace $1 exec cassandra-0 -- status                # what the node thinks of itself and of others
  kubectl --namespace $1 exec cassandra-0 -- cql 'SELECT cluster_name, release_version FROM system.local'
  kubectl --namespace $1 scale statefulset cassandra --replicas 3  # about a minute for each

END
}

serve "$@"
