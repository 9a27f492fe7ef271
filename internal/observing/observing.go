// Package observing calls the callbacks of an observe.Observer, and protects the runtime from them.
package observing

import (
	"runtime/debug"
	"sync"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/observe"
)

// Call calls a callback unless it is nil.
func Call[E any](callback func(E), e E) {
	if callback != nil {
		callback(e)
	}
}

// Guarded returns an Observer whose callbacks do not panic. The first panic of each callback is logged. Callbacks that
// are nil stay nil.
func Guarded(o observe.Observer, log *zap.Logger) observe.Observer {
	return observe.Observer{
		BatchEnded:        guarded(log, "BatchEnded", o.BatchEnded),
		EventFailed:       guarded(log, "EventFailed", o.EventFailed),
		Decided:           guarded(log, "Decided", o.Decided),
		Replayed:          guarded(log, "Replayed", o.Replayed),
		BreakerChanged:    guarded(log, "BreakerChanged", o.BreakerChanged),
		LeaseChanged:      guarded(log, "LeaseChanged", o.LeaseChanged),
		MarkHeld:          guarded(log, "MarkHeld", o.MarkHeld),
		EventsRead:        guarded(log, "EventsRead", o.EventsRead),
		SlotWaited:        guarded(log, "SlotWaited", o.SlotWaited),
		ConnectionsWaited: guarded(log, "ConnectionsWaited", o.ConnectionsWaited),
		SessionChanged:    guarded(log, "SessionChanged", o.SessionChanged),
		DatabaseChanged:   guarded(log, "DatabaseChanged", o.DatabaseChanged),
		ActorRestarted:    guarded(log, "ActorRestarted", o.ActorRestarted),
	}
}

func guarded[E any](log *zap.Logger, name string, callback func(E)) func(E) {
	if callback == nil {
		return nil
	}
	var once sync.Once
	return func(e E) {
		defer func() {
			if r := recover(); r != nil {
				once.Do(func() {
					log.Error("callback of the observer panicked", zap.String("callback", name),
						zap.String("panic", usererror.PanicText(r)),
						zap.ByteString("stack", debug.Stack()))
				})
			}
		}()
		callback(e)
	}
}
