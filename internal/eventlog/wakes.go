package eventlog

import (
	"sync"

	"github.com/millrace-go/millrace/internal/engine"
)

// Wakes notifies readers in the same process of new events. The zero value is ready. It is safe for concurrent
// use.
type Wakes struct {
	waiting sync.Map // *engine.Waker to struct{}
}

// On registers a function, which Wake calls, until remove is called.
func (w *Wakes) On(waker engine.Waker) (remove func()) {
	w.waiting.Store(&waker, struct{}{})
	return func() { w.waiting.Delete(&waker) }
}

// Rests reports whether a reader would make use of the events of the tenant's next append.
func (w *Wakes) Rests(tenant string) (rests bool) {
	w.waiting.Range(func(registered, _ any) bool {
		waker := registered.(*engine.Waker)
		rests = waker.Rests != nil && waker.Rests(tenant)
		return !rests
	})
	return rests
}

// Wake announces that the tenant has new events up to a position. own has the events of the append, nil if they have to
// be read.
func (w *Wakes) Wake(tenant string, position int64, own *engine.Page) {
	w.waiting.Range(func(registered, _ any) bool {
		registered.(*engine.Waker).Wake(tenant, position, own)
		return true
	})
}
