package tests_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// allowedWithin are the methods that may be called with the context of a transaction: they read, append to the
// transaction, or do nothing with a context.
var allowedWithin = strings.Fields(`
	Store.AliasTx Store.AppendTx Store.Close Store.DB Store.DeadLetters Store.Engine Store.EventsSchema
	Store.Wake Tenant.Wake Store.Erasures Store.ForTenant Store.Pool Store.ReadAll Store.ReadStream Store.Stream Store.Streams Store.Tenants
	Tenant.AliasTx Tenant.AppendTx Tenant.Erasures Tenant.EventsSchema Tenant.Name Tenant.ReadAll Tenant.ReadStream Tenant.State Tenant.Stream Tenant.Streams
	DeadLetters.Count DeadLetters.Get DeadLetters.List DeadLetters.Wait
	Admin.Detail Admin.Findings Admin.RestoredTenant Admin.Schema Admin.Status Admin.Summary Admin.Unswapped Admin.WaitFor Admin.WaitOperation`)

// writing are calls of all methods that write, or that wait for open transactions. The projections p and p@2 are there,
// and the tenant x.
func writing(b *kit.Bundle) map[string]func(ctx context.Context) error {
	a, err := admin.New(b.Store)
	b.Must(err)
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "new", Handler: b.Store.Batch(kit.Nothing)})
	p2 := millrace.ProjectionID{Name: "p@2"}
	other, err := b.Store.ForTenant("x")
	b.Must(err)
	letters := b.Store.DeadLetters(p)
	append1 := func(to kit.Tenant) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := to.Append(ctx, "within", event.Any, kit.SomeEvents(1)...)
			return err
		}
	}
	inTx := func(ctx context.Context) error {
		return b.Store.InTx(ctx, func(context.Context, kit.Tx) error { return nil })
	}
	erase := func(in kit.Tenant) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := in.EraseStream(ctx, "within", "r"); return err }
	}
	redact := func(in kit.Tenant) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := in.RedactEvents(ctx, []int64{1}, "r"); return err }
	}
	followed := func(of kit.Tenant) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := kit.Collect(of.Follow(ctx, event.ReadOptions{}))
			return err
		}
	}
	settled := func(of kit.Tenant) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := of.Settled(ctx); return err }
	}
	return map[string]func(ctx context.Context) error{
		"Store.Follow": followed(b.Store), "Tenant.Follow": followed(other), "Store.Settled": settled(b.Store),
		"Tenant.Settled": settled(other),
		"MoveTenant": func(ctx context.Context) error {
			_, err := admin.MoveTenant(ctx, b.Store, b.Store, "", admin.MoveOptions{})
			return err
		},
		"AbandonMove":       func(ctx context.Context) error { return admin.AbandonMove(ctx, b.Store, "", "another") },
		"Store.EraseStream": erase(b.Store), "Tenant.EraseStream": erase(other), "Store.RedactEvents": redact(b.Store),
		"Tenant.RedactEvents": redact(other),
		"Admin.RecoverTenant": func(ctx context.Context) error {
			_, err := a.RecoverTenant(ctx, "x", admin.RecoverOptions{Continue: []string{"p"}})
			return err
		},
		"Store.Append": append1(b.Store), "Tenant.Append": append1(other), "Store.InTx": inTx, "Tenant.InTx": inTx,
		"Store.Alias":   func(ctx context.Context) error { _, err := b.Store.Alias(ctx, "within"); return err },
		"Tenant.Alias":  func(ctx context.Context) error { _, err := other.Alias(ctx, "within"); return err },
		"Store.Migrate": b.Store.Migrate,
		"Store.CreateTenant": func(ctx context.Context) error {
			_, err := b.Store.CreateTenant(ctx, "x")
			return err
		},
		"Store.CreateTenants": func(ctx context.Context) error {
			_, err := b.Store.CreateTenants(ctx, []string{"x"})
			return err
		},
		"Store.ArchiveTenant":   func(ctx context.Context) error { return b.Store.ArchiveTenant(ctx, "x") },
		"Store.UnarchiveTenant": func(ctx context.Context) error { return b.Store.UnarchiveTenant(ctx, "x") },
		"Store.DropTenant":      func(ctx context.Context) error { return b.Store.DropTenant(ctx, "x") },
		"DeadLetters.Replay": func(ctx context.Context) error {
			_, err := letters.Replay(ctx, projection.DeadLetterFilter{All: true}, 1)
			return err
		},
		"DeadLetters.Discard": func(ctx context.Context) error {
			_, err := letters.Discard(ctx, projection.DeadLetterFilter{All: true}, 1)
			return err
		},
		"DeadLetters.Purge": func(ctx context.Context) error {
			_, err := letters.Purge(ctx, projection.DeadLetterFilter{All: true}, 0, 1)
			return err
		},
		"DeadLetters.Cancel":    func(ctx context.Context) error { return letters.Cancel(ctx, 1) },
		"Admin.CancelOperation": func(ctx context.Context) error { return a.CancelOperation(ctx, p) },
		"Admin.Create": func(ctx context.Context) error {
			return a.Create(ctx, millrace.ProjectionID{Name: "new"}, projection.Start{})
		},
		"Admin.DropVersion": func(ctx context.Context) error { return a.DropVersion(ctx, p2) },
		"Admin.Forget":      func(ctx context.Context) error { return a.Forget(ctx, p) },
		"Admin.Pause":       func(ctx context.Context) error { return a.Pause(ctx, p) },
		"Admin.PauseTenant": func(ctx context.Context) error { return a.PauseTenant(ctx, "x") },
		"Admin.Rebuild":     func(ctx context.Context) error { return a.Rebuild(ctx, p, admin.ResetOptions{}) },
		"Admin.Rename":      func(ctx context.Context) error { return a.Rename(ctx, p, "renamed") },
		"Admin.Repartition": func(ctx context.Context) error { return a.Repartition(ctx, p, 2) },
		"Admin.Reset": func(ctx context.Context) error {
			_, err := a.Reset(ctx, p, 0, admin.ResetOptions{})
			return err
		},
		"Admin.Resume":       func(ctx context.Context) error { return a.Resume(ctx, p) },
		"Admin.ResumeTenant": func(ctx context.Context) error { return a.ResumeTenant(ctx, "x") },
		"Admin.Swap":         func(ctx context.Context) error { return a.Swap(ctx, p2, admin.SwapOptions{}) },
		"Runtime.Tick": func(ctx context.Context) error {
			_, err := rt.Tick(ctx, millrace.ProjectionID{Name: "new"})
			return err
		},
		"Runtime.Run":          rt.Run,
		"Runtime.RunUntilIdle": func(ctx context.Context) error { _, err := rt.RunUntilIdle(ctx); return err },
	}
}

// The lists have each method of the stores: it writes, or it is allowed.
func TestEveryMethodIsKnownToWriteOrNot(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		known := append(slices.Collect(maps.Keys(writing(b))), allowedWithin...)
		types := maps.Clone(b.Kind.Types)
		types["DeadLetters"], types["Admin"] = reflect.TypeFor[projection.DeadLetters](),
			reflect.TypeFor[*admin.Admin]()
		for name, of := range types {
			for i := range of.NumMethod() {
				if method := name + "." + of.Method(i).Name; !slices.Contains(known, method) {
					t.Errorf("%s of %v is not listed", method, of)
				}
			}
		}
	})
}

// transactions run a function with the context of a transaction of a store, by the place of the function. The function
// is called at least once: a batch may be repeated. What the projections have recorded shows each event once.
func transactions(b *kit.Bundle, do func(ctx context.Context, store kit.Store)) map[string]func() {
	own := func(ctx context.Context) { do(ctx, b.Store) }
	run := func(p millrace.Projection) func() {
		return func() {
			b.Idle(p)
			b.Verify(p.Name)
		}
	}
	each := func(name string) kit.EventFunc {
		return func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			own(ctx)
			return tx.Record(ctx, name, e)
		}
	}
	around := func(next millrace.HandleFunc) millrace.HandleFunc {
		return func(ctx context.Context, events []event.Envelope) error {
			own(ctx)
			return next(ctx, events)
		}
	}
	return map[string]func(){
		"InTx": func() {
			b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, _ kit.Tx) error { own(ctx); return nil }))
		},
		"batch": run(millrace.Projection{Name: "batch",
			Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				own(ctx)
				return tx.Record(ctx, "batch", events...)
			})}),
		"event": run(millrace.Projection{Name: "event", Handler: b.Store.Each(each("event"))}),
		"typed": run(millrace.Projection{Name: "typed", Handler: b.Store.Counted(each("typed"))}),
		"middleware": run(millrace.Projection{
			Name: "middleware", Handler: b.Store.Batch(kit.Record("middleware")),
			Middleware: []millrace.Middleware{around},
		}),
		"append middleware": func() {
			var store kit.Store
			appending := false
			store = b.Around(func(next event.AppendFunc) event.AppendFunc {
				return func(ctx context.Context, a event.Appending) (event.Appended, error) {
					if !appending { // and no append of do
						appending = true
						do(ctx, store)
					}
					return next(ctx, a)
				}
			})
			tx, err := store.Begin(b.Ctx)
			b.Must(err)
			_, err = store.AppendTx(b.Ctx, tx, "s", event.Any, kit.SomeEvents(1)...)
			b.Must(errors.Join(err, tx.Rollback(b.Ctx)))
		},
	}
}

func TestWritesWithTheContextOfATransactionAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := b.Store.CreateTenant(b.Ctx, "x")
		b.Must(err)
		b.Append("s", 2)
		calls := 0 // by one goroutine at a time
		do := func(ctx context.Context, store kit.Store) {
			calls++
			if t.Failed() {
				return // a call that is not refused may wait for all of the time
			}
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			of := *b
			of.Store = store
			for method, call := range writing(&of) {
				if err := call(ctx); !errors.Is(err, projection.ErrWithinTx) {
					t.Errorf("%s: %v", method, err)
				}
			}
			if events := b.Collect(store.ReadAll(ctx, event.ReadOptions{})); len(events) != 2 {
				t.Errorf("%d events", len(events))
			}
		}
		hook := b.Store.Hook(func(ctx context.Context, _ kit.Tx) error { do(ctx, b.Store); return nil })
		first := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing), Reset: hook}
		second := millrace.Projection{Name: "p", Version: 2, Handler: b.Store.Batch(kit.Nothing), Swap: hook}
		third := millrace.Projection{Name: "p", Version: 3, Handler: b.Store.Batch(kit.Nothing), Drop: hook}
		b.Idle(first, second, third)
		mustCall := func(place string, run func()) {
			before := calls
			run()
			if calls == before {
				t.Errorf("%s: not called", place)
			}
		}
		for place, run := range transactions(b, do) {
			mustCall(place, run)
		}
		rt := b.Running(kit.Quick, first, second, third)
		b.Reaches(rt, "p@2", 2)
		mustCall("Reset", func() { b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{})) })
		b.Reaches(rt, "p", 2)
		mustCall("Drop", func() { b.Must(rt.DropVersion(b.Ctx, millrace.ProjectionID{Name: "p@3"})) })
		mustCall("Swap", func() { b.Must(rt.Swap(b.Ctx, millrace.ProjectionID{Name: "p@2"}, admin.SwapOptions{})) })
		b.Reaches(rt, "p@2", 2)
		if n := len(b.All(b.Store)); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}
