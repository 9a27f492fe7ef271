package guard

import (
	"errors"
	"testing"
)

func TestTextThatEndsOrOutlivesTheTransactionIsRefused(t *testing.T) {
	for _, sql := range []string{
		"commit", "  COMMIT;", "-- why\ncommit", "/* a */ rollback", "/* /* a */ b */ rollback", "rollback and chain",
		"end", "abort", "begin",
		"start transaction", "prepare transaction 'x'", "select 1; commit", "select ';'; rollback",
		"set work_mem = '1MB'", "SET SESSION work_mem = '1MB'", "set role other", "set transaction read only",
		"set time zone 'UTC'", "reset all",
		"reset role", "discard all", "listen x", "unlisten *", "load 'x'", "deallocate all", "deallocate q",
		"prepare q as select 1", "/* a */ PREPARE q (int) AS select $1", "execute q", "select 1; execute q (1)",
		"select set_config('work_mem', '1MB', false)", "select pg_catalog.set_config('a.b', $1, false)",
		"select pg_advisory_lock(1)", "select pg_try_advisory_lock_shared(1, 2)",
		"do $$ begin perform 1; end $$; commit", "do $f1$ begin perform 1; end $f1$; commit", `select E'it\\'; commit`,
		`select 'a\'; commit`,
		"create function f() returns int language sql begin atomic select 1; end; commit", "begin; atomic",
	} {
		if err := refuse(sql); !errors.Is(err, ErrTxControl) {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

func TestOrdinaryTextIsNotRefused(t *testing.T) {
	for _, sql := range []string{
		"", ";", "select 1", "insert into t values ('commit; rollback')", `insert into "commit" values (1)`,
		"update t set x = 1", "set local work_mem = '1MB'", "SET LOCAL ROLE other", "set constraints all deferred",
		"rollback to savepoint a", "rollback to a", "rollback work to savepoint a", "savepoint a; release savepoint a",
		"select set_config('work_mem', '1MB', true)", "select pg_advisory_xact_lock(1)", "select 'execute q'",
		"/* a; /* b */ ; commit */ select 1", "/*/ ; commit */ select 1", "do $$ begin perform 1; end $$",
		"do $x$ begin commit; end $x$ -- commit", "select $1; select 2",
		"create function f() returns void language plpgsql as $f1$ begin perform 1; end $f1$",
		`select E'it\'s; commit'`,
		"create function f() returns int language sql begin atomic select case when true then 1 end; select 2; end; select 3",
		"create procedure p() language sql begin atomic end",
	} {
		if err := refuse(sql); err != nil {
			t.Errorf("%q: %v", sql, err)
		}
	}
}

func FuzzStatementHeads(f *testing.F) {
	f.Add("select 1; commit")
	f.Add("$a$ ; $a$ -- \n /* */ 'x' \"")
	f.Fuzz(func(t *testing.T, sql string) { _ = statementHeads(sql) })
}
