package protections_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	breakThem = flag.Bool("break", false, "break each protection, and run the tests that must notice")
	only      = flag.String("only", "", "break only the protections whose names this regular expression matches")
	module    = flag.String("module", "../..", "the module whose protections are broken")
	folder    = flag.String("protections", ".", "the folder that lists the protections")
)

// testLimit bounds the tests of one package, buildLimit what the compiler adds to that.
const (
	testLimit  = 4 * time.Minute
	buildLimit = 5 * time.Minute
)

// TestProtections breaks each protection in a copy of the module. A protection that no test notices fails.
func TestProtections(t *testing.T) {
	if !*breakThem {
		t.Skip("takes long: make protections")
	}
	all, err := load(*folder)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(p protection) bool { return !chosen.MatchString(p.name) })
	if len(all) == 0 {
		t.Fatalf("no protection has a name like %q", *only)
	}
	dir := t.TempDir()
	if err := copyModule(dir, *module); err != nil {
		t.Fatal(err)
	}
	packages, err := findTests(dir)
	if err != nil {
		t.Fatal(err)
	}
	var noticed []string
	table := "| promise | protection | caught by | seconds |\n|---|---|---|---|\n"
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			began := time.Now()
			caught, err := p.test(t.Context(), dir, packages)
			if err != nil {
				t.Error(err)
			} else if len(caught) == 0 {
				t.Error("no test notices")
			}
			noticed = append(noticed, caught...)
			row := fmt.Sprintf("| %s | `%s` | %s | %.0f |\n", p.promise, p.name, strings.Join(caught, ", "), time.Since(began).Seconds())
			fmt.Print(row)
			table += row
		})
	}
	t.Log("\n" + table)
	slices.Sort(noticed)
	failed, err := run(t.Context(), dir, packages, slices.Compact(noticed), 4*testLimit)
	if err != nil || len(failed) > 0 {
		t.Errorf("nothing is broken, and tests fail: %v %v", failed, err)
	}
}

// test breaks the protection and returns the tests that failed.
func (p *protection) test(ctx context.Context, dir string, packages map[string][]string) (caught []string, err error) {
	restore, err := p.apply(dir)
	if err != nil {
		return nil, err
	}
	caught, err = run(ctx, dir, packages, p.tests, testLimit)
	return caught, errors.Join(err, restore())
}

// run returns which of the tests fail. limit bounds the tests of each package.
func run(ctx context.Context, dir string, packages map[string][]string, tests []string, limit time.Duration) (failed []string, err error) {
	byPackage := make(map[string][]string)
	for _, name := range tests {
		if packages[name] == nil {
			return nil, fmt.Errorf("there is no %s", name)
		}
		for _, pkg := range packages[name] {
			byPackage[pkg] = append(byPackage[pkg], name)
		}
	}
	for pkg, names := range byPackage {
		found, err := runIn(ctx, dir, pkg, names, limit)
		if failed = append(failed, found...); err != nil {
			return failed, err
		}
	}
	slices.Sort(failed)
	return failed, nil
}

// event is a line of what go test -json prints.
type event struct{ Action, Test, Output string }

// runIn returns which of a package's tests fail. A test that does not end is an error: the limit of go test is not an expectation.
func runIn(ctx context.Context, dir, pkg string, names []string, limit time.Duration) (failed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout", limit.String(),
		"-vet=off", "-run", "^("+strings.Join(names, "|")+")$", pkg)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	ended := cmd.Run()
	var text strings.Builder
	for line := range strings.Lines(output.String()) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			text.WriteString(line)
			continue
		}
		text.WriteString(e.Output)
		name, _, _ := strings.Cut(e.Test, "/")
		if e.Action == "fail" && name != "" && !slices.Contains(failed, name) {
			failed = append(failed, name)
		}
	}
	switch {
	case strings.Contains(text.String(), "panic: test timed out after"):
		return nil, fmt.Errorf("tests of %s did not end within %v: %v", pkg, limit, failed)
	case strings.Contains(text.String(), "[no tests to run]"):
		return nil, fmt.Errorf("%s has none of the tests %v", pkg, names)
	case ended != nil && len(failed) == 0:
		return nil, fmt.Errorf("go test %s: %w\n%s", pkg, ended, text.String())
	}
	return failed, nil
}

// copyModule copies the files of a module, without its history.
func copyModule(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git" && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, info.Mode().Perm())
	})
}
