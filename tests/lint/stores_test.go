package lint_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	promisesFile   = "docs/promises.md"
	promisesUpdate = "go test ./tests/lint -run TestPromisesNameTheStores -update-promises"
)

var updatePromises = flag.Bool("update-promises", false, "write the stores of each promise to "+promisesFile)

// placesOfStores are the folders of tests, by the store that the tests need. Tests in the folder tests select their
// stores by kit.Run and kit.OnEachStore. All other tests need no store.
var placesOfStores = map[string][]string{
	"pgstore": {
		"pgstore/...", "tests/postgres", "tests/chaos", "tests/pages", "tests/runbook", "tests/upgrade", "tests/moves",
		"cmd/demo", "commandline",
	},
	"sqlitestore": {
		"sqlitestore/...", "tests/pages", "tests/runbook", "tests/upgrade", "tests/moves", "cmd/demo", "commandline",
	},
}

// calls of tests/kit that run a test on each kind of store, with its needs after the function.
var onEachStore = []string{"kit.Run", "kit.OnEachStore"}

// kitKind is a kind of store of tests/kit: its name, and the names of the needs that it meets.
type kitKind struct {
	name string
	has  []string
}

func syntax(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// kitKinds reads the kinds of store from the variables of tests/kit that the list of kinds names.
func kitKinds(t *testing.T) (kinds []kitKind) {
	t.Helper()
	declared := make(map[string]kitKind)
	var listed []string
	files, _ := filepath.Glob(filepath.Join(root, "tests/kit/*.go"))
	for _, file := range files {
		ast.Inspect(syntax(t, file), func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if spec.Names[0].Name == "kinds" {
				listed = identifiers(spec.Values[0].(*ast.CompositeLit).Elts)
			} else if kind, ok := kindOf(spec.Values[0]); ok {
				declared[spec.Names[0].Name] = kind
			}
			return true
		})
	}
	for _, name := range listed {
		if declared[name].name == "" {
			t.Fatalf("tests/kit has no kind %s", name)
		}
		kinds = append(kinds, declared[name])
	}
	return kinds
}

// kindOf returns the kind that an expression &Kind{…} makes.
func kindOf(value ast.Expr) (kind kitKind, ok bool) {
	address, _ := value.(*ast.UnaryExpr)
	if address == nil {
		return kind, false
	}
	literal, _ := address.X.(*ast.CompositeLit)
	if named, ok := literal.Type.(*ast.Ident); !ok || named.Name != "Kind" {
		return kind, false
	}
	for _, element := range literal.Elts {
		pair := element.(*ast.KeyValueExpr)
		switch pair.Key.(*ast.Ident).Name {
		case "Name":
			kind.name = strings.Trim(pair.Value.(*ast.BasicLit).Value, `"`)
		case "Has":
			kind.has = identifiers(pair.Value.(*ast.CompositeLit).Elts)
		}
	}
	return kind, true
}

// identifiers returns the last names of expressions such as kit.Alone.
func identifiers(expressions []ast.Expr) (names []string) {
	for _, e := range expressions {
		switch e := e.(type) {
		case *ast.Ident:
			names = append(names, e.Name)
		case *ast.SelectorExpr:
			names = append(names, e.Sel.Name)
		}
	}
	return names
}

// neutralTests returns the stores of each test in tests, by its name. A function that runs tests on each store counts
// for the tests that call it.
func neutralTests(t *testing.T, kinds []kitKind) map[string][]string {
	t.Helper()
	needs, calls := make(map[string][][]string), make(map[string][]string)
	files, _ := filepath.Glob(filepath.Join(root, "tests/*_test.go"))
	for _, file := range files {
		for _, declaration := range syntax(t, file).Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok {
					return true
				}
				name, called := function.Name.Name, types.ExprString(call.Fun)
				calls[name] = append(calls[name], called)
				switch {
				case slices.Contains(onEachStore, called):
					needs[name] = append(needs[name], identifiers(call.Args[2:]))
				case called == "kit.RunPage":
					needs[name] = append(needs[name], nil)
				}
				return true
			})
		}
	}
	stores := make(map[string][]string)
	for name := range calls {
		runs := needs[name]
		for _, called := range calls[name] {
			runs = append(runs, needs[called]...)
		}
		stores[name] = storesFor(kinds, runs)
	}
	return stores
}

// storesFor returns the names of the kinds that meet all needs of one of the runs.
func storesFor(kinds []kitKind, runs [][]string) (stores []string) {
	for _, kind := range kinds {
		if slices.ContainsFunc(runs, func(needs []string) bool {
			return !slices.ContainsFunc(needs,
				func(need string) bool { return need != "Alone" && !slices.Contains(kind.has, need) })
		}) {
			stores = append(stores, kind.name)
		}
	}
	return stores
}

// storesOfTests returns the stores on which each test of the module runs, by its name.
func storesOfTests(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	stores := neutralTests(t, kitKinds(t))
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(content, -1) {
			for store, places := range placesOfStores {
				if within(filepath.ToSlash(folder), places) {
					stores[string(match[1])] = append(stores[string(match[1])], store)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return stores
}

// promiseRow is a row of promises.md, with or without the column of the stores, which has no spaces.
var promiseRow = regexp.MustCompile(`^\| (.+?) \| (.+?) \|(?: (\w*) \|)? (.*(?:` + "`(?:Test|Fuzz)" + `|\]\().*) \|$`)

// storesOfRow returns the content of the column of the stores for the tests and links of a row.
func storesOfRow(tests string, stores map[string][]string) string {
	var of []string
	for _, match := range testName.FindAllStringSubmatch(tests, -1) {
		of = append(of, stores[match[1]]...)
	}
	for _, match := range link.FindAllStringSubmatch(tests, -1) {
		for store, places := range placesOfStores {
			if path := strings.TrimPrefix(match[1], "../"); within(path, places) || within(filepath.Dir(path), places) {
				of = append(of, store)
			}
		}
	}
	slices.Sort(of)
	of = slices.Compact(of)
	switch len(of) {
	case 0:
		return "any"
	case 1:
		return of[0]
	}
	return "both"
}

func TestPromisesNameTheStores(t *testing.T) {
	stores := storesOfTests(t)
	lines := strings.Split(contentOf(t, promisesFile), "\n")
	rows := 0
	for i, line := range lines {
		row := promiseRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		rows++
		want := storesOfRow(row[2]+row[4], stores)
		if row[3] != want && !*updatePromises {
			t.Errorf("%q runs on %q, want %q. The command is: %s", row[1], row[3], want, promisesUpdate)
		}
		lines[i] = "| " + strings.Join([]string{row[1], row[2], want, row[4]}, " | ") + " |"
	}
	if rows < 70 {
		t.Errorf("only %d rows were seen", rows)
	}
	if *updatePromises {
		if err := os.WriteFile(filepath.Join(root, promisesFile), []byte(strings.Join(lines, "\n")),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStoresOfTestsAreRead(t *testing.T) {
	kinds := []kitKind{{"large", []string{"Fast", "Wide"}}, {"small", []string{"Fast"}}}
	for name, c := range map[string]struct {
		runs [][]string
		want []string
	}{
		"no run":          {nil, nil},
		"no needs":        {[][]string{{}}, []string{"large", "small"}},
		"alone":           {[][]string{{"Alone"}}, []string{"large", "small"}},
		"a need of both":  {[][]string{{"Fast"}}, []string{"large", "small"}},
		"a need of one":   {[][]string{{"Fast", "Wide"}}, []string{"large"}},
		"one of two runs": {[][]string{{"Wide"}, {"Fast"}}, []string{"large", "small"}},
		"no kind":         {[][]string{{"Cheap"}}, nil},
	} {
		if got := storesFor(kinds, c.runs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	stores := map[string][]string{"TestA": {"pgstore"}, "TestB": {"sqlitestore"}, "TestC": nil}
	for tests, want := range map[string]string{
		"`TestA`": "pgstore", "`TestA`, `TestC`": "pgstore", "`TestA`, `TestB`": "both", "`TestC`": "any",
		"`TestB`, the faults of [tests/chaos](../tests/chaos)": "both",
		"[x_test.go](../tests/postgres/x_test.go)":             "pgstore",
	} {
		if got := storesOfRow(tests, stores); got != want {
			t.Errorf("%s: %s, want %s", tests, got, want)
		}
	}
	if all := storesOfTests(t); !slices.Equal(all["TestNodesShareProjectionsAsTheyComeAndGo"], []string{"pgstore"}) ||
		len(all["TestSkipOnAReplayDiscardsItsEvent"]) == 0 {
		t.Errorf("%v, %v", all["TestNodesShareProjectionsAsTheyComeAndGo"], all["TestSkipOnAReplayDiscardsItsEvent"])
	}
}
