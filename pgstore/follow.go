package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/follow"
	"github.com/millrace-go/millrace/pgstore/internal/session"
)

// listenCheck is how often a connection that listens is checked. The network may have dropped it without a word.
const listenCheck = 15 * time.Second

// Follow yields the settled events after opts.After in the order of their positions, and waits for more, until ctx
// ends. It leaves no event out and returns none twice: an event is settled when no event below it can still appear, so
// Follow waits for appends that are open. It needs no projection and no runtime, and leaves nothing in the database.
// What it has returned is known only to the caller: to act on every event exactly once, use a projection.
//
// All followers of a tenant in a process share one read of its new events: that of the process's runtime, if it runs
// projections of the tenant. While a store has followers, and for 5 s after that, it holds one connection outside the
// pool, which listens for all tenants. If notifications cannot arrive, it polls every 500 ms (see Options.SessionDSN).
// A follower that is more than a few seconds or some 2,000 events behind reads for itself, in pages, and holds no
// connection between them.
//
// An event that cannot be read is yielded without its body, with an error that wraps an *event.UnreadableError. An
// event whose upcaster fails is yielded as it is stored, with an error that wraps eventtype.ErrUpcast. Later events
// follow. Any other error is yielded last, also that of ctx. Follow waits while the server cannot be reached. It ends
// with event.ErrIncarnationChanged after a crash of the server or a failover, since events that it has returned may be
// gone, and with tenancy.ErrRestored if the tenant's events end below what it has returned, below opts.After, or below
// the checkpoint of a projection (see admin.Admin.RecoverTenant). The caller then reads again what it needs. If the
// tenant is dropped, Follow ends with tenancy.ErrUnknown or tenancy.ErrDropping, also if it is created again.
//
// An event that was erased is returned for 5 s at most. Followers share what is read: do not change the bytes of a
// body. Handlers and hooks cannot call it: it returns projection.ErrWithinTx.
func (t *Tenant) Follow(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	r := t.userReader()
	return eventlog.Current(r.Types, opts, func(opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
		return t.store.followers.Follow(ctx, t.name, opts, r.ReadStored)
	})
}

// Settled returns the tenant's settled mark: no event at or below it can still appear. It waits for appends that are
// open. Handlers and hooks cannot call it: it returns projection.ErrWithinTx.
func (t *Tenant) Settled(ctx context.Context) (int64, error) {
	return t.store.followers.Settled(ctx, t.name)
}

// Follow is Tenant.Follow for projection.DefaultTenant.
func (s *Store) Follow(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	return s.tenant.Follow(ctx, opts)
}

// Settled is Tenant.Settled for projection.DefaultTenant.
func (s *Store) Settled(ctx context.Context) (int64, error) { return s.tenant.Settled(ctx) }

func (s port) Followers() engine.Followers { return s.store.followers }

// Listen implements follow.Store. A pooler that lends sessions loses notifications.
func (s port) Listen(ctx context.Context, ear follow.Ear) error {
	dial := func(ctx context.Context) (*pgx.Conn, error) { return s.dial(ctx, s.opts.SessionDSN) }
	setUp, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	conn, err := dial(setUp)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	pooling, err := session.FindPooling(setUp, conn, dial)
	if err != nil {
		return fmt.Errorf("detect a pooler: %w", err)
	}
	if pooling.Lends {
		_ = conn.Close(setUp)
		<-ctx.Done()
		return ctx.Err()
	}
	if _, err := conn.Exec(setUp, keepalives+listenTo(s.control.wakeChannel)+"; "+
		listenTo(s.control.controlChannel)); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ear.Begins()
	for {
		limited, cancel := context.WithTimeout(ctx, listenCheck)
		n, err := conn.WaitForNotification(limited)
		late := errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil && n.Channel == s.control.controlChannel:
			if strings.HasPrefix(n.Payload, "tenant ") {
				ear.Tenants()
			}
		case err == nil:
			tenant, position := announced(n.Payload)
			ear.Wake(tenant, position)
		case !late || conn.IsClosed():
			return fmt.Errorf("wait for notifications: %w", err)
		default:
			limited, cancel := context.WithTimeout(ctx, listenCheck)
			err = conn.Ping(limited)
			cancel()
			if err != nil {
				return fmt.Errorf("check the connection that listens: %w", err)
			}
		}
	}
}
