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
	"github.com/millrace-go/millrace/tests/kit"
)

const (
	writerCount = 8
	writeEvery  = 25 * time.Millisecond // of one writer: at most 320 appends a second in all
	streams     = 40                    // of each tenant
	poisonEvery = 100                   // one event in this many is poison; its stream gets later events, too

	// restAlone is how much less often the writers append where one fault is the only one and not busy, and how much
	// more of the events are poison. Each projection still always has new events.
	restAlone = 8
)

// errOnPurpose rolls an append back.
var errOnPurpose = errors.New("rolled back on purpose")

// writers append to tenants as servers do: alone and in transactions of the application, some slow, some rolled back.
// They retry appends that fail.
type writers struct {
	store *pgstore.Store
	rest  int      // how many times writeEvery a writer pauses
	names []string // of the tenants
	life  context.Context
	end   context.CancelFunc
	group sync.WaitGroup
	gate  sync.RWMutex // held for reading during an append
	plain atomic.Bool  // no writer uses InTx, which commits synchronously whatever the server's setting

	mu           sync.Mutex
	acknowledged map[string][]acknowledgement // by tenant
	refused      []refusal
}

// acknowledgement is an event of an append that succeeded.
type acknowledgement struct {
	position    int64
	token       string
	begun, done time.Time // of the append
}

// refusal is an append that failed, and not because of an outage.
type refusal struct {
	tenant      string
	begun, done time.Time
	err         error
}

// startWriters starts n writers, which pause for rest times writeEvery. prefix distinguishes their keys from those of
// others.
func startWriters(ctx context.Context, store *pgstore.Store, seed uint64, n, rest int, prefix string,
	names ...string) *writers {
	w := &writers{store: store, rest: rest, names: names, acknowledged: make(map[string][]acknowledgement)}
	w.life, w.end = context.WithCancel(ctx)
	for i := range n {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		w.group.Go(func() { w.run(fmt.Sprint(prefix, i), rnd) })
	}
	return w
}

// stop returns when every writer has finished its append.
func (w *writers) stop() {
	w.end()
	w.group.Wait()
}

// pause returns when every writer has finished its append, and blocks further ones until resume.
func (w *writers) pause() (resume func()) {
	w.gate.Lock()
	return w.gate.Unlock
}

func (w *writers) run(name string, rnd *rand.Rand) {
	for i := 0; w.life.Err() == nil; i++ {
		kit.Pass(w.life, time.Duration(w.rest)*writeEvery)
		w.gate.RLock()
		w.write(fmt.Sprintf("%s-%d", name, i), rnd)
		w.gate.RUnlock()
	}
}

// write makes one append and retries it under its key until it is known to have succeeded or the writers end.
func (w *writers) write(key string, rnd *rand.Rand) {
	tenant, err := w.store.ForTenant(w.names[rnd.IntN(len(w.names))])
	if err != nil {
		panic(err)
	}
	id := fmt.Sprint(rnd.IntN(streams))
	stream := tallies.Stream(id)
	events := make([]event.Event, 1+rnd.IntN(2)*rnd.IntN(3))
	for i := range events {
		events[i] = event.Event{Type: typePlain, Body: fmt.Appendf(nil, `{"amount": 1, "token": "%s/%d"}`, key, i)}
		if rnd.IntN(4) == 0 {
			events[i].Type = typeOdd
		}
		if rnd.IntN(poisonEvery/w.rest) == 0 {
			events[i].Type = typePoison
		}
	}
	way, open := rnd.IntN(100), time.Duration(5+rnd.IntN(rnd.IntN(295)+1))*time.Millisecond
	for w.life.Err() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.life), 5*time.Second)
		var result event.Appended
		begun := time.Now()
		switch {
		case way < 30:
			// a snapshot commits synchronously, as InTx does
			result, err = do(ctx, tenant, !w.plain.Load(), id, key, events)
		case way < 75, w.plain.Load():
			result, err = tenant.Append(ctx, stream, event.Any.WithKey(key), events...)
		default:
			err = tenant.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				result, err = tenant.AppendTx(ctx, tx, stream, event.Any.WithKey(key), events...)
				if err != nil {
					return err
				}
				kit.Pass(ctx, open)
				if way < 87 {
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
		w.refuse(refusal{tenant.Name(), begun, time.Now(), err})
		kit.Pass(w.life, 100*time.Millisecond)
	}
}

// refuse records an append that failed, unless the server was not available.
func (w *writers) refuse(r refusal) {
	if isOutage(r.err) || errors.Is(r.err, context.DeadlineExceeded) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, r)
}

// refusals returns the appends that failed, and not because of an outage.
func (w *writers) refusals() []refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.refused)
}

func (w *writers) acknowledge(tenant, key string, positions []int64, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, at := range positions {
		one := acknowledgement{position: at, token: fmt.Sprintf("%s/%d", key, i), begun: begun, done: time.Now()}
		w.acknowledged[tenant] = append(w.acknowledged[tenant], one)
	}
}

// acknowledgements returns the events of appends that succeeded.
func (w *writers) acknowledgements(tenant string) []acknowledgement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acknowledged[tenant])
}
