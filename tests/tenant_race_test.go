package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// acked is an append that succeeded. drops is how many drops of the tenant had begun before it, and alone reports
// whether all of them had ended.
type acked struct {
	tenant int
	drops  int64
	alone  bool
	number int64
}

// comeAndGo is a store with tenants that are changed at random while writers append numbered events.
type comeAndGo struct {
	*kit.Bundle
	names []string
	// begun and ended count the drops of each tenant.
	begun, ended []atomic.Int64

	next   atomic.Int64
	mu     sync.Mutex
	acks   []acked
	errors map[string]int
}

// recorder records the number and the position of each event, by tenant.
func (c *comeAndGo) recorder(name string) millrace.Projection {
	return millrace.Projection{Name: name, MaxEvents: 7,
		Handler: c.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			numbered := make([]event.Envelope, len(events))
			for i, e := range events {
				if err := e.Decode(&numbered[i].Position); err != nil {
					return err
				}
				numbered[i].Stream, numbered[i].Version = e.Stream, e.Position
			}
			return tx.Record(ctx, name+" of "+id.Tenant, numbered...)
		})}
}

// write appends until ctx ends, in one way or another, and notes what was acknowledged.
func (c *comeAndGo) write(ctx context.Context, store kit.Store, random *rand.Rand) {
	for ctx.Err() == nil {
		i := random.IntN(len(c.names))
		ended := c.ended[i].Load()
		a := acked{tenant: i, drops: c.begun[i].Load(), number: c.next.Add(1)}
		a.alone = a.drops == ended
		tenant, err := store.ForTenant(c.names[i])
		if err == nil {
			err = c.appendTo(store, tenant, a.number, random)
		}
		c.note(a, err)
		kit.Pass(ctx, time.Duration(random.IntN(3))*time.Millisecond)
	}
}

func (c *comeAndGo) appendTo(store kit.Store, tenant kit.Tenant, number int64, random *rand.Rand) error {
	e := event.Event{Type: "numbered", Body: fmt.Appendf(nil, "%d", number)}
	expected, stream := event.Any, fmt.Sprint("s", random.IntN(5))
	if random.IntN(2) == 0 {
		expected = event.Any.WithKey(fmt.Sprint(number))
	}
	if random.IntN(3) > 0 {
		_, err := tenant.Append(c.Ctx, stream, expected, e)
		return err
	}
	return store.InTx(c.Ctx, func(ctx context.Context, tx kit.Tx) error {
		_, err := tenant.AppendTx(ctx, tx, stream, expected, e)
		return err
	})
}

func (c *comeAndGo) note(a acked, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.acks = append(c.acks, a)
		c.errors["none"]++
	case errors.Is(err, tenancy.ErrArchived):
		c.errors["archived"]++
	case errors.Is(err, tenancy.ErrDropping):
		c.errors["dropping"]++
	case errors.Is(err, tenancy.ErrUnknown):
		c.errors["unknown"]++
	default:
		c.T.Errorf("append to tenant %s: %v", c.names[a.tenant], err)
	}
}

// change does one thing to one tenant. What the tenant's state forbids is no error.
func (c *comeAndGo) change(store kit.Store, rt *millrace.Runtime, random *rand.Rand) {
	i := random.IntN(len(c.names))
	name, ctx := c.names[i], c.Ctx
	interrupted := random.IntN(3) == 0
	if interrupted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(40))*time.Millisecond)
		defer cancel()
	}
	var what string
	var err error
	switch random.IntN(10) {
	case 0, 1:
		what, err = "archive", store.ArchiveTenant(ctx, name)
	case 2, 3:
		what, err = "unarchive", store.UnarchiveTenant(ctx, name)
	case 4, 5:
		c.begun[i].Add(1)
		what, err = "drop", store.DropTenant(ctx, name)
		c.ended[i].Add(1)
	case 6:
		what, err = "pause", rt.PauseTenant(ctx, name)
	case 7:
		what, err = "resume", rt.ResumeTenant(ctx, name)
	default:
		what = "create"
		_, err = store.CreateTenant(ctx, name)
	}
	allowed := err == nil || interrupted && ctx.Err() != nil
	for _, is := range []error{tenancy.ErrUnknown, tenancy.ErrDropping, projection.ErrResumed} {
		allowed = allowed || errors.Is(err, is)
	}
	if !allowed {
		c.T.Errorf("%s tenant %s: %v", what, name, err)
	}
}

// settle brings every tenant back, or ends its drop and creates it again.
func (c *comeAndGo) settle(rt *millrace.Runtime) {
	c.T.Helper()
	for i, name := range c.names {
		tenant, err := c.Store.ForTenant(name)
		c.Must(err)
		if state, _ := tenant.State(c.Ctx); state == tenancy.Dropping {
			c.begun[i].Add(1)
			c.Must(c.Store.DropTenant(c.Ctx, name))
		}
		_, err = c.Store.CreateTenant(c.Ctx, name)
		c.Must(err)
		c.Must(c.Store.UnarchiveTenant(c.Ctx, name))
		c.Must(rt.ResumeTenant(c.Ctx, name))
	}
}

// verify checks each tenant: each of its events was applied once by each projection, at its position; nothing was
// applied twice or to another tenant; and it has every acknowledged event, unless it was dropped since.
func (c *comeAndGo) verify(rt *millrace.Runtime, projections ...string) {
	c.T.Helper()
	owner := make(map[int64]int)
	for _, a := range c.acks {
		owner[a.number] = a.tenant
	}
	has := make([]map[int64]int64, len(c.names))
	for i, name := range c.names {
		tenant, err := c.Store.ForTenant(name)
		c.Must(err)
		has[i] = make(map[int64]int64)
		var last int64
		for _, e := range c.All(tenant) {
			var number int64
			c.Must(e.Decode(&number))
			if has[i][number] != 0 {
				c.T.Errorf("tenant %s: %d was appended twice", name, number)
			}
			has[i][number], last = e.Position, e.Position
		}
		for _, p := range projections {
			c.ReachesOf(rt, name, p, last)
			applied, err := c.Store.Applied(c.Ctx, p+" of "+name)
			c.Must(err)
			seen := make(map[int64]bool)
			for _, a := range applied {
				if to, known := owner[a.Position]; seen[a.Position] || known && to != i {
					c.T.Errorf("%s applied %d twice, or of tenant %d, to tenant %s", p, a.Position, to, name)
				}
				if at := has[i][a.Position]; at != 0 && at != a.Version {
					c.T.Errorf("%s applied %d of tenant %s at %d, it is at %d", p, a.Position, name, a.Version, at)
				}
				seen[a.Position] = true
			}
			for number := range has[i] {
				if !seen[number] {
					c.T.Errorf("%s has not applied %d of tenant %s", p, number, name)
				}
			}
		}
	}
	for _, a := range c.acks {
		if a.alone && a.drops == c.begun[a.tenant].Load() && has[a.tenant][a.number] == 0 {
			c.T.Errorf("tenant %s lost event %d, which was acknowledged", c.names[a.tenant], a.number)
		}
	}
}

// TestTenantsComeAndGoWhileEventsAreApplied changes tenants at random, from two stores at once, while writers append
// and runtimes apply.
func TestTenantsComeAndGoWhileEventsAreApplied(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		seed := kit.Seed(t)
		c := &comeAndGo{Bundle: b.Patient(), names: []string{"a", "b", "c", "d"}, errors: make(map[string]int)}
		c.begun, c.ended = make([]atomic.Int64, len(c.names)), make([]atomic.Int64, len(c.names))
		config := millrace.Config{
			Store: tuning.Settings{Reconcile: 100 * time.Millisecond}, PollInterval: 100 * time.Millisecond,
		}
		nodes := fleet(b, 2, config, c.recorder("p"), c.recorder("q"))
		ctx, stop := context.WithCancel(b.Ctx)
		defer stop()
		var writers, changers sync.WaitGroup
		for w := range uint64(4) {
			store := b.Again()
			writers.Go(func() { c.write(ctx, store, rand.New(rand.NewPCG(seed, w))) })
		}
		for w := range uint64(2) {
			store, random := b.Again(), rand.New(rand.NewPCG(seed, 100+w))
			changers.Go(func() {
				for range 60 {
					c.change(store, nodes[random.IntN(len(nodes))], random)
					kit.Pass(b.Ctx, time.Duration(random.IntN(60))*time.Millisecond)
				}
			})
		}
		changers.Wait()
		c.settle(nodes[0])
		kit.Pass(ctx, 100*time.Millisecond)
		stop()
		writers.Wait()
		t.Logf("appends by error: %v", c.errors)
		c.verify(nodes[0], "p", "q")
		if c.errors["none"] == 0 || c.errors["archived"]+c.errors["unknown"] == 0 {
			t.Errorf("appends have met only %v", c.errors)
		}
	})
}
