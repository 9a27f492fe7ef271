// Package protections_test has one file for each of the library's protections: the text that protects, and a text that
// does not. The tests that a file names must fail when the second text stands in place of the first.
package protections_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// protection is a file of this folder: lines of the form "key: value", and then the two texts.
type protection struct {
	// name is that of the file without its extension.
	name string
	// promise is the number of a section of docs/promises.md, or "delivery" for its last section.
	promise string
	// what is protected, in one sentence.
	what string
	// file has the old text of each edit exactly once. With the new texts in their places the protection is broken.
	file  string
	edits []edit
	// tests are those that must notice.
	tests []string
}

type edit struct{ old, new string }

// load reads the protections in a folder, sorted by promise and name.
func load(folder string) ([]protection, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	all := make([]protection, 0, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p, err := parse(string(raw))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p.name = strings.TrimSuffix(filepath.Base(file), ".txt")
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b protection) int { return strings.Compare(a.promise, b.promise) })
	return all, nil
}

func parse(text string) (p protection, err error) {
	head, texts, _ := strings.Cut(text, "-- old --\n")
	for pair := range strings.SplitSeq(texts, "\n-- old --\n") {
		old, replacement, both := strings.Cut(pair, "\n-- new --\n")
		if !both || old == "" {
			return p, fmt.Errorf("want pairs of texts below %q and %q", "-- old --", "-- new --")
		}
		p.edits = append(p.edits, edit{old, strings.TrimSuffix(replacement, "\n")})
	}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "promise":
			p.promise = value
		case "protection":
			p.what = value
		case "file":
			p.file = value
		case "tests":
			p.tests = strings.Fields(value)
		default:
			return p, fmt.Errorf("unknown line %q", line)
		}
	}
	if p.promise == "" || p.what == "" || p.file == "" || len(p.tests) == 0 {
		return p, fmt.Errorf("want lines for promise, protection, file and tests")
	}
	return p, nil
}

// apply breaks the protection in the module, and returns what takes that back.
func (p *protection) apply(module string) (restore func() error, err error) {
	path := filepath.Join(module, p.file)
	whole, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	broken, err := p.broken(string(whole))
	if err != nil {
		return nil, err
	}
	restore = func() error { return os.WriteFile(path, whole, 0o644) }
	return restore, os.WriteFile(path, []byte(broken), 0o644)
}

// broken returns the content of the file without the protection.
func (p *protection) broken(content string) (string, error) {
	for _, e := range p.edits {
		if n := strings.Count(content, e.old); n != 1 {
			return "", fmt.Errorf("%s has this text %d times, want once:\n%s", p.file, n, e.old)
		}
		content = strings.Replace(content, e.old, e.new, 1)
	}
	return content, nil
}

// findTests returns the packages of all tests of a module, by their names. Tests of several stores may share a name.
func findTests(module string) (map[string][]string, error) {
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	packages := make(map[string][]string)
	err := filepath.WalkDir(module, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(module, filepath.Dir(path))
		for _, match := range declaration.FindAllStringSubmatch(string(content), -1) {
			packages[match[1]] = append(packages[match[1]], "./"+folder)
		}
		return err
	})
	return packages, err
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// section returns the section of docs/promises.md about a promise.
func section(promises, promise string) string {
	heading := "\n## " + promise + ". "
	if promise == "delivery" {
		heading = "\n## Leased delivery\n"
	}
	_, rest, _ := strings.Cut(promises, heading)
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

func TestProtectionsFitTheCode(t *testing.T) {
	const root = "../.."
	promises := readFile(t, filepath.Join(root, "docs/promises.md"))
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := findTests(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			if _, err := p.broken(readFile(t, filepath.Join(root, p.file))); err != nil {
				t.Error(err)
			}
			if section(promises, p.promise) == "" {
				t.Errorf("docs/promises.md has no promise %s", p.promise)
			}
			for _, name := range p.tests {
				if packages[name] == nil {
					t.Errorf("there is no %s", name)
				}
			}
		})
	}
}
