package eventlog

import "sync"

// Wakes notifies readers in the same process of new events. The zero value is ready. It is safe for concurrent
// use.
type Wakes struct {
	waiting sync.Map // *wakeFunc to struct{}
}

type wakeFunc struct {
	fn func(tenant string, position int64)
}

// On registers fn, which Wake calls, until remove is called. fn must not block.
func (w *Wakes) On(fn func(tenant string, position int64)) (remove func()) {
	registered := &wakeFunc{fn}
	w.waiting.Store(registered, struct{}{})
	return func() { w.waiting.Delete(registered) }
}

// Wake announces that the tenant has new events up to a position.
func (w *Wakes) Wake(tenant string, position int64) {
	w.waiting.Range(func(registered, _ any) bool {
		registered.(*wakeFunc).fn(tenant, position)
		return true
	})
}
