package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is how long cleaning up in a hurry may take before a signal ends the process all the same.
const patience = 3 * time.Second

// interruptedError is why a run ended before its end.
type interruptedError struct{ signal syscall.Signal }

func (e interruptedError) Error() string {
	switch e.signal {
	case syscall.SIGPIPE:
		return "interrupted: nobody reads the output any more"
	case syscall.SIGINT:
		return "interrupted"
	}
	return fmt.Sprintf("interrupted by signal %d (%v)", int(e.signal), e.signal)
}

// interruptible returns two contexts. The first signal ends ctx: the run stops and cleans up. The second ends hurry: it
// waits for nobody any more, and cleans up what cannot be left. One that comes long after that, and not because a key was
// held down, ends the process where it stands.
func interruptible(parent context.Context) (ctx, hurry context.Context, stop func()) {
	ctx, interrupt := context.WithCancelCause(parent)
	hurry, rush := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 4)
	// A closed pipe (demo | head) must not kill the process: it would leave a server's folder behind.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var rushed time.Time
		for count := 0; ; {
			select {
			case <-done:
				return
			case got := <-signals:
				by := interruptedError{got.(syscall.Signal)}
				if by.signal != syscall.SIGPIPE { // of which each write brings one more
					count++
				}
				interrupt(by)
				switch {
				case count < 2:
				case rushed.IsZero():
					rushed = time.Now()
					rush(by)
				case time.Since(rushed) > patience:
					os.Exit(128 + int(by.signal))
				}
			}
		}
	}()
	return ctx, hurry, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		interrupt(nil)
		rush(nil)
	}
}
