// Package upgrade has tests of upgrades: this release continues with the stores of earlier ones, and nodes of both run
// side by side on one database.
//
// Each archive in testdata is the source of the library at a release, named after its commit. CONTRIBUTING.md says how
// one is made. The tests build package service, which stands below, with the library of the newest archive, and also
// with that of this tree. Both programs fill stores, run their projections, and append to them. Because the source is
// the same, it also shows that a program of that release still compiles.
package upgrade
