#!/bin/sh
# mutate.sh PACKAGE... runs mutation tests: gremlins changes one operator at a time, and the package's own tests must fail.
#
# Go's coverage has no block for the condition of a case or for a constant, so gremlins would leave out their mutants. The go
# command that it finds first adds a block for each whole file. So all mutants are tested, and one that no test reaches counts
# as survived: the efficacy is of all mutants, and the coverage that gremlins prints is always 100 %.
set -eu
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -modfile=tools/go.mod -o "$bin/gremlins" github.com/go-gremlins/gremlins/cmd/gremlins
REAL_GO=$(command -v go)
export REAL_GO PACKAGE
cat > "$bin/go" <<'END'
#!/bin/sh
case " $* " in
*" -coverprofile "*) "$REAL_GO" "$@" -count=1 || exit ;;
" test "*) "$REAL_GO" "$@" -vet=off -short || exit && exec "$REAL_GO" "$@" -vet=off ;; # most mutants fail the quick tests
*) exec "$REAL_GO" "$@" ;;
esac
while [ "$1" != -coverprofile ]; do shift; done
for file in $(ls "$PACKAGE"/*.go | grep -v _test.go); do
	echo "github.com/millrace-go/millrace/$file:1.1,100000.1 1 1" >> "$2"
done
END
chmod +x "$bin/go"
for PACKAGE in "$@"; do
	# Gremlins waits for a test as many times as long as the tests took for the coverage.
	PATH="$bin:$PATH" "$bin/gremlins" unleash --workers 1 --timeout-coefficient "${TIMEOUTS:-10}" ${GREMLINS:-} "./$PACKAGE"
done
