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
	part      = flag.String("shard", "", "break only the i-th of n parts of the protections: i/n")
	sitting   = flag.Duration("sitting", 0, "break no further protection after this time")
	module    = flag.String("module", "../..", "the module whose protections are broken")
	folder    = flag.String("protections", ".", "the folder that lists the protections")
	kept      = flag.String("results", "results", "the folder that keeps the results of each commit")
)

// testLimit bounds the tests of one package, some of which wait for four minutes. buildLimit is what the compiler adds
// to that.
const (
	testLimit  = 6 * time.Minute
	buildLimit = 5 * time.Minute
)

// TestProtections breaks each protection in a copy of the module. A protection that no test notices fails. What a test
// noticed at this commit in an earlier sitting is not broken again.
func TestProtections(t *testing.T) {
	if !*breakThem {
		t.Skip("takes long: make protections")
	}
	began := time.Now()
	all, chosen := choose(t)
	s := newWorkplace(t)
	chosen = slices.DeleteFunc(chosen, func(p protection) bool { return s.noticed(p.name) })
	for _, p := range chosen {
		if *sitting > 0 && time.Since(began) > *sitting {
			break
		}
		t.Run(p.name, func(t *testing.T) { s.try(t, p) })
	}
	s.confirm(t, all)
	if err := s.read(); err != nil {
		t.Error(err)
	}
	t.Log("\n" + s.summary(all))
}

// choose returns all protections, and those to break, the ones of a folder of the code together.
func choose(t *testing.T) (all, chosen []protection) {
	all, err := load(*folder)
	if err != nil {
		t.Fatal(err)
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err = shard(all, *part)
	if err != nil {
		t.Fatal(err)
	}
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(p protection) bool { return !matches.MatchString(p.name) })
	if len(chosen) == 0 {
		t.Fatalf("no protection of the shard %q has a name like %q", *part, *only)
	}
	slices.SortStableFunc(chosen, func(a,
		b protection) int {
		return strings.Compare(filepath.Dir(a.file), filepath.Dir(b.file))
	})
	return all, chosen
}

// workplace is where protections are broken: a copy of the module, and the results of its commit.
type workplace struct {
	*results
	dir      string
	packages map[string][]string
}

// newWorkplace copies the module. If files differ from those of the commit, only a few protections by name can be
// broken, and no result is kept.
func newWorkplace(t *testing.T) *workplace {
	s := &workplace{dir: t.TempDir()}
	err := copyModule(s.dir, *module)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := commitOf(*module)
	switch {
	case errors.Is(err, errChanged) && *only != "":
		t.Log("files differ from those of the commit: the results are not kept")
		commit = ""
	case err != nil:
		t.Fatal(err)
	}
	s.results, err = openResults(*kept, commit)
	if err != nil {
		t.Fatal(err)
	}
	s.packages, err = findTests(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try breaks a protection, and keeps what the tests noticed.
func (s *workplace) try(t *testing.T, p protection) {
	began := time.Now()
	caught, err := p.test(t.Context(), s.dir, s.packages)
	one := result{Protection: p.name, Caught: caught}
	if err != nil {
		one.Error = err.Error()
		t.Error(err)
	} else if len(caught) == 0 {
		t.Error("no test notices")
	}
	one.Seconds = time.Since(began).Round(time.Second / 10).Seconds()
	fmt.Printf("| %s | `%s` | %s | %.0f |\n", p.promise, p.name, strings.Join(caught, ", "), one.Seconds)
	if err := s.add(one); err != nil {
		t.Error(err)
	}
}

// confirm runs the tests that noticed a broken protection while nothing is broken.
func (s *workplace) confirm(t *testing.T, all []protection) {
	tests := s.unconfirmed(all)
	failed, err := run(t.Context(), s.dir, s.packages, tests, 4*testLimit)
	if err != nil || len(failed) > 0 {
		t.Errorf("nothing is broken, and tests fail: %v %v", failed, err)
	}
	if err != nil || len(tests) == 0 {
		return
	}
	intact := slices.DeleteFunc(tests, func(name string) bool { return slices.Contains(failed, name) })
	if err := s.add(result{Intact: intact}); err != nil {
		t.Error(err)
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

// run returns which of the tests fail, or do not end within the limit for the tests of a package. All their packages
// are built together, and several run at the same time.
func run(ctx context.Context, dir string, packages map[string][]string, tests []string,
	limit time.Duration) (failed []string, err error) {
	if len(tests) == 0 {
		return nil, nil
	}
	var in []string
	for _, name := range tests {
		if packages[name] == nil {
			return nil, fmt.Errorf("there is no %s", name)
		}
		in = append(in, packages[name]...)
	}
	slices.Sort(in)
	in = slices.Compact(in)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(in))*limit+buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout", limit.String(),
		"-vet=off", "-run", "^(" + strings.Join(tests, "|") + ")$"}, in...)...)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	ended := cmd.Run()
	failed, text := failures(output.String())
	switch {
	case strings.Contains(text, "[no tests to run]"):
		return nil, fmt.Errorf("one of %v has none of the tests %v", in, tests)
	case ended != nil && len(failed) == 0, ctx.Err() != nil, strings.Contains(text, "[build failed]"):
		return nil, fmt.Errorf("go test %v: %w\n%s", in, ended, text)
	}
	return failed, nil
}

// event is a line of what go test -json prints.
type event struct{ Action, Package, Test, Output string }

// failures returns which tests failed by the output of go test -json, and the output's text. If a process panicked, or
// reached its limit, the tests that it ran at that time failed too.
func failures(output string) (failed []string, _ string) {
	var text strings.Builder
	type test struct{ in, name string }
	running, panicked := make(map[test]bool), make(map[string]bool) // panicked are packages
	for line := range strings.Lines(output) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			text.WriteString(line)
			continue
		}
		text.WriteString(e.Output)
		name, _, sub := strings.Cut(e.Test, "/")
		switch {
		case e.Action == "fail" && name != "":
			failed = append(failed, name)
		case e.Action == "run" && !sub:
			running[test{e.Package, name}] = true
		case strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: "):
			panicked[e.Package] = true
		case name != "" && !sub && (e.Action == "pass" || e.Action == "skip"):
			delete(running, test{e.Package, name})
		}
	}
	for of := range running {
		if panicked[of.in] {
			failed = append(failed, of.name)
		}
	}
	slices.Sort(failed)
	return slices.Compact(failed), text.String()
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

func TestTestsOfAProcessThatPanickedFailed(t *testing.T) {
	const ran = `{"Action":"run","Package":"a","Test":"TestPassed"}
{"Action":"run","Package":"a","Test":"TestRan"}
{"Action":"run","Package":"b","Test":"TestOfB"}
{"Action":"pass","Package":"a","Test":"TestPassed"}
{"Action":"run","Package":"a","Test":"TestRan/sub"}
`
	const panics = `{"Action":"output","Package":"a","Test":"TestRan/sub","Output":"panic: boom [recovered, repanicked]\n"}
{"Action":"fail","Package":"a"}
`
	if failed, _ := failures(ran + `{"Action":"fail","Package":"a"}`); len(failed) != 0 {
		t.Errorf("without a panic %v failed", failed)
	}
	if failed, text := failures(ran + panics); !slices.Equal(failed, []string{"TestRan"}) ||
		!strings.HasPrefix(text, "panic: boom") {
		t.Errorf("%v failed, and the text is %q", failed, text)
	}
}
