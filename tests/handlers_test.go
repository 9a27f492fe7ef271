package tests_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestPanicIsAnErrorWithItsStack(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		second := h.Pending()[1].Position
		inside := errors.New("inside")
		for _, value := range []any{"a text", 42, inside, fmt.Errorf("around: %w", inside), nil} {
			fails := func(context.Context, kit.Tx) error { panic(value) }
			each := b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
				if e.Position == second {
					return fails(ctx, tx)
				}
				return tx.Record(ctx, "p", e)
			})
			for position, err := range map[int64]error{0: h.Apply(kit.RecordAnd(fails), engine.ApplyOptions{}),
				second: h.ApplyWithin(b.Ctx, each, engine.ApplyOptions{})} {
				fault := h.MustBe(err, faults.Handler)
				if !errors.Is(err, projection.ErrHandlerPanic) ||
					value != nil && !strings.Contains(err.Error(), fmt.Sprint(value)) {
					t.Errorf("panic with %v: %v", value, err)
				}
				if cause, ok := value.(error); ok && !errors.Is(err, cause) {
					t.Errorf("panic with %v: %v hides it", value, err)
				}
				if !strings.Contains(fault.Stack, "handlers_test.go") || fault.Position != position {
					t.Errorf("panic with %v: at %d, want %d, stack %q", value, fault.Position, position, fault.Stack)
				}
				h.Untouched()
			}
		}
	})
}

func TestHandlerThatEndsItsGoroutineFails(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(1)
		err := h.Apply(kit.RecordAnd(func(context.Context, kit.Tx) error {
			runtime.Goexit()
			return nil
		}), engine.ApplyOptions{})
		h.MustBe(err, faults.Handler)
		if !errors.Is(err, usercode.ErrGoexit) {
			t.Error(err)
		}
		h.Untouched()
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(1)
	})
}

// Each fault of the kind of store is the handler's, nothing of its batch stays, and the next batch works.
func TestFaultsOfHandlersLeaveNothing(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		h := b.Hold(2)
		for name, fault := range kind.AllFaults() {
			err := h.Apply(kit.RecordAnd(fault.Fail), engine.ApplyOptions{Timeout: 300 * time.Millisecond})
			if got := h.MustBe(err, faults.Handler); !strings.Contains(got.Error(), fault.Says) {
				t.Errorf("%s: %v, want an error that contains %q", name, err, fault.Says)
			}
			h.Untouched()
		}
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(2)
	})
}

// The outages of the kind of store are not the handler's, and nothing of their batches stays.
func TestOutagesOfHandlersAreNotTheirFaults(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		h := b.Hold(2)
		for name, fail := range kind.Outages {
			err := h.Apply(kit.RecordAnd(fail), engine.ApplyOptions{})
			if err == nil {
				t.Errorf("%s: no error", name)
			} else if fault := h.Port.Classify(err); fault.Class != faults.Infrastructure &&
				fault.Class != faults.Unclear {
				t.Errorf("%s: %v: class %q", name, err, fault.Class)
			}
			h.Untouched()
		}
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(2)
	})
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "the other service did not answer" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// These errors look like errors of the store, but are not.
func TestFaultOfAnotherServiceIsTheHandlers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(1)
		for _, err := range []error{
			timeoutError{}, io.EOF, context.DeadlineExceeded, context.Canceled, projection.ErrLeaseLost,
			&faults.Fault{Class: faults.Infrastructure, Unreachable: true, Err: errors.New("of another store")},
		} {
			h.MustBe(h.Apply(kit.RecordAnd(func(context.Context, kit.Tx) error { return err }), engine.ApplyOptions{}),
				faults.Handler)
		}
		h.Untouched()
	})
}

func TestTimeoutIsTheHandlersFault(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		h := b.Hold(1)
		long := kind.Faults["timeout in a statement"].Fail
		for name, handler := range map[string]func(ctx context.Context, tx kit.Tx) error{
			"in a statement": long,
			"outside": func(ctx context.Context, _ kit.Tx) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), projection.ErrTimeout) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			},
			"in a statement with less time": func(ctx context.Context, tx kit.Tx) error {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				return long(ctx, tx)
			},
			"in a statement without a context": func(ctx context.Context, tx kit.Tx) error {
				return long(context.WithoutCancel(ctx), tx)
			},
			"swallowed": func(ctx context.Context, tx kit.Tx) error {
				_ = long(ctx, tx)
				return nil
			},
		} {
			err := h.Apply(kit.RecordAnd(handler), engine.ApplyOptions{Timeout: 200 * time.Millisecond})
			if err == nil || h.Port.Classify(err).Class != faults.Handler {
				t.Errorf("%s: %v", name, err)
			}
			h.Untouched()
		}
	})
}

// A handler that finishes late has done its work.
func TestHandlerThatFinishesAfterItsTimeoutCommits(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(1)
		b.Must(h.Apply(kit.RecordAnd(func(ctx context.Context, _ kit.Tx) error {
			<-ctx.Done()
			<-time.After(300 * time.Millisecond)
			return nil
		}), engine.ApplyOptions{Timeout: 100 * time.Millisecond}))
		h.HasApplied(1)
	})
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 1) // so that the connection of the handler is missed
		h := b.Hold(1)
		release, late := make(chan struct{}), make(chan error, 1)
		began := time.Now()
		err := h.Apply(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if err := tx.Record(ctx, "p", events...); err != nil {
				t.Error(err)
			}
			<-release
			late <- tx.Record(context.WithoutCancel(ctx), "p", events...)
			return nil
		}, engine.ApplyOptions{Timeout: 100 * time.Millisecond})
		h.MustBe(err, faults.Handler)
		if !errors.Is(err, projection.ErrAbandoned) || !errors.Is(err, projection.ErrTimeout) {
			t.Error(err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the handler was waited for %v", took)
		}
		if n := h.Port.Abandoned(); n != 1 {
			t.Errorf("%d handlers abandoned", n)
		}
		// The store works while the handler still hangs.
		h.Untouched()
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		close(release)
		if err := <-late; err == nil {
			t.Error("the handler could write after it was abandoned")
		}
		h.HasApplied(1)
		h.Refresh()
		b.Append("s", 1)
		b.Must(h.Apply(kit.Record("p"), engine.ApplyOptions{}))
		h.HasApplied(2)
	})
}

func TestHandlerIsNotAtFaultWhenTheRuntimeStops(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		h := b.Hold(1)
		ctx, cancel := context.WithCancel(b.Ctx)
		err := h.ApplyWithin(ctx, b.Store.Batch(kit.RecordAnd(func(ctx context.Context, tx kit.Tx) error {
			cancel()
			return kind.Faults["timeout in a statement"].Fail(ctx, tx)
		})), engine.ApplyOptions{})
		h.MustBe(err, faults.Infrastructure)
		h.Untouched()
	})
}
