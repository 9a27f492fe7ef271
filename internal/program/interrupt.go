package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/pgtest"
)

const (
	// cleanupLimit bounds what a program does before it ends.
	cleanupLimit = 30 * time.Second
	// patience is how long a forced stop may take before a further signal ends the process. A held key sends signals
	// faster.
	patience = 3 * time.Second
)

// interruptedError is the cause of a context that a signal ended.
type interruptedError struct{ signal syscall.Signal }

func (e interruptedError) Error() string {
	if e.signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted by signal %d (%v)", int(e.signal), e.signal)
}

// interruptible returns a context that the first signal ends: the program stops and cleans up. The second signal is a
// force stop: it removes private servers and temporary folders, and ends the process.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, interrupt := context.WithCancelCause(parent)
	// A closed pipe (demo | head) becomes an error of the write, so that the program cleans up.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var forced time.Time
		for {
			select {
			case <-done:
				return
			case got := <-signals:
				by := got.(syscall.Signal)
				switch {
				case ctx.Err() == nil:
					interrupt(interruptedError{by})
				case forced.IsZero():
					forced = time.Now()
					go forceStop(by)
				case time.Since(forced) > patience:
					os.Exit(exitStatus(by))
				}
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		interrupt(nil)
	}
}

func forceStop(by syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	removeFolders()
	if err := pgtest.StopAll(ctx); err != nil {
		fmt.Fprintln(os.Stderr, console.OneLine(err.Error()))
	}
	os.Exit(exitStatus(by))
}

// exitStatus is the status by which shells report a process that a signal ended.
func exitStatus(by syscall.Signal) int { return 128 + int(by) }

// CleanupError reports what could not be removed. It is printed even if the program was interrupted.
type CleanupError struct{ Err error }

func (e *CleanupError) Error() string { return e.Err.Error() }
func (e *CleanupError) Unwrap() error { return e.Err }

// interruption replaces an error that an interruption led to by the interruption. A *CleanupError stays.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() == nil || err == nil {
		return err
	}
	var left *CleanupError
	if errors.As(err, &left) {
		return errors.Join(context.Cause(ctx), left)
	}
	return context.Cause(ctx)
}

// Cleanup runs remove with a context that outlives an interruption, and reports its failure as a *CleanupError.
func Cleanup(ctx context.Context, remove func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	if err := remove(ctx); err != nil {
		return &CleanupError{err}
	}
	return nil
}
