package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// statements records all statements of a pool, and how many rows each returned.
type statements struct {
	mu   sync.Mutex
	text []string
	rows []int64
}

func (s *statements) add(text string, rows int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.rows = append(s.text, text), append(s.rows, rows)
}

// taken returns the statements since the last call.
func (s *statements) taken() (text []string, rows []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, rows, s.text, s.rows = s.text, s.rows, nil, nil
	return text, rows
}

type statementKey struct{}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (s *statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.add(ctx.Value(statementKey{}).(string), data.CommandTag.RowsAffected())
}

func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.add(data.SQL, data.CommandTag.RowsAffected())
}

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// traced is another process whose runtime only watches and commands, and the statements of its pool.
func (b *bundle) traced(projections ...millrace.Projection) (*millrace.Runtime, *statements) {
	b.T.Helper()
	s := &statements{}
	store := b.open(b.dsn, func(config *pgxpool.Config) { config.ConnConfig.Tracer = s }, pgstore.Options{})
	rt := b.Runtime(millrace.Config{Store: store}, projections...)
	s.taken()
	return rt, s
}

func TestSummarySendsTheSameStatementsForManyTenants(t *testing.T) {
	t.Parallel()
	texts := make(map[int][]string)
	for _, tenants := range []int{2, 40} {
		b := setup(t, pgstore.Options{})
		all := b.Tenants(tenants)
		rt := b.Running(millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond}},
			millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)},
			millrace.Projection{Name: "waits", MissingObjectTimeout: time.Hour,
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, _ []event.Envelope) error {
					return tx.Exec(ctx, "select * from nowhere")
				})})
		for _, tenant := range all {
			b.AppendTo(tenant, "a", 3)
		}
		watcher, sent := b.traced()
		want := map[admin.State]int{admin.StateLive: tenants, admin.StateMissingObject: tenants}
		b.Eventually("all are counted", func() bool {
			return maps.Equal(b.Summary(watcher).States, want) && maps.Equal(b.Summary(rt).States, want)
		})
		var s admin.Summary
		for range 5 { // a pool that opens another connection sends more
			sent.taken()
			s = b.Summary(watcher)
			if sent, _ := sent.taken(); len(texts[tenants]) == 0 || len(sent) < len(texts[tenants]) {
				texts[tenants] = sent
			}
		}
		if s.Tenants[tenancy.Active] != tenants || len(s.Lagging) != min(tenants, engine.MaxSummarized) {
			t.Errorf("tenants %v, %d lag, want %d tenants", s.Tenants, len(s.Lagging), tenants)
		}
		for _, text := range texts[tenants] {
			for _, tenant := range all {
				if strings.Contains(text, tenant.(interface{ EventsSchema() string }).EventsSchema()) {
					t.Errorf("a statement on a tenant's tables: %s", text)
				}
			}
		}
	}
	if few, many := texts[2], texts[40]; !slices.Equal(few, many) || len(few) == 0 || len(few) > 8 {
		t.Errorf("%d statements for 2 tenants and %d for 40, want the same few: %.2000q", len(few), len(many), many)
	}
}

func TestWaitForElsewhereReadsOneRow(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(5)
	list := b.named(6)
	rt := b.Running(millrace.Config{}, list...)
	for _, tenant := range tenants {
		b.ReachesOf(rt, tenant.Name(), "p3", b.AppendTo(tenant, "a", 1))
	}
	watcher, sent := b.traced(list...)
	for _, tenant := range tenants {
		last := b.AppendTo(tenant, "a", 1)
		b.ReachesOf(watcher, tenant.Name(), "p3", last)
	}
	texts, rows := sent.taken()
	reads := 0
	for i, text := range texts {
		if strings.Contains(text, `from "millrace".projections p`) {
			reads++
			if rows[i] != 1 {
				t.Errorf("%d rows are read by %s", rows[i], text)
			}
		}
	}
	if reads < len(tenants) {
		t.Errorf("%d reads among %d statements", reads, len(texts))
	}
	// The control: a page has all rows of a tenant.
	_, err := watcher.Status(b.Ctx, admin.StatusFilter{Tenants: []string{tenants[1].Name()}})
	b.Must(err)
	if _, rows := sent.taken(); !slices.Contains(rows, 6) {
		t.Errorf("the control reads %v rows", rows)
	}
}

func TestSummaryNamesTenantsThatDoNotSettle(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(3)
	rt := b.Running(millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond},
		PollInterval: 100 * time.Millisecond}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	for _, tenant := range tenants {
		b.ReachesOf(rt, tenant.Name(), "p", b.AppendTo(tenant, "a", 1))
	}
	watcher, _ := b.traced()
	held := func(what string, done func(held []admin.TenantStatus) bool) {
		t.Helper()
		for process, rt := range map[string]*millrace.Runtime{"on the node": rt, "elsewhere": watcher} {
			b.Eventually(what+" "+process, func() bool { return done(b.Summary(rt).Held) })
		}
	}
	held("nothing is held", func(held []admin.TenantStatus) bool { return len(held) == 0 })
	conn, end := b.session("begin; insert into " + eventsOf(tenants[1]) +
		" (stream_id, stream_version, type, body) values ('open', 1, 'counted', '1')")
	after := b.AppendTo(tenants[1], "a", 1)
	held("the open append is named", func(held []admin.TenantStatus) bool {
		return len(held) == 1 && held[0].Tenant == tenants[1].Name() && held[0].Head == after && held[0].Mark == 1 &&
			held[0].Held != nil &&
			slices.Equal(held[0].Held.Holders, []string{fmt.Sprintf("backend %d", conn.PgConn().PID())})
	})
	backend, release := b.lockEvents(tenants[2])
	b.exec("select pg_notify('millrace_wake', $1)", tenants[2].Name())
	held("the locked tenant is the second", func(held []admin.TenantStatus) bool {
		return len(held) == 2 && held[1].Tenant == tenants[2].Name() && held[1].Held == nil &&
			strings.Contains(held[1].Reason, backend)
	})
	end()
	release("rollback")
	held("nothing is held any more", func(held []admin.TenantStatus) bool { return len(held) == 0 })
}

func TestNodeOfAVersionWithoutSummariesIsShownAsSuch(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond}}, b.named(3)...)
	for i := range 3 {
		b.Reaches(rt, fmt.Sprint("p", i), b.Append("a", 1).Positions[0])
	}
	watcher, _ := b.traced()
	expect := func(what string, state admin.State, states bool) {
		t.Helper()
		b.Eventually(what, func() bool {
			s := b.Summary(watcher)
			return len(s.Nodes) == 1 && (s.Nodes[0].States != nil) == states &&
				maps.Equal(s.States, map[admin.State]int{state: 3})
		})
	}
	expect("all are live", admin.StateLive, true)
	b.Eventually("heartbeats of an idle node do not write its summary", func() bool {
		since := value[time.Time](b, "update millrace.nodes set summary = null returning clock_timestamp()")
		b.Eventually("several heartbeats later", func() bool {
			return value[bool](b, "select heartbeat_at > $1::timestamptz + interval '200 ms' from millrace.nodes",
				since)
		})
		return value[bool](b, "select summary is null from millrace.nodes")
	})
	expect("the node has no summary", admin.StateElsewhere, false)
	b.Pause(rt, "p0")
	b.Eventually("a heartbeat writes the pause",
		func() bool { return value[bool](b, "select summary is not null from millrace.nodes") })
	b.Resume(rt, "p0")
	expect("all are live again", admin.StateLive, true)
}
