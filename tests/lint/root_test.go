package lint_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The root is what a user reads who registers and runs projections. What concerns a deployment belongs in package
// admin, and what users do not see belongs in internal packages.
const (
	mostRootLines = 2000 // without tests
	mostRootNames = 60   // with methods, also those of interfaces
	// mostFaceNames is the most functions and types together of the packages of a service: those of facePackages.
	mostFaceNames = 95
)

var facePackages = []string{".", "event", "projection", "pgstore", "sqlitestore"}

// exportedIn returns the exported names that a file declares. Methods count if their types are exported.
func exportedIn(p parsed) (found []string) {
	add := func(of string, name *ast.Ident) {
		if name.IsExported() && (of == "" || ast.IsExported(of)) {
			found = append(found, strings.TrimPrefix(of+"."+name.Name, "."))
		}
	}
	for _, declared := range p.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add("", d.Name)
			} else {
				add(receiver(d), d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add("", name)
					}
				case *ast.TypeSpec:
					add("", s.Name)
					if typed, ok := s.Type.(*ast.InterfaceType); ok {
						for _, method := range typed.Methods.List {
							for _, name := range method.Names {
								add(s.Name.Name, name)
							}
						}
					}
				}
			}
		}
	}
	return found
}

func TestRootIsSmall(t *testing.T) {
	var exported []string
	lines := 0
	for _, p := range goFiles(t) {
		if p.folder() != "." || p.test() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, p.name))
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(content), "\n")
		exported = append(exported, exportedIn(p)...)
	}
	t.Logf("%d lines, %d names", lines, len(exported))
	if lines > mostRootLines || lines < mostRootLines/2 {
		t.Errorf("the root has %d lines, and may have %d", lines, mostRootLines)
	}
	if len(exported) > mostRootNames || len(exported) < mostRootNames/2 {
		slices.Sort(exported)
		t.Errorf("the root has %d exported names, and may have %d: %v", len(exported), mostRootNames, exported)
	}
}

// The names are those of "go doc -short". It shows functions that make values of a type with the type.
func TestServicesNeedFewNames(t *testing.T) {
	files := make(map[string][]*ast.File)
	set := token.NewFileSet()
	for _, p := range goFiles(t) {
		if !p.test() && slices.Contains(facePackages, p.folder()) {
			file, err := parser.ParseFile(set, filepath.Join(root, p.name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files[p.folder()] = append(files[p.folder()], file)
		}
	}
	var found []string
	for folder, list := range files {
		shown, err := doc.NewFromFiles(set, list, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range shown.Funcs {
			found = append(found, path.Join(folder, f.Name))
		}
		for _, of := range shown.Types {
			found = append(found, path.Join(folder, of.Name))
		}
	}
	t.Logf("%d functions and types", len(found))
	if len(found) > mostFaceNames || len(found) < mostFaceNames/2 {
		slices.Sort(found)
		t.Errorf("%d functions and types, and there may be %d: %v", len(found), mostFaceNames, found)
	}
}

func TestExportedNamesAreCounted(t *testing.T) {
	p := parse(t, "a.go", `package x
const A, b = 1, 2
var C int
type D struct{ Field int }
type e struct{}
type F interface { G(); h(); D }
type I = D
func J() {}
func k() {}
func (D) L() {}
func (*D) m() {}
func (e) N() {}
func (O[T]) P() {}
type O[T any] struct{}
`)
	want := []string{"A", "C", "D", "F", "F.G", "I", "J", "D.L", "O.P", "O"}
	if got := exportedIn(p); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
