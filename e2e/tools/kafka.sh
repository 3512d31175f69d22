#!/usr/bin/env bash
# Fetches the jars of a Kafka broker from Maven Central, once per version,
# and prints the folder that holds lib/. Progress goes to stderr, the folder to stdout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

key=$(cat "$here/kafka/pom.xml" | sha256sum | cut -c1-12)
out=$(cache_dir)/kafka-$KAFKA_VERSION-$key

fetch_all() { # into $1
  say "fetching Kafka $KAFKA_VERSION, once: 55 MB"
  step kafka fetch_jars "$here/kafka/pom.xml" "$1/lib" "-Dkafka.version=$KAFKA_VERSION" "-Dlog4j.version=$KAFKA_LOG4J_VERSION"
}

once "$out" fetch_all 300
echo "$out"
