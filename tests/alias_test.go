package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// Many callers of several stores, as those of several processes, ask at once for aliases that do not exist yet.
func TestAllCallersGetTheSameIDOfANewAlias(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const callers, rounds = 50, 5
		stores := []kit.Store{b.Store, b.Again(), b.Again()}
		ids := make(map[string]bool)
		for round := range rounds {
			name := fmt.Sprint("customer ", round)
			var mu sync.Mutex
			found := make(map[string]int)
			b.Must(kit.Together(callers*len(stores), func(i int) error {
				id, err := stores[i%len(stores)].Alias(b.Ctx, name)
				mu.Lock()
				defer mu.Unlock()
				found[id]++
				return err
			}))
			for id := range found {
				if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 || len(found) != 1 || ids[id] {
					t.Errorf("%s: the callers got %v, before %v", name, found, ids)
				}
				ids[id] = true
			}
		}
	})
}

func TestAliasBelongsToItsTenant(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		alias := func(of kit.Tenant, name string) string {
			t.Helper()
			id, err := of.Alias(b.Ctx, name)
			b.Must(err)
			return id
		}
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		long := strings.Repeat("é", 250)
		first, second := alias(acme, "Ada's account"), alias(acme, long)
		if other := alias(b.Store, "Ada's account"); first == second || first == other || second == other {
			t.Errorf("the aliases are %q, %q and %q", first, second, other)
		}
		b.MustAppend(acme, first, event.NoStream, kit.SomeEvents(1)...)
		for name, says := range map[string]string{"": "empty", long +
			"é": "at most 500 bytes: 502 bytes", "\xff": "UTF-8", "a\x00": "NUL"} {
			if id, err := acme.Alias(b.Ctx, name); err == nil || id != "" || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %q, %v", name, id, err)
			}
		}

		b.Must(b.Store.ArchiveTenant(b.Ctx, "acme"))
		if id := alias(acme, "Ada's account"); id != first {
			t.Errorf("the alias of an archived tenant is %q, was %q", id, first)
		}
		if id, err := acme.Alias(b.Ctx, "new"); !errors.Is(err, tenancy.ErrArchived) || id != "" {
			t.Errorf("a new alias of an archived tenant: %q, %v", id, err)
		}
		b.Must(b.Store.UnarchiveTenant(b.Ctx, "acme"))
		alias(acme, "new")
		b.Must(b.Store.DropTenant(b.Ctx, "acme"))
		if id, err := acme.Alias(b.Ctx, "new"); !errors.Is(err, tenancy.ErrUnknown) || id != "" {
			t.Errorf("an alias of no tenant: %q, %v", id, err)
		}
		_, err = b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		if id := alias(acme, "Ada's account"); id == first {
			t.Error("the new tenant has an alias of the dropped one")
		}
	})
}

func TestAliasInATransactionOfTheCaller(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		stop := errors.New("stop")
		var first string
		give := func(ctx context.Context, tx kit.Tx) (err error) {
			first, err = b.Store.AliasTx(ctx, tx, "a")
			if err != nil {
				return err
			}
			again, err := b.Store.AliasTx(ctx, tx, "a")
			if err == nil && again != first {
				err = fmt.Errorf("%q became %q", first, again)
			}
			return err
		}
		if err := b.Store.InTx(b.Ctx, func(ctx context.Context,
			tx kit.Tx) error {
			return errors.Join(give(ctx, tx), stop)
		}); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		undone := first
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			if _, err := b.Store.Alias(ctx, "a"); !errors.Is(err, projection.ErrWithinTx) {
				return fmt.Errorf("not in the transaction: %v, want %w", err, projection.ErrWithinTx)
			}
			if err := give(ctx, tx); err != nil {
				return err
			}
			_, err := b.Store.AppendTx(ctx, tx, first, event.NoStream, kit.SomeEvents(1)...)
			return err
		}))
		if id, err := b.Store.Alias(b.Ctx, "a"); err != nil || id != first || id == undone {
			t.Errorf("%q, %v, want %q, not %q", id, err, first, undone)
		}

		// A tenant without aliases leaves the transaction usable, and so does an alias that is not valid.
		none, err := b.Store.ForTenant("none")
		b.Must(err)
		tx, err := b.Store.Begin(b.Ctx)
		b.Must(err)
		defer func() { _ = tx.Rollback(b.Ctx) }()
		if id, err := none.AliasTx(b.Ctx, tx, "b"); !errors.Is(err, tenancy.ErrUnknown) || id != "" {
			t.Errorf("%q, %v, want %v", id, err, tenancy.ErrUnknown)
		}
		if _, err := b.Store.AliasTx(b.Ctx, tx, ""); err == nil {
			t.Error("an empty alias is valid")
		}
		own, err := b.Store.AliasTx(b.Ctx, tx, "b")
		b.Must(err)
		b.Must(tx.Commit(b.Ctx))
		if id, err := b.Store.Alias(b.Ctx, "b"); err != nil || id != own {
			t.Errorf("%q, %v, want %q", id, err, own)
		}
	})
}
