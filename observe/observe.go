// Package observe has the callbacks by which a runtime reports what happens in it. Use them for metrics, logs and
// tests. Package millraceotel turns them into OpenTelemetry metrics.
//
//	config.Observer = observe.Observer{
//		Decided: func(d observe.Decision) { log.Print(d.Projection, " ", d.Action, " at ", d.Position) },
//	}
package observe

// Observer is a set of callbacks. A nil callback is not called, and costs nothing.
//
// The runtime calls them synchronously, from many goroutines at once, also for different events at the same time. A
// callback that blocks delays the projection, the feed or the node that reports, so it must return at once. The runtime
// recovers a panic of a callback and logs the first one of each callback.
type Observer struct {
	// BatchEnded is called when a batch or a delivery has ended: its transaction was committed or rolled back.
	BatchEnded func(Batch)
	// EventFailed is called when a failure of an event is counted. Another attempt, or a call of Decided, follows.
	EventFailed func(Failure)
	// Decided is called when events were parked or skipped, or when a projection stopped. The decision is already in
	// the database.
	Decided func(Decision)
	// Replayed is called when the replay of a dead letter has ended with an outcome.
	Replayed func(Replay)
	// BreakerChanged is called when the circuit breaker of a projection has changed its state.
	BreakerChanged func(Breaker)
	// LeaseChanged is called when this node has claimed, released or lost a lease.
	LeaseChanged func(Lease)
	// MarkHeld is called when open transactions begin to hold back a tenant's settled mark, and again when the wait
	// ends.
	MarkHeld func(Hold)
	// EventsRead is called when the feed of a tenant has polled for new events, or got those of an append in this
	// process.
	EventsRead func(Read)
	// SlotWaited is called when work has waited for one of the slots that limit how much runs at once. It is not called
	// for work that gets its slot immediately.
	SlotWaited func(Wait)
	// ConnectionsWaited is called at most once a second, with the waits for connections of the store since the last
	// call. It is not called if there were none.
	ConnectionsWaited func(ConnectionWaits)
	// SessionChanged is called when the node's session connection was made or lost.
	SessionChanged func(Session)
	// DatabaseChanged is called when the database becomes unusable, so that everything waits, and when it can be used
	// again.
	DatabaseChanged func(Database)
	// ActorRestarted is called when an actor of the runtime crashed or made no progress, and is restarted.
	ActorRestarted func(Restart)
}

// Join returns an Observer that calls those of several, in order.
func Join(observers ...Observer) Observer {
	return Observer{
		BatchEnded:        join(observers, func(o Observer) func(Batch) { return o.BatchEnded }),
		EventFailed:       join(observers, func(o Observer) func(Failure) { return o.EventFailed }),
		Decided:           join(observers, func(o Observer) func(Decision) { return o.Decided }),
		Replayed:          join(observers, func(o Observer) func(Replay) { return o.Replayed }),
		BreakerChanged:    join(observers, func(o Observer) func(Breaker) { return o.BreakerChanged }),
		LeaseChanged:      join(observers, func(o Observer) func(Lease) { return o.LeaseChanged }),
		MarkHeld:          join(observers, func(o Observer) func(Hold) { return o.MarkHeld }),
		EventsRead:        join(observers, func(o Observer) func(Read) { return o.EventsRead }),
		SlotWaited:        join(observers, func(o Observer) func(Wait) { return o.SlotWaited }),
		ConnectionsWaited: join(observers, func(o Observer) func(ConnectionWaits) { return o.ConnectionsWaited }),
		SessionChanged:    join(observers, func(o Observer) func(Session) { return o.SessionChanged }),
		DatabaseChanged:   join(observers, func(o Observer) func(Database) { return o.DatabaseChanged }),
		ActorRestarted:    join(observers, func(o Observer) func(Restart) { return o.ActorRestarted }),
	}
}

// join returns a function that calls the callbacks of the observers, nil if there are none.
func join[E any](observers []Observer, of func(Observer) func(E)) func(E) {
	var callbacks []func(E)
	for _, o := range observers {
		if f := of(o); f != nil {
			callbacks = append(callbacks, f)
		}
	}
	switch len(callbacks) {
	case 0:
		return nil
	case 1:
		return callbacks[0]
	}
	return func(e E) {
		for _, f := range callbacks {
			f(e)
		}
	}
}
