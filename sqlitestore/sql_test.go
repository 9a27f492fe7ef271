package sqlitestore

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/sqlfile"
)

func TestEveryStatementSaysWhatItLocksAndNeeds(t *testing.T) {
	t.Parallel()
	var files []string
	for _, folder := range folders {
		files = append(files, must(filepath.Glob(folder+"/*.sql"))(t)...)
	}
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

// folders are those of the statements.
var folders = []string{"queries", "control", "../internal/control/sql"}

// comment returns the comment of a statement in lower case.
func comment(t *testing.T, statement string) string {
	t.Helper()
	var file string
	for _, folder := range folders {
		if raw, err := os.ReadFile(folder + "/" + statement + ".sql"); err == nil {
			file = strings.ToLower(string(raw))
		}
	}
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
	makeErasures(t, store)
	noError(t, store.plane().MakeMoves(testContext(t)))
	for statement := range queries {
		if queries.Text(statement) == "" || strings.HasPrefix(statement, "set_user") ||
			strings.HasPrefix(statement, "set_application") || strings.Contains(statement, "savepoint") ||
			statement == "abandon" ||
			strings.HasPrefix(queries.Text(statement), "pragma") || strings.HasSuffix(statement, "_table") {
			continue // no table, or its name stands for any
		}
		plan, header := explain(t, store, queries.Text(statement)), comment(t, statement)
		if scans.MatchString(plan) && !strings.Contains(header, "scans") ||
			strings.Contains(plan, "temp b-tree") && !strings.Contains(header, "sorts") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
	// Control: a statement without an index is noticed.
	if plan := explain(t, store, "select * from millrace_events where type = ?1"); !strings.Contains(plan,
		"scan millrace_events") {
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

// The arguments of a shared statement keep their numbers. The time and the living node come after them.
func TestSharedStatementsAreWrittenForSQLite(t *testing.T) {
	t.Parallel()
	for shared, want := range map[string]string{
		"select c.{projection} from {control}.commands c where c.id = $1::bigint and c.type = $2::text": "select c.projection from millrace_commands c where c.id = ?1 and c.type = ?2",
		"select 1 where {now} < $2::timestamptz - $1::interval and {now} > 0":                           "select 1 where ?3 < ?2 - ?1 and ?3 > 0",
		"select {living l.owner}, {now}, $1::uuid, {living l.node}":                                     "select (l.owner is ?3), ?2, ?1, (l.node is ?3)",
		"select 1 where a {in $1::text[]} and b = {tenant_id $2::text} {lock for no key update of a}": "" +
			"select 1 where a in (select value from json_each(?1)) and b = (select id from millrace_tenants where name = ?2) ",
		"select sum(a)::bigint, ($11::integer > 0)::integer, b {in o.holds}": "select sum(a), (?11 > 0), b in (select value from json_each(o.holds))",
	} {
		text, err := translated(shared)
		statements := sqlfile.Queries{"a": text}
		numberNames(statements)
		if got := statements.Text("a"); err != nil || got != want {
			t.Errorf("%s: got %q, want %q (%v)", shared, got, want, err)
		}
	}
	if _, err := translated("select {nothing}"); err == nil {
		t.Error("an unknown macro is not noticed")
	}
}

// Regular expressions say what the faster functions do.
func TestSharedStatementsAreTranslated(t *testing.T) {
	t.Parallel()
	casts, parameters := regexp.MustCompile(`::[a-z]+(\[\])?`), regexp.MustCompile(`\$([0-9]+)`)
	texts := []string{"", "$", "$1", "$12::text[]", "'$.a'->>$2::bigint, $3::text || 'x'", "list.value->>'$[1]'"}
	shared := make(sqlfile.Queries).Share(control.Statements, func(text string) (string, error) {
		texts = append(texts, text)
		return text, nil
	})
	for name := range shared {
		for _, found := range numbered.FindAllStringSubmatch(queries.Text(name), -1) {
			if n, _ := strconv.Atoi(found[1]); n > lastParameter(queries.Text(name)) {
				t.Errorf("%s has parameter %d, and the last one is %d", name, n, lastParameter(queries.Text(name)))
			}
		}
	}
	for _, text := range texts {
		want := parameters.ReplaceAllString(casts.ReplaceAllString(text, ""), "?$1")
		if got := withQuestionMarks(withoutCasts(text)); got != want {
			t.Errorf("translated:\n%s\nwant:\n%s", got, want)
		}
	}
	for text, want := range map[string]int{"": 0, "a ? b": 0, "?2, ?10, ?3": 10, "?7": 7} {
		if got := lastParameter(text); got != want {
			t.Errorf("the last parameter of %q is %d, want %d", text, got, want)
		}
	}
}
