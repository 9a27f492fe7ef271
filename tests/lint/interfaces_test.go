package lint_test

import (
	"go/ast"
	"slices"
	"testing"
)

// mostMethods is how many methods an interface of the port to a database declares itself.
const mostMethods = 10

// ports are the packages with the port to a database.
var ports = []string{"internal/engine", "internal/store"}

// interfaces returns how many methods the interfaces of a file of the port declare, without those that they embed.
func interfaces(p parsed) map[string]int {
	found := make(map[string]int)
	if p.test() || !slices.Contains(ports, p.folder()) {
		return found
	}
	ast.Inspect(p.File, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if typed, ok := spec.Type.(*ast.InterfaceType); ok {
				found[spec.Name.Name] = 0
				for _, method := range typed.Methods.List {
					found[spec.Name.Name] += len(method.Names)
				}
			}
		}
		return true
	})
	return found
}

func TestInterfacesOfThePortAreSmall(t *testing.T) {
	seen := 0
	for _, p := range goFiles(t) {
		for name, methods := range interfaces(p) {
			seen++
			if methods > mostMethods {
				t.Errorf("%s: %s has %d methods, more than %d: cut it by what uses them", p.name, name, methods,
					mostMethods)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d interfaces were seen", seen)
	}
}

func TestMethodsOfInterfacesAreCounted(t *testing.T) {
	p := parse(t, "internal/store/a.go",
		"package x\ntype I interface {\n\tJ\n\tA()\n\tB(int) error\n}\ntype J interface{ C() }\ntype S struct{}\n")
	if found := interfaces(p); len(found) != 2 || found["I"] != 2 || found["J"] != 1 {
		t.Errorf("found %v", found)
	}
}
