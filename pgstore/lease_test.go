package pgstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestEnsureMayBeCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	tenants := []string{projection.DefaultTenant, newTenant(t, store, "b").Name()}
	err := together(8, func(int) error { return store.port().Ensure(testContext(t), tenants, []string{"p", "q"}) })
	if err != nil {
		t.Fatal(err)
	}
	if rows := one[int](t, store, "select count(*) from millrace.projections p join millrace.leases l using (id)"); rows != 4 {
		t.Errorf("%d projections with leases, want 4", rows)
	}
}

func TestClaimTakesEachLeaseForOneNode(t *testing.T) {
	t.Parallel()
	const names, nodes = 40, 8
	store := newStore(t)
	node := engine.Node{Tenants: []string{projection.DefaultTenant}}
	for range names {
		node.Projections = append(node.Projections, uuid.NewString())
	}
	tenants := []string{projection.DefaultTenant}
	noError(t, store.port().Ensure(testContext(t), tenants, node.Projections))
	claimed := make([][]engine.Lease, nodes)
	err := together(nodes, func(i int) error {
		node := node
		node.ID, node.LeaseDuration = uuid.NewString(), 1<<40
		session, err := store.port().Connect(testContext(t), node)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = session.Close(testContext(t)) })
		for range names / 4 { // of those that claim the same leases at the same time, one gets them
			leases, err := claimFree(testContext(t), store, node, names/4)
			if err != nil {
				return err
			}
			claimed[i] = append(claimed[i], leases...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int32]bool)
	for _, leases := range claimed {
		for _, l := range leases {
			if seen[l.Row] || l.Epoch != 1 || l.CrashCount != 0 || l.Checkpoint != 0 {
				t.Errorf("claimed %+v, before: %v", l, seen[l.Row])
			}
			seen[l.Row] = true
		}
	}
	if len(seen) != names {
		t.Errorf("%d leases claimed, want %d", len(seen), names)
	}
}

func TestWritesUnderALostLeaseAreRefusedOrPassedOver(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	ctx := testContext(t)
	current := claimAs(t, o.store, projection.DefaultTenant)
	failure := projection.Failure{Projection: o.lease.ID, Event: event.Envelope{Position: 1}, Attempt: 1, Err: errors.New("bad")}
	letter := projection.DeadLetter{Position: 1, Stream: "s", Version: 1, Type: "Counted", Error: "bad", Attempts: 1}
	for name, write := range map[string]func(l engine.Lease) error{
		"record a failure": func(l engine.Lease) error {
			_, err := o.store.port().RecordFailure(ctx, l, failure)
			return err
		},
		"park":          func(l engine.Lease) error { return o.store.port().Park(ctx, l, letter, false) },
		"skip":          func(l engine.Lease) error { return o.store.port().Skip(ctx, l, 1) },
		"halt":          func(l engine.Lease) error { return o.store.port().Halt(ctx, l, "bad") },
		"set as failed": func(l engine.Lease) error { return o.store.port().SetFailed(ctx, l, "bad") },
	} {
		err := write(o.lease)
		wantClass(t, err, engine.LeaseLost)
		if !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	advance := engine.Advance{Lease: o.lease, To: 3}
	if moved, err := o.store.port().Advance(ctx, []engine.Advance{advance}); err != nil || len(moved) != 0 {
		t.Errorf("advance: %v, %v", moved, err)
	}
	if err := o.store.port().Release(ctx, []engine.Advance{advance}); err != nil {
		t.Error(err)
	}
	if now, err := reload(ctx, o.store, current.lease); err != nil || now != current.lease {
		t.Errorf("the lease is %+v, %v; want %+v", now, err, current.lease)
	}
	// The control: under the lease that holds, all of them do what they say.
	if _, err := o.store.port().RecordFailure(ctx, current.lease, failure); err != nil {
		t.Error(err)
	}
	current.refresh()
	if current.lease.Attempts != 1 || current.lease.FailingPosition != 1 {
		t.Errorf("after a failure: %+v", current.lease)
	}
	if err := o.store.port().Park(ctx, current.lease, letter, false); err != nil {
		t.Error(err)
	}
	current.refresh()
	if current.lease.Attempts != 0 || current.lease.Checkpoint != 1 {
		t.Errorf("after parking: %+v", current.lease)
	}
	if err := o.store.port().Skip(ctx, current.lease, 2); err != nil {
		t.Error(err)
	}
	if current.refresh(); current.lease.Checkpoint != 2 {
		t.Errorf("after skipping: %+v", current.lease)
	}
	advance.Lease = current.lease
	if moved, err := o.store.port().Advance(ctx, []engine.Advance{advance}); err != nil || !moved[advance.Lease.Row] {
		t.Errorf("advance: %v, %v", moved, err)
	}
	current.refresh()
	if err := o.store.port().Release(ctx, []engine.Advance{{Lease: current.lease, To: 4}}); err != nil {
		t.Error(err)
	}
	if current.checkpoint() != 4 {
		t.Errorf("given back at %d, want 4", current.checkpoint())
	}
	if _, err := reload(ctx, o.store, current.lease); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("the lease that was given back: %v", err)
	}
}

func TestCheckpointNeverMovesBack(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	noError(t, o.apply(write, engine.ApplyOptions{}))
	reached := o.checkpoint()
	stale := []engine.Advance{{Lease: o.lease, To: o.lease.Checkpoint + 1}}
	if moved, err := o.store.port().Advance(testContext(t), stale); err != nil || len(moved) != 0 {
		t.Errorf("a stale checkpoint moved: %v, %v", moved, err)
	}
	if err := o.store.port().Release(testContext(t), stale); err != nil {
		t.Error(err)
	}
	if o.checkpoint() != reached {
		t.Errorf("checkpoint %d, want %d", o.checkpoint(), reached)
	}
}

func TestDeadLetterTellsWhatHappenedAndCopiesNoPayload(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	for attempt := 1; attempt <= 2; attempt++ {
		failure := projection.Failure{Event: event.Envelope{Position: 1}, Attempt: attempt, Err: errors.New("bad\x00 byte \xff")}
		must(o.store.port().RecordFailure(testContext(t), o.lease, failure))(t)
	}
	letter := projection.DeadLetter{Position: 1, Stream: "s", Version: 1, Type: "Counted", Error: "bad\x00 byte \xff", Stack: "a\x00b", Attempts: 2}
	noError(t, o.store.port().Park(testContext(t), o.lease, letter, false))
	letters, err := o.store.DeadLetters(o.lease.ID).List(testContext(t), projection.DeadLetterPage{})
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	l := letters[0]
	if l.Position != 1 || l.Stream != "s" || l.Attempts != 2 || !strings.HasPrefix(l.Error, "bad") || !l.FirstFailedAt.Before(l.LastFailedAt) {
		t.Errorf("%+v", l)
	}
	if later, err := o.store.DeadLetters(o.lease.ID).List(testContext(t), projection.DeadLetterPage{After: 1}); err != nil || len(later) != 0 {
		t.Errorf("behind it: %v, %v", later, err)
	}
}
