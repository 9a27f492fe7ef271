package projection

import (
	"time"
)

// BreakerPolicy is the circuit breaker of a projection whose handler depends on something outside, say a web service or a
// broker. While that is down the projection waits at its place: nothing is counted against an event, and nothing is
// parked. The zero value is no breaker.
//
// After a failure that Counts knows, the same batch is tried again after the delays of the projection's RetryPolicy, as
// often as it takes. When there are too many of them the breaker opens: then one event is tried each Wait, until one is
// handled or fails on something else. Both say that what is outside answers, and close it.
//
// What a handler asks for by Retry, Park, Skip or Stop, and backoff.Permanent, are about the event, and win.
type BreakerPolicy struct {
	// Counts tells whether an error of the handler says that something outside cannot be worked with. What it knows counts
	// against no event; all else is the event's, as without a breaker. It is what turns the breaker on, and there is no
	// default: a breaker that took every error for an outage would wait for ever at one bad event. So say true of what is
	// known to pass, a refused connection or a 503, and not of what an event may cause by itself, a 400.
	//
	// It sees what the handler returned, perhaps wrapped: use errors.Is and errors.As. It may be called from several
	// goroutines at once, for different tenants. One that panics has said false, and the log says so.
	IsOutage func(err error) bool
	// Failures is how many such failures within Window open the breaker. So do as many in a row, with nothing handled in
	// between, however long they take: those that run into a deadline may be further apart than Window has room for.
	// Default 5.
	Failures int
	// Window is how far back failures are counted. Default 1 min.
	Window time.Duration
	// Wait is how long the breaker stays open before one event is tried, up to a fifth longer at random. Default 30 s: asking
	// more often does not bring a service back, and 30 s is soon enough to notice that it is. An operator who knows that it
	// is back can resume the projection at once.
	OpenFor time.Duration
}

// BreakerState is what a circuit breaker is at.
type BreakerState string

const (
	// BreakerClosed: batches are handled as usual.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen: the projection waits for what its handler depends on.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen: one event is tried, to find out whether that is back.
	BreakerHalfOpen BreakerState = "half-open"
)
