// Package pgtest runs private PostgreSQL servers from installed binaries, for tests and for the commands.
//
// A [Server] has a temporary folder of its own and belongs to the process that started it. Stop stops it and removes
// the folder. When the process dies without Stop, on Linux the kernel ends the server; the next Start removes the
// folder. The server reads and writes nothing outside its folder and needs no privileges. As root it runs as another
// user.
//
// Tests get a database from [Database], or a server that they may stop and kill from [Private]. Their TestMain is
// testmain.Run. The package imports neither package testing nor a test-only module, so that commands can use it.
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

// ErrNotFound is returned when no PostgreSQL server binaries are installed.
var ErrNotFound = errors.New("no PostgreSQL server binaries found: install them (apt-get install postgresql, " +
	"brew install postgresql@16), or name a server by -database-url / DATABASE_URL, for tests by " + Variable)

// Find returns the folder of the installed server binaries (initdb, postgres, pg_ctl). It searches PATH, the folder
// that pg_config prints, and the folders of packages, the newest version first. The error is [ErrNotFound].
func Find() (bindir string, err error) {
	if hidden != "" {
		return "", ErrNotFound
	}
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

// hidden makes Find fail, as on a machine without PostgreSQL, if it is not empty. Tests of commands set it by a flag of
// the linker.
var hidden string

// places are the folders where binaries may be.
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
		// The target of a link in PATH is in a folder with all programs, also those without a link.
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

// version returns the numbers in a path.
func version(path string) []int {
	var parts []int
	for _, digits := range number.FindAllString(path, -1) {
		n, _ := strconv.Atoi(digits)
		parts = append(parts, n)
	}
	return parts
}
