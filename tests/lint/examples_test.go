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
var publicFolders = []string{
	".", "admin", "event", "eventtype", "projection", "observe", "pgstore", "sqlitestore", "millraceotel",
	"commandline",
}

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
	examples, opens, reads := 0, false, false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if strings.HasPrefix(n.Name.Name, "Example") {
				examples++
			}
		case *ast.SelectorExpr:
			opens = opens || types.ExprString(n) == "pgstore.Open"
		case *ast.BasicLit:
			reads = reads || n.Value == `"MILLRACE_DSN"`
		}
		return true
	})
	if examples != 1 {
		faults = append(faults, "has "+strconv.Itoa(examples)+" examples, so that go doc does not show the whole file")
	}
	if opens && !reads {
		faults = append(faults, "does not take its database from MILLRACE_DSN")
	}
	return faults
}

func TestExamplesRunAsTheyStand(t *testing.T) {
	files := exampleFiles(t)
	for name, file := range files {
		for _, fault := range standsAlone(file) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if len(files) < 40 {
		t.Errorf("only %d files with examples were seen", len(files))
	}
}

// exampleFiles returns the files with examples of the public packages.
func exampleFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	found := make(map[string]*ast.File)
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
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
					found[name] = file
				}
			}
		}
	}
	return found
}

// withoutExample are exported functions and methods that no example calls, by the reason.
var withoutExample = map[string][]string{
	"packages of this module call it":         {"Engine", "Streams"},
	"fmt, errors and encoding/json call it":   {"Error", "Unwrap", "String", "MarshalJSON", "UnmarshalJSON"},
	"it cancels or awaits what Rebuild began": {"CancelOperation", "WaitOperation"},
	"it has one line":                         {"Size"},
}

// features are what examples show beside functions: fields of options and of projections.
var features = []string{
	"AppendMiddleware", "Breaker", "FailureHandler", "Middleware", "NodeName", "Observer", "OnFailure", "Partitions",
	"Replay", "Reset",
	"Retry", "Start", "Swap", "Drop", "TenantSetup", "TenantWeight", "Tenants", "Types", "Version", "MaxEvents",
}

func TestEveryFeatureHasAnExample(t *testing.T) {
	used := make(map[string]bool)
	for _, file := range exampleFiles(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				used[n.Sel.Name] = true
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					used[key.Name+":"] = true
				}
			}
			return true
		})
	}
	for _, feature := range features {
		if !used[feature+":"] && !used[feature] {
			t.Errorf("no example sets %s", feature)
		}
	}
	for _, names := range withoutExample {
		for _, name := range names {
			used[name] = true
		}
	}
	functions := 0
	for _, file := range goFiles(t) {
		for name := range signatures(file) {
			_, name, _ = strings.Cut(name, " ")
			_, method, isMethod := strings.Cut(name, ".")
			if file.folder() == "millracetest" || !isMethod && !isFunction(file, name) {
				continue
			}
			if !isMethod {
				method = name
			}
			functions++
			if !used[method] {
				t.Errorf("no example uses %s of %s", name, file.folder())
			}
		}
	}
	if functions < 100 {
		t.Errorf("only %d functions were seen", functions)
	}
}

// isFunction reports whether a file declares a function of that name.
func isFunction(p parsed, name string) bool {
	for _, declared := range p.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
			return true
		}
	}
	return false
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
