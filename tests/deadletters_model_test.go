package tests_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// blocked is the error of a dead letter whose event did not fail.
const blocked = "parked after an earlier event of its stream"

// lettersModel is a model of dead letters that is as simple as possible: events are handled one after another, and only
// poison events fail.
type lettersModel struct {
	events     []event.Envelope
	poison     map[int64]projection.Action // what becomes of it at first
	checkpoint int64
	applied    []int64
	parked     map[int64]*modelLetter
	streams    map[string]bool
	commands   []*modelCommand // those that are open
}

type modelLetter struct {
	behind          bool
	err             string
	attempts, begun int
}

type modelCommand struct {
	id           int64
	replay       bool
	positions    []int64 // none means any
	stream, text string
	most         int64
	done, failed int64
	after        int64
	whole        string // the parked stream that is being replayed
	replaying    int64  // the dead letter whose replay began last, 0 after its end
	letters      map[int64]bool
	streams      map[string]bool
}

// pass handles the live events up to a position.
func (m *lettersModel) pass(to int64) {
	for _, e := range m.events {
		if e.Position <= m.checkpoint || e.Position > to {
			continue
		}
		action, bad := m.poison[e.Position]
		switch {
		case m.streams[e.Stream]:
			m.parked[e.Position] = &modelLetter{behind: true, err: blocked}
		case bad:
			m.parked[e.Position] = &modelLetter{err: errBad.Error(), attempts: 1}
			if action == projection.ActionParkStream {
				m.streams[e.Stream] = true
			}
		default:
			m.applied = append(m.applied, e.Position)
		}
	}
	m.checkpoint = to
}

func (m *lettersModel) stream(position int64) string {
	i := slices.IndexFunc(m.events, func(e event.Envelope) bool { return e.Position == position })
	return m.events[i].Stream
}

// order returns the positions of parked events in order, of one stream if one is given.
func (m *lettersModel) order(stream string) (positions []int64) {
	for p := range m.parked {
		if stream == "" || m.stream(p) == stream {
			positions = append(positions, p)
		}
	}
	slices.Sort(positions)
	return positions
}

func (m *lettersModel) selects(c *modelCommand, position int64) bool {
	return (len(c.positions) == 0 || slices.Contains(c.positions, position)) &&
		(c.stream == "" || c.stream == m.stream(position)) &&
		strings.Contains(m.parked[position].err, c.text)
}

// next is what a command replays next, and begins it; 0 means nothing, which ends it.
func (m *lettersModel) next(c *modelCommand, lived bool) (position int64) {
	defer func() {
		if position == 0 {
			m.end(c)
			return
		}
		if c.replaying != position {
			m.putBack(c)
		}
		c.replaying = position
		if l := m.parked[position]; l.begun == 0 || !lived {
			l.begun++
		}
		c.letters[position] = true
	}()
	if c.done+c.failed >= c.most {
		return 0
	}
	if c.whole != "" {
		return m.order(c.whole)[0]
	}
	for _, p := range m.order("") {
		stream := m.stream(p)
		tried := c.letters[p] && m.parked[p].begun == 0
		if m.streams[stream] {
			tried = c.streams[stream]
		}
		if p <= c.after || tried || !m.selects(c, p) {
			continue
		}
		c.after = p - 1
		if m.streams[stream] {
			c.streams[stream], c.whole = true, stream
			return m.order(stream)[0]
		}
		return p
	}
	return 0
}

// putBack parks a dead letter again whose replay a command began and does not continue.
func (m *lettersModel) putBack(c *modelCommand) {
	if l := m.parked[c.replaying]; l != nil {
		l.begun = 0
	}
}

func (m *lettersModel) end(c *modelCommand) {
	m.putBack(c)
	if c.whole != "" {
		m.parked[m.order(c.whole)[0]].behind = false
	}
	m.commands = slices.DeleteFunc(m.commands, func(x *modelCommand) bool { return x == c })
}

func (m *lettersModel) succeeds(c *modelCommand, position int64) {
	c.done, c.replaying = c.done+1, 0
	m.applied = append(m.applied, position)
	m.forget(position)
}

func (m *lettersModel) fails(c *modelCommand, position int64, err error) {
	c.failed++
	c.whole, c.replaying = "", 0
	l := m.parked[position]
	l.behind, l.begun, l.err, l.attempts = false, 0, err.Error(), l.attempts+1
}

// forget removes a dead letter, and its stream with the last one.
func (m *lettersModel) forget(position int64) {
	stream := m.stream(position)
	delete(m.parked, position)
	if !m.streams[stream] || len(m.order(stream)) > 0 {
		return
	}
	delete(m.streams, stream)
	for _, c := range m.commands {
		delete(c.streams, stream)
		if c.whole == stream {
			c.whole = ""
		}
	}
}

func (m *lettersModel) discard(c *modelCommand) (n int64) {
	var gone []int64
	for _, p := range m.order("") {
		if m.selects(c, p) && int64(len(gone)) < c.most {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		stream := m.stream(p)
		m.forget(p)
		if m.streams[stream] {
			m.parked[m.order(stream)[0]].behind = false
		}
	}
	m.end(c)
	return int64(len(gone))
}

// lettersWorld is a projection on a real store beside its model.
type lettersWorld struct {
	*drawer
	t      *rapid.T
	model  *lettersModel
	sizing machine.BatchSizer
	most   int
	policy engine.Policy
	names  bool // whether the handler names the event that it fails at
	mine   int64
}

// What is parked, which streams are, what was applied and in which order is what the model says, after each of random
// steps: appends, batches, replays and discards in between, mended and broken events, owners that come, go, and end in
// the middle. A failure is made small, and printed with its seed and the name of a file. Repeat it by
//
//	go test ./tests -run TestDeadLettersProperty -rapid.seed=N
//	go test ./tests -run TestDeadLettersProperty -rapid.failfile=NAME
//
// and look for longer by -rapid.checks=10000 -letters=1h.
func TestDeadLettersProperty(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Ctx = t.Context()
		worlds := 0
		begin, failed := time.Now(), false
		rapid.Check(t, func(t *rapid.T) {
			if !failed && time.Since(begin) > *lettersFor {
				return
			}
			worlds++
			d := drawerOf(b, fmt.Sprint("p", worlds))
			d.anyOrder = true
			defer func() { d.End() }()
			w := newLettersWorld(t, d)
			failed = true // until the check fails: then rapid shrinks the failure, however long that takes
			w.play()
			failed = false
		})
	})
}

var lettersFor = flag.Duration("letters", 10*time.Second, "how long TestDeadLettersProperty may look, for each store")

func newLettersWorld(t *rapid.T, d *drawer) *lettersWorld {
	w := &lettersWorld{drawer: d, t: t, most: rapid.IntRange(1, 8).Draw(t, "batch"),
		names: rapid.Bool().Draw(t, "names"), model: &lettersModel{
			poison: make(map[int64]projection.Action), checkpoint: d.Lease.Checkpoint,
			parked:  make(map[int64]*modelLetter),
			streams: make(map[string]bool),
		}}
	w.policy.MaxParked = rapid.SampledFrom([]int64{-1, 3, 12}).Draw(t, "may fail and be parked")
	w.policy.MaxBlocked = rapid.SampledFrom([]int64{-1, 3, 12}).Draw(t, "may be parked because of their streams")
	w.sizing = machine.NewBatchSizer(w.most, w.most)
	return w
}

func (w *lettersWorld) play() {
	steps := map[string]func(){
		"append": w.append, "batch": w.step, "batches": func() {
			for range 5 {
				w.step()
			}
		},
		"replay": func() { w.command(true) }, "discard": func() { w.command(false) },
		"work": func() { w.work(false, "") }, "work on": func() {
			for range 4 {
				w.work(false, "")
			}
		},
		"work while paused": func() { w.work(true, "") }, "crash in a replay": func() { w.work(false, "crash") },
		"fault in a replay": func() { w.work(false, "fault") },
		"cancel":            w.cancel, "mend or break": w.mend, "claim": w.claim,
	}
	names := slices.Sorted(maps.Keys(steps))
	w.append()
	for range rapid.IntRange(1, 40).Draw(w.t, "steps") {
		name := rapid.SampledFrom(names).Draw(w.t, "step")
		steps[name]()
		w.compare(name)
	}
	// In the end no event fails any more, and every event that was not discarded was applied.
	clear(w.model.poison)
	for range 3 {
		w.policy.MaxParked, w.policy.MaxBlocked = -1, -1
		for w.model.checkpoint < w.model.events[len(w.model.events)-1].Position {
			w.step()
		}
		w.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, math.MaxInt32)
		w.model.commands = append(w.model.commands,
			&modelCommand{replay: true, most: math.MaxInt32, letters: map[int64]bool{}, streams: map[string]bool{}})
		for len(w.model.commands) > 0 {
			w.work(false, "")
		}
		w.compare("the end")
	}
	w.mustHave(nil)
}

func (w *lettersWorld) append() {
	for range rapid.IntRange(1, 6).Draw(w.t, "events") {
		stream := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "stream")
		at := w.add(stream)
		w.model.events = append(w.model.events, w.events[at])
		if action := rapid.SampledFrom([]projection.Action{-1, -1, -1, projection.ActionPark,
			projection.ActionParkStream}).Draw(w.t, "fails"); action >= 0 {
			w.model.poison[at] = action
		}
	}
}

// handle writes its events and fails if there is a poison one.
func (w *lettersWorld) handle(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
	for _, e := range events {
		if err := w.write(ctx, tx, []event.Envelope{e}); err != nil {
			return err
		}
		if _, bad := w.model.poison[e.Position]; bad && w.names {
			return projection.At(e.Position, errBad)
		} else if bad {
			return errBad
		}
	}
	return nil
}

// step runs the next batch of live events, as an actor does.
func (w *lettersWorld) step() {
	var window []event.Envelope
	for _, e := range w.model.events {
		if e.Position > w.Lease.Checkpoint && len(window) < w.most {
			window = append(window, e)
		}
	}
	if len(window) == 0 {
		return
	}
	var aside machine.Parking
	if w.Lease.ParkedStreams {
		parked, err := w.Plane().ParkedStreams(w.Ctx, w.Lease, []string{"a", "b", "c"})
		w.must(err)
		aside = machine.Parking{Streams: parked, Room: w.policy.BlockedRoom(w.Lease.Blocked)}
	}
	handled, behind, n := w.sizing.Split(window, aside)
	full := w.policy.Room(w.Lease.ParkedFailures()) == 0
	if n == 0 {
		if room := w.policy.BlockedRoom(w.Lease.Blocked); room > 0 || !w.model.streams[window[0].Stream] {
			w.t.Fatalf("no batch, though there is room for %d", room)
		}
		return
	}
	batch := engine.Batch{Events: handled, BlockedByStream: behind, To: window[n-1].Position}
	err := w.run(w.handle, batch)
	if err == nil {
		if len(handled) > 0 {
			w.sizing.Succeeded()
		}
		w.refresh()
		w.model.pass(batch.To)
		return
	}
	fault := w.Port.Classify(err)
	if fault.Class != faults.Handler {
		w.t.Fatal(err)
	}
	if !w.sizing.Failed(batch.Events, fault.Position) || !batch.Alone() || full {
		return
	}
	e := handled[0]
	letter := projection.DeadLetter{
		Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type, Error: errBad.Error(), Attempts: 1,
	}
	w.must(w.Plane().Park(w.Ctx, w.Lease, letter, w.model.poison[e.Position] == projection.ActionParkStream))
	w.sizing.Succeeded()
	w.model.pass(e.Position)
}

func (w *lettersWorld) command(replay bool) {
	c := &modelCommand{
		replay: replay, most: rapid.SampledFrom([]int64{1, 2, 5, 100}).Draw(w.t, "limit"), letters: map[int64]bool{},
		streams: map[string]bool{},
	}
	var filter projection.DeadLetterFilter
	parked := w.model.order("")
	switch rapid.SampledFrom([]string{"all", "ids", "stream", "error"}).Draw(w.t, "filter") {
	case "ids":
		for _, p := range parked {
			if rapid.Bool().Draw(w.t, "this one") {
				c.positions = append(c.positions, p)
				filter.IDs = append(filter.IDs, w.one(p).ID)
			}
		}
	case "stream":
		c.stream = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "stream")
		filter.Stream = c.stream
	case "error":
		c.text = rapid.SampledFrom([]string{"bad", "parked after"}).Draw(w.t, "text")
		filter.Error = c.text
	}
	filter.All = len(c.positions) == 0 && c.stream == "" && c.text == ""
	kind := engine.DiscardCommand
	if replay {
		kind = engine.ReplayCommand
	}
	c.id = w.give(kind, filter, int(c.most))
	w.model.commands = append(w.model.commands, c)
}

// work runs the next command. how is what happens to a replay that has begun.
func (w *lettersWorld) work(paused bool, how string) {
	queue, err := w.Plane().NextCommand(w.Ctx, w.Lease, paused)
	w.must(err)
	i := slices.IndexFunc(w.model.commands, func(c *modelCommand) bool { return !c.replay })
	if i < 0 {
		i = slices.IndexFunc(w.model.commands,
			func(c *modelCommand) bool { return !paused || c.done+c.failed >= c.most })
	}
	if (queue.Command == nil) != (i < 0) || i >= 0 && queue.Command.Replay != w.model.commands[i].replay {
		w.t.Fatalf("to be done: %+v, there are %d commands", queue.Command, len(w.model.commands))
	}
	if i < 0 {
		return
	}
	c := w.model.commands[i]
	if !c.replay {
		n, err := w.Plane().Discard(w.Ctx, w.Lease, queue.Command.ID)
		w.must(err)
		if n != w.model.discard(c) {
			w.t.Fatalf("%d letters discarded", n)
		}
		return
	}
	r := w.begin(queue.Command.ID, w.mine)
	position := w.model.next(c, r != nil && r.DeadLetter == w.mine)
	if r == nil || position == 0 {
		if r != nil || position != 0 {
			w.t.Fatalf("replays %+v, want position %d", r, position)
		}
		return
	}
	if begun := w.model.parked[position].begun; r.Position != position || r.Begun != begun {
		w.t.Fatalf("replays %+v, want position %d, begun %d", r, position, begun)
	}
	batch := w.again(r)
	switch _, bad := w.model.poison[position]; {
	case how == "fault":
		w.mine = r.DeadLetter
	case how == "crash":
		zombie := w.Lease
		w.claim()
		if err := w.runAs(zombie, w.write, batch); !errors.Is(err, projection.ErrLeaseLost) {
			w.t.Fatalf("the batch of a zombie: %v", err)
		}
	case r.Deadly(), bad:
		cause := errBad
		if r.Deadly() {
			cause = projection.ErrProcessDied
		} else if err := w.run(w.handle, batch); !errors.Is(err, errBad) {
			w.t.Fatalf("a replay that is to fail: %v", err)
		}
		w.must(w.Plane().FailReplay(w.Ctx, w.Lease, failedReplay(*r, cause)))
		w.model.fails(c, position, cause)
		w.mine = 0
	default:
		w.must(w.run(w.handle, batch))
		w.model.succeeds(c, position)
		w.mine = 0
	}
}

// cancel cancels the oldest replay.
func (w *lettersWorld) cancel() {
	i := slices.IndexFunc(w.model.commands, func(c *modelCommand) bool { return c.replay })
	if i < 0 {
		return
	}
	c := w.model.commands[i]
	_, before, err := w.Store.Commands(w.Ctx)
	w.must(err)
	w.must(w.letters().Cancel(w.Ctx, c.id))
	c.most = c.done + c.failed
	_, open, err := w.Store.Commands(w.Ctx)
	w.must(err)
	if open < before {
		if c.replaying != 0 || c.whole != "" {
			w.t.Fatalf("ended in the middle: %+v", c)
		}
		w.model.end(c)
	}
}

func (w *lettersWorld) mend() {
	parked := w.model.order("")
	if len(parked) == 0 {
		return
	}
	p := rapid.SampledFrom(parked).Draw(w.t, "event")
	if _, bad := w.model.poison[p]; bad {
		delete(w.model.poison, p)
	} else {
		w.model.poison[p] = projection.ActionPark
	}
}

func (w *lettersWorld) claim() {
	w.drawer.claim()
	w.mine, w.sizing = 0, machine.NewBatchSizer(w.most, w.most)
}

// compare compares the database with the model.
func (w *lettersWorld) compare(step string) {
	m := w.model
	var want, got []string
	blocked := int64(0)
	for _, p := range m.order("") {
		l := m.parked[p]
		if l.behind {
			blocked++
		}
		want = append(want, fmt.Sprint(p, m.stream(p), l.behind, l.begun > 0, l.attempts, l.err))
	}
	for _, l := range w.list(projection.DeadLetterPage{}) {
		got = append(got, fmt.Sprint(l.Position, l.Stream,
			l.BlockedByStream, l.State == projection.DeadLetterReplaying, l.Attempts, l.Error))
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("after %q these are parked:\n%q\nwant\n%q", step, got, want)
	}
	streams := w.parkedStreams()
	if parked := slices.Sorted(maps.Keys(m.streams)); !slices.Equal(streams, parked) {
		w.t.Fatalf("after %q these streams are parked: %v, want %v", step, streams, parked)
	}
	if w.Lease.Parked != int64(len(want)) || w.Lease.ParkedStreams != (len(streams) > 0) ||
		w.Lease.Checkpoint != m.checkpoint {
		w.t.Fatalf("after %q the lease is %+v; want %d parked, checkpoint %d", step, w.Lease, len(want), m.checkpoint)
	}
	if w.Lease.Blocked != blocked {
		w.t.Fatalf("after %q the lease says that %d are parked because of their streams, want %d", step,
			w.Lease.Blocked, blocked)
	}
	if applied := w.applied(); !slices.Equal(applied, m.applied) {
		w.t.Fatalf("after %q these were applied: %v, want %v", step, applied, m.applied)
	}
}
