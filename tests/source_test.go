package tests_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const longestFile = 600

// library are the places in which nothing may be read from the environment.
var library = []string{".", "event/...", "projection/...", "messages/...", "actors/...", "supervisor/...", "pgstore/..."}

// ban is a set of functions that some files must not use.
type ban struct {
	path      string
	functions []string
	applies   func(file string) bool
	reason    string
}

var bans = []ban{
	{"time", []string{"Sleep"}, func(string) bool { return true }, "wait for what happens instead"},
	{"os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, inLibrary, "a library reads nothing from the environment"},
	{"syscall", []string{"Getenv", "Environ"}, inLibrary, "a library reads nothing from the environment"},
}

func inLibrary(file string) bool {
	return !strings.HasSuffix(file, "_test.go") && within(filepath.ToSlash(filepath.Dir(file)), library)
}

// faults returns the rules that a file breaks; its name is relative to the root of the repository.
func faults(name, content string) []string {
	var found []string
	if lines := strings.Count(content, "\n"); lines > longestFile {
		found = append(found, fmt.Sprintf("%s: %d lines, more than %d", name, lines, longestFile))
	}
	if filepath.Ext(name) != ".go" {
		return found
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
	if err != nil {
		return append(found, err.Error())
	}
	for _, ban := range bans {
		if !ban.applies(name) {
			continue
		}
		for _, spec := range file.Imports {
			if spec.Path.Value != `"`+ban.path+`"` {
				continue
			}
			local := ban.path
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if local == "." {
				found = append(found, fmt.Sprintf("%s: imports %s with a dot", files.Position(spec.Pos()), ban.path))
			}
			for _, use := range uses(file, local, ban.functions) {
				found = append(found, fmt.Sprintf("%s: uses %s.%s: %s", files.Position(use.Pos()), ban.path, use.Name, ban.reason))
			}
		}
	}
	return found
}

// uses returns where a file selects one of the functions from a package, called or not.
func uses(file *ast.File, local string, functions []string) []*ast.Ident {
	var found []*ast.Ident
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == local && slices.Contains(functions, selector.Sel.Name) {
				found = append(found, selector.Sel)
			}
		}
		return true
	})
	return found
}

func TestSourceKeepsTheRules(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name == ".git" || name == "bin" || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".sql", ".sh"}, filepath.Ext(name)) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, fault := range faults(name, string(content)) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Fatalf("only %d files were seen", seen)
	}
}

func TestSourceRulesCanBeBroken(t *testing.T) {
	const sleeps = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	const reads = "package p\nimport \"os\"\nvar v = os.Getenv(\"V\")\n"
	for name, test := range map[string]struct{ file, content, want string }{
		"sleep":                     {"actors/a.go", sleeps, "actors/a.go:3:17: uses time.Sleep"},
		"sleep in a test":           {"actors/a_test.go", sleeps, "uses time.Sleep"},
		"sleep by another name":     {"a.go", "package p\nimport clock \"time\"\nvar f = clock.Sleep\n", "uses time.Sleep"},
		"sleep without a name":      {"a.go", "package p\nimport . \"time\"\nfunc f() { Sleep(1) }\n", "with a dot"},
		"somebody else's sleep":     {"a.go", "package p\nfunc f(time interface{ Sleep() }) { time.Sleep() }\n", ""},
		"sleep in a text":           {"a.go", "package p\nconst text = `time.Sleep(1)` // time.Sleep\n", ""},
		"environment in the root":   {"config.go", reads, "uses os.Getenv"},
		"environment in the store":  {"pgstore/inner/a.go", reads, "uses os.Getenv"},
		"environment by look-up":    {"event/a.go", strings.ReplaceAll(reads, "Getenv", "LookupEnv"), "uses os.LookupEnv"},
		"environment by syscall":    {"event/a.go", strings.ReplaceAll(reads, "os", "syscall"), "uses syscall.Getenv"},
		"environment in a test":     {"pgstore/a_test.go", reads, ""},
		"environment in a command":  {"cmd/demo/a.go", reads, ""},
		"environment in the server": {"internal/pgtest/a.go", reads, ""},
		"as long as may be":         {"a.go", "package p\n" + strings.Repeat("\n", longestFile-1), ""},
		"too long":                  {"a.go", "package p\n" + strings.Repeat("\n", longestFile), "601 lines"},
		"too long in SQL":           {"pgstore/a.sql", strings.Repeat("\n", longestFile+1), "601 lines"},
		"no Go":                     {"a.go", "package", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			got := faults(test.file, test.content)
			switch {
			case test.want == "" && len(got) != 0:
				t.Errorf("refused: %v", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}
