package lint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// actedOut are the files whose tests run the commands and the SQL of pages without Go code. codeOf has the pages with
// Go code.
var actedOut = map[string][]string{
	"docs/cli.md":      {"commandline/json_test.go", "commandline/script_test.go"},
	"docs/rollback.md": {"tests/rollback_doc_test.go", "tests/postgres/rollback_doc_test.go"},
	"docs/runbook.md": {"tests/runbook/scenario_test.go", "tests/runbook/changes_test.go",
		"tests/runbook/database_test.go",
		"tests/runbook/failures_test.go", "tests/runbook/nodes_test.go", "tests/runbook/waits_test.go"},
}

// withoutRoles are the pages that no test runs under two roles, and tests of other pages that need one role, each with
// the reason.
var withoutRoles = map[string]string{
	"docs/monitoring.md":                 "its program opens a file",
	"docs/sqlite.md":                     "a file has no roles",
	"docs/testing.md":                    "tests of users have a database of their own, and create its tables",
	"TestTotals":                         "a test of users: see docs/testing.md",
	"TestMisuseNamesItselfAndExitsWith2": "the database is empty",
}

var (
	// makesDatabase are the functions that a test with one role has its database from.
	makesDatabase = []string{"pgtest.Database", "pgtest.DatabaseOn", "pgtest.Private",
		"millracetest.Database", "millracetest.Postgres", "kit.PgReady", "kit.Run", "kit.OnEachStore", "kit.Postgres"}
	// makesRoles are those that run docs/roles.sql.
	makesRoles = []string{"kit.RolesOf", "kit.RunPage"}
)

// bodies maps each function of a package to the names in it: of functions as "f", of methods as ".m", of other packages
// as "p.f".
type bodies map[string][]string

func bodiesOf(t *testing.T, folder string) bodies {
	t.Helper()
	b := make(bodies)
	files, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	for _, path := range files {
		for _, declaration := range syntax(t, path).Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := function.Name.Name
			if function.Recv != nil {
				name = "." + name
			}
			b[name] = append(b[name], namesIn(function.Body)...)
		}
	}
	return b
}

func namesIn(node ast.Node) (names []string) {
	ast.Inspect(node, func(node ast.Node) bool {
		names = append(names, namesOf(node)...)
		return true
	})
	return names
}

// namesOf returns the names that a node itself is.
func namesOf(node ast.Node) []string {
	switch n := node.(type) {
	case *ast.SelectorExpr:
		names := []string{"." + n.Sel.Name}
		if of, ok := n.X.(*ast.Ident); ok {
			names = append(names, of.Name+"."+n.Sel.Name)
		}
		return names
	case *ast.Ident:
		return []string{n.Name}
	}
	return nil
}

// reaches reports whether a function uses one of some names, itself or by functions of its package.
func (b bodies) reaches(name string, some []string, seen map[string]bool) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	return b.use(b[name], some, seen)
}

// use reports whether one of the names is one of some, or that of a function that reaches one.
func (b bodies) use(names, some []string, seen map[string]bool) bool {
	return slices.ContainsFunc(names,
		func(used string) bool { return slices.Contains(some, used) || b.reaches(used, some, seen) })
}

// begins returns the names in the tests of a file, and those in the values of its variables, such as scenarios. There,
// each function without a name is one, and each other name.
func begins(file *ast.File) bodies {
	found := make(bodies)
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if name := d.Name.Name; strings.HasPrefix(name, "Test") && name != "TestMain" {
				found[name] = []string{name}
			}
		case *ast.GenDecl:
			ast.Inspect(d, func(node ast.Node) bool {
				for _, name := range namesOf(node) {
					found[name] = []string{name}
				}
				function, ok := node.(*ast.FuncLit)
				if ok {
					found[fmt.Sprint("the function at byte ", function.Pos()-1)] = namesIn(function.Body)
				}
				return !ok
			})
		}
	}
	return found
}

// oneRole returns the functions of a file that have a database and not the two roles, and whether any has the roles.
func (b bodies) oneRole(file *ast.File) (found []string, roles bool) {
	for name, names := range begins(file) {
		switch {
		case b.use(names, makesRoles, make(map[string]bool)):
			roles = true
		case b.use(names, makesDatabase, make(map[string]bool)):
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, roles
}

// A test that runs the SQL of a page reads the page by sqlOf.
func TestSQLOfPagesRunsUnderTwoRoles(t *testing.T) {
	b := bodiesOf(t, "tests/postgres")
	found := 0
	for name := range b {
		if !strings.HasPrefix(name, "Test") || !b.reaches(name, []string{"sqlOf"}, make(map[string]bool)) {
			continue
		}
		found++
		if !b.reaches(name, makesRoles, make(map[string]bool)) {
			t.Errorf("%s runs the SQL of a page under one role alone: use onRoles", name)
		}
	}
	if found < 6 {
		t.Errorf("only %d tests run the SQL of pages", found)
	}
}

// What a page says also holds for servers whose role owns nothing.
func TestPagesRunUnderTwoRoles(t *testing.T) {
	pages := maps.Clone(codeOf)
	maps.Copy(pages, actedOut)
	documents, _ := filepath.Glob(filepath.Join(root, "docs/*.md"))
	code := regexp.MustCompile("(?m)^```(go|sql|console)$")
	for _, document := range documents {
		page := "docs/" + filepath.Base(document)
		if pages[page] == nil && code.MatchString(contentOf(t, page)) {
			t.Errorf("%s has code, and actedOut has no tests for it", page)
		}
	}
	used := make(map[string]bool)
	packages := make(map[string]bodies)
	for page, files := range pages {
		anyRoles := false
		var alone []string
		for _, file := range files {
			folder := filepath.Dir(file)
			if packages[folder] == nil {
				packages[folder] = bodiesOf(t, folder)
			}
			found, roles := packages[folder].oneRole(syntax(t, filepath.Join(root, file)))
			alone, anyRoles = append(alone, found...), anyRoles || roles
		}
		if withoutRoles[page] != "" {
			used[page] = !anyRoles
			continue
		}
		if !anyRoles {
			t.Errorf("no test in %v runs %s under the roles of docs/roles.sql", files, page)
		}
		for _, name := range alone {
			used[name] = true
			if withoutRoles[name] == "" {
				t.Errorf("%s, of %s, runs under one role alone: use kit.RunPage or kit.RolesOf", name, page)
			}
		}
	}
	for name := range withoutRoles {
		if !used[name] {
			t.Errorf("withoutRoles has %s for no reason", name)
		}
	}
}

func TestTestsWithOneRoleAreNoticed(t *testing.T) {
	b := bodies{
		"TestDirect": {"pgtest.Database"}, "TestByHelper": {"setup", "setup"}, "setup": {".open"},
		".open":     {"kit.PgReady", "setup"},
		"TestRoles": {"both", "pgtest.Database"}, "both": {"kit.RolesOf"}, "TestPure": {"errors.New"},
	}
	for name, want := range map[string][2]bool{
		"TestDirect": {true, false}, "TestByHelper": {true, false}, "TestRoles": {true, true}, "TestPure": {},
	} {
		got := [2]bool{
			b.reaches(name, makesDatabase, make(map[string]bool)), b.reaches(name, makesRoles, make(map[string]bool)),
		}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for value, want := range map[string][2]bool{
		"setup": {true, false}, "both": {false, true}, "errors.New": {}, "pgtest.Database": {true, false},
		"kit.RolesOf": {false, true},
		"func(s *scenario) { _ = pgtest.Database(s.T) }":        {true, false},
		"func(s *scenario) { s.open() }":                        {true, false},
		"func(s *scenario) { both(pgtest.Database(s.T)) }":      {false, true},
		"func(s *scenario) { kit.RolesOf(s, pgtest.Private) }":  {false, true},
		"func(s *scenario) { defer func() { _ = setup() }() }":  {true, false},
		"func(s *scenario) { s.T.Log(s.names, errors.New) }":    {},
		"func(s *scenario) { setup() }, \"y\": both":            {true, true},
		"func(*scenario) { setup() }, \"y\": func() { both() }": {true, true},
	} {
		text := `package p; var _ = add(map[string]func(s *scenario){"x": ` + value + `})`
		file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if alone, roles := b.oneRole(file); len(alone) > 0 != want[0] || roles != want[1] {
			t.Errorf("%s: %v, %v, want %v", value, alone, roles, want)
		}
	}
}
