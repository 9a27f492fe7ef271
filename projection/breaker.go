package projection

import "time"

// BreakerPolicy is the circuit breaker of a projection whose handler depends on something outside of the database, such
// as a web service. While that is down, the projection waits. Nothing is counted against an event, and nothing is
// parked. The zero value is no breaker.
//
// After an outage error, the same batch is tried again after the delays of the projection's RetryPolicy, without a
// limit. After too many of them the breaker opens. Then one event is tried every OpenFor, until an event is handled or
// fails with another error. Both show that the service answers, and close the breaker.
//
// A request of the handler by Retry, Park, ParkStream, Skip or Stop is about the event and overrides the breaker. So
// does backoff.Permanent.
type BreakerPolicy struct {
	// IsOutage reports whether an error of the handler means that the service is down. Such an error is not counted
	// against the event; any other error is. There is no breaker without IsOutage, and it has no default: a breaker
	// that took every error for an outage would wait for ever at one bad event. So it should return true for errors
	// that pass, such as a refused connection or a 503, and false for errors that an event may cause, such as a 400.
	//
	// The error may be wrapped: use errors.Is and errors.As. IsOutage may be called from several goroutines at once,
	// for different tenants. If it panics, that counts as false and is logged.
	IsOutage func(err error) bool
	// Failures is how many outage errors within Window open the breaker. The same number in a row opens it too, however
	// long they take, since errors that run into a timeout may be further apart than Window allows. Default 5.
	Failures int
	// Window is how far back outage errors are counted. Default 1 min.
	Window time.Duration
	// OpenFor is how long the breaker stays open before one event is tried, up to a fifth longer at random. At most 365
	// days. Default 30 s: a service does not come back sooner by being asked more often. Runtime.Resume tries at once.
	OpenFor time.Duration
}

// BreakerState is the state of a circuit breaker.
type BreakerState string

const (
	// BreakerClosed means that batches are handled as usual.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen means that the projection waits for the service.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen means that one event is tried, to find out whether the service is back.
	BreakerHalfOpen BreakerState = "half-open"
)
