package tests_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

var resplitsFor = flag.Duration("resplits", 10*time.Second, "how long TestResplitsProperty may look, for each store")

// TestResplitsProperty plays random sequences of appends, batches, parked events and streams, replays, discards,
// takeovers and re-splits, and then handles everything that is left. Each event must have been applied once, or be
// parked or discarded by then. Repeat a failure by -rapid.seed or -rapid.failfile, and look for longer by
// -rapid.checks=10000 -resplits=1h.
func TestResplitsProperty(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Ctx = t.Context()
		begin, failed, sequences := time.Now(), false, 0
		defer func() { t.Logf("%d sequences", sequences) }()
		rapid.Check(t, func(t *rapid.T) {
			if !failed && time.Since(begin) > *resplitsFor {
				return
			}
			sequences++
			w := newSplitWorld(t, b, fmt.Sprint("t", sequences))
			defer w.gone()
			failed = true // until the check fails: then rapid shrinks the failure
			w.play()
			failed = false
		})
	})
}

// splitWorld is a projection of a tenant of its own, whose partitions are worked on by hand. Streams whose names begin
// with s are parked as a whole.
type splitWorld struct {
	*rapid.T
	store   kit.Store
	port    store.Driver
	plane   control.Plane
	ctx     context.Context
	tenant  kit.Tenant
	id      projection.ID
	node    engine.Node
	session engine.Session
	// leases are those of the partitions. zombies are leases of rows that are gone.
	leases, zombies []engine.Lease
	events          map[int64]event.Envelope
	head            int64
	// replay and discard are the positions that commands without a limit selected. limits are those of all commands.
	replay, discard []int64
	limits          map[int64]int64
}

var splitStreams = []string{"s1", "s2", "s3", "s4", "s5", "s6", "e1", "e2", "e3", "e4"}

func newSplitWorld(t *rapid.T, b *kit.Bundle, name string) *splitWorld {
	w := &splitWorld{T: t, store: b.Store, port: b.Store.Engine(), plane: b.Plane(), ctx: b.Ctx,
		id:     projection.ID{Tenant: name, Name: "p of " + name},
		events: make(map[int64]event.Envelope), limits: make(map[int64]int64)}
	var err error
	w.tenant, err = b.Store.CreateTenant(w.ctx, name)
	w.must(err)
	first := engine.NewProjection{Tenant: name, Name: w.id.Name, Partitions: rapid.IntRange(1, 4).Draw(t, "partitions")}
	_, err = w.plane.Ensure(w.ctx, []engine.NewProjection{first})
	w.must(err)
	w.takeOver()
	return w
}

func (w *splitWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// takeOver makes another node the owner.
func (w *splitWorld) takeOver() {
	w.Helper()
	w.gone()
	w.node = engine.Node{
		ID: uuid.NewString(), Projections: []string{w.id.Name}, Tenants: []string{w.id.Tenant},
		LeaseDuration: 10 * time.Minute,
	}
	var err error
	w.session, err = w.port.Connect(w.ctx, w.node)
	w.must(err)
	w.claim()
}

func (w *splitWorld) gone() {
	if w.session != nil {
		ctx := context.WithoutCancel(w.ctx)
		w.must(errors.Join(w.session.Deregister(ctx), w.session.Close(ctx)))
		w.session = nil
	}
}

// claim claims all partitions, which are free.
func (w *splitWorld) claim() {
	w.Helper()
	free, err := w.port.Free(w.ctx, w.node, true, true)
	w.must(err)
	rows := make([]int32, len(free))
	for i, ref := range free {
		rows[i] = ref.Row
	}
	w.leases, err = w.port.Claim(w.ctx, w.node, rows, true)
	w.must(err)
	if len(w.leases) == 0 || len(w.leases) != len(rows) || len(w.leases) != w.leases[0].Partitions {
		w.Fatalf("claimed %+v of %+v", w.leases, free)
	}
}

// reload reads leases again.
func (w *splitWorld) reload(leases ...engine.Lease) []engine.Lease {
	w.Helper()
	rows := make([]int32, len(leases))
	for i, lease := range leases {
		rows[i] = lease.Row
	}
	now, err := w.port.Leases(w.ctx, rows)
	w.must(err)
	if len(now) != len(leases) {
		w.Fatalf("%+v of %+v are left", now, leases)
	}
	return now
}

func (w *splitWorld) any() engine.Lease {
	return w.reload(rapid.SampledFrom(w.leases).Draw(w.T, "partition"))[0]
}

func (w *splitWorld) play() {
	w.Repeat(map[string]func(*rapid.T){
		"append":   func(*rapid.T) { w.append() },
		"batch":    func(*rapid.T) { w.batch() },
		"batch 2":  func(*rapid.T) { w.batch() },
		"work":     func(*rapid.T) { w.obey(w.any(), true, 2) },
		"replay":   func(*rapid.T) { w.command(engine.ReplayCommand) },
		"discard":  func(*rapid.T) { w.command(engine.DiscardCommand) },
		"takeover": func(*rapid.T) { w.takeOver() },
		"zombie":   func(*rapid.T) { w.zombie() },
		"split":    func(*rapid.T) { w.split() },
		"":         func(*rapid.T) { w.check() },
	})
	w.finish()
}

func (w *splitWorld) append() {
	stream := rapid.SampledFrom(splitStreams).Draw(w.T, "stream")
	n := rapid.IntRange(1, 3).Draw(w.T, "events")
	result, err := w.tenant.Append(w.ctx, stream, event.Any, kit.SomeEvents(n)...)
	w.must(err)
	for i, at := range result.Positions {
		w.events[at] = event.Envelope{
			Position: at, Stream: stream, Version: result.Version - int64(n-1-i), Type: "T", Body: []byte("0"),
		}
		w.head = at
	}
}

// batch handles some of the next events of a partition, or parks the next one.
func (w *splitWorld) batch() {
	w.handle(w.any(), true, rapid.IntRange(1, 5).Draw(w.T, "batch"))
}

func (w *splitWorld) handle(lease engine.Lease, poison bool, limit int) (more bool) {
	page, err := w.port.Read(w.ctx, w.id.Tenant, engine.ReadRange{After: lease.Checkpoint,
		UpTo: w.head, Limit: limit, MaxBytes: 1 << 20, Share: lease.Share})
	w.must(err)
	if len(page.Events) == 0 {
		return false
	}
	parked, err := w.plane.ParkedStreams(w.ctx, lease, splitStreams)
	w.must(err)
	batch := engine.Batch{To: page.Events[len(page.Events)-1].Position}
	for _, e := range page.Events {
		if parked[e.Stream] {
			batch.BlockedByStream = append(batch.BlockedByStream, e)
		} else {
			batch.Events = append(batch.Events, e)
		}
	}
	first := page.Events[0]
	if poison && !parked[first.Stream] && rapid.Bool().Draw(w.T, "poison") {
		if rapid.IntRange(0, 3).Draw(w.T, "attempt") == 0 {
			_, err := w.plane.RecordFailure(w.ctx, lease,
				projection.Failure{Projection: lease.ID, Event: first, Attempt: 1, Err: errBad}, time.Second)
			w.must(err)
			return true
		}
		letter := projection.DeadLetter{
			Position: first.Position, Stream: first.Stream, Version: first.Version, Type: first.Type, Error: "bad",
			Attempts: 1,
		}
		w.must(w.plane.Park(w.ctx, lease, letter, first.Stream[0] == 's'))
		return true
	}
	w.must(w.apply(lease, batch))
	return true
}

// apply records the events of a batch.
func (w *splitWorld) apply(lease engine.Lease, batch engine.Batch) error {
	handler := w.store.Batch(kit.Record(w.id.Name)).Engine()
	return w.port.Apply(handler, engine.ApplyOptions{Timeout: 30 * time.Second})(w.ctx, lease, batch)
}

func (w *splitWorld) letters(id projection.ID, states ...projection.DeadLetterState) []projection.DeadLetter {
	w.Helper()
	letters, err := w.store.DeadLetters(id).List(w.ctx, projection.DeadLetterPage{Limit: 100_000, States: states})
	w.must(err)
	return letters
}

// command gives a command to all partitions.
func (w *splitWorld) command(kind engine.CommandKind) {
	limit := rapid.SampledFrom([]int{1, 4, 1000, 1000}).Draw(w.T, "limit")
	parked := positionsOf(w.letters(w.id))
	switch {
	case len(parked) == 0:
		w.Skip("no event is parked")
	case limit == 1000 && kind == engine.ReplayCommand:
		w.replay = append(w.replay, parked...)
	case limit == 1000:
		w.discard = append(w.discard, parked...)
	}
	id, err := w.store.DeadLetters(w.id).(*deadletters.DeadLetters).Start(w.ctx, kind,
		projection.DeadLetterFilter{All: true}, limit)
	w.must(err)
	w.limits[id] = int64(limit)
}

// obey runs a part of the next command of a partition.
func (w *splitWorld) obey(lease engine.Lease, poison bool, replays int) (more bool) {
	queue, err := w.plane.NextCommand(w.ctx, lease, false)
	w.must(err)
	if queue.Command == nil {
		return false
	}
	if !queue.Command.Replay {
		_, err := w.plane.Discard(w.ctx, lease, queue.Command.ID)
		w.must(err)
		return true
	}
	for range replays {
		r, err := w.plane.BeginReplay(w.ctx, lease, engine.ReplayRequest{Command: queue.Command.ID, AnyOrder: true})
		w.must(err)
		if r == nil {
			return true
		}
		how := "replay"
		if poison {
			how = rapid.SampledFrom([]string{"replay", "replay", "fail", "interrupt"}).Draw(w.T, "how")
		}
		switch how {
		case "replay":
			w.must(w.apply(lease, engine.Batch{Events: []event.Envelope{w.events[r.Position]},
				To: lease.Checkpoint, Replay: r}))
		case "fail":
			w.must(w.plane.FailReplay(w.ctx, lease, failedReplay(*r, errBad)))
		case "interrupt":
			return true
		}
	}
	return true
}

// zombie has a previous owner try everything.
func (w *splitWorld) zombie() {
	if len(w.zombies) == 0 {
		w.Skip("there is none")
	}
	lease := rapid.SampledFrom(w.zombies).Draw(w.T, "zombie")
	letter := projection.DeadLetter{
		Position: lease.Checkpoint + 1, Stream: "s1", Version: 1, Type: "T", Error: "bad", Attempts: 1,
	}
	_, recorded := w.plane.RecordFailure(w.ctx, lease,
		projection.Failure{Projection: lease.ID, Event: event.Envelope{Position: 1}, Attempt: 1, Err: errBad},
		time.Second)
	_, begun := w.plane.BeginReplay(w.ctx, lease, engine.ReplayRequest{Command: 1})
	for what, err := range map[string]error{
		"batch":   w.apply(lease, engine.Batch{To: lease.Checkpoint + 1}),
		"park":    w.plane.Park(w.ctx, lease, letter, true),
		"skip":    w.plane.Skip(w.ctx, lease, lease.Checkpoint+1),
		"halt":    w.plane.Halt(w.ctx, lease, "x"),
		"failure": recorded,
		"replay":  begun,
		"attempt": w.plane.BeginAttempt(w.ctx, lease, lease.Checkpoint+1, 1),
	} {
		if !errors.Is(err, projection.ErrLeaseLost) {
			w.Fatalf("%s of a previous owner: %v", what, err)
		}
	}
}

// failing returns the events that fail, in order.
func (w *splitWorld) failing() (positions []int64) {
	for _, now := range w.reload(w.leases...) {
		if now.FailingPosition > now.Checkpoint {
			positions = append(positions, now.FailingPosition)
		}
	}
	slices.Sort(positions)
	return positions
}

func (w *splitWorld) split() {
	n := rapid.IntRange(1, 8).Draw(w.T, "n")
	before := w.failing()
	w.must(w.plane.Repartition(w.ctx, w.id, n))
	if len(w.leases) == n {
		return
	}
	old := w.leases
	w.zombies = append(w.zombies, old...)
	w.claim()
	if len(w.leases) != n {
		w.Fatalf("%d partitions, want %d", len(w.leases), n)
	}
	for _, lease := range w.leases {
		if slices.ContainsFunc(old, func(o engine.Lease) bool { return o.Row == lease.Row }) {
			w.Fatalf("row %d is left", lease.Row)
		}
	}
	// The failure of each partition's first failing event is kept; attempts at later ones begin anew.
	if after := w.failing(); len(before) > 0 && (len(after) == 0 || after[0] != before[0]) {
		w.Fatalf("%v failed before, %v after", before, after)
	}
}

// check checks what always holds.
func (w *splitWorld) check() {
	w.Helper()
	letters := w.letters(w.id, deadletters.AllStates...)
	for _, lease := range w.reload(w.leases...) {
		streams, err := w.plane.ParkedStreams(w.ctx, lease, splitStreams)
		w.must(err)
		parked := int64(0)
		for _, l := range letters {
			if l.Projection != lease.ID {
				continue
			}
			streams[l.Stream] = true
			if l.State == projection.DeadLetterParked || l.State == projection.DeadLetterReplaying {
				parked++
			}
		}
		if lease.Parked != parked {
			w.Fatalf("%v counts %d parked events, and has %d", lease.ID, lease.Parked, parked)
		}
		for stream := range streams {
			if streams[stream] && !lease.Share.Slots().Contains(partition.Slot(stream)) {
				w.Fatalf("%v has %s, with the slots %+v", lease.ID, stream, lease.Share.Slots())
			}
		}
	}
	w.ordered()
}

// ordered checks that each event was applied once, and those of streams that are parked as a whole in order.
func (w *splitWorld) ordered() (applied map[int64]bool) {
	applied = make(map[int64]bool)
	last := make(map[string]int64)
	records, err := w.store.Applied(w.ctx, w.id.Name)
	w.must(err)
	for _, r := range records {
		e := w.events[r.Position]
		if applied[r.Position] || e.Stream[0] == 's' && r.Position < last[e.Stream] {
			w.Fatalf("event %d of %s was applied after %d, before: %v", r.Position, e.Stream, last[e.Stream],
				applied[r.Position])
		}
		applied[r.Position], last[e.Stream] = true, r.Position
	}
	return applied
}

// finish handles everything that is left, and runs all commands.
func (w *splitWorld) finish() {
	for _, lease := range w.leases {
		for lease = w.reload(lease)[0]; w.handle(lease, false, 100); {
			lease = w.reload(lease)[0]
		}
		for w.obey(lease, false, 100) {
			lease = w.reload(lease)[0]
		}
	}
	w.check()
	applied := w.ordered()
	waiting := positionsOf(w.letters(w.id, projection.DeadLetterParked, projection.DeadLetterDiscarded))
	for at, e := range w.events {
		if applied[at] == slices.Contains(waiting, at) {
			w.Fatalf("event %d of %s was applied: %v, and is parked or discarded: %v", at, e.Stream, applied[at],
				!applied[at])
		}
	}
	// A command may have failed to replay an event, or the one before it in its stream.
	for _, l := range w.letters(w.id) {
		if slices.Contains(w.discard, l.Position) ||
			slices.Contains(w.replay, l.Position) && l.Replays == 0 && !l.BlockedByStream {
			w.Fatalf("%+v is parked, of which %v were replayed and %v discarded", l, w.replay, w.discard)
		}
	}
	w.results()
}

// results checks the results of the commands, which have all ended.
func (w *splitWorld) results() {
	var done int64
	for id, limit := range w.limits {
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		result, err := w.store.DeadLetters(w.id).Wait(ctx, id)
		cancel()
		w.must(err)
		if result.Done+result.Failed > limit {
			w.Fatalf("%+v exceeds its limit %d", result, limit)
		}
		done += result.Done
	}
	if ended := w.letters(w.id, projection.DeadLetterResolved,
		projection.DeadLetterDiscarded); int64(len(ended)) != done {
		w.Fatalf("%d dead letters are resolved or discarded, the commands count %d", len(ended), done)
	}
	if replaying := w.letters(w.id, projection.DeadLetterReplaying); len(replaying) > 0 {
		w.Fatalf("%+v are being replayed, and no command is open", replaying)
	}
}
