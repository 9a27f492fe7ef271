package sqlitestore

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	files := append(must(filepath.Glob("queries/*.sql"))(t), must(filepath.Glob("control/*.sql"))(t)...)
	for _, file := range files {
		header := comment(t, strings.TrimSuffix(filepath.Base(file), ".sql"))
		for _, what := range []string{"lock", "index"} {
			if !strings.HasPrefix(header, "-- ") || !strings.Contains(header, what) {
				t.Errorf("the comment of %s says nothing of %s", file, what)
			}
		}
	}
	if len(files) != len(queries) || len(files) < 10 {
		t.Errorf("%d files, %d statements", len(files), len(queries))
	}
}

// comment returns the comment of a statement in lower case.
func comment(t *testing.T, statement string) string {
	t.Helper()
	raw, err := os.ReadFile("queries/" + statement + ".sql")
	if err != nil {
		raw = must(os.ReadFile("control/" + statement + ".sql"))(t)
	}
	file := strings.ToLower(string(raw))
	if queries.Text(statement) == "" {
		return file
	}
	header, _, _ := strings.Cut(file, "\n"+strings.ToLower(queries.Text(statement))[:4])
	return header
}

// A statement that scans a table, or sorts rows, says so in its comment.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for statement := range queries {
		if queries.Text(statement) == "" || strings.HasPrefix(statement, "set_user") || strings.HasPrefix(statement, "set_application") || strings.Contains(statement, "savepoint") || statement == "abandon" ||
			strings.HasPrefix(queries.Text(statement), "pragma") || strings.HasSuffix(statement, "_table") {
			continue // no table, or its name stands for any
		}
		plan, header := explain(t, store, queries.Text(statement)), comment(t, statement)
		if scans.MatchString(plan) && !strings.Contains(header, "scans") || strings.Contains(plan, "temp b-tree") && !strings.Contains(header, "sorts") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
	// Control: a statement without an index is noticed.
	if plan := explain(t, store, "select * from millrace_events where type = ?1"); !strings.Contains(plan, "scan millrace_events") {
		t.Errorf("a scan is not noticed: %s", plan)
	}
}

// scans finds scans of tables. Lists in arguments, and the results of subqueries, are scanned anyway.
var scans = regexp.MustCompile(`(?m)^scan (millrace_|[a-z]( using .*)?$)`)

// explain returns the plan of a statement in lower case, with lines that end in a space.
func explain(t *testing.T, store *Store, statement string) string {
	t.Helper()
	args := make([]any, 0, 20)
	for i := range 20 {
		if strings.Contains(statement, "?"+strconv.Itoa(i+1)) {
			args = append(args, "1")
		}
	}
	rows := must(store.DB().QueryContext(testContext(t), "explain query plan "+statement, args...))(t)
	defer func() { noError(t, rows.Close()) }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		noError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan.WriteString(strings.ToLower(detail) + "\n")
	}
	noError(t, rows.Err())
	return plan.String()
}
