package postgres_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// statementFile is a file of statements. Its placeholders match anything.
type statementFile struct {
	name       string
	statements []*regexp.Regexp
	// literal is the length of the text without placeholders. Of several files that match, the longest is the right
	// one.
	literal int
}

var (
	// macro is one with an argument, in which there may be placeholders.
	macro       = regexp.MustCompile(`\{\w+ (?:[^{}]|\{\w+\})*\}`)
	placeholder = regexp.MustCompile(`( ?)\\\{(\w+)\\\}( ?)`)
	// parts are the placeholders that are filled with one of several files.
	parts  = []string{"stream", "expire", "returned"}
	spaces = regexp.MustCompile(`\s+`)
	values = regexp.MustCompile(`'(?:[^']|\'\')*'|\$\d+|-?\b\d+\b`)
)

// statementFiles reads the statements of pgstore, and its migrations.
var statementFiles = sync.OnceValues(func() ([]statementFile, error) {
	var files []statementFile
	for _, pattern := range []string{"queries/*.sql", "control/*.sql", "../internal/control/sql/*.sql",
		"internal/*/queries/*.sql", "migrations/*/*.sql"} {
		found, err := filepath.Glob(filepath.Join("../../pgstore", pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(filepath.Base(path), ".sql")
			if strings.HasPrefix(pattern, "migrations") {
				name = "migration " + filepath.Base(filepath.Dir(path)) + "/" + name
			}
			files = append(files, newStatementFile(name, string(raw)))
		}
	}
	// The longest sequence of statements first. Of files with the same text, that with the shorter name.
	slices.SortFunc(files, func(a, b statementFile) int {
		return cmp.Or(len(b.statements)-len(a.statements), b.literal-a.literal, len(a.name)-len(b.name))
	})
	return files, nil
})

func newStatementFile(name, sql string) statementFile {
	f := statementFile{name: name}
	sql = macro.ReplaceAllString(sql, "{macro}")
	for _, s := range splitStatements(sql) {
		pattern := regexp.QuoteMeta(s)
		f.literal += len(placeholder.ReplaceAllString(pattern, ""))
		pattern = placeholder.ReplaceAllStringFunc(pattern, func(p string) string {
			// What fills a placeholder may be empty, and blanks beside it are then one.
			found := placeholder.FindStringSubmatch(p)
			filled := ".*?"
			if slices.Contains(parts, found[2]) {
				filled = "(.*?)"
			}
			if found[1] != "" && found[3] != "" {
				return " " + filled + " ?"
			}
			return found[1] + filled + found[3]
		})
		f.statements = append(f.statements, regexp.MustCompile("^"+pattern+"$"))
	}
	return f
}

// match reports whether the file has these statements, and returns its name with those of its parts.
func (f statementFile) match(statements []string) (string, bool) {
	if len(f.statements) == 0 || len(statements) < len(f.statements) {
		return "", false
	}
	var used []string
	for i, pattern := range f.statements {
		found := pattern.FindStringSubmatch(statements[i])
		if found == nil {
			return "", false
		}
		for _, part := range found[1:] {
			if part != "" {
				used = append(used, namesOf([]string{part})[0].name)
			}
		}
	}
	if len(used) > 0 {
		return f.name + " (" + strings.Join(used, ", ") + ")", true
	}
	return f.name, true
}

// namedStatements are one or more statements with a name.
type namedStatements struct {
	name  string
	count int
}

// namesOf names statements by their files. What is composed in Go is named by its text, without its values.
func namesOf(statements []string) (named []namedStatements) {
	files, err := statementFiles()
	if err != nil {
		panic(err)
	}
next:
	for len(statements) > 0 {
		for _, f := range files {
			if name, ok := f.match(statements); ok {
				named = append(named, namedStatements{name, len(f.statements)})
				statements = statements[len(f.statements):]
				continue next
			}
		}
		named = append(named, namedStatements{withoutValues(statements[0]), 1})
		statements = statements[1:]
	}
	return named
}

// withoutValues removes values and quotes of names from a statement.
func withoutValues(sql string) string {
	sql = values.ReplaceAllStringFunc(sql, func(value string) string {
		if strings.HasPrefix(value, "$") {
			return value
		}
		return "?"
	})
	return strings.ReplaceAll(sql, `"`, "")
}

// ends matches what may hold a semicolon that ends no statement, or a semicolon that does.
var ends = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|\$(\w*)\$|;`)

// splitStatements splits a message of the simple protocol. It removes comments, and writes each space as one blank.
func splitStatements(sql string) (statements []string) {
	var current strings.Builder
	end := func() {
		if s := strings.TrimSpace(spaces.ReplaceAllString(current.String(), " ")); s != "" {
			statements = append(statements, s)
		}
		current.Reset()
	}
	for {
		at := ends.FindStringIndex(sql)
		if at == nil {
			current.WriteString(sql)
			end()
			return statements
		}
		current.WriteString(sql[:at[0]])
		found := sql[at[0]:at[1]]
		sql = sql[at[1]:]
		switch {
		case found == ";":
			end()
		case strings.HasPrefix(found, "--"), strings.HasPrefix(found, "/*"):
		case strings.HasPrefix(found, "$"):
			body, after, _ := strings.Cut(sql, found)
			current.WriteString(found + body + found)
			sql = after
		default:
			current.WriteString(found)
		}
	}
}

func TestStatementsAreNamedByTheirFiles(t *testing.T) {
	for sql, want := range map[string]string{
		"select version from \"a\".streams where stream_id = $1":     "stream_version",
		"select ';', $$;$$ -- ;\n, \";\" /* ; */; select 'a''b', 12": "select ?, $$;$$ , ; | select ?, ?",
		"begin isolation level read committed read write":            "begin_batch",
		"begin isolation level read committed read write; set local synchronous_commit = on; set local statement_timeout = 0; " +
			"set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 2000; select 1": "begin_durable | select ?",
		"": "",
	} {
		var names []string
		for _, n := range namesOf(splitStatements(sql)) {
			names = append(names, n.name)
		}
		if got := strings.Join(names, " | "); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
}
