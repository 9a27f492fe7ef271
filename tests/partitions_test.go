package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Appends run at once, one batch of ten is rolled back after its writes, and nodes come and go.
func TestPartitionsApplyEachEventOnceAndEachStreamInOrder(t *testing.T) {
	for _, n := range []int{1, 3, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			kit.Run(t, func(t *testing.T, b *kit.Bundle) {
				s := kit.NewSplit(b, "p", n)
				applyWhileNodesComeAndGo(s, s.Projection(func(context.Context, kit.Tx, []event.Envelope) error {
					if oneOfTen() {
						return kit.ErrOnPurpose
					}
					return nil
				}))
			})
		})
	}
}

func oneOfTen() bool { return rand.N(10) == 0 }

// applyWhileNodesComeAndGo checks what the partitions apply meanwhile.
func applyWhileNodesComeAndGo(s *kit.Split, p millrace.Projection) {
	s.T.Helper()
	stop := s.AppendThrough(24)
	nodes, stops := make([]*millrace.Runtime, 3), make([]func(), 3)
	for i := range nodes {
		nodes[i] = s.Another(millrace.Config{}, p)
		stops[i] = s.Start(nodes[i])
	}
	for i := range nodes { // each of them ends once, and another one takes over
		before := s.Handled()
		s.Eventually("events come", func() bool { return s.Handled() > before+50 })
		stops[i]()
		nodes[i] = s.Another(millrace.Config{}, p)
		stops[i] = s.Start(nodes[i])
	}
	if appended := stop(); appended < 100 {
		s.T.Errorf("%d events were appended", appended)
	}
	s.Reaches(nodes[0], s.Name, s.Head())
	s.Verify()
	if s.Served() < min(s.N, 8) {
		s.T.Errorf("%d partitions had events", s.Served())
	}
	if rows := len(s.StatusOf(nodes[0]).Projections); rows != s.N {
		s.T.Errorf("status shows %d partitions", rows)
	}
}

func TestPartitionsOfOneProjectionRunOnSeveralNodes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 6)
		var nodes []*millrace.Runtime
		for range 3 {
			nodes = append(nodes, b.Another(millrace.Config{}, s.Projection(kit.Nothing)))
			b.Start(nodes[len(nodes)-1])
		}
		b.Share(nodes[0], 3)
		for i := range 50 {
			b.Append(fmt.Sprint("s", i), 2)
		}
		for _, node := range nodes {
			b.Reaches(node, "p", b.Head())
		}
		s.Verify()
		if s.Served() != 6 {
			t.Errorf("%d partitions had events", s.Served())
		}
	}, kit.SeveralNodes)
}

// The tenants that have the projection keep their number of partitions.
func TestAnotherNumberOfPartitionsIsForNewTenants(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 3)
		b.Idle(s.Projection(kit.Nothing))
		tenants := b.Tenants(2)
		b.Append("a", 3)
		b.AppendTo(tenants[1], "a", 3)
		later := kit.NewSplit(b, "p", 2)
		rt := b.Idle(later.Projection(kit.Nothing))
		partitions := make(map[string]int)
		for _, p := range b.StatusOf(rt).Projections {
			partitions[p.ID.Tenant]++
		}
		if partitions["default"] != 3 || partitions[tenants[1].Name()] != 2 {
			t.Errorf("tenants have %v partitions", partitions)
		}
	})
}

func TestPauseAndResumeAreForAllPartitions(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s, id := kit.NewSplit(b, "p", 5), millrace.ProjectionID{Name: "p"}
		var armed atomic.Bool
		entered, release := make(chan struct{}, 1), make(chan struct{})
		holds := func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			if id, _ := millrace.ProjectionFrom(ctx); id.Partition == 4 && armed.Swap(false) {
				entered <- struct{}{}
				<-release
			}
			return nil
		}
		first := b.Another(millrace.Config{}, s.Projection(holds))
		second := b.Another(millrace.Config{}, s.Projection(holds))
		b.Start(first)
		b.Start(second)
		b.Share(first, b.Kind.Sharing(2))
		armed.Store(true)
		b.Append(streamOf(4, 5), 1)
		<-entered
		paused := make(chan error, 1)
		go func() { paused <- first.Pause(b.Ctx, id) }()
		select {
		case err := <-paused:
			close(release)
			t.Fatalf("the pause ended while a partition worked: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		close(release)
		b.Must(<-paused)
		served := s.Handled()
		for _, p := range b.StatusOf(first).Projections {
			if p.State != admin.StatePaused || p.Owner != "" {
				t.Errorf("%v is %s, owned by %q", p.ID, p.State, p.Owner)
			}
		}
		for i := range 20 {
			b.Append(fmt.Sprint("s", i), 1)
		}
		if err := second.WaitFor(b.Ctx, id, b.Head()); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("waiting for a paused projection: %v", err)
		}
		if n := s.Handled() - served; n != 0 {
			t.Errorf("%d events were handled while all was paused", n)
		}
		b.Resume(second, "p")
		b.Reaches(first, "p", b.Head())
		s.Verify()
		id.Partition = 2
		for doing, err := range map[string]error{"pause": first.Pause(b.Ctx, id), "resume": first.Resume(b.Ctx, id)} {
			if err == nil || !strings.HasPrefix(err.Error(), doing+" default/p/2: ProjectionID.Partition must be 0") {
				t.Errorf("%s of a partition: %v", doing, err)
			}
		}
	})
}

// streamOf returns a stream of a partition.
func streamOf(number, n int) string {
	for i := 0; ; i++ {
		if stream := fmt.Sprint("s", i); partition.Of(partition.Slot(stream), n) == number {
			return stream
		}
	}
}

func TestWaitForAPartitionDoesNotWaitForTheOthers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 3)
		var free atomic.Bool
		rt := b.Running(millrace.Config{}, s.Projection(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			if id, _ := millrace.ProjectionFrom(ctx); id.Partition == 2 && !free.Load() {
				return kit.ErrOnPurpose // it is retried
			}
			return nil
		}))
		last := int64(0)
		for i := range 3 {
			last = b.Append(streamOf(i+1, 3), 1).Positions[0]
		}
		for i := range 3 {
			id := millrace.ProjectionID{Name: "p", Partition: i + 1}
			if i == 1 {
				continue
			}
			b.Must(rt.WaitFor(b.Ctx, id, last))
		}
		done := make(chan error, 2)
		for _, number := range []int{0, 2} {
			go func() { done <- rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p", Partition: number}, last) }()
		}
		select {
		case err := <-done:
			t.Fatalf("a wait for the partition that has not handled its event, or for all, ended: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		free.Store(true)
		b.Must(<-done)
		b.Must(<-done)
		if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p", Partition: 4}, last); !errors.Is(err,
			projection.ErrUnknownProjection) {
			t.Errorf("waiting for a partition that is not there: %v", err)
		}
	})
}

func TestWaitForReportsTheFailureOfAnyPartition(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 3)
		p := s.Projection(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
			switch id, _ := millrace.ProjectionFrom(ctx); id.Partition {
			case 1:
				return kit.ErrOnPurpose // it is retried
			case 3:
				return projection.Stop(kit.ErrOnPurpose)
			}
			return nil
		})
		rt := b.Running(millrace.Config{}, p)
		b.Append(streamOf(1, 3), 1)
		last := b.Append(streamOf(3, 3), 1).Positions[0]
		b.InTime("the wait ends", func() {
			if err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, last); !errors.Is(err, projection.ErrFailed) {
				t.Errorf("the wait ended with %v", err)
			}
		})
		whole := b.Status(rt, "p")
		if whole.State != admin.StateFailed || !strings.HasPrefix(whole.Reason, "partition 3: ") ||
			whole.Position >= last {
			t.Errorf("the status is %+v", whole)
		}
	})
}

// The deliveries of all partitions are one sender to the receiver.
func TestDeliveriesOfPartitionsKeepTheOrderOfStreams(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var receiver kit.Receiver
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Partitions: 4, MaxEvents: 3, Retry: kit.Soon(1000),
			Handler: millrace.DeliverEach(receiver.Sends(func(context.Context, millrace.Delivered) error {
				if rand.N(10) == 0 {
					return kit.ErrOnPurpose
				}
				return nil
			}))})
		at := make(map[string][]int64)
		for i := range 120 {
			stream := fmt.Sprint("s", i%8)
			at[stream] = append(at[stream], b.Append(stream, 1).Positions[0])
		}
		b.Reaches(rt, "p", b.Head())
		arrived := make(map[string][]kit.Arrival)
		streams := make(map[int64]string)
		for stream, positions := range at {
			for _, p := range positions {
				streams[p] = stream
			}
		}
		projections := make(map[string]bool)
		for _, a := range receiver.All() {
			arrived[streams[a.Position]] = append(arrived[streams[a.Position]], a)
			projections[strings.SplitN(a.Token, "/", 2)[0]] = true
		}
		for stream, positions := range at {
			b.MustHaveArrived(arrived[stream], positions, 0)
		}
		if len(projections) != 1 {
			t.Errorf("the tokens of one projection begin with %d texts", len(projections))
		}
	})
}

func TestPartitionPassesOverTheEventsOfTheOthersWithoutWriting(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 4)
		rt := b.Runtime(millrace.Config{Store: tuning.Settings{Advance: time.Hour}}, s.Projection(kit.Nothing))
		stop := b.Start(rt)
		b.AllLive(rt, 4)
		for range 30 {
			b.Reaches(rt, "p", b.Append(streamOf(2, 4), 1).Positions[0]) // live
		}
		b.Pause(rt, "p")
		b.Append(streamOf(2, 4), 1000)
		b.Resume(rt, "p")
		b.Reaches(rt, "p", b.Head()) // behind
		check := func(when string, checkpoint func(number int, p admin.ProjectionStatus) int64) {
			t.Helper()
			for i, p := range b.StatusOf(rt).Projections {
				if want := checkpoint(i+1, p); p.Checkpoint != want {
					t.Errorf("%s: the checkpoint of %v is %d, want %d", when, p.ID, p.Checkpoint, want)
				}
			}
		}
		check("at work", func(number int, p admin.ProjectionStatus) int64 {
			if number == 2 {
				return b.Head()
			}
			return b.Head() - 1000 // from the pause
		})
		stop()
		check("at the end", func(int, admin.ProjectionStatus) int64 { return b.Head() })
		s.Verify()
	})
}

// A handler that waits keeps one partition busy, and the others work meanwhile. What else the machine does may delay a
// round.
func TestPartitionsShortenTheWorkOfAHandlerThatWaits(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		work := func(n int) time.Duration {
			b := kind.With(t, 20)
			s := kit.NewSplit(b, "p", n)
			p := s.Projection(func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
				kit.Pass(ctx, 20*time.Millisecond)
				return ctx.Err()
			})
			p.MaxEvents = 1
			for i := range 100 {
				b.Append(streamOf(i%4+1, 4), 1)
			}
			rt := b.Runtime(millrace.Config{MaxBatches: 10, MaxBatchesPerTenant: 10}, p)
			begin := time.Now()
			b.RunUntilIdle(rt)
			s.Verify()
			return time.Since(begin)
		}
		for round := 1; ; round++ {
			one, four := work(1), work(4)
			t.Logf("1 partition took %v, 4 took %v", one, four)
			if four < one/2 {
				return
			}
			if round == 5 {
				t.Fatal("in none of 5 rounds did 4 partitions take less than half the time")
			}
		}
	}, kit.ConcurrentWrites, kit.Alone)
}
