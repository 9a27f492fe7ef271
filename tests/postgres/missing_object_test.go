package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// A projection waits for objects that a deployment forgot, in a state that every process sees.
func TestProjectionWaitsForWhatADeploymentForgot(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table half (n int); create table secret (n int); create role millrace_missing")
	t.Cleanup(func() {
		_, _ = b.store.Pool().Exec(context.Background(), "drop owned by millrace_missing; drop role millrace_missing")
	})
	last := b.Append("a", 40).Positions[39]
	kinds := map[string]struct{ needs, mend string }{
		"42P01": {"insert into lost values (1)", "create table lost (n int)"},
		"42703": {"insert into half (n, m) values (1, 2)", "alter table half add column m int"},
		"42883": {"select forgotten()", "create function forgotten() returns int language sql as 'select 1'"},
		"3F000": {"create table nowhere.t (n int); drop table nowhere.t", "create schema nowhere"},
		"42501": {"set local role millrace_missing; insert into secret values (1)", "grant insert on secret to millrace_missing"},
	}
	var projections []millrace.Projection
	for kind, k := range kinds {
		projections = append(projections, millrace.Projection{Name: kind, MaxEvents: 8, Retry: kit.Soon(0),
			Handler: b.Store.Batch(kit.FailsAt(kind, kit.Any, func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
				return kit.Exec(k.needs)(ctx, tx)
			}))})
	}
	rt, remote := b.Runtime(millrace.Config{}, projections...), b.Runtime(millrace.Config{}, projections...)
	b.Start(rt)
	waits := func(rt *millrace.Runtime, kind string) bool {
		s := b.Status(rt, kind)
		return s.State == millrace.StateMissingObject && strings.Contains(s.Reason, kind) && s.Attempts == 0 && s.Parked == 0
	}
	for kind, k := range kinds {
		b.Eventually(kind+": it waits", func() bool { return waits(rt, kind) })
		b.Eventually(kind+": every process sees it", func() bool { return waits(remote, kind) })
		b.exec(k.mend)
		b.Reaches(rt, kind, last)
		b.Eventually(kind+": nothing is said of it any more", func() bool {
			here, there := b.Status(rt, kind), b.Status(remote, kind)
			return here.State == millrace.StateLive && there.State == millrace.StateElsewhere && here.Reason+there.Reason == ""
		})
	}
	b.MustCatchUp(rt, "42P01", "42703", "42883", "3F000", "42501")
}
