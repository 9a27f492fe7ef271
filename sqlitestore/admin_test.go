package sqlitestore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

func TestDesiredStateIsStoredAndAnnounced(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	s, ctx, node := store.port(), testContext(t), newNode("p")
	newTenant(t, store, "a")
	must(s.store.plane().Ensure(ctx, newProjections(projection.DefaultTenant, "p", "q")))(t)
	must(s.store.plane().Ensure(ctx, newProjections("a", "p", "q")))(t)
	mustExec(t, store, "update millrace_projections set failed_reason = 'why'")
	session, id := connect(t, store, node), projection.ID{Tenant: "a", Name: "p"}
	row := one[int32](t, store,
		"select p.id from millrace_projections p join millrace_tenants t on t.id = p.tenant where t.name = 'a' and p.name = 'p'")
	for _, wanted := range []engine.DesiredState{engine.WantPause, engine.WantPause, engine.WantRun} {
		noError(t, s.store.plane().SetDesiredState(ctx, id, wanted))
		if n := must(session.Next(ctx))(t); n != (engine.Notice{Control: true, Row: row}) {
			t.Errorf("%s was announced as %+v", wanted, n)
		}
		want := map[int32]engine.Orders{row: {Desired: wanted}}
		if wanted.Runs() {
			want = nil
		}
		if got, err := s.Orders(ctx, engine.Node{}, []int32{row - 1, row, row + 1}); err != nil ||
			!maps.Equal(got, want) {
			t.Errorf("%s: wanted are %v, %v", wanted, got, err)
		}
		mustExec(t, store, "update millrace_leases set owner = ?1 where id = ?2", node.ID, row)
		if got, err := s.Orders(ctx, node, nil); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: of the node are wanted %v, %v", wanted, got, err)
		}
		mustExec(t, store, "update millrace_leases set owner = null")
		if failed := one[int](t, store,
			"select count(failed_reason) from millrace_projections"); (failed == 3) != wanted.Runs() || failed < 3 {
			t.Errorf("%s: %d projections are failed", wanted, failed)
		}
		claimable := map[engine.DesiredState]int{engine.WantRun: 2, engine.WantPause: 1}[wanted]
		if free := must(s.Free(ctx, node, true, true))(t); len(free) != claimable {
			t.Errorf("%s: %v leases are free, want %d", wanted, free, claimable)
		}
	}
	mustExec(t, store,
		"insert into millrace_commands (projection, kind, max_events, created_at) values (?1, 'replay', 1, 0)", row)
	if got, err := s.Orders(ctx, engine.Node{}, []int32{row}); err != nil ||
		!maps.Equal(got, map[int32]engine.Orders{row: {Desired: engine.WantRun, HasCommands: true}}) {
		t.Errorf("with a command: %v, %v", got, err)
	}
	if got, err := s.Orders(ctx, node, []int32{}); err != nil || len(got) != 0 {
		t.Errorf("of none are wanted %v, %v", got, err)
	}
	for unknown, want := range map[projection.ID]error{
		{Name: "r"}: projection.ErrUnknownProjection, {Tenant: "b", Name: "p"}: tenancy.ErrUnknown,
	} {
		if err := s.store.plane().SetDesiredState(ctx, unknown, engine.WantPause); !errors.Is(err, want) {
			t.Errorf("%v: %v", unknown, err)
		}
	}
	waitWithout(t, session)
}

func TestResumeCountsTheAttemptsOfAHaltedProjectionAnew(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "halted", "failed")
	mustExec(t, store,
		"update millrace_projections set failed_reason = 'why', halted = name = 'halted', attempts = 3, crash_attempts = 2, failing_position = 5, failing_since = 6")
	for _, wanted := range []engine.DesiredState{engine.WantPause, engine.WantRun} {
		for _, name := range []string{"halted", "failed"} {
			noError(t, store.plane().SetDesiredState(testContext(t), projection.ID{Name: name}, wanted))
		}
		got := must(texts(store,
			`select halted || ' ' || attempts || ' ' || crash_attempts || ' ' || failing_position || ' ' || coalesce(failing_since, '') || ' ' || coalesce(failed_reason, '')
			from millrace_projections order by id`))(t)
		want := map[engine.DesiredState][]string{engine.WantPause: {"1 3 2 5 6 why", "0 3 2 5 6 why"},
			engine.WantRun: {"0 0 0 0  ", "0 3 2 5 6 "}}[wanted]
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", wanted, got, want)
		}
	}
}

func TestPauseEndsWhenNoLivingNodeHasALease(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	s, ctx, node := store.port(), testContext(t), newNode("p", "q")
	id := projection.ID{Name: "p"}
	must(s.store.plane().Ensure(ctx, []engine.NewProjection{
		{Tenant: projection.DefaultTenant, Name: "p", Partitions: 3},
		{Tenant: projection.DefaultTenant, Name: "q"},
	}))(t)
	session := connect(t, store, node)
	leases := claimAll(t, store, node)
	ended := func() bool {
		t.Helper()
		free, again := must(other.plane().PauseEnded(ctx, id))(t), must(s.store.plane().PauseEnded(ctx, id))(t)
		if free != again {
			t.Errorf("the owner says %v, another process says %v", again, free)
		}
		return free
	}
	for id, want := range map[projection.ID]error{id: projection.ErrResumed,
		{Name: "r"}: projection.ErrUnknownProjection} {
		// Such an error must not be taken for an outage, which is waited for.
		if _, err := s.store.plane().PauseEnded(ctx, id); !errors.Is(err, want) ||
			s.Classify(err).Class == faults.Infrastructure {
			t.Errorf("%s: %v", id, err)
		}
	}
	noError(t, s.store.plane().SetDesiredState(ctx, id, engine.WantPause))
	if ended() {
		t.Error("the pause ended while the node has leases")
	}
	noError(t, s.Release(ctx, []engine.Advance{{Lease: leases[0]}}))
	mustExec(t, store, "update millrace_leases set owner = ?1 where id = ?2", uuid.NewString(), leases[1].Row)
	if ended() {
		t.Error("the pause ended while the node has a lease")
	}
	if got := stateOf(t, store, leases[1].Row); got != (leaseState{"", true, 1, 2}) {
		t.Errorf("the lease of a dead node: %+v", got)
	}
	if got := stateOf(t, store, leases[2].Row); got != (leaseState{node.ID, false, 0, 1}) {
		t.Errorf("the lease of the living node: %+v", got)
	}
	noError(t, session.Close(ctx)) // as if its process had been killed
	if !ended() {
		t.Error("the pause did not end although the owner is dead")
	}
	if got := stateOf(t, store, leases[2].Row); got != (leaseState{"", true, 1, 2}) {
		t.Errorf("the lease of the dead node: %+v", got)
	}
	if got := stateOf(t, store, leases[3].Row); got != (leaseState{node.ID, false, 0, 1}) {
		t.Errorf("the lease of another projection: %+v", got)
	}
	if err := checkLeaseOf(store, leases[2]); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("the dead node could commit: %v", err)
	}
}

// checkLeaseOf returns the error of a write under the fence of a lease.
func checkLeaseOf(s *Store, lease engine.Lease) error {
	return s.port().Fenced(context.Background(), lease, func(store.Tx) error { return nil })
}
