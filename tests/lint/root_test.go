package lint_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The root is what a user reads who registers and runs projections. What concerns a deployment belongs in package admin, and what
// users do not see belongs in internal packages.
const (
	mostRootLines = 2000 // without tests
	mostRootNames = 60   // with methods, also those of interfaces
)

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
