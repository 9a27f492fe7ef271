package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	writerCount = 8
	writeEvery  = 25 * time.Millisecond // of one writer: at most 320 appends a second in all
	streams     = 40                    // of each tenant
	poisonEvery = 100                   // one in so many events is poison; its stream goes on getting others
)

// errOnPurpose rolls an append back.
var errOnPurpose = errors.New("rolled back on purpose")

// writers append to all tenants, as servers do: in their own transactions and in others', in some that are rolled back and
// some that are slow, and again where an append failed. They survive every outage.
type writers struct {
	store *pgstore.Store
	life  context.Context
	end   context.CancelFunc
	group sync.WaitGroup

	turn sync.RWMutex // held for reading during an append; who holds it lets the writers pause

	mu           sync.Mutex
	acknowledged map[string][]acknowledgement // by tenant
	failures     int

	plain atomic.Bool // no writer uses a transaction of its own, which would commit synchronously whatever the server says
}

// acknowledgement is an event whose append a writer was told of.
type acknowledgement struct {
	position    int64
	token       string
	begun, done time.Time // the append
}

func startWriters(ctx context.Context, store *pgstore.Store, seed uint64) *writers {
	w := &writers{store: store, acknowledged: make(map[string][]acknowledgement)}
	w.life, w.end = context.WithCancel(ctx)
	for i := range writerCount {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		w.group.Go(func() { w.run(fmt.Sprint("w", i), rnd) })
	}
	return w
}

// stop returns when every writer has finished what it was at.
func (w *writers) stop() {
	w.end()
	w.group.Wait()
}

// pause lets the writers finish what they are at, and then wait for resume.
func (w *writers) pause() (resume func()) {
	w.turn.Lock()
	return w.turn.Unlock
}

func (w *writers) run(name string, rnd *rand.Rand) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-w.life.Done():
			return
		}
		w.turn.RLock()
		w.write(fmt.Sprintf("%s-%d", name, i), rnd)
		w.turn.RUnlock()
	}
}

// write makes one append, and repeats it under its key until it is known to have happened or the writers end.
func (w *writers) write(key string, rnd *rand.Rand) {
	tenant, err := w.store.ForTenant(tenants[rnd.IntN(len(tenants))])
	if err != nil {
		panic(err)
	}
	stream := fmt.Sprint("stream-", rnd.IntN(streams))
	events := make([]event.Event, 1+rnd.IntN(2)*rnd.IntN(3))
	for i := range events {
		events[i] = event.Event{Type: typePlain, Body: fmt.Appendf(nil, `{"amount": 1, "token": "%s/%d"}`, key, i)}
		if rnd.IntN(4) == 0 {
			events[i].Type = typeOdd
		}
		if rnd.IntN(poisonEvery) == 0 {
			events[i].Type = typePoison
		}
	}
	way, open := rnd.IntN(100), time.Duration(5+rnd.IntN(rnd.IntN(295)+1))*time.Millisecond
	for w.life.Err() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.life), 5*time.Second)
		var result event.Appended
		begun := time.Now()
		switch {
		case way < 75, w.plain.Load():
			result, err = tenant.Append(ctx, stream, event.Any.WithKey(key), events...)
		default:
			// Some share their transaction with others' work, for a while.
			err = tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				if result, _, err = tenant.AppendTx(ctx, tx, stream, event.Any.WithKey(key), events...); err != nil {
					return err
				}
				if pass(ctx, open); way < 87 {
					return errOnPurpose
				}
				return nil
			})
		}
		cancel()
		if errors.Is(err, errOnPurpose) {
			return
		}
		if err == nil {
			w.acknowledge(tenant.Name(), key, result.Positions, begun)
			return
		}
		w.mu.Lock()
		w.failures++
		w.mu.Unlock()
		pass(w.life, 100*time.Millisecond)
	}
}

func (w *writers) acknowledge(tenant, key string, positions []int64, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, at := range positions {
		one := acknowledgement{position: at, token: fmt.Sprintf("%s/%d", key, i), begun: begun, done: time.Now()}
		w.acknowledged[tenant] = append(w.acknowledged[tenant], one)
	}
}

// acknowledgements are the events that the writers were told of.
func (w *writers) acknowledgements(tenant string) []acknowledgement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acknowledged[tenant])
}
