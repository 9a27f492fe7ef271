package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unreadable are events of the default tenant whose bodies the server cannot read. They stand in the table kept, and
// events is a view of it that takes no inserts.
type Unreadable struct {
	tb TB
	db execer
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// MakeUnreadable makes reads of the bodies of the events from one position to another fail with an SQLSTATE.
func MakeUnreadable(tb TB, db execer, from, to int64, state string) Unreadable {
	tb.Helper()
	u := Unreadable{tb, db}
	u.exec(fmt.Sprintf(`create function public.readable(bigint) returns boolean stable language plpgsql as $$ begin
		if $1 between %d and %d then raise exception 'the text is too long' using errcode = '%s'; end if; return true; end $$`, from, to, state))
	u.exec("alter table millrace_default.events rename to kept")
	u.exec(`create view millrace_default.events as select global_seq, stream_id, stream_version, type,
		case when public.readable(global_seq) then body end as body, headers, causation_id, correlation_id, created_at, slot
		from millrace_default.kept`)
	return u
}

// Insert inserts an event with the body 1, as another program does.
func (u Unreadable) Insert(stream string, version int64, eventType string) {
	u.tb.Helper()
	u.exec(`with s as (insert into millrace_default.streams (stream_id, version) values ($1, $2)
		on conflict (stream_id) do update set version = excluded.version)
		insert into millrace_default.kept (stream_id, stream_version, type, body) values ($1, $2, $3, '1')`, stream, version, eventType)
}

// Repair makes all events readable.
func (u Unreadable) Repair() {
	u.tb.Helper()
	u.exec("create or replace function public.readable(bigint) returns boolean stable language sql as 'select true'")
}

func (u Unreadable) exec(sql string, args ...any) {
	u.tb.Helper()
	if _, err := u.db.Exec(context.Background(), sql, args...); err != nil {
		u.tb.Fatalf("make events unreadable: %v", err)
	}
}
