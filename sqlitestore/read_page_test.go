package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// Reads of any range, types and share, in pages of any size, return the events that a filter of all events returns.
func TestPagesAgreeWithAFilterOfAllEvents(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	store := newStore(t)
	other := newTenant(t, store, "other")
	for i := range 300 {
		e := event.Event{
			Type: fmt.Sprint("T", random.IntN(4)),
			Body: []byte(fmt.Sprintf(`"%s"`, strings.Repeat("x", random.IntN(500)))), CausationID: "c",
		}
		if i%3 == 0 {
			e.Headers = map[string]string{"k": fmt.Sprint(i)}
		}
		mustAppend(t, store.tenant, fmt.Sprint("s", random.IntN(20)), event.Any, e)
		mustAppend(t, other, fmt.Sprint("s", random.IntN(20)), event.Any, someEvents(1)...)
	}
	events := all(t, store.tenant)
	for range 200 {
		r := engine.ReadRange{
			After: random.Int64N(310), UpTo: random.Int64N(301), Limit: 1 + random.IntN(50),
			MaxBytes: 1 + random.IntN(5000),
		}
		for i := range 4 {
			if random.IntN(3) == 0 {
				r.Types = append(r.Types, fmt.Sprint("T", i))
			}
		}
		if n := 1 + random.IntN(3); n > 1 {
			r.Share.Range = partition.RangeOf(1+random.IntN(n), n)
		}
		if random.IntN(2) == 0 {
			r.Share.Range = r.Share.Slots()
			r.Share.Passed = []partition.Passed{{Range: partition.RangeOf(1, 2), Position: random.Int64N(300)}}
		}
		has := func(e event.Envelope) bool {
			return e.Position > r.After && e.Position <= r.UpTo &&
				(len(r.Types) == 0 || slices.Contains(r.Types, e.Type)) && r.Share.Has(e.Stream, e.Position)
		}
		want := slices.DeleteFunc(slices.Clone(events), func(e event.Envelope) bool { return !has(e) })
		var got []event.Envelope
		for after := r.After; after < r.UpTo; {
			part := r
			part.After = after
			page := must(store.port().Read(testContext(t), projection.DefaultTenant, part))(t)
			size := 0
			for i, e := range page.Events {
				if i > 0 && size >= r.MaxBytes || i >= r.Limit || e.Position > page.To {
					t.Fatalf("%+v: event %d at %d after %d bytes, up to %d", part, i, e.Position, size, page.To)
				}
				size += e.Size()
			}
			if page.To <= after || page.To > r.UpTo {
				t.Fatalf("%+v: up to %d", part, page.To)
			}
			got, after = append(got, page.Events...), page.To
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: %v, want %v", r, positions(got), positions(want))
		}
	}
}

// A page searches the range of ids alone, whatever it filters by: there is no other order, and no second index.
func TestPagesSearchTheirRangeOfIDs(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for _, statement := range []string{"read_all", "read_all_types", "read_share"} {
		plan := explain(t, store, queries.Text(statement))
		if first, _, _ := strings.Cut(plan,
			"\n"); strings.TrimSpace(first) != "search millrace_events using integer primary key (rowid>? and rowid<?)" || strings.Contains(plan, "order by") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
	for statement, want := range map[string]string{
		"tenant_head": "search millrace_tenants using index", "heads": "search millrace_tenants using index",
		"tail_start":  "search t using index",
		"tail":        "search t using index sqlite_autoindex_millrace_tenants_1 (name=?)\nsearch e using integer primary key (rowid>? and rowid<?)",
		"check_lease": "search millrace_leases using integer primary key",
		"advance":     "search millrace_leases using integer primary key",
	} {
		if plan := explain(t, store, queries.Text(statement)); !strings.HasPrefix(strings.TrimSpace(plan), want) ||
			strings.Contains(plan, "order by") {
			t.Errorf("%s: %s", statement, plan)
		}
	}
}

// The driver makes new memory for each row: a page's events must not change with the rows that follow.
func TestEventsOfAPageKeepTheirBodies(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var events []event.Event
	for i := range 500 {
		events = append(events, event.Event{Type: "T",
			Body: []byte(fmt.Sprintf(`"%06d"`, i)), Headers: map[string]string{"h": fmt.Sprint(i)},
			CorrelationID: fmt.Sprint("c", i)})
	}
	mustAppend(t, store.tenant, "s", event.Any, events...)
	page := must(store.port().Read(testContext(t), projection.DefaultTenant,
		engine.ReadRange{UpTo: 500, Limit: 500}))(t)
	for i, e := range page.Events {
		if string(e.Body) != fmt.Sprintf(`"%06d"`, i) || e.Headers()["h"] != fmt.Sprint(i) ||
			e.CorrelationID != fmt.Sprint("c", i) || e.Stream != "s" || e.Version != int64(i+1) || e.Time.IsZero() {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if len(page.Events) != 500 || page.To != 500 {
		t.Errorf("%d events up to %d", len(page.Events), page.To)
	}
}

func TestProbeWritesToTheFileAndItsFolder(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	ctx := testContext(t)
	noError(t, b.store.port().Probe(ctx))
	if n := one[int](t, b.store, "select probes from millrace_probe"); n != 1 {
		t.Errorf("%d probes were written", n)
	}
	// A handler that hangs does not make the file look unreachable.
	noError(t, b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		return b.store.port().Probe(context.WithoutCancel(ctx))
	}, limit))
	if entries := must(os.ReadDir(filepath.Dir(b.store.path)))(t); slices.ContainsFunc(entries,
		func(e os.DirEntry) bool { return strings.Contains(e.Name(), "probe") }) {
		t.Errorf("files are left: %v", entries)
	}
	noError(t, os.RemoveAll(filepath.Dir(b.store.path)))
	if fault := faultOf(t, b.store.port().Probe(ctx)); fault.Class != faults.Infrastructure {
		t.Errorf("%+v", fault)
	}
}

// The windows of feeds are bounded by the memory that pages and tails report.
func TestPagesReportTheirMemory(t *testing.T) {
	t.Parallel()
	const n, size = 20, 100_000
	store := newStore(t)
	tail := store.port().TailPoller(projection.DefaultTenant)
	must(tail.Poll(testContext(t)))(t)
	for range n {
		mustAppend(t, store.tenant, "s", event.Any,
			event.Event{Type: "T", Body: []byte(`"` + strings.Repeat("x", size) + `"`)})
	}
	page := must(store.port().Read(testContext(t), projection.DefaultTenant,
		engine.ReadRange{UpTo: n, Limit: n, MaxBytes: 2 * n * size}))(t)
	update := must(tail.Poll(testContext(t)))(t)
	for what, bytes := range map[string]int{"page": page.Bytes, "tail": update.Bytes} {
		if bytes < n*size || bytes > 2*n*size {
			t.Errorf("the %s has %d bytes of events and reports %d", what, n*size, bytes)
		}
	}
}
