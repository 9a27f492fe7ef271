#!/bin/sh
# lines.sh [COMMIT] counts the lines of Go by package, the largest first, in the work tree or at a commit. It leaves out tests and what
# only they use, commands, examples and the test kit.
set -eu
cd "$(dirname "$0")/.."
git grep -c '' "$@" -- '*.go' ':!*_test.go' ':!tests' ':!cmd' ':!commandline' ':!examples' ':!millracetest' \
	':!internal/console' ':!internal/pgtest' ':!internal/program' ':!sqlitestore/internal/powerloss' |
	awk -F: '{
		package = $(NF - 1)
		if (!sub("/[^/]*$", "", package)) package = "."
		lines[package] += $NF
		total += $NF
	}
	END {
		for (package in lines) printf "%6d %s\n", lines[package], package | "sort -k1,1nr -k2"
		close("sort -k1,1nr -k2")
		printf "%6d in all\n", total
	}'
