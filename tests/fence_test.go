package tests_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestBatchCommitsReadModelAndCheckpointTogether(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(3)
	})
}

func TestStaleEpochCannotBegin(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		h.Next()
		err := h.Apply(func(context.Context, kit.Tx, []event.Envelope) error {
			t.Error("the handler of a lost lease was called")
			return nil
		}, engine.ApplyOptions{})
		h.MustBe(err, faults.LeaseLost)
		if !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%v is not ErrLeaseLost", err)
		}
		h.Untouched()
	})
}

func TestLeaseLostDuringTheHandlerRollsItsWritesBack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		var next *kit.Holder
		err := h.Apply(kit.RecordAnd(func(context.Context, kit.Tx) error {
			next = h.Next()
			return nil
		}), engine.ApplyOptions{})
		h.MustBe(err, faults.LeaseLost)
		if !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%v is not ErrLeaseLost", err)
		}
		h.Untouched()
		b.Must(next.Apply(kit.Record("p"), engine.ApplyOptions{}))
		next.HasApplied(3)
	}, kit.ConcurrentWrites)
}

func TestStaleCheckpointIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		// The lease still has its values from before the first batch, as after a commit whose answer was lost.
		h.MustBe(h.Apply(kit.Record("p"), engine.ApplyOptions{}), faults.LeaseLost)
		h.HasApplied(3)
	})
}

// leasedWrites are the writes under a lease that a runtime makes beside batches, for an event at position 1.
func leasedWrites(h *kit.Holder) map[string]func(l engine.Lease) error {
	failure := projection.Failure{
		Projection: h.Lease.ID, Event: event.Envelope{Position: 1}, Attempt: 1, Err: kit.ErrOnPurpose,
	}
	return map[string]func(l engine.Lease) error{
		"record a failure": func(l engine.Lease) error {
			_, err := h.Plane().RecordFailure(h.Ctx, l, failure, 0)
			return err
		},
		"begin an attempt": func(l engine.Lease) error { return h.Plane().BeginAttempt(h.Ctx, l, 1, 1) },
		"park":             func(l engine.Lease) error { return h.Plane().Park(h.Ctx, l, letterAt(1), false) },
		"park a stream":    func(l engine.Lease) error { return h.Plane().Park(h.Ctx, l, letterAt(1), true) },
		"skip":             func(l engine.Lease) error { return h.Plane().Skip(h.Ctx, l, 1) },
		"halt":             func(l engine.Lease) error { return h.Plane().Halt(h.Ctx, l, "bad") },
		"set as failed":    func(l engine.Lease) error { return h.Plane().SetFailed(h.Ctx, l, "bad") },
	}
}

// letterAt is a dead letter of the stream s.
func letterAt(position int64) projection.DeadLetter {
	return projection.DeadLetter{
		Position: position, Stream: "s", Version: position, Type: "counted", Error: "bad", Attempts: 1,
	}
}

func TestWritesUnderALostLeaseChangeNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(5)
		current := h.Next()
		for name, write := range leasedWrites(h) {
			if err := write(h.Lease); !errors.Is(err, projection.ErrLeaseLost) ||
				h.Port.Classify(err).Class != faults.LeaseLost {
				t.Errorf("%s: %v", name, err)
			}
		}
		advance := engine.Advance{Lease: h.Lease, To: 3}
		if moved, err := h.Port.Advance(b.Ctx, []engine.Advance{advance}); err != nil || len(moved) != 0 {
			t.Errorf("advance: %v, %v", moved, err)
		}
		b.Must(h.Port.Release(b.Ctx, []engine.Advance{advance}))
		before := current.Lease
		current.Refresh()
		if !reflect.DeepEqual(current.Lease, before) {
			t.Errorf("the lease is %+v, want %+v", current.Lease, before)
		}
		if letters := b.DeadLettersOf("p"); len(letters) != 0 {
			t.Errorf("parked %+v", letters)
		}
	})
}

// A release leaves the epoch as it is, and a node that claims a lease anew is the same owner.
func TestOwnerAndEpochOfTheFenceCountAlone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(5)
		lost := func(when string) {
			t.Helper()
			for name, write := range leasedWrites(h) {
				if err := write(h.Lease); !errors.Is(err, projection.ErrLeaseLost) {
					t.Errorf("%s, %s: %v", when, name, err)
				}
			}
			h.MustBe(h.Apply(kit.Record("p"), engine.ApplyOptions{}), faults.LeaseLost)
			h.Untouched()
		}
		b.Must(h.Port.Release(b.Ctx, []engine.Advance{{Lease: h.Lease}}))
		lost("released")
		leases, err := h.Port.Claim(b.Ctx, h.Node, []int32{h.Lease.Row}, false)
		b.Must(err)
		if len(leases) != 1 || leases[0].Epoch != h.Lease.Epoch+1 || leases[0].Owner != h.Lease.Owner {
			t.Fatalf("claimed %+v", leases)
		}
		lost("claimed again")
		h.Lease = leases[0]
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(5)
	})
}

// The control of TestWritesUnderALostLeaseChangeNothing: under the current lease, each write has its effect.
func TestWritesUnderTheLeaseAreMade(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(5)
		writes := leasedWrites(h)
		b.Must(writes["record a failure"](h.Lease))
		h.Refresh()
		if h.Lease.Attempts != 1 || h.Lease.FailingPosition != 1 || h.Lease.FailingSince.IsZero() {
			t.Errorf("after a failure: %+v", h.Lease)
		}
		b.Must(writes["set as failed"](h.Lease))
		h.Refresh()
		if h.Lease.Failed != "bad" || h.Lease.Halted {
			t.Errorf("after it was set as failed: %+v", h.Lease)
		}
		b.Must(h.Plane().SetFailed(b.Ctx, h.Lease, ""))
		b.Must(writes["park"](h.Lease))
		h.Refresh()
		if h.Lease.Attempts != 0 || h.Lease.Checkpoint != 1 || h.Lease.Parked != 1 ||
			h.Lease.ParkedStreams {
			t.Errorf("after parking: %+v", h.Lease)
		}
		b.Must(h.Plane().Skip(b.Ctx, h.Lease, 2))
		h.Refresh()
		if h.Lease.Checkpoint != 2 {
			t.Errorf("after skipping: %+v", h.Lease)
		}
		b.Must(h.Plane().Park(b.Ctx, h.Lease, letterAt(3), true))
		h.Refresh()
		if h.Lease.Checkpoint != 3 || h.Lease.Parked != 2 || !h.Lease.ParkedStreams {
			t.Errorf("after parking a stream: %+v", h.Lease)
		}
		if moved, err := h.Port.Advance(b.Ctx, []engine.Advance{{Lease: h.Lease, To: 4}}); err != nil ||
			!moved[h.Lease.Row] || h.Checkpoint() != 4 {
			t.Errorf("advance: %v, %v", moved, err)
		}
		h.Refresh()
		b.Must(writes["halt"](h.Lease))
		h.Refresh()
		if !h.Lease.Halted || h.Lease.Failed != "bad" {
			t.Errorf("after a halt: %+v", h.Lease)
		}
		b.Must(h.Port.Release(b.Ctx, []engine.Advance{{Lease: h.Lease, To: 5}}))
		if at := h.Checkpoint(); at != 5 {
			t.Errorf("released at %d, want 5", at)
		}
		if err := writes["skip"](h.Lease); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("a write under the released lease: %v", err)
		}
	})
}

func TestCheckpointNeverMovesBack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(5)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		stale := []engine.Advance{{Lease: h.Lease, To: h.Lease.Checkpoint + 1}}
		if moved, err := h.Port.Advance(b.Ctx, stale); err != nil || len(moved) != 0 {
			t.Errorf("a stale checkpoint moved: %v, %v", moved, err)
		}
		b.Must(h.Port.Release(b.Ctx, stale))
		h.HasApplied(5)
	})
}

// A claim raises the epoch by one, keeps the checkpoint, and takes only what is free and should run.
func TestClaimTakesOnlyFreeLeasesThatShouldRun(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		claim := func() int {
			t.Helper()
			leases, err := h.Port.Claim(b.Ctx, h.Node, []int32{h.Lease.Row, h.Lease.Row + 1000}, false)
			b.Must(err)
			return len(leases)
		}
		if free, err := h.Port.Free(b.Ctx, h.Node, false, true); err != nil || len(free) != 0 {
			t.Errorf("free are %+v, %v", free, err)
		}
		if n := claim(); n != 0 {
			t.Errorf("claimed %d leases that are held", n)
		}
		next := h.Next()
		if l := next.Lease; l.Epoch != h.Lease.Epoch+1 || l.Checkpoint != 3 || l.Owner != next.Node.ID ||
			l.CrashCount != 0 {
			t.Errorf("the next owner claimed %+v after %+v", l, h.Lease)
		}
		b.Must(h.Plane().SetDesiredState(b.Ctx, next.Lease.ID, engine.WantPause))
		b.Must(h.Port.Release(b.Ctx, []engine.Advance{{Lease: next.Lease}}))
		h.Node = next.Node
		if n := claim(); n != 0 {
			t.Errorf("claimed %d leases that are paused", n)
		}
		b.Must(h.Plane().SetDesiredState(b.Ctx, next.Lease.ID, engine.WantRun))
		if n := claim(); n != 1 {
			t.Errorf("claimed %d leases after the pause", n)
		}
	})
}
