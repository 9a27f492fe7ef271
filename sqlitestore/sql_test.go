package sqlitestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	files := must(filepath.Glob("queries/*.sql"))(t)
	for _, file := range files {
		header, _, _ := strings.Cut(strings.ToLower(string(must(os.ReadFile(file))(t))), "\n"+strings.ToLower(queries.Text(strings.TrimSuffix(filepath.Base(file), ".sql")))[:4])
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

// unindexed are statements that scan a table: the tenants are listed, the schema is counted, and the others have one row.
var unindexed = map[string]bool{"tenants": true, "count_objects": true, "owner": true, "probe_write": true}

func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for statement := range queries {
		if strings.HasPrefix(statement, "set_user") || strings.HasPrefix(statement, "set_application") || strings.Contains(statement, "savepoint") || statement == "abandon" ||
			strings.HasPrefix(queries.Text(statement), "pragma") {
			continue // no table
		}
		plan := explain(t, store, queries.Text(statement))
		for _, bad := range []string{"scan millrace_", "scan t", "scan s", "scan k", "temp b-tree"} {
			if !unindexed[statement] && strings.Contains(plan, bad) {
				t.Errorf("%s: %s", statement, plan)
			}
		}
	}
	// Control: a statement without an index is noticed.
	if plan := explain(t, store, "select * from millrace_events where type = ?1"); !strings.Contains(plan, "scan millrace_events") {
		t.Errorf("a scan is not noticed: %s", plan)
	}
}

// explain returns the plan of a statement in lower case, with lines that end in a space.
func explain(t *testing.T, store *Store, statement string) string {
	t.Helper()
	args := make([]any, 0, 10)
	for i := range 10 {
		if strings.Contains(statement, "?"+string(rune('1'+i))) || i == 9 && strings.Contains(statement, "?10") {
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
