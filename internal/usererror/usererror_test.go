package usererror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaved is an error that the library recognizes.
type behaved struct{ n int }

func (b *behaved) Error() string { return fmt.Sprint("behaved ", b.n) }

var (
	_         = RecognizeType[*behaved]()
	_         = RecognizeErrors(context.Canceled)
	errInside = &behaved{7}
)

// nilled is an error whose methods need its fields.
type nilled struct{ field string }

func (e *nilled) Error() string { return e.field }

// faulty is an error with one method that does not return.
type faulty struct {
	in   string
	does func()
}

func (f faulty) call(method string) {
	if f.in == method {
		f.does()
	}
}

func (f faulty) Error() string        { f.call("Error"); return "faulty" }
func (f faulty) Unwrap() error        { f.call("Unwrap"); return errInside }
func (f faulty) Is(target error) bool { f.call("Is"); return target == context.Canceled }
func (f faulty) As(target any) bool   { f.call("As"); return false }

// endless wraps itself.
type endless struct{}

func (e *endless) Error() string { return "endless" }
func (e *endless) Unwrap() error { return e }

// hidden shows what it wraps by Is and As alone.
type hidden struct{ error }

func (h hidden) Is(target error) bool { return errors.Is(h.error, target) }
func (h hidden) As(target any) bool   { return errors.As(h.error, target) }
func (h hidden) Unwrap() error        { return nil }

// many is an error that cannot be compared.
type many []error

func (m many) Error() string   { return "several" }
func (m many) Unwrap() []error { return m }

func TestErrorIsTakenApartWhateverItsMethodsDo(t *testing.T) {
	boom := func() { panic("boom") }
	var none *nilled
	for name, test := range map[string]struct {
		err    error
		says   string
		inside bool // errInside is found
	}{
		"fine": {fmt.Errorf("around: %w", errInside), "around: behaved 7", true},
		"nil pointer": {
			none, "*usererror.nilled: its method Error panicked: invalid memory address or nil pointer dereference",
			false,
		},
		"wrapped nil":   {fmt.Errorf("around: %w", none), "around: <nil> (a nil *usererror.nilled)", false},
		"Error panics":  {faulty{"Error", boom}, "usererror.faulty: its method Error panicked: boom", true},
		"Unwrap panics": {faulty{"Unwrap", boom}, "faulty (its method Unwrap panicked: boom)", false},
		"Is panics":     {faulty{"Is", boom}, "faulty (its method Is panicked: boom)", true},
		"As panics":     {faulty{"As", boom}, "faulty (its method As panicked: boom)", true},
		"wrapped As panics": {
			fmt.Errorf("around: %w", faulty{"As", boom}),
			"around: faulty (its method As panicked: boom, in the wrapped usererror.faulty)", true,
		},
		"Error exits": {
			faulty{"Error", runtime.Goexit}, "usererror.faulty: its method Error ended the goroutine", true,
		},
		"Unwrap exits": {
			faulty{"Unwrap", runtime.Goexit}, "faulty (its method Unwrap ended the goroutine)", false,
		},
		"panics by an error": {
			faulty{"Error", func() { panic(none) }}, "usererror.faulty: its method Error panicked: <nil>", true,
		},
		"endless":        {&endless{}, "endless (it wraps more than 1000 errors)", false},
		"hidden":         {hidden{errInside}, "behaved 7", true},
		"not comparable": {many{nil, io.EOF, errInside}, "several", true},
		"not storable":   {errors.New("a\x00b\xff"), "a�b�", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := Take(test.err)
			if !strings.HasSuffix(f.Error(), test.says) {
				t.Errorf("text %q, want %q", f, test.says)
			}
			var found *behaved
			if errors.As(f, &found) != test.inside || test.inside && found.n != 7 {
				t.Errorf("found %v", found)
			}
			if cancelled := strings.Contains(test.says, "faulty") &&
				name != "Is panics"; errors.Is(f, context.Canceled) != cancelled {
				t.Errorf("it is a cancelled context: %v", !cancelled)
			}
			if bad := strings.Contains(f.Error(), "usererror.") || strings.Contains(f.Error(), " ("); Bad(f) != bad {
				t.Errorf("bad: %v", Bad(f))
			}
			if again := Take(f); again != f {
				t.Error("it was taken apart again")
			}
		})
	}
	if Take(nil) != nil {
		t.Error("no error is one")
	}
}

func TestNoMethodIsCalledAfterTheErrorWasTakenApart(t *testing.T) {
	calls := 0
	count := func() { calls++ }
	var f error
	for _, method := range []string{"Error", "Unwrap", "Is", "As"} {
		f = Take(faulty{method, count})
		before := calls
		var netErr net.Error
		_, _ = f.Error(), errors.Is(f, io.EOF)
		_ = errors.As(f, &netErr)
		if before == 0 || calls != before {
			t.Errorf("%s was called %d times, then %d", method, before, calls)
		}
	}
}

func TestLongTextIsCut(t *testing.T) {
	f := Take(errors.New(strings.Repeat("ä", longest)))
	if n := len(f.Error()); n > longest || n < longest-8 || !utf8.ValidString(f.Error()) ||
		!strings.HasSuffix(f.Error(), "(cut, 30720 bytes in all)") {
		t.Errorf("%d bytes, the end is %q", n, f.Error()[n-40:])
	}
}

func TestUsersGetTheirOwnError(t *testing.T) {
	own := fmt.Errorf("around: %w", errInside)
	if got := Open(Take(own)); got != own {
		t.Errorf("got %v", got)
	}
	wrapped := Open(fmt.Errorf("ours: %w: %w", io.EOF, Take(many{own})))
	if wrapped.Error() != "ours: EOF: several" || !errors.Is(wrapped, io.EOF) || !errors.Is(wrapped, own) {
		t.Errorf("got %v", wrapped)
	}
	var several many
	if !errors.As(wrapped, &several) {
		t.Error("the user's error is not in it")
	}
	if Open(io.EOF) != io.EOF {
		t.Error("an error of the library changed")
	}
}

func TestOnlyErrorsOfTheDriverAndTheStandardLibraryAnswerToInterfaces(t *testing.T) {
	var netErr net.Error
	if !errors.As(Take(fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: io.EOF})), &netErr) {
		t.Error("an error of package net is none")
	}
	var wrapping interface{ Unwrap() error }
	if errors.As(Take(faulty{}), &wrapping) {
		t.Error("the library got an error of the user")
	}
}
