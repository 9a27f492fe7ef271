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
var forPostgres = strings.NewReplacer("sqlitestore", "pgstore", `"database/sql"`, `"github.com/jackc/pgx/v5"`, "*sql.Tx", "pgx.Tx",
	"ExecContext", "Exec", "DB().QueryRowContext", "Pool().QueryRow")

// quickStart returns the program of the README.
func quickStart(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## Quick start\n")
	_, program, open := strings.Cut(section, "```go\n")
	program, _, closed := strings.Cut(program, "```\n")
	if !found || !open || !closed {
		t.Fatal("README.md has no quick start")
	}
	return program
}

// newModule writes a program to a module of its own, which uses the module here, and returns its folder.
func newModule(t *testing.T, program string) string {
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
	const module = "github.com/millrace-go/millrace"
	for name, content := range map[string]string{
		"main.go": program, "go.sum": string(sums),
		"go.mod": "module shop\n\ngo 1.25.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// buildLimit limits a build of all packages by a slow machine.
const buildLimit = 15 * time.Minute

// build builds the package in a folder, without a C compiler and without a network.
func build(folder, program string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", program}, flags...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// buildShop builds a program in a module of its own.
func buildShop(t *testing.T, source string) (program string) {
	t.Helper()
	folder := newModule(t, source)
	program = filepath.Join(folder, "shop")
	if err := build(folder, program, "-mod=mod"); err != nil {
		t.Fatal(err)
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
	program := buildShop(t, quickStart(t))
	prints(t, program, "order-1 is worth 42.50\n")
	prints(t, program, "order-1 is worth 85.00\n") // the file was kept
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "shop.db")); err != nil {
		t.Error(err)
	}
}

func TestQuickStartOfTheReadmeRunsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	source := strings.Replace(forPostgres.Replace(quickStart(t)), "shop.db", dsn, 1)
	program := buildShop(t, source)
	prints(t, program, "order-1 is worth 42.50\n")
	prints(t, program, "order-1 is worth 85.00\n")
}
