// Package machine decides what a projection does next: how large its batches are, which faults count against an event, when
// its circuit breaker opens. It is pure code, without actors, database, clock or goroutines.
package machine
