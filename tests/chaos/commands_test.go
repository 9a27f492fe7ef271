package chaos_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// The bodies of the writers' events.
type (
	plainBody struct {
		Token string `json:"token"`
	}
	oddBody    plainBody
	poisonBody plainBody
)

func (plainBody) EventType() string  { return typePlain }
func (oddBody) EventType() string    { return typeOdd }
func (poisonBody) EventType() string { return typePoison }

// tally depends on each event of a stream and on their order.
type tally struct {
	Events int64
	Hash   uint64
}

func (t tally) after(e event.Envelope, token string) tally {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, t.Hash, e.Position, e.Version, e.Type, token)
	return tally{t.Events + 1, h.Sum64()}
}

// tallies are the streams of the writers. Some appends save a snapshot, and the commands that save none use a cache.
var (
	tallies = aggregate.New("stream",
		aggregate.On(func(t tally, e event.Of[plainBody]) tally { return t.after(e.Envelope, e.Body.Token) },
			event.IncludeRedacted),
		aggregate.On(func(t tally, e event.Of[oddBody]) tally { return t.after(e.Envelope, e.Body.Token) },
			event.IncludeRedacted),
		aggregate.On(func(t tally, e event.Of[poisonBody]) tally { return t.after(e.Envelope, e.Body.Token) },
			event.IncludeRedacted))
	savedTallies  = tallies.Snapshot(7, 1)
	cachedTallies = tallies.Cache(1 << 20)
)

// do carries out a command that appends the events. It may be repeated with the same key.
func do(ctx context.Context, tenant *pgstore.Tenant, saves bool, id, key string,
	events []event.Event) (event.Appended, error) {
	category := cachedTallies
	if saves {
		category = savedTallies
	}
	result, err := category.Do(ctx, tenant, id, func(tally) ([]event.Event, error) { return events, nil },
		aggregate.Key(key), aggregate.Retries(1000))
	return result.Appended, err
}

// compareTallies returns what is wrong with the states that are loaded by snapshots and by the cache. The writers must
// pause.
func (c *cluster) compareTallies(names ...string) (findings []finding) {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	for _, name := range names {
		found := func(stream, format string, args ...any) {
			findings = append(findings, finding{kindState,
				projection.ID{Tenant: name}, 0, stream + ": " + fmt.Sprintf(format, args...)})
		}
		tenant, err := c.writers.store.ForTenant(name)
		if err != nil {
			found("", "%v", err)
			continue
		}
		for i := range streams {
			id := fmt.Sprint(i)
			whole, err := tallies.Load(ctx, tenant, id)
			if err != nil {
				found(whole.Stream, "%v", err)
			}
			for by, category := range map[string]*aggregate.Category[tally]{"a snapshot": savedTallies,
				"the cache": cachedTallies} {
				got, err := category.Load(ctx, tenant, id)
				if err != nil {
					found(whole.Stream, "%v", err)
				}
				if got.State != whole.State || got.Version != whole.Version || got.Position != whole.Position ||
					whole.State.Events != whole.Version {
					found(whole.Stream, "by %s it is %+v, by all events %+v", by, got, whole)
				}
			}
		}
	}
	return findings
}

// twice returns the events of the writers that were appended twice.
func twice(h history) (findings []finding) {
	tokens := make(map[string]int64, len(h.events))
	for _, e := range h.events {
		if _, ofWriters := tallies.ID(e.Stream); !ofWriters || e.Token == "" {
			continue
		}
		if at, again := tokens[e.Token]; again {
			findings = append(findings, finding{kindTwice,
				projection.ID{Tenant: h.of.Tenant}, e.Position, fmt.Sprintf("%s, also at %d", e.Token, at)})
		}
		tokens[e.Token] = e.Position
	}
	return findings
}
