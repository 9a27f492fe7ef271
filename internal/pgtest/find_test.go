package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func nowhere() places {
	return places{
		look:   func(string) (string, error) { return "", os.ErrNotExist },
		config: func() (string, error) { return "", os.ErrNotExist },
	}
}

// install creates a folder with server binaries.
func install(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMissingBinariesAreExplainedInOneLine(t *testing.T) {
	_, err := nowhere().find()
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v, want ErrNotFound", err)
	}
	for _, part := range []string{"apt-get install postgresql", "brew install postgresql@16", "-database-url",
		"DATABASE_URL", Variable} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not mention %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than one line", err)
	}
}

func TestFindSearchesTheFoldersOfPackages(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	install(t, root, "lib", "9.6", "bin")
	newest := install(t, root, "lib", "16", "bin")
	install(t, root, "lib", "15", "bin")
	configured := install(t, root, "configured")
	clientOnly := filepath.Join(root, "client")
	if err := os.Mkdir(clientOnly, 0o755); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(root, "path")
	if err := os.Mkdir(linked, 0o755); err != nil {
		t.Fatal(err)
	}
	inPath := install(t, root, "real")
	if err := os.Symlink(filepath.Join(inPath, "initdb"), filepath.Join(linked, "initdb")); err != nil {
		t.Fatal(err)
	}
	glob := filepath.Join(root, "lib", "*", "bin")

	for name, test := range map[string]struct {
		change func(*places)
		want   string
	}{
		"newest version first": {func(p *places) { p.globs = []string{glob} }, newest},
		"pg_config before globs": {func(p *places) {
			p.config = func() (string, error) { return configured, nil }
			p.globs = []string{glob}
		}, configured},
		"pg_config of the client alone": {func(p *places) {
			p.config = func() (string, error) { return clientOnly, nil }
			p.globs = []string{glob}
		}, newest},
		"PATH first, behind the link": {func(p *places) {
			p.look = func(string) (string, error) { return filepath.Join(linked, "initdb"), nil }
			p.config = func() (string, error) { return configured, nil }
		}, inPath},
	} {
		t.Run(name, func(t *testing.T) {
			places := nowhere()
			test.change(&places)
			got, err := places.find()
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestTraversableFolders(t *testing.T) {
	closed := t.TempDir() // on some systems its parents are closed, too, so that there is no open folder to test
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if traversable(filepath.Join(closed, "missing")) || traversable(closed) {
		t.Error("a folder with mode 0700 is traversable")
	}
	if !traversable("/") {
		t.Error("the root folder is not traversable")
	}
}
