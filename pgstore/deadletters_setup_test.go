package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// errBad is the error of failing events.
var errBad = errors.New("bad")

// drawer is an owner of a projection with dead letters. Its tenant has the streams a, b and c, with as many events
// each, in turn; at has the positions of each stream's events.
type drawer struct {
	*owner
	at     map[string][]int64
	events map[int64]event.Envelope
}

func newDrawer(t testing.TB, each int) *drawer {
	t.Helper()
	d := &drawer{owner: newOwner(t, 0), at: make(map[string][]int64), events: make(map[int64]event.Envelope)}
	for range each {
		for _, stream := range []string{"a", "b", "c"} {
			d.append(stream)
		}
	}
	return d
}

func (d *drawer) append(stream string) int64 {
	d.t.Helper()
	e := event.Event{Type: "of " + stream, Body: []byte(`{"of": "` + stream + `"}`)}
	at := mustAppend(d.t, d.store.tenant, stream, event.Any, e).Positions[0]
	d.at[stream] = append(d.at[stream], at)
	d.events[at] = event.Envelope{
		Position: at, Stream: stream, Version: int64(len(d.at[stream])), Type: e.Type, Body: e.Body,
	}
	return at
}

func (d *drawer) plane() control.Plane { return d.store.plane() }

func (d *drawer) letters() projection.DeadLetters { return d.store.DeadLetters(d.lease.ID) }

// must fails the test on an error, and otherwise reads the lease again.
func (d *drawer) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	d.refresh()
}

// letter returns the dead letter of the failed event at a position.
func (d *drawer) letter(position int64) projection.DeadLetter {
	e := d.events[position]
	return projection.DeadLetter{
		Position: position, Stream: e.Stream, Version: e.Version, Type: e.Type, Error: fmt.Sprint("bad at ", position),
		Attempts: 4,
	}
}

func (d *drawer) park(position int64, stream bool) {
	d.t.Helper()
	d.must(d.plane().Park(testContext(d.t), d.lease, d.letter(position), stream))
}

// batch returns a batch up to a position. Events after the checkpoint are handled, except the blocked ones.
func (d *drawer) batch(to int64, behind ...int64) engine.Batch {
	b := engine.Batch{To: to}
	for p := d.lease.Checkpoint + 1; p <= to; p++ {
		switch e, there := d.events[p]; {
		case !there:
		case slices.Contains(behind, p):
			b.BlockedByStream = append(b.BlockedByStream, e)
		default:
			b.Events = append(b.Events, e)
		}
	}
	return b
}

func (d *drawer) run(h batchFunc, b engine.Batch) error {
	return d.store.port().apply(h, engine.ApplyOptions{})(testContext(d.t), d.lease, b)
}

// give inserts a command and does not wait for it.
func (d *drawer) give(kind string, filter projection.DeadLetterFilter, limit int) (command int64) {
	d.t.Helper()
	command, err := d.plane().Insert(testContext(d.t), d.lease.ID, engine.CommandKind(kind), filter, limit)
	if err != nil {
		d.t.Fatal(err)
	}
	return command
}

func (d *drawer) begin(command, mine int64) *engine.Replay {
	d.t.Helper()
	r, err := d.plane().BeginReplay(testContext(d.t), d.lease, engine.ReplayRequest{Command: command, LastBegun: mine})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// again is the batch of a replay.
func (d *drawer) again(r *engine.Replay) engine.Batch {
	return engine.Batch{Events: []event.Envelope{d.events[r.Position]}, To: d.lease.Checkpoint, Replay: r}
}

// replay runs a command, and returns the positions that it applied. It fails at those of poison.
func (d *drawer) replay(command int64, poison ...int64) (applied []int64) {
	d.t.Helper()
	for {
		r := d.begin(command, 0)
		if r == nil {
			return applied
		}
		if slices.Contains(poison, r.Position) {
			d.must(d.plane().FailReplay(testContext(d.t), d.lease, failedReplay(*r, errBad, "")))
			continue
		}
		d.must(d.run(write, d.again(r)))
		applied = append(applied, r.Position)
	}
}

func (d *drawer) outcome(command int64) (ended bool, o projection.CommandResult) {
	d.t.Helper()
	parts, err := d.plane().Parts(testContext(d.t), d.lease.ID, command)
	if err != nil || len(parts) == 0 {
		d.t.Fatal(len(parts), err)
	}
	o, ended = deadletters.Result(0, parts)
	return ended, o
}

// mustHave checks the parked events, their counter and the parked streams.
func (d *drawer) mustHave(parked []int64, streams ...string) {
	d.t.Helper()
	if got := d.parked(); !slices.Equal(got, parked) {
		d.t.Errorf("parked: %v, want %v", got, parked)
	}
	if n := one[int](d.t, d.store, "select parked from millrace.projections where id = $1",
		d.lease.Row); n != len(parked) {
		d.t.Errorf("%d are counted as parked, there are %d", n, len(parked))
	}
	if got := one[[]string](d.t, d.store,
		"select coalesce(array_agg(stream_id order by stream_id), '{}') from millrace.parked_streams where projection_id = $1", d.lease.Row); !slices.Equal(got, streams) {
		d.t.Errorf("parked streams: %v, want %v", got, streams)
	}
}

func (d *drawer) parked() (positions []int64) {
	d.t.Helper()
	return positionsOf(d.list(projection.DeadLetterPage{Limit: 10_000}))
}

func (d *drawer) list(page projection.DeadLetterPage) []projection.DeadLetter {
	d.t.Helper()
	letters, err := d.letters().List(testContext(d.t), page)
	if err != nil {
		d.t.Fatal(err)
	}
	return letters
}

// one returns the dead letter at a position, in any state.
func (d *drawer) one(position int64) projection.DeadLetter {
	d.t.Helper()
	for _, l := range d.list(projection.DeadLetterPage{States: deadletters.AllStates, Limit: 10_000}) {
		if l.Position == position {
			return l
		}
	}
	d.t.Fatalf("there is no letter at position %d", position)
	return projection.DeadLetter{}
}

func positionsOf(letters []projection.DeadLetter) (positions []int64) {
	for _, l := range letters {
		positions = append(positions, l.Position)
	}
	return positions
}

// model are the positions that the read model has, in order of their writing.
func (d *drawer) model() []int64 {
	d.t.Helper()
	return one[[]int64](d.t, d.store, "select coalesce(array_agg(position order by at), '{}') from public.model")
}

// state is all that the control schema says of dead letters and leases, to be compared.
func (d *drawer) state() string {
	d.t.Helper()
	return one[string](d.t, d.store, `select concat_ws(E'\n',
		(select string_agg(x::text, E'\n' order by x::text) from millrace.dead_letters x), (select string_agg(x::text, E'\n' order by x::text) from millrace.parked_streams x),
		(select string_agg(x::text, E'\n' order by x::text) from millrace.commands x), (select string_agg(x::text, E'\n' order by x::text) from millrace.projections x),
		(select string_agg(x::text, E'\n' order by x::text) from millrace.leases x), (select string_agg(x::text, E'\n' order by x::text) from public.model x))`)
}

// held runs write in a transaction whose commit is held back, as that of a session whose client is gone, until commit
// is called.
func (d *drawer) held(write func(tx store.Tx)) (commit func()) {
	d.t.Helper()
	ctx := testContext(d.t)
	conn := strange(d.t, d.store)
	tx, err := conn.Begin(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	t := d.store.on(ctx, tx)
	write(t)
	if t.flush() != nil {
		d.t.Fatal(t.err)
	}
	return func() {
		d.t.Helper()
		if err := tx.Commit(ctx); err != nil {
			d.t.Fatal(err)
		}
	}
}

// within runs fn while the transaction of held is open, and commits that one once fn waits for it.
func (d *drawer) within(commit func(), fn func() error) error {
	d.t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	waitBlocked(d.t, d.store, 1)
	commit()
	select {
	case err := <-done:
		return err
	case <-time.After(hangs):
		d.t.Fatal("it waits for ever")
		return nil
	}
}

// writes is a handler that writes and then sends a statement.
func writesAndSends(sql string) batchFunc {
	return writeAnd(func(ctx context.Context, tx pgx.Tx) error { return sends(sql)(ctx, tx) })
}

// failedReplay is the failure of a replay, counted as the next attempt.
func failedReplay(r engine.Replay, err error, stack string) engine.FailedReplay {
	return engine.FailedReplay{Replay: r, Attempt: r.Attempts + 1, Err: err, Stack: stack}
}
