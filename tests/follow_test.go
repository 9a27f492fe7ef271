package tests_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// following is a follower that runs in the background and keeps what it got.
type following struct {
	opts event.ReadOptions
	mu   sync.Mutex
	got  []event.Envelope
	err  error
	done chan struct{}
}

// follow follows a tenant until ctx ends, and pauses after each event for a time that depends on it.
func follow(ctx context.Context, tenant kit.Tenant, opts event.ReadOptions,
	pause func(e event.Envelope) time.Duration) *following {
	f := &following{opts: opts, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for e, err := range tenant.Follow(ctx, opts) {
			f.mu.Lock()
			f.err = err
			if err == nil {
				f.got = append(f.got, e)
			}
			f.mu.Unlock()
			if pause != nil {
				kit.Pass(ctx, pause(e))
			}
		}
	}()
	return f
}

// has reports whether the follower has n events. It ends the test if the follower has ended.
func (f *following) has(b *kit.Bundle, n int) bool {
	select {
	case <-f.done:
		b.T.Fatalf("the follower has ended with %d events: %v", len(f.got), f.err)
	default:
	}
	return len(f.events()) >= n
}

func (f *following) events() []event.Envelope {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// ended waits for the end of the follower and returns its error.
func (f *following) ended(b *kit.Bundle) error {
	b.InTime("the follower ends", func() { <-f.done })
	return f.err
}

// selected returns the events of a tenant that a follower must get.
func selected(b *kit.Bundle, tenant kit.Tenant, opts event.ReadOptions) (events []event.Envelope) {
	for _, e := range b.All(tenant) {
		if e.Position > opts.After && (opts.Stream == "" || e.Stream == opts.Stream) &&
			(opts.Types == nil || slices.Contains(opts.Types, e.Type)) {
			events = append(events, e)
		}
	}
	return events
}

// Followers join and leave while writers of this process and of another append, while a runtime with the same tenant
// starts and stops, and while some of them are slow.
func TestFollowersGetEveryEventOnceAndInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("before", 700)
		other := b.Again()
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		var all []*following
		for i, opts := range []event.ReadOptions{{}, {After: 650}, {Types: []string{"noted"}}, {Stream: "stream2"},
			{After: 10, Types: []string{"counted"}, Stream: "other"}, {After: 700}} {
			slow := func(e event.Envelope) time.Duration {
				return time.Duration(e.Position%50/49) * time.Duration(i%2) * 20 * time.Millisecond
			}
			all = append(all, follow(ctx, b.Store, opts, slow))
		}
		stop := b.AppendThrough(3)
		var group errgroup.Group
		appending, end := context.WithCancel(b.Ctx)
		group.Go(func() error {
			for i := 0; appending.Err() == nil; i++ {
				body := event.New(kit.Noted{I: i})
				if i%3 == 0 {
					body = event.New(kit.Counted{I: i})
				}
				if _, err := other.Append(b.Ctx, "other", event.Any, body); err != nil {
					return err
				}
				kit.Pass(appending, 2*time.Millisecond)
			}
			return nil
		})
		for range 3 {
			stopRuntime := b.Start(b.Runtime(millrace.Config{}, b.Recorders("p")...))
			all = append(all, follow(ctx, b.Store, event.ReadOptions{After: b.Head() - 20}, nil))
			kit.Pass(ctx, 300*time.Millisecond)
			stopRuntime()
			brief, leave := context.WithCancel(ctx)
			first := follow(brief, b.Store, event.ReadOptions{After: b.Head()}, nil)
			kit.Pass(ctx, 100*time.Millisecond)
			leave()
			if err := first.ended(b); !errors.Is(err, context.Canceled) {
				t.Errorf("a follower that left: %v", err)
			}
		}
		end()
		b.Must(group.Wait())
		stop()
		last := b.Head()
		for i, f := range all {
			want := selected(b, b.Store, f.opts)
			b.Eventually(fmt.Sprintf("follower %d has %d events up to %d", i, len(want), last),
				func() bool { return f.has(b, len(want)) })
			if got := f.events(); !reflect.DeepEqual(got, want) {
				t.Errorf("follower %d, %+v: got %v, want %v", i, f.opts, kit.PositionsOf(got), kit.PositionsOf(want))
			}
		}
		cancel()
		for _, f := range all {
			if err := f.ended(b); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// A follower that waits gets an event of its own process and of another one soon, with and without a runtime.
func TestFollowersAreWoken(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		other := b.Again()
		f := follow(b.Ctx, b.Store, event.ReadOptions{}, nil)
		n := 0
		one := func(from kit.Store) {
			t.Helper()
			n++
			_, err := from.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...)
			b.Must(err)
			b.Eventually(fmt.Sprint("event ", n, " arrives"), func() bool { return f.has(b, n) })
		}
		for range 20 {
			one(b.Store)
			one(other)
		}
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		for range 20 {
			one(b.Store)
			one(other)
		}
		b.Reaches(rt, "p", int64(n))
	})
}

func TestFollowRefuses(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		nowhere, err := b.Store.ForTenant("nowhere")
		b.Must(err)
		// only a follower that is not refused waits for so long
		limited, cancel := context.WithTimeout(b.Ctx, 20*time.Second)
		defer cancel()
		first := func(read iter.Seq2[event.Envelope, error]) error {
			for _, err := range read {
				return err
			}
			return errors.New("it ended without an error")
		}
		if err := first(nowhere.Follow(limited, event.ReadOptions{})); !errors.Is(err, tenancy.ErrUnknown) {
			t.Errorf("an unknown tenant: %v", err)
		}
		if _, err := nowhere.Settled(b.Ctx); !errors.Is(err, tenancy.ErrUnknown) {
			t.Errorf("the mark of an unknown tenant: %v", err)
		}
		if err := first(b.Store.Follow(limited, event.ReadOptions{Types: []string{"a\x00"}})); err == nil ||
			!strings.Contains(err.Error(), "type") {
			t.Errorf("a type without a name: %v", err)
		}
		if err := first(b.Store.Follow(limited, event.ReadOptions{After: 1})); !errors.Is(err, tenancy.ErrRestored) {
			t.Errorf("a position beyond the end: %v", err)
		}
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		b.AppendTo(acme, "s", 3)
		f := follow(b.Ctx, acme, event.ReadOptions{}, nil)
		b.Eventually("the follower has the events", func() bool { return len(f.events()) == 3 })
		b.Must(b.Store.DropTenant(b.Ctx, "acme"))
		if err := f.ended(b); !errors.Is(err, tenancy.ErrUnknown) && !errors.Is(err, tenancy.ErrDropping) {
			t.Errorf("a dropped tenant: %v", err)
		}
		store := b.Again()
		f = follow(b.Ctx, store, event.ReadOptions{}, nil)
		_, err = store.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...)
		b.Must(err)
		b.Eventually("the follower has the event", func() bool { return len(f.events()) == 1 })
		store.Close()
		if err := f.ended(b); err == nil || !strings.Contains(err.Error(), "the store is closed") {
			t.Errorf("a closed store: %v", err)
		}
		if err := first(store.Follow(limited, event.ReadOptions{})); err == nil ||
			!strings.Contains(err.Error(), "the store is closed") {
			t.Errorf("a closed store: %v", err)
		}
	})
}

// A follower that has returned events which are gone must not go on with those that get their positions.
func TestFollowersOfARestoredTenantEnd(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 10)
		f := follow(b.Ctx, b.Store, event.ReadOptions{}, nil)
		b.Eventually("the follower has the events", func() bool { return len(f.events()) == 10 })
		b.Must(b.Store.Truncate(b.Ctx, 4))
		if err := f.ended(b); !errors.Is(err, tenancy.ErrRestored) {
			t.Errorf("%v", err)
		}
		f = follow(b.Ctx, b.Store, event.ReadOptions{}, nil)
		b.Append("s", 3)
		b.Eventually("another follower has what is there", func() bool { return len(f.events()) == 7 })
	})
}

// A tenant that is created again is another one, also if it soon has more events, and whichever process drops and
// creates it.
func TestFollowersOfADroppedTenantEnd(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		other := b.Again()
		for _, by := range []kit.Store{b.Store, other, other} {
			acme, err := b.Store.CreateTenant(b.Ctx, "acme")
			b.Must(err)
			b.AppendTo(acme, "s", 3)
			f := follow(b.Ctx, acme, event.ReadOptions{}, nil)
			b.Eventually("the follower has the events", func() bool { return f.has(b, 3) })
			b.AppendTo(acme, "s", 1) // it is heard of
			b.Eventually("the follower has the next event", func() bool { return f.has(b, 4) })
			b.Must(by.DropTenant(b.Ctx, "acme"))
			again, err := by.CreateTenant(b.Ctx, "acme")
			b.Must(err)
			b.AppendTo(again, "s", 10)
			if err := f.ended(b); !errors.Is(err, tenancy.ErrUnknown) && !errors.Is(err, tenancy.ErrDropping) &&
				!errors.Is(err, tenancy.ErrRestored) {
				t.Errorf("%v", err)
			}
			if n := len(f.events()); n != 4 {
				t.Errorf("it got %d events", n)
			}
			b.Must(by.DropTenant(b.Ctx, "acme"))
		}
	})
}

// Followers hold events in memory that they have not returned yet. After an erasure in their process, they return them
// redacted. Followers of another process do so after 5 seconds.
func TestFollowersReturnNothingErased(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		erased, late := make(chan struct{}), make(chan struct{})
		waits := func(until chan struct{}) func(e event.Envelope) time.Duration {
			return func(e event.Envelope) time.Duration {
				if e.Position == 1 {
					<-until
				}
				return 0
			}
		}
		here, other := follow(b.Ctx, b.Store, event.ReadOptions{}, waits(erased)),
			follow(b.Ctx, b.Again(), event.ReadOptions{}, waits(late))
		b.MustAppend(b.Store, "ada", event.Any, ofAPerson(4)...)
		b.Eventually("the followers have the first event",
			func() bool { return len(here.events()) == 1 && len(other.events()) == 1 })
		mustErase(b, b.Store, "ada", 4)
		close(erased)
		time.AfterFunc(5*time.Second, func() { close(late) })
		for _, f := range []*following{here, other} {
			b.Eventually("a follower has all events", func() bool { return len(f.events()) == 4 })
			for _, e := range f.events()[1:] {
				if !e.Redacted() || strings.Contains(fmt.Sprint(e), secret) {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}

// Without an append in progress, Settled returns the position of the last event. TestFollowersWaitForOpenAppends has
// one in progress.
func TestSettledIsTheEndOfWhatCanStillAppear(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		mark, err := b.Store.Settled(b.Ctx)
		if err != nil || mark != 0 {
			t.Errorf("%d, %v", mark, err)
		}
		b.Append("s", 5)
		mark, err = b.Store.Settled(b.Ctx)
		if err != nil || mark != 5 {
			t.Errorf("%d, %v", mark, err)
		}
	})
}
