#!/usr/bin/env bash
# Fetches the jars of a Cassandra node and of the Jolokia agent from Maven Central, once per version,
# and prints the folder that holds lib/ and agent/. Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

key=$(cat "$here"/cassandra/*.xml | sha256sum | cut -c1-12)
out=$(cache_dir)/cassandra-$CASSANDRA_VERSION-jolokia-$JOLOKIA_VERSION-$key

fetch_all() { # into $1
  say "fetching Cassandra $CASSANDRA_VERSION and Jolokia $JOLOKIA_VERSION, once: 70 MB"
  step cassandra fetch_jars "$here/cassandra/pom.xml" "$1/lib" "-Dcassandra.version=$CASSANDRA_VERSION"
  step jolokia fetch_jars "$here/cassandra/agent.xml" "$1/agent" "-Djolokia.version=$JOLOKIA_VERSION"
}

once "$out" fetch_all 300
echo "$out"
