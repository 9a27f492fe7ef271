// Package usererror takes errors of users apart. The methods of such an error are code of the user: they may panic, end
// their goroutine, or never come to an end of the errors that they wrap. Take calls them once, under recovery.
// Afterwards the library uses only what Take found.
package usererror

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// longest is the length of the longest text of a Failure, in bytes. What is stored may add a little to it, such as a
// position, before excerpt.MaxStorable cuts it again.
const longest = excerpt.MaxStorable - 1<<10

// Failure is what an error of a user was when Take took it apart. It has no method Unwrap: errors.Is and errors.As use
// what was found then, and call no method of the user's error. Until Forget, Open returns that error, for functions of
// the user.
type Failure struct {
	text string
	// bad reports that a method panicked or ended its goroutine, or that the wrapped errors have no end.
	bad bool
	own atomic.Pointer[own]
}

// own is what a Failure has of the user: the original error, and the errors in its tree, the outermost first, with what
// their methods Is and As answered. The original is nil after Forget.
type own struct {
	found    []error
	original error
}

// Take takes an error of a user apart. It returns a *Failure, or nil for nil.
func Take(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := err.(*Failure); ok {
		return f
	}
	t := taking{Failure: &Failure{}, own: &own{original: err}}
	t.alone(func() { t.walk(err) })
	problem := t.problem
	text, read := fmt.Sprintf("%T: its method Error ended the goroutine", err), false
	t.asked, t.method, t.wrapped = err, "Error", false
	t.alone(func() { text, read = textOf(err) })
	t.bad = t.bad || !read
	if problem != "" && read {
		text = fmt.Sprintf("%s (%s)", excerpt.UpTo(text, longest/2), problem)
	}
	t.text = excerpt.StorableUpTo(text, longest)
	t.Failure.own.Store(t.own)
	return t.Failure
}

// Error returns the text that the user's error had, made fit for every store.
func (f *Failure) Error() string { return f.text }

// Is reports whether target, or the error that it was made of, was found in the user's error.
func (f *Failure) Is(target error) bool {
	if other, ok := target.(*Failure); ok {
		target = other.own.Load().original
	}
	for _, err := range f.own.Load().found {
		if same(err, target) {
			return true
		}
	}
	return false
}

// As sets target, a pointer, to the first error of its type that was found in the user's error. For an interface, it
// finds only errors of the standard library and of pgx, since the methods of others are code of the user.
func (f *Failure) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	for _, err := range f.own.Load().found {
		from := reflect.TypeOf(err)
		if from == to.Type() || to.Kind() == reflect.Interface && from.Implements(to.Type()) && harmless(from) {
			to.Set(reflect.ValueOf(err))
			return true
		}
	}
	return false
}

// Open returns err for a function of the user: the user's own error for a Failure. If err wraps a Failure, the result
// has the text of err, and errors.Is and errors.As find the user's own error in it. After Forget, Open returns err.
func Open(err error) error {
	var f *Failure
	if !errors.As(err, &f) {
		return err
	}
	original := f.own.Load().original
	switch {
	case original == nil:
		return err
	case err == error(f):
		return original
	}
	return &opened{err, original}
}

// Bad reports whether err has an error of a user whose methods cannot be called safely.
func Bad(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.bad
}

// opened is an error with the error of the user that it wraps.
type opened struct {
	error
	original error
}

func (o *opened) Unwrap() []error { return []error{o.error, o.original} }

// Text returns the text of an error of a user, or which method panicked.
func Text(err error) string {
	if err == nil {
		return "<nil>"
	}
	text, _ := textOf(err)
	return text
}

// textOf returns the text of an error, and whether its method returned.
func textOf(err error) (text string, read bool) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("%T: its method Error panicked: %s", err, PanicText(r))
		}
	}()
	return err.Error(), true
}

// PanicText returns the value of a panic as a text of limited length. Package fmt recovers panics of the value's own
// methods.
func PanicText(value any) string {
	return excerpt.UpTo(strings.TrimPrefix(fmt.Sprint(value), "runtime error: "), excerpt.MaxStorable/4)
}

// same reports whether an error is target. The comparison of two errors of a type with interfaces may panic.
func same(err, target error) (is bool) {
	defer func() { _ = recover() }()
	return err == target
}

// isNil reports whether err is a nil pointer, or another nil value, of a type.
func isNil(err error) bool {
	switch v := reflect.ValueOf(err); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// harmless reports whether the methods of a type are no code of the user.
func harmless(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	switch path {
	case "context", "errors", "fmt", "io", "net", "os", "syscall", "internal/poll", "crypto/tls":
		return true
	}
	return strings.HasPrefix(path, "github.com/jackc/pgx/v5/")
}
