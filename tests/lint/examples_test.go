package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// publicFolders have examples. The tests of these packages run them.
var publicFolders = []string{".", "event", "projection", "pgstore", "sqlitestore", "storecopy"}

// standsAlone returns why a file with an example does not run as it stands in a program of a user.
func standsAlone(file *ast.File) (faults []string) {
	imported := make(map[string]bool)
	for _, spec := range file.Imports {
		from, err := strconv.Unquote(spec.Path.Value)
		if err != nil || strings.Contains(from, "/internal/") || from == "testing" {
			faults = append(faults, "imports "+spec.Path.Value)
		}
		name := path.Base(from)
		if strings.HasPrefix(name, "v") && len(name) == 2 {
			name = path.Base(path.Dir(from))
		}
		imported[name] = true
	}
	for _, name := range file.Unresolved {
		if !imported[name.Name] && types.Universe.Lookup(name.Name) == nil {
			faults = append(faults, "uses "+name.Name+", which another file declares")
		}
	}
	examples, reads := 0, false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if strings.HasPrefix(n.Name.Name, "Example") {
				examples++
			}
		case *ast.BasicLit:
			reads = reads || n.Value == `"MILLRACE_DSN"`
		}
		return true
	})
	if examples != 1 {
		faults = append(faults, "has "+strconv.Itoa(examples)+" examples, so that go doc does not show the whole file")
	}
	if imported["pgstore"] && !reads {
		faults = append(faults, "does not take its database from MILLRACE_DSN")
	}
	return faults
}

func TestExamplesRunAsTheyStand(t *testing.T) {
	seen := 0
	for _, folder := range publicFolders {
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			hasExample := false
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				hasExample = hasExample || ok && strings.HasPrefix(f.Name.Name, "Example")
			}
			if !hasExample {
				continue
			}
			seen++
			for _, fault := range standsAlone(file) {
				t.Errorf("%s: %s", name, fault)
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d files with examples were seen", seen)
	}
}

func TestExampleThatNeedsOtherFilesIsNoticed(t *testing.T) {
	for source, want := range map[string]string{
		`import "os"; var a = 1; func Example() { _ = os.Getenv("MILLRACE_DSN"); _ = a }`:            "",
		`import "os"; func Example() { _ = os.Getenv("MILLRACE_DSN"); helper() }`:                    "uses helper",
		`import ("os"; "x/internal/pgtest"); func Example() { pgtest.X(os.Getenv("MILLRACE_DSN")) }`: "internal",
		`import ("os"; "x/pgstore"); func Example() { pgstore.Open(os.Getenv("OTHER")) }`:            "MILLRACE_DSN",
		`import "x/sqlitestore"; func Example() { sqlitestore.Open("shop.db") }`:                     "",
		`func Example() { _ = "MILLRACE_DSN" }; func Example_b() {}`:                                 "2 examples",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package x; "+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(standsAlone(file), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
