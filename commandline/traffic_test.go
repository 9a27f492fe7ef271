package commandline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// seen is what a query of a read model saw of a tenant.
type seen struct{ rows, highest, sum int64 }

func (m models) look(ctx context.Context, view, tenant string) (seen, error) {
	values, err := m.Numbers(ctx,
		fmt.Sprintf(`select count(*), coalesce(max(position), 0), cast(coalesce(sum(position), 0) as bigint)
		from %s.%s where tenant = '%s'`, m.schema, view, tenant))
	if err != nil {
		return seen{}, err
	}
	return seen{values[0], values[1], values[2]}, nil
}

// traffic appends to a tenant, and queries a read model of it all the time. Each query must see the rows of all events
// up to some position, each once. This position never falls. It is at least the last position for which WaitFor has
// returned.
type traffic struct {
	models
	t      *testing.T
	ctx    context.Context
	tenant kit.Tenant
	id     millrace.ProjectionID
	admin  *admin.Admin
	group  sync.WaitGroup
	// floor is the highest position that was seen or acknowledged.
	floor                 atomic.Int64
	queries, acknowledged atomic.Int64
}

const writers, readers = 2, 3

// startTraffic starts traffic. stop ends it. It ends by itself when the test has failed.
func startTraffic(t *testing.T, m models, id millrace.ProjectionID) (f *traffic, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f = &traffic{models: m, t: t, ctx: ctx, id: id}
	stop = func() {
		cancel()
		f.group.Wait()
	}
	t.Cleanup(stop)
	var err error
	f.tenant, err = m.ForTenant(id.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	f.admin, err = admin.New(m.Store)
	if err != nil {
		t.Fatal(err)
	}
	// Writers wait for their events, so that another version can catch up on a busy machine, too.
	for i := range writers {
		f.repeat(40*time.Millisecond, func(n int) { f.acknowledge(fmt.Sprintf("load-%d-%d", i, n%20), 4) })
	}
	for range readers {
		f.repeat(5*time.Millisecond, func(int) { f.query() })
	}
	f.repeat(5*time.Millisecond, func(n int) { f.acknowledge(fmt.Sprintf("followed-%d", n%5), 1) })
	return f, stop
}

// repeat calls do until the traffic ends.
func (f *traffic) repeat(pause time.Duration, do func(n int)) {
	f.group.Go(func() {
		for n := 0; f.ctx.Err() == nil && !f.t.Failed(); n++ {
			do(n)
			kit.Pass(f.ctx, pause)
		}
	})
}

// failed reports whether there is an error. It fails the test unless the traffic ends.
func (f *traffic) failed(doing string, err error) bool {
	if err != nil && f.ctx.Err() == nil {
		f.t.Errorf("%s: %v", doing, err)
	}
	return err != nil
}

// append appends n events, and returns the position of the last one. An append that was begun ends, so that every
// position is that of an event.
func (f *traffic) append(stream string, n int) (position int64, ok bool) {
	appended, err := f.tenant.Append(context.WithoutCancel(f.ctx), stream, event.Any, kit.SomeEvents(n)...)
	if f.failed("append", err) {
		return 0, false
	}
	return appended.Positions[n-1], true
}

// acknowledge appends n events, waits until the read model has them, and looks for them there.
func (f *traffic) acknowledge(stream string, n int) {
	position, ok := f.append(stream, n)
	if !ok || f.failed("wait for an event", f.admin.WaitFor(f.ctx, f.id, position)) {
		return
	}
	f.raise(position)
	f.query()
	f.acknowledged.Add(1)
}

func (f *traffic) query() {
	floor := f.floor.Load()
	s, err := f.look(f.ctx, f.id.Name, f.id.Tenant)
	if f.failed("query", err) {
		return
	}
	if s.rows != s.highest || s.sum != s.highest*(s.highest+1)/2 {
		f.t.Errorf("a reader missed rows, or saw some twice: %+v", s)
	}
	if s.highest < floor {
		f.t.Errorf("a reader saw the past: %+v after %d", s, floor)
	}
	f.raise(s.highest)
	f.queries.Add(1)
}

func (f *traffic) raise(position int64) {
	for {
		floor := f.floor.Load()
		if floor >= position || f.floor.CompareAndSwap(floor, position) {
			return
		}
	}
}

// flows waits until readers have queried and events have arrived many times more.
func (f *traffic) flows() {
	f.t.Helper()
	queries, acknowledged, floor := f.queries.Load()+20, f.acknowledged.Load()+5, f.floor.Load()+50
	eventually(f.t, "events and queries go on", func() bool {
		return f.t.Failed() || f.queries.Load() >= queries &&
			f.acknowledged.Load() >= acknowledged && f.floor.Load() >= floor
	})
	if f.t.Failed() {
		f.t.FailNow()
	}
}
