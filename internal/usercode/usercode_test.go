package usercode

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-go/millrace/projection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endings are the ways in which a function ends that returns at all, with what its error is and says.
var endings = map[string]struct {
	fn   func() error
	is   error
	says string
}{
	"returns":         {func() error { return nil }, nil, ""},
	"fails":           {func() error { return io.EOF }, io.EOF, "EOF"},
	"panics":          {func() error { panic("on purpose") }, projection.ErrHandlerPanic, "on purpose"},
	"panics an error": {func() error { panic(io.EOF) }, io.EOF, "EOF"},
	"exits":           {func() error { runtime.Goexit(); return nil }, ErrGoexit, "goroutine"},
}

func TestCallEndsAsItsFunctionDoes(t *testing.T) {
	for name, test := range endings {
		t.Run(name, func(t *testing.T) {
			call := Go(test.fn)
			<-call.Done()
			ended, abandoned := call.End()
			for _, err := range []error{call.err, ended} {
				if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.says) || abandoned {
					t.Errorf("got %v, abandoned %v; want %v", err, abandoned, test.is)
				}
			}
			if panics := strings.HasPrefix(name, "panics"); strings.Contains(StackOf(call.err),
				"usercode_test.go") != panics {
				t.Errorf("the stack is %q", StackOf(call.err))
			}
		})
	}
}

func TestCallThatDoesNotReturnIsAbandonedAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{Grace - time.Millisecond, Grace + time.Millisecond} {
			call := Go(func() error { return after(late, io.EOF) })
			began := time.Now()
			err, abandoned := call.End()
			if want := late > Grace; abandoned != want || errors.Is(err, projection.ErrAbandoned) != want ||
				time.Since(began) != min(late, Grace) {
				t.Errorf("returns after %v: %v, abandoned %v after %v", late, err, abandoned, time.Since(began))
			}
			<-call.Done()
		}
	})
}

func TestAskReturnsTheAnswerOrWhyThereIsNone(t *testing.T) {
	for name, test := range endings {
		t.Run(name, func(t *testing.T) {
			answer, err := Ask(t.Context(), time.Minute, func(context.Context) error { return test.fn() })
			switch {
			case name == "returns" || name == "fails": // the error is the answer
				if err != nil || answer != test.is {
					t.Errorf("answer %v, %v", answer, err)
				}
			case answer != nil || !errors.Is(err, test.is):
				t.Errorf("answer %v, %v; want %v", answer, err, test.is)
			}
		})
	}
}

func TestAskDoesNotWaitForAFunctionThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second
		began := time.Now()
		answer, err := Ask(t.Context(), limit, func(ctx context.Context) int {
			<-ctx.Done()
			return after(time.Hour, 7)
		})
		if answer != 0 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 1s") ||
			time.Since(began) != limit+Grace {
			t.Errorf("answer %d, %v after %v", answer, err, time.Since(began))
		}
		<-time.After(2 * time.Hour) // so that the function ends before the test
	})
}

// after returns value after some time.
func after[T any](d time.Duration, value T) T {
	<-time.After(d)
	return value
}
