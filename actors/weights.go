package actors

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/usercode"
)

const (
	// weightFor is how long a weight is used before TenantWeight is called again.
	weightFor = time.Minute
	// MaxWeight is the highest weight of a tenant or a projection. While a tenant of that weight floods, one of weight
	// 1 gets every hundredth slot.
	MaxWeight = 100
)

// weights are the weights of the tenants that the node serves.
type weights struct {
	ask func(tenant string) int
	log *zap.Logger

	mu     sync.Mutex
	served map[string]*weight
}

// weight is the weight of one tenant.
type weight struct {
	mu    sync.Mutex
	value int
	until time.Time
	// panics reports whether the function panicked the last time.
	panics bool
}

func newWeights(ask func(tenant string) int, log *zap.Logger) *weights {
	return &weights{ask: ask, log: log, served: make(map[string]*weight)}
}

// serve adds a tenant, and returns how many there are.
func (w *weights) serve(tenant string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served[tenant] = &weight{}
	return len(w.served)
}

// leave removes a tenant, and returns how many are left.
func (w *weights) leave(tenant string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.served, tenant)
	return len(w.served)
}

// of returns the weight of a tenant.
func (w *weights) of(tenant string) int {
	if w.ask == nil {
		return 1
	}
	w.mu.Lock()
	of := w.served[tenant]
	w.mu.Unlock()
	if of == nil {
		return 1
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if now := time.Now(); !now.Before(of.until) {
		of.value, of.until = 1, now.Add(weightFor)
		err := usercode.Run(func() error {
			of.value = min(max(1, w.ask(tenant)), MaxWeight)
			return nil
		})
		if err != nil && !of.panics {
			w.log.Error("the function for weights of tenants panicked", zap.String("tenant", tenant), zap.Error(err),
				zap.String("stack", usercode.StackOf(err)))
		}
		of.panics = err != nil
	}
	return of.value
}
