package pgstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

// sharedSession has tenants whose projections queue the same statements, in the only session of a pool.
type sharedSession struct {
	t      *testing.T
	store  *Store
	owners map[string]*owner
}

// inOneSession creates tenants, each with a table own of these columns, and with a type kind. The session has no place
// left for statements of one tenant.
func inOneSession(t *testing.T, columns map[string]string) *sharedSession {
	t.Helper()
	s := &sharedSession{t: t, store: onePool(t), owners: make(map[string]*owner)}
	for name, list := range columns {
		mustAppend(t, newTenant(t, s.store, name), "s", event.Any, someEvents(1)...)
		schema := schemaName("millrace", name)
		mustExec(t, s.store, "create type "+schema+".kind as enum ('007')")
		if list != "" {
			mustExec(t, s.store, "create table "+s.table(name)+" ("+strings.ReplaceAll(list, "kind", schema+".kind")+
				")")
		}
		s.owners[name] = claimAs(t, s.store, name)
	}
	s.full()
	return s
}

// full leaves no place for statements of one tenant.
func (s *sharedSession) full() {
	s.t.Helper()
	conn := must(s.store.pool.Acquire(testContext(s.t)))(s.t)
	defer conn.Release()
	s.store.preparedOn(conn.Conn()).places = 0
}

func (s *sharedSession) table(name string) string { return schemaName("millrace", name) + ".own" }

// queue runs a batch of a tenant. If it is applied, the tenant gets a next event.
func (s *sharedSession) queue(name, sql string, args ...any) error {
	s.t.Helper()
	o := s.owners[name]
	err := o.queue(func(_ context.Context, q Queue, events []event.Envelope) error {
		q.At(events[0]).Exec(sql, args...)
		return nil
	})
	if err == nil {
		o.lease.Checkpoint = o.checkpoint()
		mustAppend(s.t, must(s.store.ForTenant(name))(s.t), "s", event.Any, someEvents(1)...)
	}
	return err
}

// has fails the test unless a tenant's table has these rows.
func (s *sharedSession) has(name, want string) {
	s.t.Helper()
	if got := one[string](s.t, s.store, "select string_agg(own::text, ' ' order by own::text) from "+s.table(name)+
		" as own"); got != want {
		s.t.Errorf("%s has %s, want %s", name, got, want)
	}
}

// prepared returns how many statements of a text the session has prepared.
func (s *sharedSession) prepared(sql string) int {
	s.t.Helper()
	return one[int](s.t, s.store, "select count(*) from pg_prepared_statements where statement = $1", sql)
}

const insertOwn = "insert into own values ($1)"

func TestTenantsShareAPreparedStatement(t *testing.T) {
	t.Parallel()
	s := inOneSession(t, map[string]string{"a": "n integer", "b": "n integer", "c": "n integer"})
	for round := range 3 {
		for i, name := range []string{"a", "b", "c"} {
			noError(t, s.queue(name, insertOwn, 10*(round+1)+i))
		}
	}
	s.has("a", "(10) (20) (30)")
	s.has("b", "(11) (21) (31)")
	s.has("c", "(12) (22) (32)")
	if n := s.prepared(insertOwn); n != 1 {
		t.Errorf("the statement of three tenants is prepared %d times", n)
	}
}

// A statement whose parameters or columns have other types is not shared: the server would convert the arguments, or
// refuse.
func TestStatementsWithTypesOfTheirTenantsAreNotShared(t *testing.T) {
	t.Parallel()
	const returning = "insert into own values ($1::integer) returning *"
	for name, test := range map[string]struct{ sql, arg, a, b, inA, inB string }{
		"number and text": {insertOwn, "007", "n integer", "n text", "(7)", "(007)"},
		"rounded": {
			insertOwn, "0.123456789012345", "n real", "n numeric", "(0.12345679)", "(0.123456789012345)",
		},
		"enums":   {insertOwn, "007", "n kind", "n kind", "(007)", "(007)"},
		"columns": {returning, "7", "n integer, m text", "n integer, m integer", "(7,)", "(7,)"},
		"names":   {returning, "7", "n integer, m text", "n integer, o text", "(7,)", "(7,)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inOneSession(t, map[string]string{"a": test.a, "b": test.b})
			for range 3 {
				for _, name := range []string{"a", "b"} {
					mustExec(t, s.store, "delete from "+s.table(name))
					noError(t, s.queue(name, test.sql, test.arg))
				}
			}
			s.has("a", test.inA)
			s.has("b", test.inB)
			if n := s.prepared(test.sql); n != 2 {
				t.Errorf("the statements of two tenants are prepared %d times", n)
			}
		})
	}
}

// What the server does not say of columns may differ too. Then the statement is parsed for its tenant each time.
func TestStatementThatTheServerRefusesToShareIsParsed(t *testing.T) {
	t.Parallel()
	s := inOneSession(t, map[string]string{"a": "n text", "b": `n text collate "C"`})
	const sql = "insert into own values ($1::text) returning n"
	noError(t, s.queue("a", sql, "x"))
	noError(t, s.queue("b", sql, "x")) // it learns the types
	noError(t, s.queue("b", sql, "y")) // refused in the session, which is closed
	s.full()
	before := one[int](t, s.store, "select pg_backend_pid()")
	for range 3 {
		noError(t, s.queue("a", sql, "y"))
		noError(t, s.queue("b", sql, "z"))
	}
	if after := one[int](t, s.store, "select pg_backend_pid()"); after != before {
		t.Error("it was refused again")
	}
	s.has("b", "(x) (y) (z) (z) (z)")
}

// A tenant whose column has changed gets a statement of its own types: at once if the old ones fail, otherwise after
// some time.
func TestSharedStatementOfATenantWhoseColumnChanges(t *testing.T) {
	t.Parallel()
	s := inOneSession(t, map[string]string{"a": "n smallint", "b": "n smallint"})
	for range 2 {
		noError(t, s.queue("a", insertOwn, 1))
		noError(t, s.queue("b", insertOwn, 1))
	}
	mustExec(t, s.store, "alter table "+s.table("a")+" alter column n type integer")
	noError(t, s.queue("a", insertOwn, 100_000))
	wantClass(t, s.queue("b", insertOwn, 100_000), faults.Handler)
	s.has("a", "(1) (1) (100000)")
	s.has("b", "(1) (1)")
	mustExec(t, s.store, "alter table "+s.table("a")+" alter column n type text")
	s.store.described.since = time.Now().Add(-2 * describedFor)
	noError(t, s.queue("a", insertOwn, "007"))
	s.has("a", "(007) (1) (1) (100000)")
}

// A tenant that lacks the table does not use that of another one, and harms no other one.
func TestSharedStatementOfATenantThatLacksItsTable(t *testing.T) {
	t.Parallel()
	s := inOneSession(t, map[string]string{"a": "n integer", "b": "n integer", "none": ""})
	for range 2 {
		noError(t, s.queue("a", insertOwn, 1))
		wantClass(t, s.queue("none", insertOwn, 1), faults.MissingObject)
		noError(t, s.queue("b", insertOwn, 2))
	}
	mustExec(t, s.store, "drop table "+s.table("b"))
	for range 2 {
		wantClass(t, s.queue("b", insertOwn, 2), faults.MissingObject)
		noError(t, s.queue("a", insertOwn, 1))
	}
	mustExec(t, s.store, "create table "+s.table("none")+" (n text)")
	noError(t, s.queue("none", insertOwn, "007"))
	s.has("none", "(007)")
	s.has("a", "(1) (1) (1) (1)")
}

// Descriptions are kept for some time, and not more than some.
func TestDescriptionsOfStatementsAreForgotten(t *testing.T) {
	t.Parallel()
	var d descriptions
	add := func(sql string) { d.add(sql, "path", &pgconn.StatementDescription{ParamOIDs: []uint32{23}}) }
	knows := func(sql string) bool { _, known := d.of(sql, "path"); return known }
	add("old")
	d.since = d.since.Add(-describedFor * 3 / 4)
	if !knows("old") {
		t.Error("a description is forgotten at once")
	}
	d.since = d.since.Add(-describedFor * 3 / 4)
	if knows("old") {
		t.Error("an old description is kept")
	}
	for i := range 2 * mostDescribed {
		add(fmt.Sprint(i))
	}
	if n := len(d.recent) + len(d.older); n > mostDescribed || !knows(fmt.Sprint(2*mostDescribed-1)) {
		t.Errorf("%d descriptions are kept", n)
	}
	for i := range 100 {
		add(fmt.Sprint(i, strings.Repeat("x", mostDescribedText/20)))
	}
	if n := len(d.recent) + len(d.older); n > 30 {
		t.Errorf("%d long descriptions are kept", n)
	}
}
