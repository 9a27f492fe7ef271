package pgstore

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

var resplitsFor = flag.Duration("resplits", 10*time.Second, "how long TestResplitsProperty may look")

// TestResplitsProperty plays random sequences of appends, batches, parked events and streams, replays, discards, takeovers and
// re-splits, and then handles everything that is left. Each event must have been applied once, or be parked or discarded by then.
// Repeat a failure by -rapid.seed or -rapid.failfile, and look for longer by -rapid.checks=10000 -resplits=1h.
func TestResplitsProperty(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	makeModel(t, store)
	begin, failed, tenants := time.Now(), false, 0
	defer func() { t.Logf("%d sequences", tenants) }()
	rapid.Check(t, func(t *rapid.T) {
		if !failed && time.Since(begin) > *resplitsFor {
			return
		}
		tenants++
		w := newSplitWorld(t, store, fmt.Sprint("t", tenants))
		failed = true // until the check fails: then rapid shrinks the failure
		w.play()
		failed = false
	})
}

// splitWorld is a projection of a tenant, whose partitions are worked on by hand. Streams whose names begin with s are parked
// as a whole.
type splitWorld struct {
	rapidT
	store  *Store
	tenant *Tenant
	id     projection.ID
	owners map[int32]engine.Lease
	// zombies are leases of rows that are gone.
	zombies []engine.Lease
	events  map[int64]event.Envelope
	// replay and discard are the positions that commands without a limit selected.
	replay, discard []int64
}

// rapidT is a rapid.T as helpers of tests take it.
type rapidT struct{ *rapid.T }

func newSplitWorld(t *rapid.T, store *Store, name string) *splitWorld {
	ctx := t.Context()
	tenant, err := store.CreateTenant(ctx, name)
	w := &splitWorld{rapidT: rapidT{t}, store: store, tenant: tenant, id: projection.ID{Tenant: name, Name: "p"}, events: make(map[int64]event.Envelope),
		owners: make(map[int32]engine.Lease)}
	w.must(err)
	w.exec("truncate public.model")
	first := engine.NewProjection{Tenant: name, Name: "p", Partitions: rapid.IntRange(1, 4).Draw(t, "partitions")}
	w.must(store.port().Ensure(ctx, []engine.NewProjection{first}))
	return w
}

func (w *splitWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *splitWorld) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.store.pool.Exec(w.Context(), sql, args...)
	w.must(err)
}

// numbers returns the column of numbers that a query returns.
func (w *splitWorld) numbers(sql string, args ...any) []int64 {
	w.Helper()
	rows, _ := w.store.pool.Query(w.Context(), sql, args...)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	w.must(err)
	return numbers
}

func (w *splitWorld) play() {
	w.Repeat(map[string]func(*rapid.T){
		"append":  func(*rapid.T) { w.append() },
		"batch":   func(*rapid.T) { w.batch(true) },
		"batch 2": func(*rapid.T) { w.batch(true) },
		"work":    func(*rapid.T) { w.work(true) },
		"replay":  func(*rapid.T) { w.command("replay") },
		"discard": func(*rapid.T) { w.command("discard") },
		"takeover": func(*rapid.T) {
			clear(w.owners)
		},
		"zombie": func(*rapid.T) { w.zombie() },
		"split":  func(*rapid.T) { w.split() },
		"":       func(*rapid.T) { w.check() },
	})
	w.finish()
}

func (w *splitWorld) append() {
	stream := rapid.SampledFrom([]string{"s1", "s2", "s3", "s4", "s5", "s6", "e1", "e2", "e3", "e4"}).Draw(w.T, "stream")
	n := rapid.IntRange(1, 3).Draw(w.T, "events")
	result, err := w.tenant.Append(w.Context(), stream, event.Any, someEvents(n)...)
	w.must(err)
	for i, at := range result.Positions {
		w.events[at] = event.Envelope{Position: at, Stream: stream, Version: result.Version - int64(n-1-i), Type: "Counted", Body: []byte("0")}
	}
}

// rows returns the rows of the partitions in order.
func (w *splitWorld) rows() []int64 {
	return w.numbers("select id::bigint from millrace.projections where tenant = $1 order by partition", w.id.Tenant)
}

// owner returns a lease of one of the partitions. It is claimed if it is not held.
func (w *splitWorld) owner(row int32) engine.Lease {
	lease, held := w.owners[row]
	if !held {
		node := engine.Node{ID: uuid.NewString(), Projections: []string{"p"}, Tenants: []string{w.id.Tenant}, LeaseDuration: time.Minute}
		claim, err := w.store.claim(w.Context(), node, []int32{row}, true)
		w.must(err)
		lease = claim.leases[0]
	}
	now, err := reload(w.Context(), w.store, lease)
	w.must(err)
	w.owners[row] = now
	return now
}

func (w *splitWorld) any() engine.Lease {
	return w.owner(int32(rapid.SampledFrom(w.rows()).Draw(w.T, "row")))
}

// batch handles some of the next events of a partition, or parks the next one.
func (w *splitWorld) batch(poison bool) {
	w.handle(w.any(), poison, rapid.IntRange(1, 5).Draw(w.T, "batch"))
}

func (w *splitWorld) handle(lease engine.Lease, poison bool, limit int) (more bool) {
	ctx := w.Context()
	page, err := w.store.port().Read(ctx, w.id.Tenant, engine.ReadRange{After: lease.Checkpoint, UpTo: 1 << 40, Limit: limit, MaxBytes: 1 << 20, Share: lease.Share})
	w.must(err)
	if len(page.Events) == 0 {
		return false
	}
	var streams []string
	for _, e := range page.Events {
		streams = append(streams, e.Stream)
	}
	parked, err := w.store.port().ParkedStreams(ctx, lease, streams)
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
			_, err := w.store.port().RecordFailure(ctx, lease, projection.Failure{Projection: lease.ID, Event: first, Attempt: 1, Err: errBad})
			w.must(err)
			return true
		}
		letter := projection.DeadLetter{Position: first.Position, Stream: first.Stream, Version: first.Version, Type: first.Type, Error: "bad", Attempts: 1}
		w.must(w.store.port().Park(ctx, lease, letter, first.Stream[0] == 's'))
		return true
	}
	w.must(w.store.port().apply(write, engine.ApplyOptions{})(ctx, lease, batch))
	return true
}

// command gives a command to all partitions.
func (w *splitWorld) command(kind string) {
	limit := rapid.SampledFrom([]int64{1, 4, 1000, 1000}).Draw(w.T, "limit")
	parked := w.numbers(`select d.position from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where p.tenant = $1 and d.state in ('parked', 'replaying')`, w.id.Tenant)
	switch {
	case len(parked) == 0:
		w.Skip("no event is parked")
	case limit == 1000 && kind == "replay":
		w.replay = append(w.replay, parked...)
	case limit == 1000:
		w.discard = append(w.discard, parked...)
	}
	root := w.numbers(`insert into millrace.commands (projection_id, kind, max_events) select id, $2, $3 from millrace.projections
		where tenant = $1 order by partition limit 1 returning id`, w.id.Tenant, kind, limit)[0]
	w.exec(`insert into millrace.commands (projection_id, kind, max_events, root) select id, $2, $3, $4 from millrace.projections
		where tenant = $1 order by partition offset 1`, w.id.Tenant, kind, limit, root)
}

// work runs a part of the next command of a partition.
func (w *splitWorld) work(poison bool) { w.obey(w.any(), poison, 2) }

func (w *splitWorld) obey(lease engine.Lease, poison bool, replays int) (more bool) {
	ctx, port := w.Context(), w.store.port()
	queue, err := port.NextCommand(ctx, lease, false)
	w.must(err)
	if queue.Command == nil {
		return false
	}
	if !queue.Command.Replay {
		_, err := port.Discard(ctx, lease, queue.Command.ID)
		w.must(err)
		return true
	}
	for range replays {
		r, err := port.BeginReplay(ctx, lease, queue.Command.ID, 0)
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
			batch := engine.Batch{Events: []event.Envelope{w.events[r.Position]}, To: lease.Checkpoint, Replay: r}
			w.must(port.apply(write, engine.ApplyOptions{})(ctx, lease, batch))
		case "fail":
			w.must(port.FailReplay(ctx, lease, failedReplay(*r, errBad, "")))
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
	lease, ctx, port := rapid.SampledFrom(w.zombies).Draw(w.T, "zombie"), w.Context(), w.store.port()
	letter := projection.DeadLetter{Position: lease.Checkpoint + 1, Stream: "s1", Version: 1, Type: "Counted", Error: "bad", Attempts: 1}
	_, recorded := port.RecordFailure(ctx, lease, projection.Failure{Projection: lease.ID, Event: event.Envelope{Position: 1}, Attempt: 1, Err: errBad})
	_, begun := port.BeginReplay(ctx, lease, 1, 0)
	for what, err := range map[string]error{
		"batch":   port.apply(write, engine.ApplyOptions{})(ctx, lease, engine.Batch{To: lease.Checkpoint + 1}),
		"park":    port.Park(ctx, lease, letter, true),
		"skip":    port.Skip(ctx, lease, lease.Checkpoint+1),
		"halt":    port.Halt(ctx, lease, "x"),
		"failure": recorded,
		"replay":  begun,
		"attempt": port.BeginAttempt(ctx, lease, lease.Checkpoint+1, 1),
	} {
		if !errors.Is(err, projection.ErrLeaseLost) {
			w.Fatalf("%s of a previous owner: %v", what, err)
		}
	}
}

func (w *splitWorld) split() {
	n := rapid.IntRange(1, 8).Draw(w.T, "n")
	before := w.rows()
	failing := w.numbers("select failing_position from millrace.projections p join millrace.leases l using (id) where tenant = $1 and failing_position > checkpoint", w.id.Tenant)
	w.must(w.store.port().Repartition(w.Context(), w.id, n))
	if len(before) == n {
		return
	}
	for _, lease := range w.owners {
		w.zombies = append(w.zombies, lease)
	}
	clear(w.owners)
	for _, row := range w.rows() {
		if slices.Contains(before, row) {
			w.Fatalf("row %d is left", row)
		}
	}
	// The failure of each partition's first failing event is kept; attempts at later ones begin anew.
	kept := w.numbers("select failing_position from millrace.projections where tenant = $1 and failing_position > 0 order by 1", w.id.Tenant)
	if len(failing) > 0 && (len(kept) == 0 || kept[0] != slices.Min(failing)) {
		w.Fatalf("%v failed before, %v after", failing, kept)
	}
}

// check checks what always holds.
func (w *splitWorld) check() {
	w.Helper()
	for what, sql := range map[string]string{
		"dead letters with a partition that does not have their streams": `select d.id from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
			where p.tenant = $1 and not (('x' || left(md5(d.stream_id), 7))::bit(28)::integer between p.slot_from and p.slot_to - 1)`,
		"parked streams with a partition that does not have them": `select p.id::bigint from millrace.parked_streams s join millrace.projections p on p.id = s.projection_id
			where p.tenant = $1 and not (('x' || left(md5(s.stream_id), 7))::bit(28)::integer between p.slot_from and p.slot_to - 1)`,
		"partitions with a wrong number of parked events": `select p.id::bigint from millrace.projections p
			where p.tenant = $1 and p.parked <> (select count(*) from millrace.dead_letters d where d.projection_id = p.id and d.state in ('parked', 'replaying'))`,
		"commands that exceed their limit": `select coalesce(c.root, c.id) from millrace.commands c join millrace.projections p on p.id = c.projection_id
			where p.tenant = $1 group by 1 having sum(c.done + c.failed) > max(c.max_events)`,
		"open replays without a command": `select d.id from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
			where p.tenant = $1 and (d.state = 'replaying') <> (d.open_replays > 0)`,
	} {
		if wrong := w.numbers(sql, w.id.Tenant); len(wrong) > 0 {
			w.Fatalf("%s: %v", what, wrong)
		}
	}
	w.ordered()
}

// ordered checks that each event was applied once, and those of streams that are parked as a whole in order.
func (w *splitWorld) ordered() (applied map[int64]bool) {
	applied = make(map[int64]bool)
	last := make(map[string]int64)
	for _, at := range w.numbers("select position from public.model order by at") {
		e := w.events[at]
		if applied[at] || e.Stream[0] == 's' && at < last[e.Stream] {
			w.Fatalf("event %d of %s was applied after %d, before: %v", at, e.Stream, last[e.Stream], applied[at])
		}
		applied[at], last[e.Stream] = true, at
	}
	return applied
}

// finish handles everything that is left, and runs all commands.
func (w *splitWorld) finish() {
	for _, row := range w.rows() {
		lease := w.owner(int32(row))
		for w.handle(lease, false, 100) {
			lease = w.owner(int32(row))
		}
		for w.obey(lease, false, 100) {
			lease = w.owner(int32(row))
		}
	}
	w.check()
	applied := w.ordered()
	waiting := w.numbers(`select d.position from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where p.tenant = $1 and d.state in ('parked', 'discarded')`, w.id.Tenant)
	for at, e := range w.events {
		if applied[at] == slices.Contains(waiting, at) {
			w.Fatalf("event %d of %s was applied: %v, and is parked or discarded: %v", at, e.Stream, applied[at], !applied[at])
		}
	}
	// A command may have failed to replay an event, or the one before it in its stream.
	if left := w.numbers(`select d.position from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where p.tenant = $1 and d.state = 'parked'
		and (d.position = any($2) or d.position = any($3) and d.replays = 0 and not d.blocked_by_stream)`, w.id.Tenant, w.discard, w.replay); len(left) > 0 {
		w.Fatalf("the events %v are parked, of which %v were replayed and %v discarded", left, w.replay, w.discard)
	}
	resolved := w.numbers(`select count(*) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where p.tenant = $1 and d.state in ('resolved', 'discarded')`, w.id.Tenant)[0]
	done := w.numbers("select coalesce(sum(c.done), 0)::bigint from millrace.commands c join millrace.projections p on p.id = c.projection_id where p.tenant = $1", w.id.Tenant)[0]
	if resolved != done {
		w.Fatalf("%d dead letters are resolved or discarded, the commands count %d", resolved, done)
	}
	if open := w.numbers("select c.id from millrace.commands c join millrace.projections p on p.id = c.projection_id where p.tenant = $1 and c.ended_at is null", w.id.Tenant); len(open) > 0 {
		w.Fatalf("the commands %v are open", open)
	}
}
