package lint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const longestFile = 600

// library are the places in which nothing may be read from the environment.
var library = []string{
	".", "admin", "event/...", "projection/...", "observe", "millraceotel", "messages/...", "actors/...",
	"supervisor/...", "pgstore/...", "sqlitestore/...",
}

// ban is a set of functions that some files must not use.
type ban struct {
	path      string
	functions []string
	applies   func(file string) bool
	reason    string
}

var bans = []ban{
	{"time", []string{"Sleep"}, func(string) bool { return true }, "wait for what happens instead"},
	{
		"os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, inLibrary,
		"a library reads nothing from the environment",
	},
	{"syscall", []string{"Getenv", "Environ"}, inLibrary, "a library reads nothing from the environment"},
}

func inLibrary(file string) bool {
	return !strings.HasSuffix(file, "_test.go") && within(filepath.ToSlash(filepath.Dir(file)), library)
}

// statement is how SQL in a text begins: the verb, and enough behind it that a sentence is not taken for it.
var statement = regexp.MustCompile(`(?is)^\s*(` + strings.Join([]string{
	`select\s+([\d*$']|.*\(|.*\sfrom\s)`,
	`insert\s+into\s`,
	`update\s.*\sset\s`,
	`delete\s+from\s`,
	`with\s.*\bas\s+((not\s+)?materialized\s+)?\(`,
	`(create|alter|drop)\s+((or\s+replace|temp|temporary|unlogged|unique|materialized)\s+)?` +
		`(database|schema|table|index|view|function|procedure|trigger|sequence|type|role|extension)\b`,
	`(begin|commit|rollback)\s*($|;|prepared\s)`,
	`(begin|start)(\s+(work|transaction))?(\s+(isolation|read|deferrable)\b|\s*;)`,
	`(un)?listen\s+($|[*"{%]|\w+\s*($|;))`,
	`notify\s+($|["{%]|\w+\s*($|[;,]))`,
}, "|") + `)`)

var (
	// ownSQL are programs with tables of their own, the server that makes databases for tests, and the set-up of tests.
	ownSQL = []string{
		"cmd/demo/...", "cmd/bench/...", "examples/...", "internal/pgtest/...", "tests/kit", "tests/upgrade/service",
	}
	// composed are the files of the store whose statements are put together; all others stand in queries. text.go of
	// guard recognises the statements of users.
	composed = []string{"pgstore/batch.go", "pgstore/heads.go", "pgstore/internal/session/restore.go",
		"pgstore/session.go", "pgstore/tx.go",
		"pgstore/internal/guard/text.go"}
)

// mayHoldSQL reports whether a Go file may contain SQL.
func mayHoldSQL(file string) bool {
	file = filepath.ToSlash(file)
	return strings.HasSuffix(file, "_test.go") || within(path.Dir(file), ownSQL) || slices.Contains(composed, file)
}

// statements returns the texts in a file that are SQL. Those that are joined by + are looked at one by one.
func statements(file *ast.File) []*ast.BasicLit {
	var found []*ast.BasicLit
	ast.Inspect(file, func(node ast.Node) bool {
		if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
			value, err := strconv.Unquote(text.Value)
			// What wraps an error says what was being done, in the same words.
			if err == nil && statement.MatchString(value) && !strings.Contains(value, "%w") {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}

// faults returns the rules that a file breaks; its name is relative to the root of the repository.
func faults(name, content string) []string {
	var found []string
	if lines := strings.Count(content, "\n"); lines > longestFile {
		found = append(found, fmt.Sprintf("%s: %d lines, more than %d", name, lines, longestFile))
	}
	if filepath.Ext(name) != ".go" {
		return found
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
	if err != nil {
		return append(found, err.Error())
	}
	for _, ban := range bans {
		if !ban.applies(name) {
			continue
		}
		for _, spec := range file.Imports {
			if spec.Path.Value != `"`+ban.path+`"` {
				continue
			}
			local := ban.path
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if local == "." {
				found = append(found, fmt.Sprintf("%s: imports %s with a dot", files.Position(spec.Pos()), ban.path))
			}
			for _, use := range uses(file, local, ban.functions) {
				found = append(found, fmt.Sprintf("%s: uses %s.%s: %s",
					files.Position(use.Pos()), ban.path, use.Name, ban.reason))
			}
		}
	}
	if !mayHoldSQL(name) {
		for _, text := range statements(file) {
			found = append(found, fmt.Sprintf("%s: SQL belongs into the queries of a store: %.40s",
				files.Position(text.Pos()), text.Value))
		}
	}
	return found
}

// uses returns where a file selects one of the functions from a package, called or not.
func uses(file *ast.File, local string, functions []string) []*ast.Ident {
	var found []*ast.Ident
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == local &&
				slices.Contains(functions, selector.Sel.Name) {
				found = append(found, selector.Sel)
			}
		}
		return true
	})
	return found
}

func TestSourceKeepsTheRules(t *testing.T) {
	for _, name := range sourceFiles(t, ".go", ".sql", ".sh") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(name, string(content)) {
			t.Error(fault)
		}
	}
}

func TestSourceRulesCanBeBroken(t *testing.T) {
	const sleeps = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	text := func(texts ...string) string {
		return "package p\nvar s = []s{\"" + strings.Join(texts, "\", \"") + "\"}\n"
	}
	const reads = "package p\nimport \"os\"\nvar v = os.Getenv(\"V\")\n"
	for name, test := range map[string]struct{ file, content, want string }{
		"sleep":           {"actors/a.go", sleeps, "actors/a.go:3:17: uses time.Sleep"},
		"sleep in a test": {"actors/a_test.go", sleeps, "uses time.Sleep"},
		"sleep by another name": {
			"a.go", "package p\nimport clock \"time\"\nvar f = clock.Sleep\n", "uses time.Sleep",
		},
		"sleep without a name":     {"a.go", "package p\nimport . \"time\"\nfunc f() { Sleep(1) }\n", "with a dot"},
		"somebody else's sleep":    {"a.go", "package p\nfunc f(time interface{ Sleep() }) { time.Sleep() }\n", ""},
		"sleep in a text":          {"a.go", "package p\nconst text = `time.Sleep(1)` // time.Sleep\n", ""},
		"environment in the root":  {"config.go", reads, "uses os.Getenv"},
		"environment in the store": {"pgstore/inner/a.go", reads, "uses os.Getenv"},
		"environment by look-up": {
			"event/a.go", strings.ReplaceAll(reads, "Getenv", "LookupEnv"), "uses os.LookupEnv",
		},
		"environment by syscall":    {"event/a.go", strings.ReplaceAll(reads, "os", "syscall"), "uses syscall.Getenv"},
		"environment in a test":     {"pgstore/a_test.go", reads, ""},
		"environment in a command":  {"cmd/demo/a.go", reads, ""},
		"environment in the server": {"internal/pgtest/a.go", reads, ""},
		"a query": {
			"actors/a.go", text("select checkpoint from leases"),
			"actors/a.go:2:13: SQL belongs into the queries of a store: \"select checkpoint",
		},
		"a query of one function": {"status.go", text("SELECT now()"), "SQL belongs"},
		"a query over many lines": {
			"supervisor/a.go", "package p\nconst s = `\n\twith a as (\n\tselect 1)\n`\n", "SQL belongs",
		},
		"an insert":     {"internal/other/a.go", text("Insert into t values ($1)"), "SQL belongs"},
		"an update":     {"commandline/a.go", text("update leases l\\n set owner = null"), "SQL belongs"},
		"a delete":      {"event/a.go", text("delete from t"), "SQL belongs"},
		"a table":       {"projection/a.go", text("create unlogged table t ()"), "SQL belongs"},
		"a schema":      {"runtime.go", text("drop schema if exists s"), "SQL belongs"},
		"a transaction": {"runtime.go", text("begin; set local lock_timeout = 1"), "SQL belongs"},
		"a bare commit": {"runtime.go", text("commit"), "SQL belongs"},
		"a listener": {
			"actors/a.go", "package p\nfunc f(c string) string { return \"listen \" + c }\n", "SQL belongs",
		},
		"a query in the store":     {"pgstore/admin.go", text("select 1"), "SQL belongs"},
		"a query below the store":  {"pgstore/inner/batch.go", text("select 1"), "SQL belongs"},
		"a query that is composed": {"pgstore/batch.go", text("select 1"), ""},
		"a query in a test":        {"actors/a_test.go", text("select 1"), ""},
		"a query in the demo":      {"cmd/demo/a.go", text("select 1"), ""},
		"a query in a comment":     {"actors/a.go", "package p\n\n// select 1\n", ""},
		"sentences": {"actors/a.go", text("create tenant", "begin a batch", "update the status", "select tenants",
			"commit to applied", "notify the others", "with a deadline"), ""},
		"what wraps an error": {"actors/a.go", text("create schema %q: %w"), ""},
		"as long as may be":   {"a.go", "package p\n" + strings.Repeat("\n", longestFile-1), ""},
		"too long":            {"a.go", "package p\n" + strings.Repeat("\n", longestFile), "601 lines"},
		"too long in SQL":     {"pgstore/a.sql", strings.Repeat("\n", longestFile+1), "601 lines"},
		"no Go":               {"a.go", "package", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			got := faults(test.file, test.content)
			switch {
			case test.want == "" && len(got) != 0:
				t.Errorf("refused: %v", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}
