package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// endOf returns the end of the default tenant's events as an Admin without a runtime sees it.
func (b *bundle) endOf(a *admin.Admin) admin.TenantStatus {
	b.T.Helper()
	status, err := a.Status(b.Ctx, admin.StatusFilter{Tenants: []string{projection.DefaultTenant}})
	b.Must(err)
	return status.Tenants[0]
}

func (b *bundle) admin() *admin.Admin {
	b.T.Helper()
	a, err := admin.New(b.elsewhere(pgstore.Options{}))
	b.Must(err)
	return a
}

func TestAdminSettlesEventsThatNoNodeReads(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	a := b.admin()
	is := func(what string, mark, head int64, holders ...string) {
		t.Helper()
		end := b.endOf(a)
		if end.Mark != mark || end.Head != head || (end.Held != nil) != (len(holders) > 0) {
			t.Errorf("%s: %+v, want %d of %d", what, end, mark, head)
		}
		if h := end.Held; h != nil && (h.Below != head || !slices.Equal(h.Holders, holders) || !h.Since.IsZero()) {
			t.Errorf("%s: held by %+v, want %v", what, h, holders)
		}
	}
	is("no events", 0, 0)
	b.Append("a", 3)
	is("no projection has a checkpoint", 3, 3)
	conn, end := b.session("begin; insert into millrace_default.events (stream_id, stream_version, type, body) values ('open', 1, 'counted', '1')")
	backend := fmt.Sprintf("backend %d", conn.PgConn().PID())
	b.Append("a", 1)
	is("an append is in progress", 0, 5, backend)
	rt := b.Another(millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond}}, b.Recorders("p")...)
	stop := b.Start(rt)
	b.Reaches(rt, "p", 3)
	b.Eventually("the node reports since when the mark is held", func() bool {
		h := b.endOf(a).Held
		return h != nil && !h.Since.IsZero() && slices.Equal(h.Holders, []string{backend})
	})
	stop()
	is("what a projection has handled is settled", 3, 5, backend)
	end()
	is("the append was rolled back", 5, 5)
}

// No event may appear at or below a mark, whatever appends commit or roll back meanwhile.
func TestAdminNeverReportsAMarkTooHigh(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	a := b.admin()
	stop := b.AppendThrough(4)
	conn, end := b.session("select 1")
	var marks, counts []int64
	settled := 0
	for i := range 20 {
		_, err := conn.Exec(b.Ctx,
			fmt.Sprintf("begin; insert into millrace_default.events (stream_id, stream_version, type, body) values ('late', %d, 'counted', '1')", i+1))
		b.Must(err)
		_, err = b.Store.Append(b.Ctx, fmt.Sprint("after ", i), event.Any, event.Event{Type: "counted"})
		b.Must(err)
		for _, finish := range []string{"select 1", []string{"commit", "rollback"}[i%2]} {
			tenant := b.endOf(a)
			marks = append(marks, tenant.Mark)
			counts = append(counts, value[int64](b,
				"select count(*) from millrace_default.events where global_seq <= $1", tenant.Mark))
			if tenant.Held == nil {
				settled++
			}
			_, err := conn.Exec(b.Ctx, finish)
			b.Must(err)
		}
		if tenant := b.endOf(a); tenant.Held == nil {
			settled++
		}
	}
	end()
	stop()
	for i, mark := range marks {
		if now := value[int64](b, "select count(*) from millrace_default.events where global_seq <= $1",
			mark); now != counts[i] {
			t.Errorf("at %d there were %d events, and now %d", mark, counts[i], now)
		}
	}
	if settled == 0 {
		t.Error("nothing was ever settled")
	}
}

// A projection whose only node crashed is still in the code, and does not count as removed.
func TestProjectionsOfADeadNodeAreNotOwned(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Another(millrace.Config{}, b.Recorders("p", "q")...)
	stop := b.Start(rt)
	b.Reaches(rt, "q", b.Append("a", 1).Positions[0])
	stop()
	config := millrace.Config{Store: tuning.Settings{Heartbeat: 50 * time.Millisecond}, LeaseDuration: time.Second}
	b.Start(b.Another(config, b.Recorders("p")...))
	a := b.admin()
	sees := func(state admin.State, reason string) func() bool {
		return func() bool {
			status, err := a.Status(b.Ctx, admin.StatusFilter{Names: []string{"q"}, States: []admin.State{state}})
			b.Must(err)
			s, err := a.Summary(b.Ctx)
			b.Must(err)
			return len(status.Projections) == 1 && strings.Contains(status.Projections[0].Reason, reason) &&
				s.States[state] == 1 &&
				(s.Unregistered == 1) == (state == admin.StateUnregistered) &&
				(s.NotOwned == 1) == (state == admin.StateNotOwned)
		}
	}
	b.Eventually("it was removed from the code", sees(admin.StateUnregistered,
		"no node registers the projection for its tenant"))
	const dead = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, name, projections, tenants, session_key, heartbeat_at, expires_at)
		values ('` + dead + `', 'web-3:4711', '{q}', '{}', 1, now() - interval '1 minute', now() - interval '50 s')`)
	b.exec("update millrace.leases set free_since = now() - interval '1 minute' where owner is null")
	b.Eventually("its node died", sees(admin.StateNotOwned, "node web-3:4711 ("+dead+") did, and died"))
	b.exec("update millrace.nodes set heartbeat_at = now(), expires_at = now() + interval '1 minute' where id = '" +
		dead + "'")
	b.Eventually("its node lives", sees(admin.StateNotOwned, ""))
}
