// Package pgtest runs private PostgreSQL servers from the binaries that are installed: for tests, and for the demo.
//
// A [Server] lives in a temporary folder of its own and belongs to the process that started it. Stop ends it and removes
// the folder. When the process dies without Stop, on Linux the kernel ends the server; what is left of its folder goes
// with the next Start. Nothing outside the folder is read or written, and nothing here needs rights: as root the server
// runs as another user.
//
// Tests take a database from [Database], or a whole server to stop and kill from [Private]; their TestMain is
// testmain.Run. Nothing here imports package testing or a test-only module, so that commands can use it.
package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNotFound says that no PostgreSQL server binaries are installed, and what to do about it.
var ErrNotFound = errors.New("no PostgreSQL server binaries found: install them (apt-get install postgresql, " +
	"brew install postgresql@16) or pass -database-url / DATABASE_URL")

// Find returns the folder of the installed server binaries (initdb, postgres, pg_ctl). It looks in PATH, asks pg_config,
// then looks where packages put them, the newest version first. The error is [ErrNotFound].
func Find() (bindir string, err error) {
	return places{
		look:   exec.LookPath,
		config: pgConfig,
		globs: []string{
			"/usr/lib/postgresql/*/bin",
			"/opt/homebrew/opt/postgresql*/bin",
			"/usr/local/opt/postgresql*/bin",
			"/usr/pgsql-*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		},
	}.find()
}

// places is where binaries may be.
type places struct {
	look   func(name string) (string, error)
	config func() (string, error)
	globs  []string
}

func (p places) find() (string, error) {
	for _, dir := range p.candidates() {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", ErrNotFound
}

func (p places) candidates() []string {
	var dirs []string
	if path, err := p.look("initdb"); err == nil {
		// A link in PATH leads to the folder that also holds what is not linked, such as pg_basebackup.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	if dir, err := p.config(); err == nil {
		dirs = append(dirs, dir)
	}
	for _, glob := range p.globs {
		matches, _ := filepath.Glob(glob)
		slices.SortStableFunc(matches, func(a, b string) int { return slices.Compare(version(b), version(a)) })
		dirs = append(dirs, matches...)
	}
	return dirs
}

func pgConfig() (string, error) {
	out, err := exec.Command("pg_config", "--bindir").Output()
	return strings.TrimSpace(string(out)), err
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var number = regexp.MustCompile(`\d+`)

// version returns the numbers in a path, so that 16 stands before 9.6.
func version(path string) []int {
	var parts []int
	for _, digits := range number.FindAllString(path, -1) {
		n, _ := strconv.Atoi(digits)
		parts = append(parts, n)
	}
	return parts
}
