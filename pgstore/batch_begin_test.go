package pgstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

const testDeadline = 30 * time.Second

// show reads a setting of the session.
func show(ctx context.Context, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, name string) string {
	var value string
	if err := q.QueryRow(ctx, "select current_setting($1, true)", name).Scan(&value); err != nil {
		return err.Error()
	}
	return value
}

// settingIn runs a batch and returns what a setting was in its handler.
func (o *owner) settingIn(opts engine.ApplyOptions, name string) (value string) {
	o.t.Helper()
	err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		value = show(ctx, tx, name)
		return nil
	}), opts)
	if err != nil {
		o.t.Fatal(err)
	}
	o.refresh()
	mustAppend(o.t, o.store.tenant, "s", event.Any, someEvents(1)...)
	return value
}

func TestBatchAnnouncesItselfWithItsPid(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	announced := func() (pids []int32) {
		rows, err := conn.Query(testContext(t), `select pid from pg_locks where locktype = 'advisory' and objsubid = 2
			and database = (select oid from pg_database where datname = current_database())
			and classid::bigint = $1 and objid::bigint = $2 and granted`, int64(uint32(o.store.control.batchClass)), int64(o.lease.Row))
		if err == nil {
			pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		}
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	err := o.apply(writeAnd(func(_ context.Context, tx pgx.Tx) error {
		if pids := announced(); len(pids) != 1 || uint32(pids[0]) != tx.Conn().PgConn().PID() {
			t.Errorf("announced are %v, want %d", pids, tx.Conn().PgConn().PID())
		}
		return nil
	}), engine.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pids := announced(); len(pids) != 0 {
		t.Errorf("announced after the batch: %v", pids)
	}
}

func TestBatchHasTimeoutsOfItsOwn(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	most := fmt.Sprintf("%dms", (7_250*time.Millisecond + afterDeadline).Milliseconds())
	for name, want := range map[string]string{
		"lock_timeout": "3625ms", "statement_timeout": most, "idle_in_transaction_session_timeout": most,
		"transaction_isolation": "read committed", "transaction_read_only": "off",
	} {
		if got := o.settingIn(engine.ApplyOptions{Timeout: 7_250 * time.Millisecond}, name); got != want {
			t.Errorf("%s is %q in the batch, want %q", name, got, want)
		}
		if strings.Contains(name, "timeout") {
			if after := show(testContext(t), o.store.pool, name); after != "0" {
				t.Errorf("%s is %q after the batch", name, after)
			}
		}
	}
}

func TestDeadlineBeyondWhatSettingsHoldWorks(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	noError(t, o.apply(write, engine.ApplyOptions{Timeout: math.MaxInt64 / 2}))
	o.applied(1)
}

func TestRelaxedBatchDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for relaxed, want := range map[bool]string{true: "off", false: "on"} {
		if got := o.settingIn(engine.ApplyOptions{AsyncCommit: relaxed}, "synchronous_commit"); got != want {
			t.Errorf("relaxed %v: synchronous_commit is %q", relaxed, got)
		}
		if after := show(testContext(t), o.store.pool, "synchronous_commit"); after != "on" {
			t.Errorf("relaxed %v: synchronous_commit is %q after the batch", relaxed, after)
		}
	}
}

func TestAppendInARelaxedBatchWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	woken := wakeCount(t, o.store)
	err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		if before := show(ctx, tx, "synchronous_commit"); before != "off" {
			t.Errorf("synchronous_commit is %q before the append", before)
		}
		if _, _, err := o.store.AppendTx(ctx, tx, "other", event.Any, someEvents(1)...); err != nil {
			return err
		}
		if after := show(ctx, tx, "synchronous_commit"); after != "on" {
			t.Errorf("synchronous_commit is %q after the append", after)
		}
		if woken(projection.DefaultTenant) != 0 {
			t.Error("woken before the commit")
		}
		return nil
	}), engine.ApplyOptions{AsyncCommit: true})
	if err != nil {
		t.Fatal(err)
	}
	if woken(projection.DefaultTenant) != 1 || countEvents(t, o.store.tenant) != 2 {
		t.Errorf("woken %d times, %d events", woken(projection.DefaultTenant), countEvents(t, o.store.tenant))
	}
}

func TestSearchPathIsThatOfANamedTenantOnly(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	makeModel(t, store)
	before := show(testContext(t), store.pool, "search_path")
	for _, name := range []string{projection.DefaultTenant, `it's "a" \ tenant`} {
		tenant := newTenant(t, store, name)
		mustAppend(t, tenant, "s", event.Any, someEvents(1)...)
		want := before
		if name != projection.DefaultTenant {
			want = sqltext.Name(tenant.EventsSchema()) + ", pg_temp"
		}
		o := claimAs(t, store, name)
		err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			if got := show(ctx, tx, "search_path"); got != want {
				t.Errorf("search_path is %s, want %s", got, want)
			}
			if id, ok := engine.ProjectionFrom(ctx); !ok || id.Tenant != name || id.Name != "p" {
				t.Errorf("called for %v", id)
			}
			var events int
			if name != projection.DefaultTenant {
				if err := tx.QueryRow(ctx, "select count(*) from events").Scan(&events); err != nil || events != 1 {
					t.Errorf("%d events by the path, %v", events, err)
				}
			}
			return nil
		}), engine.ApplyOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after := show(testContext(t), store.pool, "search_path"); after != before {
			t.Errorf("search_path is %s after the batch", after)
		}
	}
}
