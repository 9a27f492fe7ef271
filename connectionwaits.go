package millrace

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/observe"
)

// waitsEvery is how often waits for connections are reported.
const waitsEvery = time.Second

// reportWaits reports the waits for connections of the store until stop is called. Without a callback it does nothing.
// The callback has a goroutine of its own.
func reportWaits(database engine.Database, callback func(observe.ConnectionWaits)) (stop func()) {
	if callback == nil {
		return func() {}
	}
	before := database.ConnectionWaits()
	report := func() {
		now := database.ConnectionWaits()
		if now.Count > before.Count || now.GivenUp > before.GivenUp {
			callback(observe.ConnectionWaits{
				Count: now.Count - before.Count, Duration: now.Duration - before.Duration,
				GivenUp: now.GivenUp - before.GivenUp,
			})
		}
		before = now
	}
	stopping, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(waitsEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				report()
			case <-stopping:
				report()
				return
			}
		}
	}()
	return func() {
		close(stopping)
		<-ended
	}
}
