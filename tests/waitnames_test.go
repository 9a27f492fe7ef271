package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// PostgreSQL refuses each statement with such a name. That must not be taken for an outage, which is waited for.
func TestNamesThatNoStoreCanHaveAreNotWaitedFor(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		a := newAdmin(b)
		for _, name := range []string{"a\x00b", "a\xffb"} {
			ctx, cancel := context.WithTimeout(b.Ctx, 10*time.Second)
			defer cancel()
			if err := a.WaitFor(ctx, projection.ID{Name: name}, 1); !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("projection %q: %v", name, err)
			}
			err := a.WaitFor(ctx, projection.ID{Tenant: name, Name: "p"}, 1)
			if !errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("tenant %q: %v", name, err)
			}
			_, err = b.Store.DeadLetters(projection.ID{Name: name}).Wait(ctx, 1)
			if !errors.Is(err, projection.ErrUnknownProjection) {
				t.Errorf("a command on projection %q: %v", name, err)
			}
		}
	})
}
