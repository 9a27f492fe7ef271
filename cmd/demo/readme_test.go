package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// forPostgres are the changes that the README names.
var forPostgres = strings.NewReplacer("sqlitestore", "pgstore", `"database/sql"`, `"github.com/jackc/pgx/v5"`,
	"*sql.Tx", "pgx.Tx",
	"ExecContext", "Exec", "DB().QueryRowContext", "Pool().QueryRow", "millracetest.SQLite(t,",
	`millracetest.Postgres(t, "",`)

// quickStart returns the program of the README and its test.
func quickStart(t *testing.T) (program, test string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Quick start\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "```go\n")
	if len(blocks) != 3 {
		t.Fatalf("the quick start of README.md has %d blocks of Go, want 2", len(blocks)-1)
	}
	program, _, _ = strings.Cut(blocks[1], "```\n")
	test, _, _ = strings.Cut(blocks[2], "```\n")
	return program, test
}

// newModule writes a program and its test to a module of its own, which uses the module here, and returns its folder.
func newModule(t *testing.T, program, test string) string {
	t.Helper()
	folder := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// With all requirements of this module, the go tool needs only files of modules that have been downloaded to build
	// it.
	requirements, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/millrace-go/millrace"
	_, rest, found := strings.Cut(string(requirements), "module "+module+"\n")
	if !found {
		t.Fatal("go.mod does not begin with the module's path")
	}
	for name, content := range map[string]string{
		"main.go": program, "main_test.go": test, "go.sum": string(sums),
		"go.mod": "module shop\n" + rest + "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here +
			"\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// buildLimit limits a build of all packages by a slow machine.
const buildLimit = 15 * time.Minute

// goTool runs a command of the go tool in a folder, without a C compiler and without a network.
func goTool(folder string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// build builds the package in a folder.
func build(folder, program string, flags ...string) error {
	return goTool(folder, append([]string{"build", "-o", program}, flags...)...)
}

// buildShop builds a program in a module of its own, and runs its test.
func buildShop(t *testing.T, source, test string) (program string) {
	t.Helper()
	folder := newModule(t, source, test)
	program = filepath.Join(folder, "shop")
	if err := build(folder, program, "-mod=mod"); err != nil {
		t.Fatal(err)
	}
	if err := goTool(folder, "test", "-vet=off", "-mod=mod"); err != nil {
		t.Error(err)
	}
	return program
}

// prints runs a program in its folder, with nothing in its environment, and checks its output.
func prints(t *testing.T, program, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir, cmd.Env = filepath.Dir(program), []string{}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if out, err := cmd.Output(); err != nil || string(out) != want {
		t.Errorf("it printed %q: %v\n%s", out, err, errs.String())
	}
}

func TestQuickStartOfTheReadmeRunsWithGoAlone(t *testing.T) {
	t.Parallel()
	source, test := quickStart(t)
	program := buildShop(t, source, test)
	prints(t, program, "order-1 is worth 42.50\n")
	prints(t, program, "order-1 is worth 85.00\n") // the file was kept
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "shop.db")); err != nil {
		t.Error(err)
	}
}

func TestQuickStartOfTheReadmeRunsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	source, test := quickStart(t)
	source = strings.Replace(forPostgres.Replace(source), "shop.db", dsn, 1)
	program := buildShop(t, source, forPostgres.Replace(test))
	prints(t, program, "order-1 is worth 42.50\n")
	prints(t, program, "order-1 is worth 85.00\n")
}
