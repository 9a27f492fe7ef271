package tests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// swapping is a test in which versions of the model replace each other while everything else happens to them.
type swapping struct {
	*kit.Bundle
	seed   uint64
	random *rand.Rand
	admin  *admin.Admin
	broken atomic.Bool // events of all versions fail and are parked
	list   []millrace.Projection
	stops  []func()
	group  sync.WaitGroup
}

func newSwapping(b *kit.Bundle, versions int) *swapping {
	b.T.Helper()
	s := &swapping{Bundle: b, seed: kit.Seed(b.T), admin: newAdmin(b)}
	s.random = rand.New(rand.NewPCG(s.seed, 1))
	newModel(b, versions)
	for v := 1; v <= versions; v++ {
		p := modelVersion(b, v)
		p.MaxEvents, p.MaxFailureShare = 10, projection.NoLimit
		p.Handler = b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if s.broken.Load() && e.Position%13 == 0 {
				return kit.ErrOnPurpose
			}
			return writeModel(ctx, tx, tableOf(v), []event.Envelope{e})
		})
		s.list = append(s.list, p)
	}
	for range b.Kind.Sharing(2) {
		s.stops = append(s.stops, b.Start(b.Another(kit.Quick, s.list...)))
	}
	return s
}

// may fails the test on an error that is none of those that the other commands may cause.
func (s *swapping) may(doing string, err error, others ...error) {
	s.T.Helper()
	for _, other := range append(others, projection.ErrRetired, projection.ErrUnknownProjection,
		projection.ErrOperationOpen) {
		if errors.Is(err, other) {
			return
		}
	}
	if err != nil {
		s.T.Errorf("seed %d: %s: %v", s.seed, doing, err)
	}
}

func (s *swapping) swap(version int) error {
	return s.admin.Swap(s.Ctx, modelID(version), admin.SwapOptions{CatchUp: time.Second})
}

// disturb does something at random to a version or to the earlier one.
func (s *swapping) disturb(version int) {
	s.T.Helper()
	id := modelID(version - s.random.IntN(2))
	switch s.random.IntN(8) {
	case 0, 1:
		s.group.Go(func() {
			s.may("swap", s.swap(version), projection.ErrBehind, projection.ErrPaused, projection.ErrParkedEvents,
				projection.ErrOperationCancelled)
		})
	case 2:
		s.broken.Store(!s.broken.Load())
	case 3:
		s.may("cancel", s.admin.CancelOperation(s.Ctx, modelID(version)), projection.ErrOperationNotFound)
	case 4:
		s.group.Go(func() {
			ctx, cancel := context.WithTimeout(s.Ctx, time.Second)
			defer cancel()
			_, _ = s.Store.DeadLetters(id).Replay(ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 1000)
		})
	case 5:
		s.may("pause", s.admin.Pause(s.Ctx, id))
		s.may("resume", s.admin.Resume(s.Ctx, id))
	case 6:
		s.may("repartition", s.admin.Repartition(s.Ctx, id, 1+s.random.IntN(3)))
	case 7:
		i := s.random.IntN(len(s.stops))
		s.stops[i]()
		s.stops[i] = s.Start(s.Another(kit.Quick, s.list...))
	}
}

// settle ends the disturbances, and swaps the version in if none of the swaps did.
func (s *swapping) settle(version int) {
	s.T.Helper()
	s.broken.Store(false)
	s.group.Wait()
	for {
		s.replay(version)
		err := s.swap(version)
		if err == nil {
			return
		}
		s.may("the last swap", err, projection.ErrBehind, projection.ErrParkedEvents)
		if s.T.Failed() || s.Ctx.Err() != nil {
			s.T.FailNow()
		}
	}
}

// replay replays the dead letters of a version until none is left.
func (s *swapping) replay(version int) {
	s.T.Helper()
	s.Eventually("nothing is parked", func() bool {
		_, err := s.Store.DeadLetters(modelID(version)).Replay(s.Ctx,
			projection.DeadLetterFilter{All: true, OutOfOrder: true}, 100_000)
		s.may("replay", err)
		return len(s.DeadLettersOf(modelID(version).Name)) == 0
	})
}

// Whatever happens to the versions while they replace each other, each event is applied exactly once in the end:
// pauses, parked events, replays, cancelled swaps, changes of the number of partitions, and nodes that come and go.
func TestSwapsAmongEverythingElse(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const last = 3
		s := newSwapping(b, last)
		flow := b.Flow()
		b.Eventually("the versions have rows", func() bool { return len(existing(b)) == last })
		for version := 2; version <= last; version++ {
			for range 10 {
				s.disturb(version)
				kit.Pass(b.Ctx, time.Duration(s.random.IntN(40))*time.Millisecond)
			}
			s.settle(version)
		}
		head := flow()
		b.Must(s.admin.WaitFor(b.Ctx, modelID(1), head))
		s.replay(last)
		served(b, last)
		mustRun(b, projection.DefaultTenant, last)
	})
}

// The owner of the earlier version is killed when the swap is about to hold that version.
func TestSwapAfterTheOwnerOfTheEarlierVersionWasKilled(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 20)
		owner := spawn(b, "", 1)
		b.Eventually("version 1 has applied all", func() bool {
			s, err := look(b.Ctx, b.Store, tableOf(1))
			return err == nil && s.Count == 20
		})
		config := kit.On(kit.Quick, dyingSwap(b.Store, beforeHold, owner.end))
		rt := b.Running(config, modelVersion(b, 2))
		b.Reaches(rt, "model@2", 20)
		b.Must(rt.Swap(b.Ctx, modelID(2), admin.SwapOptions{}))
		goesOn(b, rt)
		served(b, 2)
	}, kit.SeveralNodes)
}
