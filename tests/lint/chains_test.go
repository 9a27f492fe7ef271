package lint_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// chains returns the lines of a file on which a chain begins: an "if err == nil" without else, whose body sets err and
// which another "if err == nil" continues. The other one is the last statement of the body, or it follows in the same
// list of statements and does not return. Further conditions after "err == nil &&" make no difference.
func chains(p parsed) (lines []int) {
	ast.Inspect(p.File, func(n ast.Node) bool {
		list := statementsOf(n)
		for i, s := range list {
			name, step := ifSucceeded(s)
			if name == "" || step.Else != nil || !sets(step.Body, name) {
				continue
			}
			if continues(step.Body.List, name) || slices.ContainsFunc(list[i+1:], func(s ast.Stmt) bool {
				other, later := ifSucceeded(s)
				return other == name && !returns(later.Body)
			}) {
				lines = append(lines, p.files.Position(s.Pos()).Line)
			}
		}
		return true
	})
	return lines
}

// continues reports whether the last of some statements is an "if err == nil" for the error of this name.
func continues(list []ast.Stmt, name string) bool {
	if len(list) == 0 {
		return false
	}
	other, _ := ifSucceeded(list[len(list)-1])
	return other == name
}

func statementsOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// ifSucceeded returns the name of the error for whose absence an if tests first, empty for other statements. An error
// that the if declares itself is another one.
func ifSucceeded(s ast.Stmt) (name string, branch *ast.IfStmt) {
	branch, ok := s.(*ast.IfStmt)
	if !ok || branch.Init != nil {
		return "", nil
	}
	cond := branch.Cond
	for {
		test, ok := cond.(*ast.BinaryExpr)
		if !ok {
			return "", nil
		}
		if test.Op == token.LAND {
			cond = test.X
			continue
		}
		of, ok := test.X.(*ast.Ident)
		if !ok || test.Op != token.EQL || !isNil(test.Y) || !strings.HasSuffix(strings.ToLower(of.Name), "err") {
			return "", nil
		}
		return of.Name, branch
	}
}

func isNil(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "nil"
}

// sets reports whether a block assigns to a variable, outside of functions in it.
func sets(body *ast.BlockStmt, name string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		assigned, ok := n.(*ast.AssignStmt)
		if ok && assigned.Tok == token.ASSIGN {
			found = found || slices.ContainsFunc(assigned.Lhs, func(left ast.Expr) bool {
				id, ok := left.(*ast.Ident)
				return ok && id.Name == name
			})
		}
		_, function := n.(*ast.FuncLit)
		return !function
	})
	return found
}

func returns(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	_, ok := body.List[len(body.List)-1].(*ast.ReturnStmt)
	return ok
}

func TestErrorsReturnEarly(t *testing.T) {
	mustFindNone(t, chains, "return the error at once, instead of running the steps after it only if err == nil")
}

func TestChainsAreNoticed(t *testing.T) {
	const a, b = "if err == nil {\n\t\terr = a()\n\t}", "if err == nil {\n\t\terr = b()\n\t}"
	mustFind(t, chains, map[string][]int{
		a: nil,
		"if err != nil {\n\t\treturn err\n\t}\n\t" + a: nil,
		a + "\n\t" + b:                                            {5},
		a + "\n\t" + b + "\n\t" + b:                               {5, 8},
		a + "\n\tx := 1\n\t" + b:                                  {5},
		a + "\n\tif err == nil && x > 0 {\n\t\tc()\n\t}":          {5},
		"if err == nil && x > 0 {\n\t\ty, err = a()\n\t}\n\t" + b: {5},
		"if err == nil {\n\t\terr = a()\n\t\tif err == nil {\n\t\t\tc()\n\t\t}\n\t}":       {5},
		"if err == nil {\n\t\terr = a()\n\t\tif err == nil {\n\t\t\treturn 1\n\t\t}\n\t}":  {5},
		"switch {\n\tcase x:\n\t\t" + a + "\n\t\t" + b + "\n\t}":                           {7},
		"if readErr == nil {\n\t\treadErr = a()\n\t}\n\tif readErr == nil {\n\t\tc()\n\t}": {5},
		// None of these is a chain.
		a + "\n\tif err == nil {\n\t\treturn 1\n\t}":                         nil,
		a + "\n\tif err != nil {\n\t\treturn err\n\t}":                       nil,
		a + "\n\tif err := b(); err == nil {\n\t\tc()\n\t}":                  nil,
		"if err == nil {\n\t\tc()\n\t}\n\t" + a:                              nil,
		"if err == nil {\n\t\terr := a()\n\t\tc(err)\n\t}\n\t" + b:           nil,
		"if err == nil {\n\t\terr = a()\n\t} else {\n\t\tc()\n\t}\n\t" + b:   nil,
		"if err == nil {\n\t\tf = func() { err = a() }\n\t}\n\t" + b:         nil,
		"if x == nil {\n\t\tx = a()\n\t}\n\tif x == nil {\n\t\tx = b()\n\t}": nil,
		"for err == nil {\n\t\terr = a()\n\t}\n\t" + b:                       nil,
	})
}
