package aggregates_test

import (
	"strconv"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/tests/kit"
)

// deposited1 is the Deposited of release 1, whose amount was a text. Release 2 has Deposited.v2.
type deposited1 struct {
	Amount string `json:"amount"`
}

func (deposited1) EventType() string { return "Deposited" }

type deposited2 struct {
	Cents int64 `json:"cents"`
}

func (deposited2) EventType() string { return "Deposited.v2" }

var (
	before = aggregate.New("purse", aggregate.On(func(cents int64, e event.Of[deposited1]) int64 {
		n, _ := strconv.ParseInt(e.Body.Amount, 10, 64)
		return cents + n
	})).Snapshot(2, 1)
	after = aggregate.New("purse",
		aggregate.On(func(cents int64, e event.Of[deposited2]) int64 { return cents + e.Body.Cents })).Snapshot(2, 1)
)

// Release 2 folds the events of release 1, with and without snapshots, and a snapshot depends on the upcasters.
func TestAggregateIsFoldedFromCurrentEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		registry := func(factor int64) *eventtype.Types {
			declarations := []eventtype.Declaration{eventtype.Of[deposited2](),
				eventtype.Upcast(func(old deposited1) (deposited2, error) {
					n, err := strconv.ParseInt(old.Amount, 10, 64)
					return deposited2{n * factor}, err
				})}
			if factor > 1 {
				declarations = append(declarations, eventtype.Named("Other.v2"), eventtype.Renamed("Other", "Other.v2"))
			}
			types, err := eventtype.New(declarations...)
			b.Must(err)
			return types
		}
		for range 3 {
			_, err := before.Do(b.Ctx, b.Store, "1",
				func(int64) ([]event.Event, error) { return []event.Event{event.New(deposited1{"5"})}, nil })
			b.Must(err)
		}
		want := map[int64][]int64{1: {15, 16, 17}, 10: {150, 151, 152}}
		for _, factor := range []int64{1, 10} {
			typed := b.Typed(registry(factor))
			for i, cents := range want[factor] {
				if factor == 10 {
					cents += 2 // of the first release
				}
				at, err := after.Load(b.Ctx, typed.Store, "1")
				b.Must(err)
				if at.State != cents {
					t.Errorf("factor %d, load %d: %+v, want %d", factor, i, at, cents)
				}
				if i == 2 {
					continue
				}
				_, err = after.Do(b.Ctx, typed.Store, "1",
					func(int64) ([]event.Event, error) { return []event.Event{event.New(deposited2{1})}, nil })
				b.Must(err)
			}
		}
		if _, err := before.Load(b.Ctx, b.Typed(registry(1)).Store, "1"); err == nil {
			t.Error("release 1 folds current events")
		}
	})
}
