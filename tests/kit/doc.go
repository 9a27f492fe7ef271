// Package kit is the set-up of the black-box tests: a new store of each kind, projections that record what they apply
// in the store's own transaction, and checks of what was recorded.
//
// A test that needs no PostgreSQL server as such is written once, by OnEachStore or Run, and runs as a subtest for each
// Kind. It does not ask which kind that is, except by what it needs, such as SeveralNodes. A new kind is one file like
// postgres.go, and an entry in kinds.
package kit
