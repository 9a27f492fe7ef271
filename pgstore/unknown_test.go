package pgstore

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func TestUnknownTenantsAndProjectionsAreNamed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	noError(t, store.port().Ensure(ctx, []string{projection.DefaultTenant}, []string{"known"}))
	all := projection.DeadLetterFilter{All: true}
	calls := map[string]func(d *DeadLetters) error{
		"List": func(d *DeadLetters) error {
			_, err := d.List(ctx, projection.DeadLetterPage{})
			return err
		},
		"Count": func(d *DeadLetters) error {
			_, err := d.Count(ctx, projection.DeadLetterFilter{})
			return err
		},
		"Purge": func(d *DeadLetters) error {
			_, err := d.Purge(ctx, all, time.Hour, 10)
			return err
		},
		"SetWanted": func(d *DeadLetters) error { return store.port().SetDesiredState(ctx, d.id, engine.WantRun) },
	}
	unknown := map[string]func(d *DeadLetters) error{
		"Get": func(d *DeadLetters) error {
			_, _, err := d.Get(ctx, 1)
			return err
		},
		"Replay": func(d *DeadLetters) error {
			_, err := d.Replay(ctx, all, 10)
			return err
		},
		"Discard": func(d *DeadLetters) error {
			_, err := d.Discard(ctx, all, 10)
			return err
		},
	}
	for what, call := range calls {
		if err := call(store.DeadLetters(projection.ID{Name: "known"})); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		unknown[what] = call
	}
	for what, call := range unknown {
		if err := call(store.DeadLetters(projection.ID{Name: "other"})); !errors.Is(err, projection.ErrUnknownProjection) || errors.Is(err, projection.ErrUnknownTenant) {
			t.Errorf("%s of an unknown projection: %v", what, err)
		}
		if err := call(store.DeadLetters(projection.ID{Tenant: "nobody", Name: "known"})); !errors.Is(err, projection.ErrUnknownTenant) || errors.Is(err, projection.ErrUnknownProjection) {
			t.Errorf("%s of an unknown tenant: %v", what, err)
		}
	}
}
