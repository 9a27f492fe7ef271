package actors

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// The summary is kept up to date with each change. The model walks all entries instead.
func TestSummaryAgreesWithAWalkOverAllEntries(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	registry := newRegistry()
	phases := []machine.Phase{
		machine.Starting, machine.CatchUp, machine.Live, machine.Waiting, machine.Failed, machine.MissingObject,
	}
	entries, feeds, since := make(map[projection.ID]machine.Status), make(map[string]FeedEntry), make(map[string]int)
	held := 0
	for step := range 20_000 {
		id := projection.ID{Tenant: fmt.Sprint("t", r.IntN(14)), Name: fmt.Sprint("p", r.IntN(5)), Partition: r.IntN(3)}
		tenant := fmt.Sprint("t", r.IntN(40))
		switch r.IntN(10) {
		case 0:
			registry.withdraw(id)
			delete(entries, id)
		case 1:
			registry.amend(id, func(e *ProjectionEntry) { e.Position += 10 })
			if s, ok := entries[id]; ok {
				s.Position += 10
				entries[id] = s
			}
		case 2:
			registry.feeds.withdraw(tenant)
			delete(feeds, tenant)
			delete(since, tenant)
		case 3:
			var e FeedEntry
			switch r.IntN(3) {
			case 0:
				e = FeedEntry{Mark: int64(step), Held: &engine.Held{Below: int64(step)}}
			case 1:
				e = FeedEntry{Mark: int64(step), Err: errors.New("locked")}
			}
			registry.feeds.publish(tenant, func(entry *FeedEntry) { *entry = e })
			feeds[tenant] = e
			if e.Held == nil && e.Err == nil {
				delete(since, tenant)
			} else if _, ok := since[tenant]; !ok {
				since[tenant] = step
			}
		default:
			s := machine.Status{Phase: phases[r.IntN(len(phases))], Position: r.Int64N(1000), Mark: r.Int64N(1000)}
			registry.publish(id, func(e *ProjectionEntry) { e.Status = s })
			entries[id] = s
		}
		if step%50 != 0 {
			continue
		}
		got := registry.Summary()
		states := make(map[string]int)
		var behind []int64
		for _, s := range entries {
			states[string(s.Phase)]++
			if s.Mark > s.Position {
				behind = append(behind, s.Mark-s.Position)
			}
		}
		if !maps.Equal(got.States, states) {
			t.Fatalf("seed %d, step %d: states %v, want %v", seed, step, got.States, states)
		}
		slices.SortFunc(behind, func(a, b int64) int { return cmp.Compare(b, a) })
		behind = behind[:min(len(behind), engine.MaxSummarized)]
		var lags []int64
		for _, l := range got.Lagging {
			if s := entries[l.ID]; s.Mark != l.Mark || s.Position != l.Position || string(s.Phase) != l.State {
				t.Fatalf("seed %d, step %d: %+v, want %+v", seed, step, l, s)
			}
			lags = append(lags, l.Behind())
		}
		if !slices.Equal(lags, behind) {
			t.Fatalf("seed %d, step %d: lags %v, want %v", seed, step, lags, behind)
		}
		if wrong := laggingTenants(got.LaggingTenants, entries); wrong != "" {
			t.Fatalf("seed %d, step %d: %s", seed, step, wrong)
		}
		longest := slices.SortedFunc(maps.Keys(since), func(a, b string) int { return since[a] - since[b] })
		longest = longest[:min(len(longest), engine.MaxSummarized)]
		held = max(held, len(since))
		if len(got.Held) != len(longest) {
			t.Fatalf("seed %d, step %d: %d tenants are held, want %v", seed, step, len(got.Held), longest)
		}
		for i, h := range got.Held {
			if e := feeds[h.Tenant]; h.Tenant != longest[i] || h.Mark != e.Mark || (h.Reason != "") != (e.Err != nil) ||
				h.Held != e.Held {
				t.Fatalf("seed %d, step %d: %+v, want %s: %+v", seed, step, h, longest[i], e)
			}
		}
	}
	if held <= engine.MaxSummarized {
		t.Errorf("at most %d tenants were held", held)
	}
}

// laggingTenants returns what is wrong with the tenants of a summary, empty if nothing is.
func laggingTenants(got []engine.LaggingTenant, entries map[projection.ID]machine.Status) string {
	want := make(map[string]engine.LaggingTenant)
	for id, s := range entries {
		if l := want[id.Tenant]; s.Mark > s.Position {
			l.Lagging++
			if s.Mark-s.Position > l.Behind() {
				l.Mark, l.Position = s.Mark, s.Position
			}
			want[id.Tenant] = l
		}
	}
	if len(got) != min(len(want), engine.MaxSummarized) {
		return fmt.Sprintf("%d tenants lag, of %d", len(got), len(want))
	}
	last := int64(math.MaxInt64)
	for _, l := range got {
		expected, worst := want[l.Worst.Tenant], entries[l.Worst]
		if l.Lagging != expected.Lagging || l.Behind() != expected.Behind() || l.Mark != worst.Mark ||
			l.Position != worst.Position || l.Behind() > last {
			return fmt.Sprintf("%+v after one that is behind by %d, want %+v", l, last, expected)
		}
		last = l.Behind()
		delete(want, l.Worst.Tenant)
	}
	for tenant, l := range want {
		if l.Behind() > last {
			return fmt.Sprintf("%s is missing: %+v", tenant, l)
		}
	}
	return ""
}

// Each heartbeat has a summary, so its cost must not grow with the number of projections, even if all are behind.
func TestSummaryDoesNotWalkAllProjections(t *testing.T) {
	fastest := func(projections int) time.Duration {
		registry := newRegistry()
		for i := range projections {
			registry.publish(projection.ID{Tenant: fmt.Sprint("t", i/10), Name: fmt.Sprint("p", i%10)},
				func(e *ProjectionEntry) {
					e.Status = machine.Status{Phase: machine.CatchUp, Mark: int64(i + 1)}
				})
		}
		least := time.Hour
		for range 100 {
			began := time.Now()
			if s := registry.Summary(); len(s.Lagging) != engine.MaxSummarized ||
				s.Lagging[0].Mark != int64(projections) {
				t.Fatalf("%+v", s)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	few, many := fastest(100), fastest(100_000)
	t.Logf("a summary of 100 projections takes %v, of 100,000 %v", few, many)
	if many > 30*few {
		t.Errorf("a summary takes %v with a thousand times as many projections, and %v without", many, few)
	}
}
