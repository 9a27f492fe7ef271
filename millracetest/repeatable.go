package millracetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// Repeatable checks that a projection writes the same rows despite faults. A handler may be called again with the same
// events: after a fault, in another process, or in other batches. It fails for handlers that keep state in memory, read
// the time or write outside of the transaction.
//
// given makes a Kit with tables and events. projection makes the projection, as a new process would. Repeatable runs it
// on a Kit without faults. Then it runs it once for each of these faults, each on a Kit of its own, and compares the
// rows of the queries and the parked events:
//
//   - batches of one event, and of two
//   - each call fails once before its handler
//   - each call fails once after its handler, so that what it wrote is rolled back (LostCommit)
//   - each call panics once after its handler
//   - the lease is lost while the handler runs, five times (Kit.LostLease)
func Repeatable(t *testing.T, given func(t testing.TB) *Kit, projection func() millrace.Projection, queries ...string) {
	t.Helper()
	want := undisturbed(t, given, projection, queries)
	for _, d := range disturbances {
		t.Run(d.name, func(t *testing.T) {
			t.Helper()
			want.compare(t, given, projection, d)
		})
	}
}

// disturbance is a fault, or other batches. disturb is called once, and returns what changes the projection of each
// process.
type disturbance struct {
	name    string
	disturb func(k *Kit) func(p *millrace.Projection)
}

var disturbances = []disturbance{
	{"batches of one event", batches(1)},
	{"batches of two events", batches(2)},
	{"fails before the handler", fault((*Kit).failsFirst)},
	{"lost commit", fault((*Kit).LostCommit)},
	{"panics after the handler", fault((*Kit).panicsAfter)},
	{"lost lease", lostLease},
}

func batches(n int) func(*Kit) func(p *millrace.Projection) {
	return func(*Kit) func(p *millrace.Projection) {
		return func(p *millrace.Projection) { p.MaxEvents = n }
	}
}

// fault adds middleware that is made once, since it knows which calls it has disturbed.
func fault(make func(k *Kit) millrace.Middleware) func(*Kit) func(p *millrace.Projection) {
	return func(k *Kit) func(p *millrace.Projection) {
		m := make(k)
		return func(p *millrace.Projection) { p.Middleware = append(slices.Clone(p.Middleware), m) }
	}
}

// lostLease loses leases between commits, so that a projection starts again in the middle of the events.
func lostLease(k *Kit) func(p *millrace.Projection) {
	lose := fault((*Kit).LostLease)(k)
	return func(p *millrace.Projection) {
		p.MaxEvents = 2
		lose(p)
	}
}

// failsFirst fails the first call for each event before its handler.
func (k *Kit) failsFirst() millrace.Middleware {
	first := firsts()
	return k.before(func(name string, e event.Envelope) error {
		if first(name, e) {
			return projection.Retry(projection.At(e.Position, ErrInjected))
		}
		return nil
	})
}

// panicsAfter panics at the first call for each event after its handler.
func (k *Kit) panicsAfter() millrace.Middleware {
	return k.afterFirst(func(context.Context) error { panic(projection.Retry(ErrInjected)) })
}

// outcome is what a projection wrote and parked.
type outcome struct {
	queries []string
	rows    [][]string
	parked  []string
}

// undisturbed runs the projection without faults.
func undisturbed(t testing.TB, given func(t testing.TB) *Kit, projection func() millrace.Projection,
	queries []string) outcome {
	t.Helper()
	k := given(t)
	p := k.outcome(projection, queries)
	found := 0
	for _, rows := range p.rows {
		found += len(rows)
	}
	if found == 0 {
		t.Fatal("the queries find no rows after the run without faults, so there is nothing to compare")
	}
	return p
}

// compare runs the projection with faults, and fails the test if the outcome differs.
func (want outcome) compare(t testing.TB, given func(t testing.TB) *Kit, projection func() millrace.Projection,
	d disturbance) {
	t.Helper()
	k := given(t)
	disturb := d.disturb(k)
	got := k.outcome(func() millrace.Projection {
		p := projection()
		disturb(&p)
		return p
	}, want.queries)
	for i, query := range want.queries {
		if !slices.Equal(got.rows[i], want.rows[i]) {
			t.Errorf("%s: %s:\n%s", d.name, query, diff(want.rows[i], got.rows[i]))
		}
	}
	if !slices.Equal(got.parked, want.parked) {
		t.Errorf("%s: parked events:\n%s", d.name, diff(want.parked, got.parked))
	}
}

// outcome runs a projection.
func (k *Kit) outcome(make func() millrace.Projection, queries []string) outcome {
	k.t.Helper()
	var id millrace.ProjectionID
	k.run(func() []millrace.Projection {
		p := make()
		id = k.idOf(p)
		return []millrace.Projection{p}
	})
	o := outcome{queries: queries}
	k.expected[id] = true
	for _, letter := range k.parked[id] {
		o.parked = append(o.parked, fmt.Sprintf("position %d: %s of stream %s",
			letter.Position, letter.Type, letter.Stream))
	}
	for _, query := range queries {
		o.rows = append(o.rows, k.query(query))
	}
	return o
}
