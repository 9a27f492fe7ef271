package moves_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	testmain.Run(m)
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the result of a call, or ends the test with its error: must(call())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

// tenant is what tests use of the tenants of both stores.
type tenant interface {
	Append(ctx context.Context, stream string, expected event.Expected, events ...event.Event) (event.Appended, error)
	State(ctx context.Context) (tenancy.State, error)
	EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error)
	Erasures(ctx context.Context) ([]event.Erasure, error)
}

// place is a store of either kind.
type place struct {
	millrace.Store
	file *sqlitestore.Store
	pg   *pgstore.Store
	path string // of the file, or the DSN
	// schema is the control schema.
	schema string
}

func newFile(t testing.TB) *place {
	t.Helper()
	p := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	noError(t, p.file.Migrate(testContext(t)))
	return p
}

func openFile(t testing.TB, path string) *place {
	t.Helper()
	file := must(sqlitestore.Open(testContext(t), path,
		sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal}))(t)
	t.Cleanup(file.Close)
	return &place{Store: file, file: file, path: path}
}

func newDatabase(t testing.TB) *place {
	t.Helper()
	p := openSchema(t, pgtest.Database(t), "millrace")
	noError(t, p.pg.Migrate(testContext(t)))
	return p
}

func openSchema(t testing.TB, dsn, schema string) *place {
	t.Helper()
	store := must(pgstore.Open(testContext(t), dsn, pgstore.Options{Schema: schema}))(t)
	t.Cleanup(store.Close)
	return &place{Store: store, pg: store, path: dsn, schema: schema}
}

// newSchema is a store in another schema of a database.
func newSchema(t testing.TB, of *place) *place {
	t.Helper()
	p := openSchema(t, of.path, `other "schema"`)
	noError(t, p.pg.Migrate(testContext(t)))
	return p
}

// directions are all ways from one store to another.
var directions = map[string]func(t testing.TB) (from, to *place){
	"file to file":             func(t testing.TB) (from, to *place) { return newFile(t), newFile(t) },
	"file to PostgreSQL":       func(t testing.TB) (from, to *place) { return newFile(t), newDatabase(t) },
	"PostgreSQL to file":       func(t testing.TB) (from, to *place) { return newDatabase(t), newFile(t) },
	"PostgreSQL to PostgreSQL": func(t testing.TB) (from, to *place) { return newDatabase(t), newDatabase(t) },
	"PostgreSQL to other schema": func(t testing.TB) (from, to *place) {
		from = newDatabase(t)
		return from, newSchema(t, from)
	},
}

func onAllDirections(t *testing.T, fn func(t *testing.T, from, to *place)) {
	t.Helper()
	for name, stores := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := stores(t)
			fn(t, from, to)
		})
	}
}

func (p *place) tenant(t testing.TB, name string) tenant {
	t.Helper()
	if p.file != nil {
		return must(p.file.ForTenant(name))(t)
	}
	return must(p.pg.ForTenant(name))(t)
}

func (p *place) create(t testing.TB, name string) tenant {
	t.Helper()
	if p.file != nil {
		return must(p.file.CreateTenant(testContext(t), name))(t)
	}
	return must(p.pg.CreateTenant(testContext(t), name))(t)
}

// exec runs a statement. {events} and the like are the tables of tenant acme, {control} is the schema, $1 a parameter.
func (p *place) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if p.file != nil {
		noError(t, p.file.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}))
		return
	}
	_, err := p.pg.Pool().Exec(testContext(t), p.filled(query), args...)
	noError(t, err)
}

func (p *place) filled(query string) string {
	return strings.NewReplacer("{acme}", pgx.Identifier{p.schema + "_acme"}.Sanitize(), "{control}",
		pgx.Identifier{p.schema}.Sanitize()).Replace(query)
}

// column returns the texts of a query, whose only parameter is a tenant.
func (p *place) column(t testing.TB, query, tenant string) (list []string) {
	t.Helper()
	if p.pg != nil {
		of := must(p.pg.ForTenant(tenant))(t)
		query = strings.ReplaceAll(p.filled(query), "{tenant}", pgx.Identifier{of.EventsSchema()}.Sanitize())
		rows, _ := p.pg.Pool().Query(testContext(t), query, tenant)
		return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	}
	query = strings.ReplaceAll(query, "{id}", "(select id from millrace_tenants where name = ?1)")
	rows, err := p.file.DB().QueryContext(testContext(t), query, tenant)
	noError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		noError(t, rows.Scan(&line))
		list = append(list, line)
	}
	noError(t, rows.Err())
	return list
}

// archive archives a tenant, as a move does first.
func (p *place) archive(t testing.TB, tenant string) {
	t.Helper()
	if p.file != nil {
		noError(t, p.file.ArchiveTenant(testContext(t), tenant))
		return
	}
	noError(t, p.pg.ArchiveTenant(testContext(t), tenant))
}

// contents returns all rows of a tenant, by table.
func (p *place) contents(t testing.TB, tenant string) map[string][]string {
	t.Helper()
	queries := rowsOfFiles
	if p.pg != nil {
		queries = rowsOfDatabases
	}
	all := make(map[string][]string)
	for table, query := range queries {
		if table == "erasures" && !p.hasErasures(t) {
			continue
		}
		for _, line := range p.column(t, query, tenant) {
			all[table] = append(all[table], normal(t, line))
		}
	}
	return all
}

// hasErasures reports whether the store has had an erasure, or a tenant that had one.
func (p *place) hasErasures(t testing.TB) bool {
	t.Helper()
	query := "select name from sqlite_schema where name = 'millrace_erasures' and ?1 <> ''"
	if p.pg != nil {
		query = "select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relname = 'erasures' and $1 <> ''"
	}
	found := p.column(t, query, "acme")
	return len(found) > 0 && (p.file != nil || slices.Contains(found, p.schema))
}

// normal writes a JSON array in one way. Of texts it changes what PostgreSQL refuses.
func normal(t testing.TB, line string) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(strings.ReplaceAll(strings.ToValidUTF8(line, "\uFFFD"), `\u0000`,
		"\uFFFD")))
	decoder.UseNumber()
	var value any
	noError(t, decoder.Decode(&value))
	return fmt.Sprintf("%v", inOneWay(value))
}

// inOneWay writes the texts and numbers of a JSON value in one way.
func inOneWay(value any) any {
	switch v := value.(type) {
	case json.Number:
		number, _ := new(big.Rat).SetString(string(v))
		return number.RatString()
	case string:
		return strconv.Quote(v)
	case []any:
		for i := range v {
			v[i] = inOneWay(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = inOneWay(v[key])
		}
	}
	return value
}

// sameContents fails unless a tenant has these rows.
func (p *place) sameContents(t testing.TB, tenant string, want map[string][]string) {
	t.Helper()
	got := p.contents(t, tenant)
	for table := range rowsOfFiles {
		if len(got[table]) != len(want[table]) {
			t.Errorf("%s: %d rows, want %d", table, len(got[table]), len(want[table]))
			continue
		}
		for i, row := range got[table] {
			if row != want[table][i] {
				t.Errorf("%s, row %d:\n%s, want\n%s", table, i+1, row, want[table][i])
				break
			}
		}
	}
}

var happened = event.Untyped("Happened", json.RawMessage(`{"n":1}`))

// keep keeps all projections that the tests make.
func keep() admin.MoveOptions {
	return admin.MoveOptions{
		Projections: map[string]admin.MoveAction{
			"plain": admin.MoveKeep, "split": admin.MoveKeep, "resplit": admin.MoveKeep, "Ünïcode": admin.MoveKeep,
		},
	}
}

func moveIt(t testing.TB, from, to *place, tenant string, opts admin.MoveOptions) admin.MoveReport {
	t.Helper()
	return must(admin.MoveTenant(testContext(t), from, to, tenant, opts))(t)
}

func (p *place) mustBe(t testing.TB, tenant string, want tenancy.State) {
	t.Helper()
	if state := must(p.tenant(t, tenant).State(testContext(t)))(t); state != want {
		t.Errorf("the tenant is %s, want %s", state, want)
	}
}

// mustLack fails if the store has the tenant.
func (p *place) mustLack(t testing.TB, tenant string) {
	t.Helper()
	if found := must(p.Engine().Tenants(testContext(t), []string{tenant}))(t); len(found) > 0 {
		t.Errorf("the target has the tenant: %+v", found)
	}
}

// waitForFile waits until a file exists.
func waitForFile(t testing.TB, path string) {
	t.Helper()
	noError(t, backoff.Poll(testContext(t), time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(path)
		return err == nil, nil
	}))
}
