package lint_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// mostOfOneType is how many methods a type has at most, outside of tests and their kit. A type with more is several
// things.
const mostOfOneType = 45

// crowded returns the types with too many methods, and how many they have. A type's methods may stand in many files.
func crowded(all []parsed) map[string]int {
	methods := make(map[string]int)
	for _, p := range all {
		if p.test() || p.folder() == "tests/kit" {
			continue
		}
		for _, d := range p.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv != nil {
				methods[p.folder()+" "+receiver(f)]++
			}
		}
	}
	for name, n := range methods {
		if n <= mostOfOneType {
			delete(methods, name)
		}
	}
	return methods
}

func TestTypesHaveFewMethods(t *testing.T) {
	for name, n := range crowded(goFiles(t)) {
		t.Errorf("%s: %d methods, the limit is %d", name, n, mostOfOneType)
	}
}

func TestMethodsAreCounted(t *testing.T) {
	methods := func(n int) string {
		return "package x\n" + strings.Repeat("func (t *T[K, V]) f() {}\nfunc g() {}\n", n)
	}
	for name, test := range map[string]struct {
		files []parsed
		want  string
	}{
		"45": {[]parsed{parse(t, "x/a.go", methods(45))}, "map[]"},
		"46 in two files": {
			[]parsed{parse(t, "x/a.go", methods(45)), parse(t, "x/b.go", "package x\nfunc (t T[K, V]) h() {}")},
			"map[x T:46]",
		},
		"46 in two packages": {[]parsed{parse(t, "x/a.go", methods(45)), parse(t, "y/a.go", methods(1))}, "map[]"},
		"46, a test":         {[]parsed{parse(t, "x/a_test.go", methods(46))}, "map[]"},
	} {
		if got := fmt.Sprint(crowded(test.files)); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
