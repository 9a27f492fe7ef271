#!/usr/bin/env bash
# Installs PgBouncer for the tests if it is missing, as root on a Debian-like system. It never fails: without PgBouncer the tests
# that need it are skipped. It searches the same folders as internal/pgtest.
set -euo pipefail

found() {
	local name
	for name in pgbouncer /usr/sbin/pgbouncer /usr/local/sbin/pgbouncer /opt/homebrew/bin/pgbouncer; do
		command -v "$name" >/dev/null && return
	done
	return 1
}

# The package would start a service now and at every boot. A policy-rc.d prevents the first; an existing one is kept.
install_quietly() {
	local policy=/usr/sbin/policy-rc.d
	export DEBIAN_FRONTEND=noninteractive
	apt-get update
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	apt-get install -y --no-install-recommends pgbouncer
	update-rc.d pgbouncer disable
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	install_quietly || true
	found && exit 0
fi
echo "no PgBouncer found: tests that need it are skipped (apt-get install pgbouncer, brew install pgbouncer)" >&2
