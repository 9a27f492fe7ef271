package postgres_test

import (
	"strings"
	"testing"

	"github.com/millrace-go/millrace/tests/kit"
)

// An event that another program has inserted has a body that the server cannot print. One projection meets it live, another when it
// catches up. Both park it without calling their handlers, and apply all others.
func TestEventThatCannotBeReadIsParked(t *testing.T) {
	t.Parallel()
	b := kit.Postgres.New(t)
	rt := b.Running(kit.Quick, b.Recorders("live", "behind")...)
	b.Append("first", 3)
	b.MustCatchUp(rt, "live", "behind")
	b.Pause(rt, "behind")
	pool := b.Store.(kit.PgStore).Pool()
	exec := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			if _, err := pool.Exec(b.Ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec(`create function public.readable(bigint) returns boolean stable language plpgsql as $$ begin
			if $1 = 5 then raise exception 'the text is too long' using errcode = '54000'; end if; return true; end $$`,
		"alter table millrace_default.events rename to kept",
		`create view millrace_default.events as select global_seq, stream_id, stream_version, type, case when public.readable(global_seq) then body end as body,
			headers, causation_id, correlation_id, created_at, slot from millrace_default.kept`)
	exec(`with s as (insert into millrace_default.streams (stream_id, version) values ('second', 2))
		insert into millrace_default.kept (stream_id, stream_version, type, body) values ('second', 1, 'counted', '1')`,
		`insert into millrace_default.kept (stream_id, stream_version, type, body) values ('second', 2, 'counted', '1')`,
		`with s as (insert into millrace_default.streams (stream_id, version) values ('third', 1))
		insert into millrace_default.kept (stream_id, stream_version, type, body) values ('third', 1, 'counted', '1')`)
	b.Resume(rt, "behind")
	for _, name := range []string{"live", "behind"} {
		b.Reaches(rt, name, 6)
		letters := b.DeadLettersOf(name)
		if len(letters) != 1 || letters[0].Position != 5 || !strings.Contains(letters[0].Error, "the text is too long") {
			t.Errorf("dead letters of %s: %+v", name, letters)
		}
	}
	exec("create or replace function public.readable(bigint) returns boolean stable language sql as 'select true'")
	for _, name := range []string{"live", "behind"} {
		b.Verify(name, 5)
	}
}
