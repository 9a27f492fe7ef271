package tests_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// deliveredLines are the lines of events that were delivered, by projection.
type deliveredLines struct {
	mu    sync.Mutex
	lines map[string][]string
	// tokens are those of the deliveries, which are different.
	tokens map[string]bool
}

func (d *deliveredLines) take(name string, e event.Envelope, token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines[name] = append(d.lines[name], fmt.Sprint(e.Position, " ", line(e)))
	d.tokens[token] = true
}

// upcastShape is a way to handle events. Its types are those that it selects, none for all.
type upcastShape struct {
	types   []string
	handler millrace.Handler
	// fails reports that it selects the events whose upcasters fail.
	fails bool
}

// shapesOf are all kinds of handlers, which record lines.
func (u *upcasting) shapesOf(d *deliveredLines) map[string]upcastShape {
	all := map[string]upcastShape{
		"batch": {nil, u.Store.Batch(recordLines("batch")), true},
		"each":  {nil, u.Store.Each(kit.OneByOne(recordLines("each"))), true},
		"queued": {nil, u.Store.Queued(func(_ context.Context, q kit.Queue, events []event.Envelope) error {
			q.Record("queued", asLines(events)...)
			return nil
		}), true},
		"queued-each": {nil, u.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
			q.Record("queued-each", asLines([]event.Envelope{e})...)
			return nil
		}), true},
		"deliver": {nil, millrace.Deliver(func(ctx context.Context, of *millrace.Delivery) error {
			events := of.Events()
			for i, e := range events {
				d.take("deliver", e, of.Token(e))
				if i+1 == len(events) || events[i+1].Position != e.Position {
					if err := of.Ack(ctx, e.Position); err != nil {
						return err
					}
				}
			}
			return nil
		}), true},
		"deliver-each": {nil, millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
			d.take("deliver-each", e.Envelope, e.Token)
			return nil
		}), true},
		"deliver-route": {[]string{"up-order.v3", "up-plain", "up-right"},
			millrace.DeliverRoute(deliversOn[upOrder]("deliver-route", d),
				deliversOn[upPlain]("deliver-route", d), deliversOn[upRight]("deliver-route", d)), true},
		"deliver-on": {[]string{"up-right"}, deliversOn[upRight]("deliver-on", d), false},
	}
	maps.Copy(all, typedShapes[upOrder](u.Store, "order"))
	maps.Copy(all, typedShapes[upLeft](u.Store, "left"))
	all["route"] = upcastShape{[]string{"up-item.v2", "up-left", "up-order.v3", "up-plain"},
		kit.Route(recordsOn[upOrder](u.Store, "route"),
			recordsOn[upLeft](u.Store, "route"), recordsOn[upItem](u.Store, "route"),
			recordsOn[upPlain](u.Store, "route")),
		true}
	return all
}

func deliversOn[T event.Typed](name string, d *deliveredLines) millrace.Handler {
	return millrace.DeliverOn(func(_ context.Context, e millrace.DeliveredOf[T]) error {
		d.take(name, e.Envelope, e.Token)
		return nil
	})
}

func recordsOn[T event.Typed](s kit.Store, name string) millrace.Handler {
	return kit.Typed[T]{Store: s}.On(func(ctx context.Context, tx kit.Tx, e event.Of[T]) error {
		return tx.Record(ctx, name, asLines([]event.Envelope{e.Envelope})...)
	})
}

// typedShapes are the typed handlers of one type.
func typedShapes[T event.Typed](s kit.Store, of string) map[string]upcastShape {
	var zero T
	types, typed := []string{zero.EventType()}, kit.Typed[T]{Store: s}
	all := make(map[string]upcastShape)
	add := func(kind string, make func(name string) millrace.Handler) {
		all[kind+"-"+of] = upcastShape{types, make(kind + "-" + of), false}
	}
	add("on", func(name string) millrace.Handler { return recordsOn[T](s, name) })
	add("on-batch", func(name string) millrace.Handler {
		return typed.OnBatch(func(ctx context.Context, tx kit.Tx, events []event.Of[T]) error {
			return tx.Record(ctx, name, asLines(kit.EnvelopesOf(events))...)
		})
	})
	add("on-queued", func(name string) millrace.Handler {
		return typed.OnQueued(func(_ context.Context, q kit.Queue, e event.Of[T]) error {
			q.Record(name, asLines([]event.Envelope{e.Envelope})...)
			return nil
		})
	})
	add("on-queued-batch", func(name string) millrace.Handler {
		return typed.OnQueuedBatch(func(_ context.Context, q kit.Queue, events []event.Of[T]) error {
			q.Record(name, asLines(kit.EnvelopesOf(events))...)
			return nil
		})
	})
	return all
}

// linesOf returns what a projection has recorded or delivered.
func (u *upcasting) linesOf(name string, d *deliveredLines) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lines := d.lines[name]; lines != nil {
		return slices.Clone(lines)
	}
	return u.recorded(name)
}

// mustHaveParked checks the dead letters of the events whose upcasters fail, and of the event after one of them in its
// stream.
func (u *upcasting) mustHaveParked(name string) {
	u.T.Helper()
	letters := u.DeadLettersOf(name)
	if len(letters) != 3 {
		u.T.Errorf("%s: parked %+v", name, letters)
		return
	}
	wants := []projection.DeadLetter{{Position: u.at[4], Type: "up-bad", Attempts: 1},
		{Position: u.at[5], Type: "up-worse", Attempts: 1},
		{Position: u.at[6], Type: "up-plain"}}
	for i, want := range wants {
		l := letters[i]
		if l.Position != want.Position || l.Type != want.Type || l.Attempts != want.Attempts ||
			l.State != projection.DeadLetterParked {
			u.T.Errorf("%s: dead letter %+v, want %+v", name, l, want)
		}
		says := fmt.Sprintf("decode event %d (%s of stream %q) as up-plain: the upcaster failed at %q: ", l.Position,
			l.Type, l.Stream, l.Type)
		if i < 2 && (!strings.Contains(l.Error, says) || !strings.Contains(l.Error, "on purpose")) {
			u.T.Errorf("%s: error %q", name, l.Error)
		}
		if (i == 1) != strings.Contains(l.Stack, "upcast") {
			u.T.Errorf("%s: the stack of dead letter %d is %q", name, i, l.Stack)
		}
	}
}

// Every kind of handler gets current events, each once and in order. An event whose upcaster fails or panics is parked
// with its stream at the first attempt. After the upcaster is mended, a replay handles it.
func TestHandlersGetCurrentEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		d := &deliveredLines{lines: make(map[string][]string), tokens: make(map[string]bool)}
		shapes := u.shapesOf(d)
		var all []millrace.Projection
		for name, s := range shapes {
			all = append(all, millrace.Projection{Name: name,
				Handler: s.handler, Retry: kit.Soon(3), MaxFailureShare: projection.NoLimit})
		}
		rt := u.Idle(all...)
		for name, s := range shapes {
			but := []int{}
			if s.fails {
				but = []int{4, 5, 6}
				u.mustHaveParked(name)
			} else if letters := u.DeadLettersOf(name); len(letters) > 0 {
				t.Errorf("%s: parked %+v", name, letters)
			}
			mustEqual(t, name, u.linesOf(name, d), u.want(allThen(but...), s.types...))
		}
		u.mended.Store(true)
		u.Start(rt)
		for name, s := range shapes {
			if !s.fails {
				continue
			}
			before := u.linesOf(name, d)
			result, err := u.Store.DeadLetters(projection.ID{Name: name}).Replay(u.Ctx,
				projection.DeadLetterFilter{All: true}, 10)
			if err != nil || result.Done != 3 {
				t.Errorf("%s: replayed %+v, %v", name, result, err)
			}
			mustEqual(t, name+" replayed", u.linesOf(name, d), append(before, u.want([]int{4, 6, 5}, s.types...)...))
		}
		deliveries := 0
		for _, lines := range d.lines {
			deliveries += len(lines)
		}
		if len(d.tokens) != deliveries {
			t.Errorf("%d deliveries have %d tokens", deliveries, len(d.tokens))
		}
	})
}

// The automatic replayer and rebuilds upcast as well.
func TestAutomaticReplaysAndRebuildsGetCurrentEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		rt := u.Running(kit.Quick, millrace.Projection{Name: "p",
			Handler: u.Store.Batch(recordLines("p")), Reset: u.Store.Hook(kit.Erase("p")),
			MaxFailureShare: projection.NoLimit,
			Replay: projection.ReplayPolicy{
				Interval: 20 * time.Millisecond, Factor: 1, MaxReplays: projection.NoLimit,
			}})
		u.Reaches(rt, "p", u.at[11])
		u.mended.Store(true)
		u.Eventually("replays", func() bool { return len(u.recorded("p")) == len(u.want(allThen())) })
		lines := u.recorded("p")
		slices.SortStableFunc(lines, func(a, b string) int { return positionOf(a) - positionOf(b) })
		mustEqual(t, "replayed", lines, u.want(allThen()))
		u.Must(rt.Rebuild(u.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{}))
		u.Reaches(rt, "p", u.at[11])
		mustEqual(t, "rebuilt", u.recorded("p"), u.want(allThen()))
	})
}

// Events that are appended while projections run come from the feed, and are upcast as well, in partitions too.
func TestLiveEventsAndPartitionsGetCurrentEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b)
		parts := millrace.Projection{Name: "parts", Handler: recordsOn[upOrder](u.Store, "parts"), Partitions: 3}
		rt := u.Running(kit.Quick, millrace.Projection{Name: "p",
			Handler: u.Store.Batch(recordLines("p")), MaxFailureShare: projection.NoLimit}, parts)
		u.Is(rt, "p", admin.StateLive)
		u.appendThen()
		u.Reaches(rt, "p", u.at[11])
		mustEqual(t, "live", u.recorded("p"), u.want(allThen(4, 5, 6)))
		u.Eventually("the partitions", func() bool { return len(u.recorded("parts")) == 3 })
		mustEqual(t, "parts", u.recorded("parts"), u.want(ofStream("order")))
	})
}

// A projection that selects an old type or a misspelt type is refused, in each way to select.
func TestProjectionsOfOtherTypesAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b)
		d := &deliveredLines{}
		untyped := u.Store.Batch(kit.Nothing)
		for name, p := range map[string]millrace.Projection{
			"types":         {Handler: untyped, Types: []string{"up-plain", "up-order"}},
			"on":            {Handler: recordsOn[upOrder1](u.Store, "p")},
			"route":         {Handler: kit.Route(recordsOn[upPlain](u.Store, "p"), recordsOn[upOrder2](u.Store, "p"))},
			"deliver-on":    {Handler: deliversOn[upOrder1]("p", d)},
			"deliver-route": {Handler: millrace.DeliverRoute(deliversOn[upOrder2]("p", d))},
		} {
			rt, err := millrace.New(millrace.Config{Store: u.Store})
			u.Must(err)
			p.Name = "p"
			err = rt.Register(p)
			if !errors.Is(err, eventtype.ErrOutdated) ||
				!strings.Contains(err.Error(), `is outdated: it becomes "up-order.v3"`) {
				t.Errorf("%s: error %v", name, err)
			}
			p.Handler, p.Types = untyped, []string{"up-plian"}
			if err := rt.Register(p); !errors.Is(err, eventtype.ErrNotRegistered) ||
				!strings.Contains(err.Error(), `"up-plian"`) {
				t.Errorf("error %v", err)
			}
			rt, err = millrace.New(millrace.Config{Store: u.plain.Store})
			if err != nil || rt.Register(p) != nil {
				t.Errorf("refused without a registry: %v", err)
			}
		}
	})
}
