package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/projection"
)

// serving returns a limiter that serves these tenants.
func serving(limits Limits, tenants ...string) *Limiter {
	l := NewLimiter(limits)
	for _, tenant := range tenants {
		l.Serve(tenant)
	}
	return l
}

// gets reports whether a delivery has its slot once everything rests.
func gets(s *Limiter, ctx context.Context, tenant string, long bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan bool, 1)
	go func() {
		slot := s.delivery
		if long {
			slot = s.longDelivery
		}
		_, err := slot(ctx, s.flow(tenant, "p", 1))
		got <- err == nil
	}()
	synctest.Wait()
	cancel()
	return <-got
}

// Of 8 slots a tenant has at most 4. Slow deliveries share 4, and those of one tenant have at most 2 of these.
func TestDeliverySlotsAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serving(Limits{Connections: 4, Deliveries: 8}, "a", "b", "c", "d", "e")
		for i, slot := range []struct {
			tenant     string
			long, gets bool
		}{
			{"a", true, true}, {"a", true, true}, {"a", true, false}, {"a", false, true}, {"a", false, true},
			{"a", false, false},
			{"b", true, true}, {"b", true, true}, {"b", true, false}, {"c", true, false},
			{"c", false, true}, {"d", false, true}, {"e", false, false},
		} {
			if got := gets(s, t.Context(), slot.tenant, slot.long); got != slot.gets {
				t.Errorf("slot %d, %+v: got %v", i, slot, got)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := serving(Limits{Connections: 4, Deliveries: 8}, "a")
		for i := range 10 {
			if got := gets(s, t.Context(), "a", true); got != (i < 4) {
				t.Errorf("long slot %d of a single tenant: got %v", i, got)
			}
		}
		for i := range 5 {
			if got := gets(s, t.Context(), "a", false); got != (i < 4) {
				t.Errorf("slot %d of a single tenant: got %v", i, got)
			}
		}
	})
}

// The requests of many goroutines end in every order, some of them at the moment at which they get their slots.
func TestSlotsSurviveRequestsThatEnd(t *testing.T) {
	const all, perTenant, tenants, rounds = 4, 2, 5, 300
	names := tenantNames(tenants)
	l := serving(Limits{Connections: 8, Batches: all, BatchesPerTenant: perTenant}, names...)
	var inUse [tenants + 1]atomic.Int64 // of each tenant, and in all
	var group sync.WaitGroup
	for i := range 40 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		tenant := i % tenants
		group.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(3) == 0 {
					go cancel()
				}
				release, err := l.batch(ctx, l.flow(names[tenant], fmt.Sprint("p", i), 1+i%3))
				if err == nil {
					if n, m := inUse[tenant].Add(1), inUse[tenants].Add(1); n > perTenant || m > all {
						t.Errorf("a tenant has %d slots, all have %d", n, m)
					}
					runtime.Gosched()
					inUse[tenant].Add(-1)
					inUse[tenants].Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	group.Wait()
	for i := range all { // all slots are free again
		if _, err := l.batch(t.Context(), l.flow(names[i%tenants], "p", 1)); err != nil {
			t.Error(err)
		}
	}
}

// A request that gives up after its slot was granted passes the slot on.
func TestSlotOfARequestThatGaveUpIsPassedOn(t *testing.T) {
	s := newSlots(1, 0)
	release, err := s.acquire(t.Context(), fair.Flow{Tenant: "a"})
	if err != nil {
		t.Fatal(err)
	}
	waits := func(tenant string) *slot {
		r := s.slot(fair.Flow{Tenant: tenant}, nil)
		s.request(r)
		return r
	}
	gaveUp, next := waits("b"), waits("c")
	release()
	<-gaveUp.granted
	gaveUp.withdraw()
	<-next.granted
}

// A tenant that comes second limits the first one, and its end lifts the limit.
func TestSingleTenantHasNoLimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serving(Limits{Connections: 8, Batches: 4, BatchesPerTenant: 1}, "a")
		first, err := l.batch(t.Context(), l.feed("a"))
		if err != nil {
			t.Fatal(err)
		}
		l.Serve("b")
		waiting := make(chan error, 1)
		go func() {
			_, err := l.batch(t.Context(), l.feed("a"))
			waiting <- err
		}()
		synctest.Wait()
		if len(waiting) != 0 {
			t.Error("beside another tenant it has two slots")
		}
		l.Leave("b")
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		first()
	})
}

func TestTenantWeightIsCalledRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		asked, answers := 0, map[string]int{"a": 7, "low": -1, "high": 1000}
		l := serving(Limits{Connections: 8, Log: zap.New(core), TenantWeight: func(tenant string) int {
			asked++
			if tenant == "panics" {
				panic("on purpose")
			}
			return answers[tenant]
		}}, "a", "low", "high", "panics")
		for tenant, want := range map[string]int{"a": 7, "low": 1, "high": MaxWeight, "panics": 1, "unknown": 1} {
			if got := l.feed(tenant).TenantWeight; got != want {
				t.Errorf("the weight of %s is %d, want %d", tenant, got, want)
			}
		}
		for range 100 {
			l.feed("a")
			l.feed("panics")
		}
		if asked != 4 {
			t.Errorf("it was asked %d times", asked)
		}
		answers["a"] = 8
		<-time.After(weightFor)
		l.feed("panics")
		if got := l.feed("a").TenantWeight; got != 8 || asked != 6 {
			t.Errorf("a minute later the weight is %d, and it was asked %d times", got, asked)
		}
		if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("%d errors are logged: %v", n, logs.All())
		}
		for _, tenant := range []string{"a", "low", "high", "panics"} {
			l.Leave(tenant)
		}
		if n := len(l.weights.served); n != 0 {
			t.Errorf("%d tenants that went are kept", n)
		}
	})
}

// Batches that share messages are more than the connections.
func TestBatchesThatShareMessagesHoldNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serving(Limits{Connections: 8, Batches: 2, BatchesPerTenant: 1}, "a", "b")
		for i := range 2 * sharingPerBatch {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := l.share(ctx, l.flow("a", fmt.Sprint("p", i), 1)); (err == nil) != (i < sharingPerBatch) {
				t.Errorf("batch %d of a tenant: %v", i, err)
			}
			cancel()
		}
		w := &worker{fed: &intake{},
			deps: &Deps{Limiter: l}, def: &engine.Definition{Weight: 1}, id: projection.ID{Tenant: "a", Name: "p"},
		}
		connect := w.connect(false)
		first, err := connect(t.Context(), nil)
		if err != nil || !w.alone.Load() {
			t.Errorf("a batch that is sent alone: %v, the next one too: %v", err, w.alone.Load())
		}
		second, err := w.connect(false)(t.Context(), []string{"a"}) // the limit of the tenant is not that of messages
		if err != nil || w.alone.Load() {
			t.Errorf("a batch that is sent with others: %v, alone the next time: %v", err, w.alone.Load())
		}
		held, err := w.connect(true)(t.Context(), nil)
		if err != nil || !w.alone.Load() {
			t.Errorf("a batch that has a connection waits for one: %v", err)
		}
		held()
		second()
		first()
	})
}

// All the time two messages and two batches of each of two tenants wait for one connection.
func TestMessagesAndBatchesShareTheConnections(t *testing.T) {
	const counted = 600
	weights := map[string]int{"light": 1, "heavy": 3, "classic": 1, "heavy classic": 3}
	for name, test := range map[string]struct {
		of   []string       // whose batches are in the messages
		want map[string]int // the shares
	}{
		"messages of light tenants": {
			[]string{"light", "lighter"}, map[string]int{"message": 1, "classic": 1, "heavy classic": 3},
		},
		"messages with a heavy tenant": {
			[]string{"light", "heavy"}, map[string]int{"message": 3, "classic": 1, "heavy classic": 3},
		},
		"messages of unserved tenants": {
			[]string{"unknown"}, map[string]int{"message": 1, "classic": 1, "heavy classic": 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := serving(Limits{
					Connections: 8, Batches: 1, TenantWeight: func(tenant string) int { return weights[tenant] },
				},
					"light", "lighter", "heavy", "classic", "heavy classic")
				ctx, cancel := context.WithCancel(t.Context())
				granted := make(chan string)
				for name, slot := range map[string]acquireFunc{
					"message": func(ctx context.Context) (func(), error) { return l.message(ctx, test.of) },
					"classic": func(ctx context.Context) (func(), error) {
						return l.batch(ctx, l.flow("classic", "p", 1))
					},
					"heavy classic": func(ctx context.Context) (func(), error) {
						return l.batch(ctx, l.flow("heavy classic", "p", 1))
					},
				} {
					for range 2 {
						go func() {
							for ctx.Err() == nil { // the last one gets each slot at once, and waits for no context
								release, err := slot(ctx)
								if err != nil {
									return
								}
								select {
								case granted <- name:
								case <-ctx.Done():
								}
								release()
							}
						}()
					}
				}
				counts, all := make(map[string]int), 0
				for range counted {
					synctest.Wait() // the others wait
					counts[<-granted]++
				}
				cancel()
				for _, share := range test.want {
					all += share
				}
				for name, share := range test.want {
					if want := counted * share / all; counts[name] < want-5 || counts[name] > want+5 {
						t.Errorf("%s has %d of %d slots, want about %d", name, counts[name], counted, want)
					}
				}
			})
		})
	}
}
