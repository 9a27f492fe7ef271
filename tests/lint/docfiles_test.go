package lint_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goPath is a file or folder that a package doc names: step.go, ../internal/machine, ../pgstore/append.go.
var goPath = regexp.MustCompile(`(?:\.\./)+[\w/]+(?:\.go)?|\b[a-z]\w*\.go\b`)

// missingFiles returns the files that a package doc names and that are neither in the folder of the package, nor in a
// folder that the same line or the one before names.
func missingFiles(folder, doc string, exists func(string) bool) (missing []string) {
	var before []string
	for line := range strings.Lines(doc) {
		var here []string
		for _, name := range goPath.FindAllString(line, -1) {
			if at := path.Join(folder, name); strings.HasPrefix(name, "..") {
				if !exists(at) {
					missing = append(missing, name)
				}
				here = append(here, strings.TrimSuffix(at, path.Base(at)), at)
			}
		}
		for _, name := range goPath.FindAllString(line, -1) {
			found := strings.HasPrefix(name, "..")
			for _, in := range append(append([]string{folder}, before...), here...) {
				found = found || exists(path.Join(in, name))
			}
			if !found {
				missing = append(missing, name)
			}
		}
		before = here
	}
	return missing
}

func TestFilesThatPackageDocsNameExist(t *testing.T) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return err == nil
	}
	named := 0
	for _, p := range goFiles(t) {
		if p.Doc == nil {
			continue
		}
		named += len(goPath.FindAllString(p.Doc.Text(), -1))
		for _, name := range missingFiles(p.folder(), p.Doc.Text(), exists) {
			t.Errorf("%s names %s, which does not exist", p.name, name)
		}
	}
	if named < 50 {
		t.Errorf("only %d files are named", named)
	}
}

func TestMissingFilesAreNoticed(t *testing.T) {
	exists := func(name string) bool { return name == "a/b.go" || name == "c" || name == "c/d.go" }
	for doc, want := range map[string]string{
		"Start in b.go.":            "",
		"Start in d.go.":            "d.go",
		"\t../c\tdecides (d.go)":    "",
		"\t../c\tdecides\n\t\td.go": "",
		"\t../e\tdecides (d.go)":    "../e d.go",
		"\t../c/d.go\tdecides":      "",
		"\t../c/e.go\tdecides":      "../c/e.go",
	} {
		if got := strings.Join(missingFiles("a", doc, exists), " "); got != want {
			t.Errorf("%q: %q, want %q", doc, got, want)
		}
	}
}
