package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// errBad is the error of failing events.
var errBad = errors.New("bad")

// drawer is the holder of the lease of a projection with dead letters. Its tenant has the streams a, b and c; at has
// the positions of each stream's events.
type drawer struct {
	*kit.Holder
	at     map[string][]int64
	events map[int64]event.Envelope
	// anyOrder is Projection.AnyOrder.
	anyOrder bool
}

// newDrawer returns the holder of the lease of projection p. Its streams have that many events each, in turn.
func newDrawer(b *kit.Bundle, each int) *drawer {
	b.T.Helper()
	d := drawerOf(b, "p")
	for range each {
		for _, stream := range []string{"a", "b", "c"} {
			d.add(stream)
		}
	}
	return d
}

// drawerOf returns the holder of the lease of a new projection. Its checkpoint is at the last event.
func drawerOf(b *kit.Bundle, name string) *drawer {
	b.T.Helper()
	d := &drawer{Holder: b.HoldOf(name), at: make(map[string][]int64), events: make(map[int64]event.Envelope)}
	if head := d.Head(); head > 0 {
		_, err := d.Port.Advance(d.Ctx, []engine.Advance{{Lease: d.Lease, To: head}})
		d.must(err)
	}
	return d
}

// claim makes another node the holder of the lease.
func (d *drawer) claim() {
	d.T.Helper()
	d.Holder = d.Next()
	d.refresh()
}

// refresh reads the lease again, whoever holds it.
func (d *drawer) refresh() {
	d.T.Helper()
	leases, err := d.Port.Leases(d.Ctx, []int32{d.Lease.Row})
	d.Must(err)
	d.Lease = leases[0]
	failed, err := d.Plane().CountFailedLetters(d.Ctx, d.Lease)
	d.Must(err)
	d.Lease.SetFailed(failed)
}

// must fails the test on an error, and otherwise reads the lease again.
func (d *drawer) must(err error) {
	d.T.Helper()
	d.Must(err)
	d.refresh()
}

func (d *drawer) add(stream string) int64 {
	d.T.Helper()
	return d.addTo(stream, stream)
}

// addTo appends an event of a kind, under which at has its position.
func (d *drawer) addTo(stream, kind string) int64 {
	d.T.Helper()
	e := event.Event{Type: "of " + kind, Body: []byte(`{"of": "` + kind + `"}`)}
	result, err := d.Store.Append(d.Ctx, stream, event.Any, e)
	d.Must(err)
	at := result.Positions[0]
	d.at[kind] = append(d.at[kind], at)
	d.events[at] = event.Envelope{Position: at, Stream: stream, Version: result.Version, Type: e.Type, Body: e.Body}
	return at
}

func (d *drawer) letters() projection.DeadLetters { return d.Store.DeadLetters(d.Lease.ID) }

// letter returns the dead letter of the failed event at a position.
func (d *drawer) letter(position int64) projection.DeadLetter {
	e := d.events[position]
	return projection.DeadLetter{
		Position: position, Stream: e.Stream, Version: e.Version, Type: e.Type, Error: fmt.Sprint("bad at ", position),
		Attempts: 4,
	}
}

func (d *drawer) park(position int64, stream bool) {
	d.T.Helper()
	d.must(d.Plane().Park(d.Ctx, d.Lease, d.letter(position), stream))
}

// batch returns a batch up to a position. Events after the checkpoint are handled, except the blocked ones.
func (d *drawer) batch(to int64, blocked ...int64) engine.Batch {
	b := engine.Batch{To: to}
	for p := d.Lease.Checkpoint + 1; p <= to; p++ {
		switch e, there := d.events[p]; {
		case !there:
		case slices.Contains(blocked, p):
			b.BlockedByStream = append(b.BlockedByStream, e)
		default:
			b.Events = append(b.Events, e)
		}
	}
	return b
}

// after returns the positions of these streams after the checkpoint.
func (d *drawer) after(streams ...string) (positions []int64) {
	for _, s := range streams {
		for _, p := range d.at[s] {
			if p > d.Lease.Checkpoint {
				positions = append(positions, p)
			}
		}
	}
	return positions
}

// write is a handler that records its events.
func (d *drawer) write(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
	return tx.Record(ctx, d.Lease.ID.Name, events...)
}

func (d *drawer) run(h kit.BatchFunc, b engine.Batch) error { return d.runAs(d.Lease, h, b) }

// runAs runs a batch under a lease.
func (d *drawer) runAs(lease engine.Lease, h kit.BatchFunc, b engine.Batch) error {
	return d.Port.Apply(d.Store.Batch(h).Engine(), engine.ApplyOptions{Timeout: 30 * time.Second})(d.Ctx, lease, b)
}

// give starts a command and does not wait for it.
func (d *drawer) give(kind engine.CommandKind, filter projection.DeadLetterFilter, limit int) int64 {
	d.T.Helper()
	command, err := d.letters().(*deadletters.DeadLetters).Start(d.Ctx, kind, filter, limit)
	d.Must(err)
	return command
}

// discard discards the dead letters at positions.
func (d *drawer) discard(positions ...int64) {
	d.T.Helper()
	var filter projection.DeadLetterFilter
	for _, p := range positions {
		filter.IDs = append(filter.IDs, d.one(p).ID)
	}
	_, err := d.Plane().Discard(d.Ctx, d.Lease, d.give(engine.DiscardCommand, filter, len(positions)))
	d.must(err)
}

func (d *drawer) begin(command, lastBegun int64) *engine.Replay {
	d.T.Helper()
	r, err := d.Plane().BeginReplay(d.Ctx, d.Lease,
		engine.ReplayRequest{Command: command, LastBegun: lastBegun, AnyOrder: d.anyOrder})
	d.must(err)
	return r
}

// again is the batch of a replay.
func (d *drawer) again(r *engine.Replay) engine.Batch {
	return engine.Batch{Events: []event.Envelope{d.events[r.Position]}, To: d.Lease.Checkpoint, Replay: r}
}

// replay runs a command, and returns the positions that it applied. It fails at those of poison.
func (d *drawer) replay(command int64, poison ...int64) (applied []int64) {
	d.T.Helper()
	for {
		r := d.begin(command, 0)
		if r == nil {
			return applied
		}
		if slices.Contains(poison, r.Position) {
			d.must(d.Plane().FailReplay(d.Ctx, d.Lease, failedReplay(*r, errBad)))
			continue
		}
		d.must(d.run(d.write, d.again(r)))
		applied = append(applied, r.Position)
	}
}

// failedReplay is the failure of a replay, counted as the next attempt.
func failedReplay(r engine.Replay, err error) engine.FailedReplay {
	return engine.FailedReplay{Replay: r, Attempt: r.Attempts + 1, Err: err}
}

// result returns the result of a command, and false if a command has not ended.
func (d *drawer) result(command int64) (result projection.CommandResult, ended bool) {
	d.T.Helper()
	_, open, err := d.Store.Commands(d.Ctx)
	d.Must(err)
	if open > 0 {
		return result, false
	}
	result, err = d.letters().Wait(d.Ctx, command)
	d.Must(err)
	result.Command = 0
	return result, true
}

// mustHave checks the parked events, their counter and the parked streams.
func (d *drawer) mustHave(parked []int64, streams ...string) {
	d.T.Helper()
	if got := positionsOf(d.list(projection.DeadLetterPage{})); !slices.Equal(got, parked) {
		d.T.Errorf("parked: %v, want %v", got, parked)
	}
	d.refresh()
	if d.Lease.Parked != int64(len(parked)) || d.Lease.ParkedStreams != (len(streams) > 0) {
		d.T.Errorf("%d are counted as parked, there are %d", d.Lease.Parked, len(parked))
	}
	if got := d.parkedStreams(); !slices.Equal(got, streams) {
		d.T.Errorf("parked streams: %v, want %v", got, streams)
	}
}

func (d *drawer) parkedStreams() (streams []string) {
	d.T.Helper()
	all := []string{"a", "b", "c"}
	parked, err := d.Plane().ParkedStreams(d.Ctx, d.Lease, all)
	d.Must(err)
	return slices.DeleteFunc(all, func(s string) bool { return !parked[s] })
}

func (d *drawer) list(page projection.DeadLetterPage) []projection.DeadLetter {
	d.T.Helper()
	if page.Limit == 0 {
		page.Limit = 10_000
	}
	letters, err := d.letters().List(d.Ctx, page)
	d.Must(err)
	return letters
}

// one returns the dead letter at a position, in any state.
func (d *drawer) one(position int64) projection.DeadLetter {
	d.T.Helper()
	for _, l := range d.list(projection.DeadLetterPage{States: deadletters.AllStates}) {
		if l.Position == position {
			return l
		}
	}
	d.T.Fatalf("there is no dead letter at position %d", position)
	return projection.DeadLetter{}
}

func positionsOf(letters []projection.DeadLetter) (positions []int64) {
	for _, l := range letters {
		positions = append(positions, l.Position)
	}
	return positions
}

// applied returns the positions that the projection recorded, in order.
func (d *drawer) applied() []int64 { return d.Positions(d.Lease.ID.Name) }

// state describes the dead letters, the commands and the lease, to be compared.
func (d *drawer) state() string {
	d.T.Helper()
	d.refresh()
	all, open, err := d.Store.Commands(d.Ctx)
	d.Must(err)
	var letters strings.Builder
	for _, l := range d.list(projection.DeadLetterPage{States: deadletters.AllStates}) {
		fmt.Fprintf(&letters, "%+v\n", l)
	}
	return fmt.Sprintf("%s%v\n%+v\n%d commands, %d open\n%v", letters.String(), d.parkedStreams(), d.Lease, all, open,
		d.applied())
}
