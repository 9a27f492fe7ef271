package lint_test

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// writingHeaders returns the lines of a file on which the header of an if or switch does more than declare and test: it
// assigns to what outlives it, or calls for an effect.
func writingHeaders(p parsed) (lines []int) {
	ast.Inspect(p.File, func(n ast.Node) bool {
		var header ast.Stmt
		switch s := n.(type) {
		case *ast.IfStmt:
			header = s.Init
		case *ast.SwitchStmt:
			header = s.Init
		case *ast.TypeSwitchStmt:
			header = s.Init
		}
		assigned, ok := header.(*ast.AssignStmt)
		if header != nil && (!ok || assigned.Tok != token.DEFINE) {
			lines = append(lines, p.files.Position(header.Pos()).Line)
		}
		return true
	})
	return lines
}

func TestHeadersOnlyDeclareAndTest(t *testing.T) {
	mustFindNone(t, writingHeaders, "put what the header does before the if or switch")
}

func TestWritingHeadersAreNoticed(t *testing.T) {
	mustFind(t, writingHeaders, map[string][]int{
		"if a := f(); a {\n\t}":                 nil,
		"if f() {\n\t}":                         nil,
		"if a = f(); a {\n\t}":                  {5},
		"if a, b := f(), g(); a == b {\n\t}":    nil,
		"if a {\n\t} else if b = f(); b {\n\t}": {6},
		"if n++; n > 1 {\n\t}":                  {5},
		"if f(); a {\n\t}":                      {5},
		"switch a = f(); a {\n\t}":              {5},
		"switch a := b.(type) {\n\t}":           nil,
		"switch b = f(); a := b.(type) {\n\t}":  {5},
		"for a = f(); a; a = g() {\n\t}":        nil,
	})
}

// mustFindNone fails for each line that find returns of a Go file of the module.
func mustFindNone(t *testing.T, find func(p parsed) (lines []int), advice string) {
	t.Helper()
	for _, p := range goFiles(t) {
		for _, n := range find(p) {
			t.Errorf("%s:%d: %s", p.name, n, advice)
		}
	}
}

// mustFind fails if find returns other lines of statements. The first statement is in line 5.
func mustFind(t *testing.T, find func(p parsed) (lines []int), wanted map[string][]int) {
	t.Helper()
	for statements, want := range wanted {
		got := find(parse(t, "x/a.go", "package x\n\nfunc _() {\n\n\t"+statements+"\n}\n"))
		if !slices.Equal(got, want) {
			t.Errorf("%s: lines %d, want %d", statements, got, want)
		}
	}
}
