package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// followers follow tenants from their beginnings, as a program without a runtime does. A follower begins anew when it
// is told that events which it has may be gone.
type followers struct {
	life  context.Context
	end   context.CancelFunc
	group sync.WaitGroup

	mu    sync.Mutex
	got   map[string][]stored // by tenant
	ended []finding           // for another reason
}

func startFollowers(ctx context.Context, store *pgstore.Store, names ...string) (*followers, error) {
	f := &followers{got: make(map[string][]stored)}
	f.life, f.end = context.WithCancel(ctx)
	for _, name := range names {
		tenant, err := store.ForTenant(name)
		if err != nil {
			return nil, err
		}
		f.group.Go(func() { f.run(tenant) })
	}
	return f, nil
}

func (f *followers) stop() {
	f.end()
	f.group.Wait()
}

func (f *followers) run(tenant *pgstore.Tenant) {
	for f.life.Err() == nil {
		f.begin(tenant.Name())
		err := f.follow(tenant)
		if f.life.Err() == nil && !errors.Is(err, event.ErrIncarnationChanged) {
			f.mu.Lock()
			f.ended = append(f.ended, finding{kindFollower,
				projection.ID{Tenant: tenant.Name()}, 0, fmt.Sprintf("it ended: %v", err)})
			f.mu.Unlock()
		}
		kit.Pass(f.life, 50*time.Millisecond)
	}
}

func (f *followers) begin(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got[tenant] = nil
}

func (f *followers) follow(tenant *pgstore.Tenant) error {
	for e, err := range tenant.Follow(f.life, event.ReadOptions{}) {
		if err != nil && e.Unreadable == nil {
			return err
		}
		f.mu.Lock()
		f.got[tenant.Name()] = append(f.got[tenant.Name()],
			stored{Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type})
		f.mu.Unlock()
	}
	return errors.New("without an error")
}

// compare waits until the followers have all events of their tenants, and returns what is wrong. The writers must
// pause.
func (f *followers) compare(ctx context.Context, limit time.Duration, all []history) (findings []finding) {
	for _, h := range all {
		if h.of.Name != deadly { // once for each tenant
			continue
		}
		want := make([]stored, len(h.events))
		for i, e := range h.events {
			e.Token = "" // an erasure may have removed it meanwhile
			want[i] = e
		}
		var got []stored
		err := until(ctx, limit, "the follower has all events", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			got = slices.Clone(f.got[h.of.Tenant])
			return slices.Equal(got, want)
		})
		if err != nil {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			findings = append(findings, finding{kindFollower,
				projection.ID{Tenant: h.of.Tenant}, int64(at),
				fmt.Sprintf("%d events of %d, equal up to number %d: got %v, want %v",
					len(got), len(want), at, got[at:min(at+3, len(got))], want[at:min(at+3, len(want))])})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(findings, f.ended...)
}
