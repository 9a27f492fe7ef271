package lint_test

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"testing"
)

// publicPackages are those that users import.
var publicPackages = []string{
	".", "admin", "event", "eventtype", "projection", "observe", "millraceotel", "pgstore", "sqlitestore",
	"millracetest", "commandline",
}

// engineImports are packages whose types must not stand in a public signature.
var engineImports = []string{
	"github.com/asynkron/protoactor-go/actor", module + "/actors", module + "/supervisor", module + "/messages",
}

// signatures returns the exported functions and types of a file of a public package, by name, as far as users see them.
func signatures(p parsed) map[string]ast.Node {
	found := make(map[string]ast.Node)
	if p.test() || !slices.Contains(publicPackages, p.folder()) {
		return found
	}
	for _, declared := range p.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				found[p.folder()+" "+functionName(d)] = d.Type
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						found[p.folder()+" "+s.Name.Name] = s.Type
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) && s.Type != nil {
						found[p.folder()+" "+s.Names[0].Name] = s.Type
					}
				}
			}
		}
	}
	return found
}

// boolsIn counts the parameters of type bool of an exported function.
func boolsIn(node ast.Node) (n int) {
	f, ok := node.(*ast.FuncType)
	if !ok {
		return 0
	}
	for _, parameter := range f.Params.List {
		if typed, ok := parameter.Type.(*ast.Ident); ok && typed.Name == "bool" {
			n += max(1, len(parameter.Names))
		}
	}
	return n
}

// engineTypes returns the types of the engine in a signature. Unexported fields are not part of it.
func engineTypes(p parsed, node ast.Node) (found []string) {
	names := make(map[string]bool)
	for _, spec := range p.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !slices.Contains(engineImports, imported) {
			continue
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = true
	}
	ast.Inspect(node, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && len(field.Names) > 0 &&
			!slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			_, inStruct := node.(*ast.StructType)
			return !inStruct
		}
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if from, ok := selector.X.(*ast.Ident); ok && names[from.Name] {
				found = append(found, from.Name+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestSourceShowsNoEngineAndNoBoolParameters(t *testing.T) {
	for _, p := range goFiles(t) {
		for name, node := range signatures(p) {
			for _, typed := range engineTypes(p, node) {
				t.Errorf("%s: %s is in its public signature", name, typed)
			}
			if n := boolsIn(node); n > 0 {
				t.Errorf("%s: %d bool parameters: a bool at a call says nothing", name, n)
			}
		}
	}
}

func TestSignaturesAreRead(t *testing.T) {
	const head = "package x\nimport (\"github.com/asynkron/protoactor-go/actor\"; engine \"" + module + "/actors\")\n"
	for declaration, want := range map[string]struct {
		bools int
		types []string
	}{
		"func F(a, b bool) {}":                                 {2, nil},
		"func (T) F(bool, int) bool { return true }":           {1, nil},
		"func f(a bool, c actor.PID) {}":                       {0, nil},
		"func (t) F(a bool) {}":                                {0, nil},
		"func F() *actor.PID { return nil }":                   {0, []string{"actor.PID"}},
		"type T struct { A int; p *actor.PID; B engine.Deps }": {0, []string{"engine.Deps"}},
		"type T func(pid actor.PID)":                           {0, []string{"actor.PID"}},
		"var V map[string]engine.Deps":                         {0, []string{"engine.Deps"}},
	} {
		p := parse(t, "event/a.go", head+declaration)
		bools, types := 0, []string(nil)
		for _, node := range signatures(p) {
			bools, types = bools+boolsIn(node), append(types, engineTypes(p, node)...)
		}
		if bools != want.bools || !slices.Equal(types, want.types) {
			t.Errorf("%s: %d bools and %q, want %d and %q", declaration, bools, types, want.bools, want.types)
		}
	}
}
