package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Bundle is a store of a test's own, and what tests do with it. Its methods fail the test on an error.
type Bundle struct {
	T     *testing.T
	Ctx   context.Context
	Kind  *Kind
	Place string
	Store Store
}

// New makes a new store.
func (k *Kind) New(t *testing.T) *Bundle {
	t.Helper()
	return k.With(t, 0)
}

// With makes a new store with that many connections.
func (k *Kind) With(t *testing.T, connections int) *Bundle {
	t.Helper()
	if k.Ready != nil {
		return k.At(t, k.Ready(t, connections))
	}
	b := k.At(t, k.Place(t, connections))
	b.Must(b.Store.Migrate(b.Ctx))
	b.Must(b.Store.Prepare(b.Ctx))
	return b
}

// At opens the store at a place.
func (k *Kind) At(t *testing.T, place string) *Bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	b := &Bundle{T: t, Ctx: ctx, Kind: k, Place: place}
	b.Store = b.Again()
	return b
}

// Again opens the store once more, as another process does. Its appends wake no other runtime of this process directly.
func (b *Bundle) Again() Store {
	b.T.Helper()
	return b.Around()
}

// Around is Again with middleware around the appends.
func (b *Bundle) Around(around ...event.AppendMiddleware) Store {
	b.T.Helper()
	store, err := b.Kind.Open(b.Ctx, b.Place, nil, around...)
	b.Must(err)
	b.T.Cleanup(store.Close)
	return store
}

// Typed is the bundle with the store opened once more, with a registry of event types.
func (b *Bundle) Typed(types *eventtype.Types, around ...event.AppendMiddleware) *Bundle {
	b.T.Helper()
	store, err := b.Kind.Open(b.Ctx, b.Place, types, around...)
	b.Must(err)
	b.T.Cleanup(store.Close)
	typed := *b
	typed.Store = store
	return &typed
}

// Patient gives the test more time, for very many tenants.
func (b *Bundle) Patient() *Bundle {
	var cancel context.CancelFunc
	b.Ctx, cancel = context.WithTimeout(b.T.Context(), 10*time.Minute)
	b.T.Cleanup(cancel)
	return b
}

// Must ends the test on an error.
func (b *Bundle) Must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

// Plane returns the control plane of the store.
func (b *Bundle) Plane() control.Plane { return control.On(b.Store.Engine()) }

// Append appends n events to a stream of the default tenant.
func (b *Bundle) Append(stream string, n int) event.Appended {
	b.T.Helper()
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "counted", Body: []byte(fmt.Sprintf(`{"i": %d}`, i))}
	}
	result, err := b.Store.Append(b.Ctx, stream, event.Any, events...)
	b.Must(err)
	return result
}

// AppendTo appends n events to a stream of a tenant, and returns the last position.
func (b *Bundle) AppendTo(tenant Tenant, stream string, n int) int64 {
	b.T.Helper()
	result, err := tenant.Append(b.Ctx, stream, event.Any, slices.Repeat([]event.Event{{Type: "counted"}}, n)...)
	b.Must(err)
	return result.Last()
}

// Tenants makes tenants beside the default one until there are n.
func (b *Bundle) Tenants(n int) []Tenant {
	b.T.Helper()
	names := make([]string, n-1)
	for i := range names {
		names[i] = fmt.Sprint("tenant", i)
	}
	made, err := b.Store.CreateTenants(b.Ctx, names)
	b.Must(err)
	return append([]Tenant{b.Store}, made...)
}

// Head returns the last position of the default tenant.
func (b *Bundle) Head() int64 {
	b.T.Helper()
	heads := read(b, func() (engine.Heads,
		error) {
		return b.Store.Engine().Heads(b.Ctx, []string{projection.DefaultTenant})
	})
	return heads.Positions[projection.DefaultTenant]
}

// AppendThrough appends until stop is called, and repeats appends that fail, as a server does. Every append has a key,
// so that one whose answer was lost is not appended twice.
func (b *Bundle) AppendThrough(writers int) (stop func() (appended int)) {
	ctx, cancel := context.WithCancel(b.Ctx)
	var group sync.WaitGroup
	var appended atomic.Int64
	for w := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("%d-%d", w, i)
				for {
					_, err := b.Store.Append(b.Ctx, fmt.Sprint("stream", w), event.Any.WithKey(key),
						event.Event{Type: "counted"})
					if err == nil {
						appended.Add(1)
						break
					}
					Pass(b.Ctx, 20*time.Millisecond)
					if b.Ctx.Err() != nil {
						return
					}
				}
				Pass(ctx, time.Millisecond)
			}
		})
	}
	return func() int {
		cancel()
		group.Wait()
		return int(appended.Load())
	}
}

// Runtime makes a runtime of the bundle's store, unless the configuration has another.
func (b *Bundle) Runtime(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	b.T.Helper()
	if store.DriverOf(config.Store) == nil {
		config = On(config, b.Store)
	}
	rt, err := millrace.New(config)
	b.Must(err)
	b.Must(rt.Register(projections...))
	return rt
}

// Another makes a runtime of a store of its own, as another process has it.
func (b *Bundle) Another(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	b.T.Helper()
	config = On(config, b.Again())
	return b.Runtime(config, projections...)
}

// Start runs a runtime until the test ends or stop is called, and fails the test if Run returns an error.
func (b *Bundle) Start(rt *millrace.Runtime) (stop func()) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.T.Errorf("Run: %v", err)
		}
	})
	b.T.Cleanup(stop)
	return stop
}

// Running makes a runtime and starts it.
func (b *Bundle) Running(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	b.T.Helper()
	rt := b.Runtime(config, projections...)
	b.Start(rt)
	return rt
}

// Idle runs projections until they are idle, and returns their runtime.
func (b *Bundle) Idle(projections ...millrace.Projection) *millrace.Runtime {
	b.T.Helper()
	rt := b.Runtime(millrace.Config{}, projections...)
	b.RunUntilIdle(rt)
	return rt
}

// RunUntilIdle runs a runtime until its projections are idle.
func (b *Bundle) RunUntilIdle(rt *millrace.Runtime) {
	b.T.Helper()
	_, err := rt.RunUntilIdle(b.Ctx)
	b.Must(err)
}

// Reaches waits until a projection of the default tenant has handled the events up to a position.
func (b *Bundle) Reaches(rt *millrace.Runtime, name string, position int64) {
	b.T.Helper()
	b.ReachesOf(rt, projection.DefaultTenant, name, position)
}

// ReachesOf is Reaches for any tenant.
func (b *Bundle) ReachesOf(rt *millrace.Runtime, tenant, name string, position int64) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, 3*time.Minute)
	defer cancel()
	if err := rt.WaitFor(ctx, millrace.ProjectionID{Tenant: tenant, Name: name}, position); err != nil {
		status, _ := rt.Status(b.Ctx, admin.StatusFilter{Tenants: []string{tenant}})
		b.T.Fatalf("%v; %+v", err, status)
	}
}

// Pause and Resume are those of a projection of the default tenant.
func (b *Bundle) Pause(rt *millrace.Runtime, name string) {
	b.T.Helper()
	b.Must(rt.Pause(b.Ctx, millrace.ProjectionID{Name: name}))
}

func (b *Bundle) Resume(rt *millrace.Runtime, name string) {
	b.T.Helper()
	b.Must(rt.Resume(b.Ctx, millrace.ProjectionID{Name: name}))
}

// read reads again for some time if it meets an outage. For a moment after a restart of the server, a pool has
// connections that are broken.
func read[V any](b *Bundle, get func() (V, error)) V {
	b.T.Helper()
	v, err := get()
	for began := time.Now(); err != nil && b.Store.Engine().Classify(err).Passes() &&
		time.Since(began) < 10*time.Second; v, err = get() {
		Pass(b.Ctx, 20*time.Millisecond)
	}
	b.Must(err)
	return v
}

// StatusOf returns the status of all projections of all tenants.
func (b *Bundle) StatusOf(rt *millrace.Runtime) admin.Status {
	b.T.Helper()
	return read(b, func() (admin.Status, error) { return rt.Status(b.Ctx, admin.StatusFilter{Limit: 10_000}) })
}

// Summary returns the summary of the deployment as a runtime sees it.
func (b *Bundle) Summary(rt *millrace.Runtime) admin.Summary {
	b.T.Helper()
	return read(b, func() (admin.Summary, error) { return rt.Summary(b.Ctx) })
}

// Status returns the status of a projection of the default tenant.
func (b *Bundle) Status(rt *millrace.Runtime, name string) admin.ProjectionStatus {
	b.T.Helper()
	filter := admin.StatusFilter{Tenants: []string{projection.DefaultTenant}, Names: []string{name}, Limit: 10_000}
	return read(b, func() (admin.Status,
		error) {
		return rt.Status(b.Ctx, filter)
	}).Projection(millrace.ProjectionID{Name: name})
}

// Is waits until a projection is in a state, and returns its status. A moment later it may have left the state, to try
// again.
func (b *Bundle) Is(rt *millrace.Runtime, name string, state admin.State) (s admin.ProjectionStatus) {
	b.T.Helper()
	b.Eventually(name+" is "+string(state), func() bool {
		s = b.Status(rt, name)
		return s.State == state
	})
	return s
}

// AllLive waits until the runtime has n projections, and all of them are live.
func (b *Bundle) AllLive(rt *millrace.Runtime, n int) {
	b.T.Helper()
	b.Eventually("all projections are live", func() bool {
		all := b.StatusOf(rt).Projections
		return len(all) == n && !slices.ContainsFunc(all,
			func(p admin.ProjectionStatus) bool { return p.State != admin.StateLive })
	})
}

// Eventually waits until cond holds. It checks cond less often the longer it waits, since most conditions read the
// store.
func (b *Bundle) Eventually(what string, cond func() bool) {
	b.T.Helper()
	for began := time.Now(); !cond(); {
		waited := time.Since(began)
		if waited > 2*time.Minute {
			b.T.Fatalf("never: %s", what)
		}
		<-time.After(min(max(waited/10, 10*time.Millisecond), 50*time.Millisecond))
	}
}

// InTime runs fn, and fails the test if it hangs.
func (b *Bundle) InTime(what string, fn func()) {
	b.T.Helper()
	done, returned := make(chan struct{}), false
	go func() {
		defer close(done)
		fn()
		returned = true
	}()
	select {
	case <-done:
		if !returned {
			b.T.FailNow() // fn's FailNow ended only its goroutine
		}
	case <-time.After(2 * time.Minute):
		b.T.Fatalf("never: %s", what)
	}
}

// DeadLettersOf returns the parked dead letters of a projection of the default tenant, none if it never ran.
func (b *Bundle) DeadLettersOf(name string) []projection.DeadLetter {
	b.T.Helper()
	letters, err := b.Store.DeadLetters(projection.ID{Name: name}).List(b.Ctx, projection.DeadLetterPage{Limit: 1000})
	if !errors.Is(err, projection.ErrUnknownProjection) {
		b.Must(err)
	}
	return letters
}

// Replaying replays all dead letters of a projection, also out of order, and sends the result.
func (b *Bundle) Replaying(name string) <-chan projection.CommandResult {
	replayed := make(chan projection.CommandResult, 1)
	go func() {
		result, err := b.Store.DeadLetters(projection.ID{Name: name}).Replay(b.Ctx,
			projection.DeadLetterFilter{All: true, OutOfOrder: true}, 100_000)
		if err != nil {
			b.T.Error(err)
		}
		result.Command = 0
		replayed <- result
	}()
	return replayed
}

// Pass returns after d, or when ctx ends.
func Pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
