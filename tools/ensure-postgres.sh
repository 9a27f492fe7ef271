#!/usr/bin/env bash
# Installs PostgreSQL server binaries for the tests if they are missing, as root on a Debian-like system. Elsewhere it prints how to
# install them. It searches the same folders as internal/pgtest.
set -euo pipefail

found() {
	local dir
	for dir in "$(dirname "$(command -v initdb || echo /missing/initdb)")" "$(pg_config --bindir 2>/dev/null || true)" \
		/usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin \
		/usr/pgsql-*/bin /Applications/Postgres.app/Contents/Versions/*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && [ -x "$dir/pg_ctl" ] && return
	done
	return 1
}

# The package would also start a server, unless a file of postgresql-common prevents it.
install_quietly() {
	local config=/etc/postgresql-common/createcluster.conf fresh=
	[ -e "$config" ] || fresh=yes
	export DEBIAN_FRONTEND=noninteractive
	apt-get update
	apt-get install -y --no-install-recommends postgresql-common
	[ -z "$fresh" ] || echo 'create_main_cluster = false' >>"$config"
	apt-get install -y --no-install-recommends postgresql
}

[ -z "${MILLRACE_TEST_DATABASE_URL:-}" ] || exit 0
found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	install_quietly || true
	found && exit 0
fi
echo "no PostgreSQL server binaries found: install them (apt-get install postgresql, brew install postgresql@16)" \
	"or set MILLRACE_TEST_DATABASE_URL" >&2
exit 1
