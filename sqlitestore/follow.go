package sqlitestore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/follow"
)

// Follow yields the events after opts.After in the order of their positions, and waits for more, until ctx ends. It
// leaves no event out and returns none twice. It needs no projection and no runtime, and leaves nothing in the file.
// What it has returned is known only to the caller: to act on every event exactly once, use a projection.
//
// All followers of a tenant in a process share one read of its new events: that of the process's runtime, if it runs
// projections of the tenant. A follower that is more than a few seconds or some 2,000 events behind reads for itself,
// in pages. Commits of other processes are noticed within some 100 ms.
//
// An event whose upcaster fails is yielded as it is stored, with an error that wraps eventtype.ErrUpcast; later events
// follow. Any other error is yielded last, also that of ctx. Follow ends with tenancy.ErrRestored if the tenant's
// events end below what it has returned, below opts.After, or below the checkpoint of a projection (see
// admin.Admin.RecoverTenant). The caller then reads again what it needs. If the tenant is dropped, Follow ends with
// tenancy.ErrUnknown or tenancy.ErrDropping. If another process has also created it again meanwhile, the error is
// tenancy.ErrRestored.
//
// An event that was erased is returned for 5 s at most. Followers share what is read: do not change the bytes of a
// body. Handlers and hooks cannot call it: it returns projection.ErrWithinTx.
func (t *Tenant) Follow(ctx context.Context, opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
	r := t.userReader()
	return eventlog.Current(r.Types, opts, func(opts event.ReadOptions) iter.Seq2[event.Envelope, error] {
		return t.store.followers.Follow(ctx, t.name, opts, r.ReadStored)
	})
}

// Settled returns the tenant's settled mark, which is its last position: a file has one writer. Handlers and hooks
// cannot call it: it returns projection.ErrWithinTx.
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

// Listen implements follow.Store. It polls for commits of other processes.
func (s port) Listen(ctx context.Context, ear follow.Ear) error {
	// numbers of data_version can be compared on one connection only
	db, err := openReaders(s.writer.at, Options{Readers: 1})
	if err != nil {
		return fmt.Errorf("open a connection that polls for commits: %w", err)
	}
	defer db.Close()
	var seen seenCommits
	if err := seen.begin(ctx, db); err != nil {
		return fmt.Errorf("poll for commits: %w", err)
	}
	ear.Begins()
	ticker := time.NewTicker(noticeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := seen.poll(ctx, db); err != nil {
			return fmt.Errorf("poll for commits: %w", err)
		}
		risen, err := seen.risen(ctx, db)
		if err != nil {
			return fmt.Errorf("poll for commits: %w", err)
		}
		for _, tenant := range risen {
			ear.Wake(tenant, seen.tenants[tenant])
		}
	}
}
