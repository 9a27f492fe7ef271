package lint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the module, as seen from the tests.
const root = "../.."

const (
	longestFunction = 60 // lines, outside of tests
	mostFields      = 15 // of a struct, except configurations and rows
)

// dataStructs are structs that may have any number of fields: configurations, statuses and rows, which have no logic. A
// name that ends in one of these is one.
var dataStructs = regexp.MustCompile(`(Config|Options|Policy|Row|Status|SQL)$|^(Projection|Lease|Summary|DeadLetter)$`)

// parsed is a Go file of the module. Its name is relative to the root.
type parsed struct {
	name  string
	files *token.FileSet
	*ast.File
}

func (p parsed) test() bool     { return strings.HasSuffix(p.name, "_test.go") }
func (p parsed) folder() string { return filepath.ToSlash(filepath.Dir(p.name)) }

// at returns the line of a node.
func (p parsed) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", p.name, p.files.Position(n.Pos()).Line)
}

func parse(t *testing.T, name string, content any) parsed {
	t.Helper()
	files := token.NewFileSet()
	path := name
	if content == nil {
		path = filepath.Join(root, name)
	}
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed{filepath.ToSlash(name), files, file}
}

// goFiles returns all Go files of the module.
func goFiles(t *testing.T) (all []parsed) {
	t.Helper()
	for _, name := range sourceFiles(t, ".go") {
		all = append(all, parse(t, name, nil))
	}
	if len(all) < 100 {
		t.Fatalf("only %d files were seen", len(all))
	}
	return all
}

// sourceFiles returns the names of all files with these endings.
func sourceFiles(t *testing.T, endings ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == ".git" || name == "bin" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && slices.Contains(endings, filepath.Ext(name)) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// sizes returns the lines of the functions and the fields of the structs of a file that break the limits.
func sizes(p parsed) (functions, structs map[string]int) {
	functions, structs = make(map[string]int), make(map[string]int)
	if p.test() {
		return functions, structs
	}
	ast.Inspect(p.File, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			lines := p.files.Position(node.End()).Line - p.files.Position(node.Pos()).Line + 1
			if lines > longestFunction {
				functions[p.folder()+" "+functionName(node)] = lines
			}
		case *ast.TypeSpec:
			s, ok := node.Type.(*ast.StructType)
			if !ok || dataStructs.MatchString(node.Name.Name) {
				return true
			}
			fields := 0
			for _, f := range s.Fields.List {
				fields += max(1, len(f.Names)) // an embedded one has no name
			}
			if fields > mostFields {
				structs[p.folder()+" "+node.Name.Name] = fields
			}
		}
		return true
	})
	return functions, structs
}

// functionName is "name" or "receiver.name".
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return receiver(f) + "." + f.Name.Name
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	for {
		switch typed := of.(type) {
		case *ast.StarExpr:
			of = typed.X
		case *ast.IndexExpr:
			of = typed.X
		case *ast.IndexListExpr:
			of = typed.X
		case *ast.Ident:
			return typed.Name
		default:
			return ""
		}
	}
}

func TestSourceHasNoLongFunctionsAndNoWideStructs(t *testing.T) {
	for _, p := range goFiles(t) {
		functions, structs := sizes(p)
		for name, n := range functions {
			t.Errorf("%s: %d lines, the limit is %d", name, n, longestFunction)
		}
		for name, n := range structs {
			t.Errorf("%s: %d fields, the limit is %d", name, n, mostFields)
		}
	}
}

func TestSizesAreMeasured(t *testing.T) {
	const fifteen = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o int"
	long := "package x\nfunc (t *T) f() {" + strings.Repeat("\n", 60) + "}\n"
	for name, test := range map[string]struct{ name, content, want string }{
		"60 lines":         {"x/a.go", "package x\nfunc f() {" + strings.Repeat("\n", 59) + "}\n", "map[] map[]"},
		"61 lines":         {"x/a.go", long, "map[x T.f:61] map[]"},
		"61 lines, a test": {"x/a_test.go", long, "map[] map[]"},
		"15 fields":        {"x/a.go", "package x\ntype t struct { " + fifteen + " }", "map[] map[]"},
		"16 fields":        {"x/a.go", "package x\ntype t[K any] struct { " + fifteen + "; T }", "map[] map[x t:16]"},
		"a configuration":  {"x/a.go", "package x\ntype FeedConfig struct { " + fifteen + "; T }", "map[] map[]"},
	} {
		functions, structs := sizes(parse(t, test.name, test.content))
		if got := fmt.Sprint(functions, structs); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
