package runbook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

var _ = add(map[string]func(s *scenario){
	"one-projection-lags":                                    slowProjection,
	"one-tenant-is-far-behind":                               floodedTenant,
	"the-events-of-a-tenant-wait-for-a-transaction":          heldByATransaction,
	"the-events-of-a-tenant-wait-for-a-prepared-transaction": heldByAPreparedTransaction,
	"a-projection-waits-for-a-lock":                          waitsForALock,
	"a-projection-waits-for-a-missing-table":                 missingObject,
	"a-projection-waits-for-an-outside-service":              breakerOpen,
	"a-projection-is-paused":                                 pausedProjection,
	"a-tenant-is-paused":                                     pausedTenant,
})

// company lets calls continue when two are there at once, and from then on.
type company struct {
	mu    sync.Mutex
	alone bool
	met   chan struct{}
}

func (c *company) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.alone {
		select {
		case <-c.met:
		default:
			close(c.met)
		}
	}
	c.alone = true
	c.mu.Unlock()
	select {
	case <-c.met:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		c.alone = false
		c.mu.Unlock()
		return ctx.Err()
	}
}

// A handler that only continues when another one runs beside it is slow until there are partitions.
func slowProjection(s *scenario) {
	s.database()
	c := &company{met: make(chan struct{})}
	slow := totals(func(ctx context.Context, _ pgx.Tx, _ event.Envelope) error { return c.wait(ctx) })
	for i := range 20 {
		_, err := s.store.Append(s.ctx, fmt.Sprintf("order-%d", i), event.Any, event.Untyped("OrderPlaced", nil))
		s.must(err)
	}
	s.node(soon("shop-1"), slow, millrace.Projection{Name: "mails", Handler: counting(nil)})
	s.follow()
	s.follow()
}

// floodedTenant has a batch of the tenant acme in progress until the tenant is paused.
func floodedTenant(s *scenario) {
	s.database()
	acme, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	_, err = s.owner.CreateTenant(s.ctx, "globex")
	s.must(err)
	p := totals(func(ctx context.Context, _ pgx.Tx, _ event.Envelope) error {
		if id, _ := millrace.ProjectionFrom(ctx); id.Tenant != "acme" {
			return nil
		}
		return untilPaused(ctx, acme)
	})
	p.MaxEvents = 5
	s.append("acme", slices.Repeat([]string{"OrderPlaced"}, 30)...)
	s.append("globex", "OrderPlaced")
	stop := s.node(soon("shop-1"), p)
	s.follow()
	s.follow()
	s.append("globex", "OrderPlaced")
	stop()
	s.node(soon("shop-1"), totals(nil))
	s.follow()
}

// untilPaused returns when a tenant is paused.
func untilPaused(ctx context.Context, t *pgstore.Tenant) error {
	for {
		state, err := t.State(ctx)
		if err != nil || state == tenancy.Paused {
			return err
		}
		kit.Pass(ctx, 10*time.Millisecond)
	}
}

func heldByATransaction(s *scenario) {
	s.database()
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	open := s.connection()
	_, err := open.Exec(s.ctx,
		"set application_name = 'import'; begin; insert into millrace_default.events (stream_id, stream_version, type, body, headers) values ('order-4', 1, 'OrderPlaced', '{}', '{}')", pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.append("", "OrderPlaced")
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.follow()
	s.follow()
	s.follow()
}

func heldByAPreparedTransaction(s *scenario) {
	s.database()
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.sql("begin; insert into millrace_default.events (stream_id, stream_version, type, body, headers) values ('order-4', 1, 'OrderPlaced', '{}', '{}'); prepare transaction 'transfer-81'")
	s.append("", "OrderPlaced")
	s.follow()
	s.follow()
	s.follow()
}

func waitsForALock(s *scenario) {
	s.database()
	p := totals(nil)
	p.Timeout = time.Second // half of it is the limit of the wait
	s.node(soon("shop-1"), p)
	open := s.connection()
	_, err := open.Exec(s.ctx, "set application_name = 'report'; begin; lock table totals",
		pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.call("4711", fmt.Sprint(open.PgConn().PID()))
	s.append("", "OrderPlaced")
	s.follow()
	s.follow()
	s.follow()
	s.follow()
}

func missingObject(s *scenario) {
	s.database()
	s.sql("alter table totals rename to hidden")
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.follow()
	s.sql("alter table hidden rename to totals")
}

func breakerOpen(s *scenario) {
	s.database()
	errDown := errors.New("the rates service answers 503")
	var up sync.Map
	p := totals(func(context.Context, pgx.Tx, event.Envelope) error {
		if _, ok := up.Load("rates"); ok {
			return nil
		}
		return errDown
	})
	p.Breaker = projection.BreakerPolicy{IsOutage: func(err error) bool { return errors.Is(err, errDown) }, Failures: 2}
	s.node(soon("shop-1"), p)
	s.append("", "OrderPlaced")
	s.follow()
	up.Store("rates", true)
	s.follow()
}

func pausedProjection(s *scenario) {
	s.database()
	s.node(soon("shop-1"), totals(nil))
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.must(s.admin().Pause(s.ctx, millrace.ProjectionID{Name: "totals"}))
	s.append("", "OrderPlaced")
	s.follow()
	s.follow()
}

func pausedTenant(s *scenario) {
	s.database()
	_, err := s.owner.CreateTenant(s.ctx, "acme")
	s.must(err)
	s.node(soon("shop-1"), totals(nil))
	s.must(s.admin().PauseTenant(s.ctx, "acme"))
	s.append("acme", "OrderPlaced")
	s.follow()
	s.follow()
}
