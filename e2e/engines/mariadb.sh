#!/usr/bin/env bash
# MariaDB for a cluster that pulls nothing: mariadb.sh image, or mariadb.sh install [namespace]. See engine.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
engine=mariadb title=MariaDB package=mariadb-server user=checksums
version=$(mariadbd --version 2>/dev/null | sed -nE 's/.*Ver ([0-9.]+).*/\1/p' || true)

fill() { # tree: the programs, and the data of a server that was never used
  local tree
  copy_programs "$1" mariadbd mariadb
  tree=$(cd "$1" && pwd)
  mkdir -p "$tree/usr/share/mysql" "$tree/opt"
  cp -r /usr/share/mysql/{charsets,english} "$tree/usr/share/mysql/"
  mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$tree/opt/data" --auth-root-authentication-method=normal \
    --skip-test-db --innodb-log-file-size=16M
  chmod -R a+rX "$tree/opt/data"
}

hints() { # namespace
  cat <<END

MariaDB listens at mariadb.$1:3306, for pods, with an empty database checksums. Its user and password are in the Secret
$1/mariadb. Go on with:

  kubectl --namespace $1 exec mariadb-0 -- sql 'SHOW TABLES'

END
}

serve "$@"
