package tests_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// nilError is an error whose methods need its fields.
type nilError struct{ field string }

func (e *nilError) Error() string { return e.field }
func (e *nilError) Unwrap() error { return errors.New(e.field) }

// methodError is an error with one method that does not return.
type methodError struct {
	in   string
	does func()
}

func (m *methodError) call(method string) {
	if m.in == method {
		m.does()
	}
}

func (m *methodError) Error() string { m.call("Error"); return "method error" }
func (m *methodError) Unwrap() error { m.call("Unwrap"); return nil }
func (m *methodError) Is(error) bool { m.call("Is"); return false }
func (m *methodError) As(any) bool   { m.call("As"); return false }

// brokenErrors are errors whose methods do not work, by what the dead letter says about them.
func brokenErrors() map[string]error {
	boom := func() { panic("boom") }
	return map[string]error{
		"*tests_test.nilError: its method Error panicked: invalid memory address": (*nilError)(nil),
		"*tests_test.methodError: its method Error panicked: boom":                &methodError{"Error", boom},
		"method error (its method Unwrap panicked: boom":                          &methodError{"Unwrap", boom},
		"method error (its method Is panicked: boom":                              &methodError{"Is", boom},
		"method error (its method As panicked: boom":                              &methodError{"As", boom},
		"*tests_test.methodError: its method Error ended the goroutine": &methodError{
			"Error", runtime.Goexit,
		},
		"method error (its method As ended the goroutine": &methodError{"As", runtime.Goexit},
		"wrapped: method error (its method Is panicked: boom, in the wrapped": fmt.Errorf("wrapped: %w",
			&methodError{"Is", boom}),
		"*tests_test.methodError: its method Error panicked": projection.Park(&methodError{
			"Error", boom,
		}),
	}
}

// brokenWays are projections of every kind whose handlers return an error for the second of three events.
func brokenWays(b *kit.Bundle, err error) map[string]millrace.Projection {
	fails := func(position int64) error {
		if position == 2 {
			return err
		}
		return nil
	}
	ways := map[string]millrace.Projection{
		"batch": {Handler: b.Store.Batch(func(_ context.Context, _ kit.Tx, events []event.Envelope) error {
			for _, e := range events {
				if err := fails(e.Position); err != nil {
					return err
				}
			}
			return nil
		})},
		"batch that names the event": {Handler: b.Store.Batch(func(_ context.Context, _ kit.Tx,
			events []event.Envelope) error {
			for _, e := range events {
				if err := fails(e.Position); err != nil {
					return projection.At(e.Position, err)
				}
			}
			return nil
		})},
		"each": {
			Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
				return fails(e.Position)
			}),
		},
		"panic": {Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
			if err := fails(e.Position); err != nil {
				panic(err)
			}
			return nil
		})},
		"deliver each": {
			Handler: millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
				return fails(e.Position)
			}),
		},
	}
	ways["middleware"] = millrace.Projection{Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
		return nil
	}),
		Middleware: []millrace.Middleware{func(next millrace.HandleFunc) millrace.HandleFunc {
			return func(ctx context.Context, events []event.Envelope) error {
				if err := next(ctx, events); err != nil {
					return err
				}
				return fails(events[0].Position)
			}
		}}}
	ways["reject"] = millrace.Projection{Handler: millrace.Deliver(func(ctx context.Context,
		d *millrace.Delivery) error {
		for _, e := range d.Events() {
			end := d.Ack
			if err := fails(e.Position); err != nil {
				end = func(ctx context.Context, position int64) error { return d.Reject(ctx, position, err) }
			}
			if err := end(ctx, e.Position); err != nil {
				return err
			}
		}
		return nil
	})}
	return ways
}

// An error whose methods panic is a failure of its event like any other: the process and all other projections live.
func TestErrorWhoseMethodsPanicFailsItsEventAlone(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 16).Patient()
		projections := b.Recorders("other")
		says := make(map[string]string)
		for text, err := range brokenErrors() {
			for way, p := range brokenWays(b, err) {
				p.Name, p.MaxEvents, p.Retry, p.MaxFailureShare = fmt.Sprintf("%s %d", way, len(says)), 3, kit.Soon(2),
					projection.NoLimit
				p.OnFailure = projection.ActionPark
				says[p.Name], projections = text, append(projections, p)
			}
		}
		log, _ := kit.Logs()
		rt := b.Running(millrace.Config{Logger: log}, projections...)
		b.Append("s", 3)
		b.Reaches(rt, "other", 3)
		for name, text := range says {
			b.Reaches(rt, name, 3)
			switch letters := b.DeadLettersOf(name); {
			case len(letters) != 1 || letters[0].Position != 2:
				t.Errorf("%s: %q: parked are %v", name, text, letters)
			case strings.HasPrefix(name, "panic"): // the text of a panic is made by package fmt
			case !strings.Contains(letters[0].Error, strings.TrimSuffix(text, ": boom")):
				t.Errorf("%s: the dead letter says %q, want %q", name, letters[0].Error, text)
			}
		}
		if got := b.Positions("other"); len(got) != 3 {
			t.Errorf("the other projection applied %v", got)
		}
	})
}

// A FailureHandler, an IsOutage, an observer and a logger get the error itself.
func TestUsersCodeGetsTheErrorThatItReturned(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		own := &methodError{}
		var mu sync.Mutex
		seen := make(map[string]error)
		see := func(by string, err error) {
			mu.Lock()
			defer mu.Unlock()
			seen[by] = err
		}
		log := zap.New(zapcore.NewNopCore()).WithOptions(zap.WrapCore(func(zapcore.Core) zapcore.Core {
			return seeing{see}
		}))
		p := millrace.Projection{Name: "p", MaxFailureShare: projection.NoLimit,
			Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error { return own }),
			FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
				see("failure handler", f.Err)
				return projection.ActionPark
			},
			Breaker: projection.BreakerPolicy{IsOutage: func(err error) bool { see("outage", err); return false }}}
		observer := observe.Observer{EventFailed: func(f observe.Failure) { see("event failed", f.Err) },
			Decided: func(d observe.Decision) { see("decided", d.Err) }, BatchEnded: func(b observe.Batch) {
				if b.Err != nil {
					see("batch", b.Err)
				}
			}}
		rt := b.Running(millrace.Config{Logger: log, Observer: observer}, p)
		b.Append("s", 1)
		b.Reaches(rt, "p", 1)
		b.Eventually("everything sees the error", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 6 })
		for by, err := range seen {
			if err != error(own) {
				t.Errorf("%s got %T %v", by, err, err)
			}
		}
	})
}

// asked is an error that only its methods recognize.
type asked struct{ errs map[error]bool }

func (*asked) Error() string          { return "no such account" }
func (a *asked) Is(target error) bool { return a.errs[target] }
func (*asked) As(target any) bool {
	of, ok := target.(**nilError)
	if ok {
		*of = &nilError{"of asked"}
	}
	return ok
}

// WaitFor and Tick return the error itself, unless its methods do not work.
func TestCallersGetTheErrorThatStoppedTheProjection(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		errGone := errors.New("the account is gone")
		own := fmt.Errorf("event failed: %w", &asked{map[error]bool{errGone: true}})
		for name, call := range map[string]func(b *kit.Bundle, p millrace.Projection) error{
			"WaitFor": func(b *kit.Bundle, p millrace.Projection) error {
				rt := b.Running(millrace.Config{}, p)
				var err error
				// The row may say that the projection failed before this node does.
				b.Eventually("the node knows the error", func() bool {
					err = rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, 1)
					return errors.As(err, new(*projection.HandlerError))
				})
				return err
			},
			"Tick": func(b *kit.Bundle, p millrace.Projection) error {
				_, err := b.Runtime(millrace.Config{}, p).Tick(b.Ctx, millrace.ProjectionID{Name: "p"})
				return err
			},
		} {
			returned := func(handlers error) error {
				b := kind.New(t)
				b.Append("s", 1)
				return call(b, millrace.Projection{Name: "p",
					FailureHandler: func(context.Context, projection.Failure) projection.Action {
						return projection.ActionStop
					},
					Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
						return handlers
					})})
			}
			err := returned(own)
			var as *nilError
			if !errors.Is(err, projection.ErrFailed) || !errors.Is(err, errGone) || !errors.Is(err, own) ||
				!errors.As(err, &as) || as.field != "of asked" ||
				!strings.Contains(err.Error(), "event failed: no such account") {
				t.Errorf("%s returned %v", name, err)
			}
			for text, broken := range brokenErrors() {
				if !strings.Contains(text, "Is panicked") && !strings.Contains(text, "As ended") {
					continue
				}
				err := returned(broken)
				if !errors.Is(err, projection.ErrFailed) || errors.Is(err, errGone) || errors.As(err, new(*asked)) {
					t.Errorf("%s returned %v for an error whose methods do not work: %s", name, err, text)
				}
			}
		}
	})
}

// seeing is a core that shows the errors of failed events.
type seeing struct{ see func(by string, err error) }

func (seeing) Enabled(zapcore.Level) bool          { return true }
func (s seeing) With([]zapcore.Field) zapcore.Core { return s }
func (s seeing) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return to.AddCore(e, s)
}
func (seeing) Sync() error { return nil }

func (s seeing) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && entry.Message == "event failed" {
			s.see("log", err)
		}
	}
	return nil
}

// Functions of users that decide about failures may themselves call the broken methods, and loggers may panic.
func TestBrokenErrorInUsersOwnFunctionsHarmsNothingElse(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var broken error = (*nilError)(nil)
		p := millrace.Projection{Name: "p", MaxFailureShare: projection.NoLimit, Retry: kit.Soon(1),
			Timeout: time.Minute,
			Handler: b.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error { return broken }),
			FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
				panic(f.Err.Error())
			},
			Breaker: projection.BreakerPolicy{IsOutage: func(err error) bool { return err.Error() == "" }}}
		observer := observe.Observer{
			EventFailed: func(f observe.Failure) { _ = f.Err.Error() },
			Decided:     func(d observe.Decision) { panic(d.Err) },
		}
		log := zap.New(panicking{zapcore.NewNopCore()}, zap.ErrorOutput(zapcore.AddSync(io.Discard)))
		rt := b.Running(millrace.Config{Logger: log, Observer: observer,
			TenantWeight: func(string) int { runtime.Goexit(); return 1 }}, p)
		b.Append("s", 1)
		b.Reaches(rt, "p", 1)
		if letters := b.DeadLettersOf("p"); len(letters) != 1 ||
			!strings.Contains(letters[0].Error, "nilError: its method Error panicked") {
			t.Errorf("parked: %v", letters)
		}
	})
}

// panicking is a core that panics when a failure is written.
type panicking struct{ zapcore.Core }

func (panicking) Enabled(zapcore.Level) bool          { return true }
func (p panicking) With([]zapcore.Field) zapcore.Core { return p }
func (p panicking) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return to.AddCore(e, p)
}

func (panicking) Write(entry zapcore.Entry, _ []zapcore.Field) error {
	if entry.Level >= zapcore.WarnLevel {
		panic("the logger fails")
	}
	return nil
}

// A hook that returns such an error fails its operation.
func TestHookWhoseErrorPanicsFailsItsOperation(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p")),
			Reset: b.Store.Hook(func(context.Context, kit.Tx) error { return (*nilError)(nil) })}
		rt := b.Running(millrace.Config{}, p)
		err := rt.Admin.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{})
		if err == nil || !strings.Contains(err.Error(), "nilError: its method Error panicked") {
			t.Errorf("the rebuild returned %v", err)
		}
		b.Append("s", 1)
		b.Reaches(rt, "p", 1)
	})
}

// marshals is a body whose method panics.
type marshals struct{}

func (marshals) MarshalJSON() ([]byte, error) { panic("boom") }

func TestBodyWhoseMethodPanicsIsNotAppended(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := b.Store.Append(b.Ctx, "s", event.Any, event.Untyped("T", marshals{}))
		if err == nil || !strings.Contains(err.Error(), "tests_test.marshals: a method panicked: boom") {
			t.Errorf("the append returned %v", err)
		}
	})
}
