STATICCHECK = go tool -modfile=tools/go.mod staticcheck

# The race detector watches everything but the translated C code of SQLite and its allocator, which would take some ten times as
# long, and the parsers of Go code, which one goroutine uses. It watches the driver, but does not check its pointers, all of which
# come from that code.
RACE = -race -gcflags=modernc.org/...=-race=false -gcflags=modernc.org/sqlite=-d=checkptr=0 \
	-gcflags=go/...=-race=false -gcflags=golang.org/x/tools/...=-race=false

# Otherwise each process with the race detector sleeps for a second before it exits, also the many that tests start.
export GORACE ?= atexit_sleep_ms=0

CHAOS = 10m
KILLS = 10m
SEED = 0
TAKEOVERS = 20
LEASES = 100000
EVENTS = 10000000
VERSIONS = 14 16 17 18
PURE = internal/machine internal/policy internal/ownership internal/rounds internal/fair internal/engine internal/engine/faults internal/engine/handler internal/backoff pgstore/internal/settle
ONLY =
SHARD =
FOR = 0
BENCH = -quick -json

# What the programs of tests/upgrade import of the library: all but these folders.
RELEASED = '*.go' '*.sql' ':!*_test.go' $(patsubst %,':!%',cmd commandline tests examples tools docs millraceotel millracetest \
	internal/pgtest internal/program internal/report internal/console internal/eventfile)

# All that make lint has vetted is not vetted again.
TEST = -vet=off $(RACE) -timeout 40m

# The packages that take the longest begin first, so that none runs alone at the end. The tests of the other modules, which mostly wait,
# run beside them.
LONGEST = ./tests ./tests/chaos ./tests/postgres ./pgstore ./sqlitestore ./cmd/demo ./commandline ./tests/runbook ./tests/moves \
	./tests/aggregates ./millracetest ./tests/pages ./tests/lint

.PHONY: help release test conformance chaos kills takeover plans protections versions lines mutate postgres lint demo bench performance
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9_-]*\):.*## /  make \1\t/p' Makefile

test: postgres lint ## build, lint and run all tests, on a private PostgreSQL server (or that of MILLRACE_TEST_DATABASE_URL)
	go run ./tests/summary $(TEST) $(LONGEST) ./... -- -C examples $(TEST) ./... -- -C cmd/bench $(TEST) ./...

conformance: postgres ## run the tests that know no store on each store, and print a table of the results
	go test -count=1 -json -timeout 20m ./tests | go run ./tests/conformance

chaos: postgres ## run random chaos schedules: make chaos CHAOS=30m [SEED=n]
	go test $(RACE) -timeout 0 -v ./tests/chaos -run TestChaosSchedule -chaos $(CHAOS) -seed $(SEED)

kills: postgres ## kill and freeze processes for longer, on each store: make kills [KILLS=10m SEED=n]
	go test $(RACE) -timeout 0 -v ./tests -run TestKilledAndFrozenProcessesLoseNothing -kills $(KILLS) -random-seed $(SEED)

takeover: postgres ## measure how long projections are without an owner: make takeover [TAKEOVERS=20]
	go test -timeout 0 -v ./tests/chaos -run TestTakeoverTimes -takeovers $(TAKEOVERS)

plans: postgres ## run the hot statements with many leases and events, and print what they read: make plans [LEASES=100000 EVENTS=10000000]
	go test -count=1 -timeout 0 -v ./pgstore -run TestHotStatementsReadOnlyWhatTheyNeed -plan-leases $(LEASES) -plan-events $(EVENTS)

protections: postgres ## break each protection, and see that a test fails: make protections [ONLY=fence SHARD=1/4 FOR=30m]
	go test -count=1 -timeout 0 -v ./tests/protections -run '^TestProtections$$' -break -only '$(ONLY)' -shard '$(SHARD)' -sitting $(FOR)

versions: ## run the tests that depend on the server, on other versions of PostgreSQL: make versions [VERSIONS="14 18"]
	@tools/ensure-pgbouncer.sh
	tools/postgres-versions.sh $(VERSIONS)

release: ## keep the library's source at a commit, for the tests of upgrades: make release COMMIT=e0e8d97
	git archive $(COMMIT) -- go.mod go.sum LICENSE $(RELEASED) | bzip2 -9 > tests/upgrade/testdata/$(COMMIT).tar.bz2

lines: ## count the lines of Go by package, without tests, commands and test kits: make lines [COMMIT=e0e8d97]
	@tools/lines.sh $(COMMIT)

mutate: ## change one operator of the pure packages at a time, and see that a test fails: make mutate [PURE=internal/machine]
	tools/mutate.sh $(PURE)

postgres:
	@tools/ensure-postgres.sh
	@tools/ensure-pgbouncer.sh

# Tests build programs without a C compiler. If all is built so here, nothing is compiled again for them.
lint: export CGO_ENABLED = 0
lint: ## build, vet, check the formatting, and run staticcheck
	@command -v go >/dev/null || { echo "Go is missing: install it from https://go.dev/dl" >&2; exit 1; }
	go build ./...
	go vet ./...
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted by gofmt:" $$unformatted >&2; exit 1; }
	$(STATICCHECK) ./...
	cd examples && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd cmd/bench && go vet ./... && go tool -modfile=../../tools/go.mod staticcheck ./...

demo: ## watch projections being applied
	go run ./cmd/demo

bench: postgres ## compare with handwritten code and other libraries: make bench [BENCH='-scenario catchup,live']
	cd cmd/bench && go run . $(BENCH)

performance: BENCH =
performance: postgres ## measure the tables and plots of docs/performance.md, and write them: make performance [BENCH='-scenario catchup']
	cd cmd/bench && go run . -write ../../docs/performance.md $(BENCH)
