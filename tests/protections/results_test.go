package protections_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// result is a line of a file of results: what became of one broken protection, or of tests while nothing was broken.
type result struct {
	Protection string `json:"protection,omitempty"`
	// Caught are the tests that noticed.
	Caught  []string `json:"caught,omitempty"`
	Error   string   `json:"error,omitempty"`
	Seconds float64  `json:"seconds,omitempty"`
	// Intact are tests that pass while nothing is broken.
	Intact []string `json:"intact,omitempty"`
}

// results are those of one commit. They are kept in a file, so that several sittings, also at the same time, share the
// work.
type results struct {
	// file is empty if nothing is kept.
	file   string
	latest map[string]result
	intact map[string]bool
}

// openResults reads the results of a commit. An empty commit keeps none.
func openResults(folder, commit string) (*results, error) {
	r := &results{latest: make(map[string]result), intact: make(map[string]bool)}
	if commit == "" {
		return r, nil
	}
	r.file = filepath.Join(folder, commit+".jsonl")
	return r, r.read()
}

// read reads what this sitting and others have added.
func (r *results) read() error {
	if r.file == "" {
		return nil
	}
	raw, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range bytes.Lines(raw) {
		var one result
		if json.Unmarshal(line, &one) == nil { // else its writer was killed
			r.note(one)
		}
	}
	return err
}

func (r *results) note(one result) {
	for _, test := range one.Intact {
		r.intact[test] = true
	}
	if one.Protection != "" {
		r.latest[one.Protection] = one
	}
}

// add keeps a result. It is one write, so that sittings do not mix their lines.
func (r *results) add(one result) error {
	r.note(one)
	if r.file == "" {
		return nil
	}
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.file), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// noticed reports whether a protection was broken, and a test noticed.
func (r *results) noticed(name string) bool {
	return r.latest[name].Error == "" && len(r.latest[name].Caught) > 0
}

// unconfirmed returns the tests that noticed one of the protections, and are not known to pass while nothing is broken.
func (r *results) unconfirmed(of []protection) (tests []string) {
	for _, p := range of {
		for _, test := range r.latest[p.name].Caught {
			if !r.intact[test] {
				tests = append(tests, test)
			}
		}
	}
	slices.Sort(tests)
	return slices.Compact(tests)
}

// summary says what is done, what failed, and what is open.
func (r *results) summary(all []protection) string {
	var noticed, open int
	var seconds float64
	var failed strings.Builder
	for _, p := range all {
		one, tried := r.latest[p.name]
		seconds += one.Seconds
		switch {
		case !tried:
			open++
		case r.noticed(p.name):
			noticed++
		default:
			fmt.Fprintf(&failed, "  %s: %s\n", p.name, cmp.Or(one.Error, "no test notices"))
		}
	}
	text := fmt.Sprintf("%d protections: %d noticed, %d failed, %d open; %.0f s for those that ran\n%s",
		len(all), noticed, len(all)-noticed-open, open, seconds, failed.String())
	if tests := r.unconfirmed(all); len(tests) > 0 {
		text += fmt.Sprintf("  not known to pass while nothing is broken: %s\n", strings.Join(tests, ", "))
	}
	return text
}

// shard returns the i-th of n parts. Neighbours by name, which often take equally long, come into different parts.
func shard(all []protection, part string) ([]protection, error) {
	if part == "" {
		return all, nil
	}
	var i, n int
	if _, err := fmt.Sscanf(part+"\n", "%d/%d\n", &i, &n); err != nil || i < 1 || i > n {
		return nil, fmt.Errorf("SHARD must be i/n with 1 <= i <= n: %q", part)
	}
	sorted := slices.SortedFunc(slices.Values(all),
		func(a, b protection) int { return strings.Compare(a.name, b.name) })
	var chosen []protection
	for at := i - 1; at < len(sorted); at += n {
		chosen = append(chosen, sorted[at])
	}
	return chosen, nil
}

// errChanged is returned if files differ from those of the commit.
var errChanged = errors.New("results belong to a commit, and files differ from it: commit the changes, or name a few protections by ONLY")

// commitOf returns the commit of a module. It is empty if the module has no history.
func commitOf(module string) (string, error) {
	commit, err := git(module, "rev-parse", "HEAD")
	if err != nil {
		return "", nil
	}
	changes, err := git(module, "status", "--porcelain")
	if err == nil && changes != "" {
		err = errChanged
	}
	return commit, err
}

func git(module string, args ...string) (string, error) {
	output, err := exec.Command("git", append([]string{"-C", module}, args...)...).Output()
	return strings.TrimSpace(string(output)), err
}

func named(names ...string) (all []protection) {
	for _, name := range names {
		all = append(all, protection{name: name})
	}
	return all
}

func namesOf(all []protection) (names []string) {
	for _, p := range all {
		names = append(names, p.name)
	}
	return names
}

func TestShardsHaveEachProtectionOnce(t *testing.T) {
	all := named("e", "b", "a", "d", "c")
	var found []string
	for _, part := range []string{"1/2", "2/2"} {
		some, err := shard(all, part)
		if err != nil || len(some) < 2 || len(some) > 3 {
			t.Errorf("%s: %v %v", part, namesOf(some), err)
		}
		found = append(found, namesOf(some)...)
	}
	if want := []string{"a", "c", "e", "b", "d"}; !slices.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
	for _, part := range []string{"0/2", "3/2", "1", "1/2/3", "a/b", "1/0"} {
		if some, err := shard(all, part); err == nil {
			t.Errorf("%s: %v", part, namesOf(some))
		}
	}
}

func TestResultsOfACommitAreContinued(t *testing.T) {
	folder, all := t.TempDir(), named("a", "b", "c", "d")
	open := func(commit string) *results {
		r, err := openResults(folder, commit)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second := open("1"), open("1")
	for r, one := range map[*results]result{first: {Protection: "a", Caught: []string{"TestA"}, Seconds: 2},
		second: {Protection: "b", Error: "hangs", Seconds: 3}} {
		if err := r.add(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.add(result{Protection: "c", Seconds: 1}); err != nil {
		t.Fatal(err)
	}
	next := open("1")
	if !next.noticed("a") || next.noticed("b") || next.noticed("c") || next.noticed("d") {
		t.Error(next.latest)
	}
	want := "4 protections: 1 noticed, 2 failed, 1 open; 6 s for those that ran\n  b: hangs\n  c: no test notices\n" +
		"  not known to pass while nothing is broken: TestA\n"
	if got := next.summary(all); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := errors.Join(next.add(result{Protection: "b", Caught: []string{"TestA"}}),
		next.add(result{Intact: []string{"TestA"}})); err != nil {
		t.Fatal(err)
	}
	if again := open("1"); !again.noticed("b") || len(again.unconfirmed(all)) > 0 {
		t.Error(again.latest, again.unconfirmed(all))
	}
	if other := open("2"); len(other.latest) > 0 {
		t.Error(other.latest)
	}
}

func TestResultsOfAChangedTreeAreNotKept(t *testing.T) {
	module := t.TempDir()
	for _, args := range [][]string{{"init", "-q"},
		{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if _, err := git(module, args...); err != nil {
			t.Skip("git: ", err)
		}
	}
	if commit, err := commitOf(module); len(commit) < 40 || err != nil {
		t.Errorf("a clean tree: %q %v", commit, err)
	}
	if err := os.WriteFile(filepath.Join(module, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if commit, err := commitOf(module); !errors.Is(err, errChanged) {
		t.Errorf("a changed tree: %q %v", commit, err)
	}
	if commit, err := commitOf(t.TempDir()); commit != "" || err != nil {
		t.Errorf("a folder without history: %q %v", commit, err)
	}
	kept, err := openResults(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.add(result{Protection: "a"}); err != nil || kept.file != "" {
		t.Error(kept.file, err)
	}
}
