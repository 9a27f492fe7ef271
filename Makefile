STATICCHECK = go tool -modfile=tools/go.mod staticcheck

.PHONY: help test postgres lint demo bench
.DEFAULT_GOAL := help

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

test: postgres lint ## check everything and run all tests, on a private PostgreSQL server (or that of DATABASE_URL)
	go test -race -timeout 20m ./...

postgres:
	@tools/ensure-postgres.sh

lint: ## build, and check the form of the code
	@command -v go >/dev/null || { echo "Go is missing: install it from https://go.dev/dl" >&2; exit 1; }
	go build ./...
	go vet ./...
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted by gofmt:" $$unformatted >&2; exit 1; }
	$(STATICCHECK) ./...

demo: ## watch projections being applied
	go run ./cmd/demo

bench: ## measure, side by side with what one would write by hand
	go run ./cmd/bench
