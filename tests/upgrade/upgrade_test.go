package upgrade_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/upgrade/service"
)

func TestStoresOfAnEarlierReleaseAreUpgraded(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, place string) {
		older.run(t, "fill", place)
		before := older.contents(t, place)
		checkFilled(t, before)

		store := opened(t, place)
		after, err := service.Contents(limited(t), store)
		must(t, err)
		same(t, "the upgraded store, by the new program", before, after)
		store.Close()
		same(t, "the upgraded store, by the old program", before, older.contents(t, place))

		store = opened(t, place)
		checkFirstKey(t, store, before)
		a, err := admin.New(store)
		must(t, err)
		must(t, a.Resume(limited(t), projection.ID{Tenant: "acme", Name: "totals"}))
		must(t, service.Finish(limited(t), store, slices.Concat(service.Kept, []string{"late"})...))
		checkFinished(t, store, before)

		// The new program has written to the store. The old one goes on.
		appendSome(t, store)
		store.Close()
		older.run(t, "finish", place)
		store = opened(t, place)
		appendSome(t, store)
		must(t, service.Finish(limited(t), store, slices.Concat(service.Kept, []string{"late"})...))
		checkFinished(t, store, before)
	})
}

// checkFilled checks that the store of the old program has what the test needs.
func checkFilled(t *testing.T, contents map[string]*service.Content) {
	t.Helper()
	if len(contents) != 4 || contents["closed"].State != tenancy.Archived {
		t.Fatalf("the tenants are %v", contents)
	}
	for _, name := range service.Tenants {
		c := contents[name]
		last := c.Events[len(c.Events)-1].Position
		if len(c.Projections) != len(service.Kept)+3 || len(c.DeadLetters) == 0 || len(c.Applied["gone"]) == 0 {
			t.Errorf("tenant %s: %d projections, %d dead letters, applied %v", name, len(c.Projections),
				len(c.DeadLetters), c.Applied)
		}
		for _, p := range c.Projections {
			if p.Checkpoint == 0 || p.Checkpoint >= last || p.Paused != (name == "acme" && p.ID.Name == "totals") {
				t.Errorf("the events of tenant %s end at %d: %+v", name, last, p)
			}
		}
	}
}

// same checks that two programs see the same.
func same(t *testing.T, what string, want, got map[string]*service.Content) {
	t.Helper()
	for _, name := range slices.Concat(service.Tenants, []string{"closed"}) {
		wanted, err := json.MarshalIndent(want[name], "", " ")
		must(t, err)
		found, err := json.MarshalIndent(got[name], "", " ")
		must(t, err)
		if string(wanted) != string(found) {
			t.Errorf("%s: tenant %s was\n%s\nand is\n%s", what, name, wanted, found)
		}
	}
}

// checkFirstKey repeats the first append of each tenant.
func checkFirstKey(t *testing.T, store service.Store, contents map[string]*service.Content) {
	t.Helper()
	for _, name := range service.Tenants {
		tenant, err := store.Tenant(name)
		must(t, err)
		again, err := tenant.Append(limited(t), "stream-0", service.FirstKey, event.Untyped("Repeat", nil))
		must(t, err)
		if !again.Repeated || again.Positions[0] != contents[name].Events[0].Position || again.Version != 1 {
			t.Errorf("tenant %s: the repeat of the first append returned %+v", name, again)
		}
	}
}

// appendSome appends a few events to each active tenant.
func appendSome(t *testing.T, store service.Store) {
	t.Helper()
	for _, name := range service.Tenants {
		tenant, err := store.Tenant(name)
		must(t, err)
		for range 3 {
			_, err := tenant.Append(limited(t), "stream-1", event.Any, event.Untyped("Later", nil))
			must(t, err)
		}
	}
}

// checkFinished checks that each projection has applied each event of each active tenant once and the events of each
// stream in order, that nothing is parked, and that no retired name has run since before.
func checkFinished(t *testing.T, store service.Store, before map[string]*service.Content) map[string]*service.Content {
	t.Helper()
	contents, err := service.Contents(limited(t), store)
	must(t, err)
	for name, c := range contents {
		if c.State != tenancy.Active {
			continue
		}
		if len(c.DeadLetters) > 0 {
			t.Errorf("tenant %s has dead letters: %+v", name, c.DeadLetters)
		}
		for _, projection := range service.Kept {
			checkApplied(t, name+"/"+projection, c.Events, c.Applied[projection])
		}
		if before[name] == nil {
			continue
		}
		checkApplied(t, name+"/late", c.Events, slices.Concat(before[name].Applied["early"], c.Applied["late"]))
		for _, retired := range service.Retired {
			if !slices.Equal(c.Applied[retired], before[name].Applied[retired]) {
				t.Errorf("tenant %s: the retired projection %s has run again", name, retired)
			}
		}
	}
	return contents
}

// checkApplied checks the events that a projection has applied. Deliveries may be repeated.
func checkApplied(t *testing.T, name string, events []event.Envelope, applied []int64) {
	t.Helper()
	by := make(map[int64]event.Envelope)
	for _, e := range events {
		by[e.Position] = e
	}
	times, versions := make(map[int64]int), make(map[string]int64)
	for _, position := range applied {
		e, known := by[position]
		times[position]++
		if !known {
			t.Errorf("%s has applied the unknown position %d", name, position)
		}
		if times[position] > 1 {
			continue
		}
		if e.Version != versions[e.Stream]+1 {
			t.Errorf("%s has applied version %d of %s after version %d", name, e.Version, e.Stream, versions[e.Stream])
		}
		versions[e.Stream] = e.Version
	}
	delivers := strings.HasSuffix(name, "/mails")
	for _, e := range events {
		if n := times[e.Position]; n == 0 || n > 1 && !delivers {
			t.Errorf("%s has applied position %d %d times", name, e.Position, n)
		}
	}
}
