package aggregates_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// doubled is a release whose folds differ from those of accounts.
var doubled = aggregate.New("account",
	aggregate.On(func(a account, e event.Of[deposited]) account {
		return a.booked(e.Body.By, 2*e.Body.Cents, e.Version)
	}),
	aggregate.On(func(a account, e event.Of[withdrawn]) account {
		return a.booked(e.Body.By, -2*e.Body.Cents, e.Version)
	}))

// releases are programs that run side by side, with the factor of their folds.
var releases = []struct {
	*aggregate.Category[account]
	factor int64
}{
	{accounts, 1}, {accounts.Snapshot(1, 1), 1}, {accounts.Snapshot(3, 1), 1},
	{accounts.Snapshot(2, 3).Check(func(account) error { return nil }), 1},
	{doubled.Snapshot(2, 2), 2}, {doubled, 2}, {accounts.Cache(1 << 20), 1},
	{accounts.Snapshot(3, 1).Cache(1 << 20), 1}, {doubled.Cache(1000), 2},
}

// What any release loads is what it folds from the whole stream, after random commands of all releases, erasures and
// restores. Repeat a failure by -rapid.seed.
func TestLoadWithSnapshotsIsTheWholeFold(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		ids, begin := 0, time.Now()
		rapid.Check(t, func(t *rapid.T) {
			if time.Since(begin) > 5*time.Second {
				return
			}
			ids++
			id := fmt.Sprint(ids)
			var positions []int64
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				r := rapid.SampledFrom(releases).Draw(t, "release")
				switch rapid.SampledFrom([]string{"do", "do", "do", "append", "redact", "truncate"}).Draw(t, "step") {
				case "do":
					n := rapid.IntRange(1, 4).Draw(t, "events")
					done, err := r.Do(b.Ctx, b.Store, id, func(account) (events []event.Event, _ error) {
						for i := range n {
							events = append(events, event.New(deposited{Cents: int64(i + 1), By: fmt.Sprint(i)}))
						}
						return events, nil
					})
					must(t, err)
					positions = append(positions, done.Appended.Positions...)
				case "append":
					done, err := b.Store.Append(b.Ctx, "account-"+
						id, event.Any, event.New(withdrawn{Cents: 1, By: "x"}))
					must(t, err)
					positions = append(positions, done.Positions...)
				case "redact":
					if len(positions) > 0 {
						_, err := b.Store.RedactEvents(b.Ctx, []int64{rapid.SampledFrom(positions).Draw(t, "position")},
							"test")
						must(t, err)
					}
				case "truncate":
					if n := len(positions); n > 0 {
						positions = positions[:rapid.IntRange(1, n).Draw(t, "left")]
						must(t, b.Store.Truncate(b.Ctx, positions[len(positions)-1]))
					}
				}
				for _, r := range releases {
					at, err := r.Load(b.Ctx, b.Store, id)
					must(t, err)
					want, version, position, err := folded(b.Ctx, b.Store, at.Stream)
					must(t, err)
					want.Cents *= r.factor
					for by := range want.By {
						want.By[by] *= r.factor
					}
					if err := same(at.State, want); err != nil || at.Version != version || at.Position != position {
						t.Fatalf("%v; version %d at %d, want %d at %d", err, at.Version, at.Position, version, position)
					}
				}
			}
		})
	})
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// 32 writers of all releases share two streams and send some commands twice. The streams are what a serial model
// allows: no withdrawal takes more than there is, and each command has the effect that its caller was told.
func TestManyWritersAreSerial(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var mu sync.Mutex
		done := make(map[string]int64) // the version of each command that has succeeded
		var group sync.WaitGroup
		for w := range 32 {
			group.Go(func() {
				for i := range 6 {
					name := fmt.Sprint(w, ".", i)
					cents := rand.Int64N(100) - 50
					r := releases[rand.IntN(4)] // those with one factor
					decide := func(a account) ([]event.Event, error) {
						if cents >= 0 {
							return []event.Event{event.New(deposited{Cents: cents, By: name})}, nil
						}
						if a.Cents < -cents {
							return nil, errTooLittle
						}
						return []event.Event{event.New(withdrawn{Cents: -cents, By: name})}, nil
					}
					for range 1 + i%2 {
						result, err := r.Do(b.Ctx, b.Store, fmt.Sprint(w%2), decide, aggregate.Key(name),
							aggregate.Retries(1000))
						mu.Lock()
						switch {
						case errors.Is(err, errTooLittle):
						case err != nil:
							t.Error(err)
						case done[name] != 0 && done[name] != result.Appended.Version:
							t.Errorf("command %s was answered with versions %d and %d", name, done[name],
								result.Appended.Version)
						default:
							done[name] = result.Appended.Version
						}
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		for id := range 2 {
			serial(b, fmt.Sprint("account-", id), id, done)
		}
	})
}

// serial checks a stream against the answers of its commands.
func serial(b *kit.Bundle, stream string, id int, done map[string]int64) {
	b.T.Helper()
	cents, effects := int64(0), 0
	for e, err := range b.Store.ReadStream(b.Ctx, stream, 1) {
		b.Must(err)
		var booked deposited
		b.Must(e.Decode(&booked))
		if e.Type == "Withdrawn" {
			booked.Cents = -booked.Cents
		}
		cents += booked.Cents
		if cents < 0 {
			b.T.Errorf("%s is negative after version %d", stream, e.Version)
		}
		if done[booked.By] != e.Version {
			b.T.Errorf("%s: version %d is of command %s, which was answered with %d", stream, e.Version, booked.By,
				done[booked.By])
		}
		effects++
	}
	want := 0
	for name := range done {
		var w, i int
		_, err := fmt.Sscanf(name, "%d.%d", &w, &i)
		b.Must(err)
		if w%2 == id {
			want++
		}
	}
	if effects != want {
		b.T.Errorf("%s has %d effects of %d commands", stream, effects, want)
	}
}
