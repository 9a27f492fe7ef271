package usererror

import (
	"fmt"
	"reflect"
)

// most is how many errors Take finds in one error. An error that wraps itself has no end.
const most = 1000

var (
	// sentinels and types are what the library asks errors of users for. Only methods Is and As need to know: the
	// errors in a tree are found without them. They are set while packages are initialized.
	sentinels []error
	types     []reflect.Type
)

// RecognizeErrors makes Take ask the methods Is of errors for these errors.
func RecognizeErrors(errs ...error) (recognized int) {
	sentinels = append(sentinels, errs...)
	return len(sentinels)
}

// RecognizeType makes Take ask the methods As of errors for errors of the type T, a pointer.
func RecognizeType[T error]() (recognized int) {
	types = append(types, reflect.TypeFor[T]())
	return len(types)
}

// taking is one call of Take.
type taking struct {
	*Failure
	*own
	// problem is the first that a method, or the tree of errors, had.
	problem string
	// asked and method are the call that runs. wrapped reports that it is not of the outermost error.
	asked   error
	method  string
	wrapped bool
}

// alone calls fn in a goroutine of its own, since a method may end its goroutine.
func (t *taking) alone(fn func()) {
	done, returned := make(chan struct{}), false
	go func() {
		defer close(done)
		fn()
		returned = true
	}()
	<-done
	if !returned {
		t.note("its method %s ended the goroutine%s", t.method, t.within())
	}
}

// call calls a method of an error, which may panic.
func (t *taking) call(err error, method string, fn func()) {
	t.asked, t.method = err, method
	defer func() {
		if r := recover(); r != nil {
			t.note("its method %s panicked: %s%s", method, PanicText(r), t.within())
		}
	}()
	fn()
}

// within names the error that is asked, if it is not the outermost.
func (t *taking) within() string {
	if !t.wrapped {
		return ""
	}
	return fmt.Sprintf(", in the wrapped %T", t.asked)
}

func (t *taking) note(format string, args ...any) {
	t.bad = true
	if t.problem == "" {
		t.problem = fmt.Sprintf(format, args...)
	}
}

// walk finds the errors in the tree of err, the outermost first, in the order of errors.Is.
func (t *taking) walk(err error) {
	left := []error{err}
	for n := 0; len(left) > 0; n++ {
		if n == most {
			t.note("it wraps more than %d errors", most)
			return
		}
		err := left[0]
		t.wrapped = n > 0
		wrapped := t.visit(err)
		left = append(wrapped, left[1:]...)
	}
}

// visit finds an error, and returns the errors that it wraps.
func (t *taking) visit(err error) (wrapped []error) {
	if f, ok := err.(*Failure); ok {
		t.found, t.bad = append(t.found, f.own.Load().found...), t.bad || f.bad
		return nil
	}
	if isNil(err) {
		t.note("a nil %T", err)
		return nil
	}
	t.found = append(t.found, err)
	if x, ok := err.(interface{ Is(error) bool }); ok {
		for _, sentinel := range sentinels {
			t.call(err, "Is", func() {
				if x.Is(sentinel) {
					t.found = append(t.found, sentinel)
				}
			})
		}
	}
	if x, ok := err.(interface{ As(any) bool }); ok {
		for _, kind := range types {
			to := reflect.New(kind)
			t.call(err, "As", func() {
				if x.As(to.Interface()) && !to.Elem().IsNil() {
					t.found = append(t.found, to.Elem().Interface().(error))
				}
			})
		}
	}
	t.call(err, "Unwrap", func() {
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			wrapped = append(wrapped, x.Unwrap())
		case interface{ Unwrap() []error }:
			wrapped = append(wrapped, x.Unwrap()...)
		}
	})
	return withoutNil(wrapped)
}

// withoutNil returns the errors that are not nil. At most one more than Take finds are of use.
func withoutNil(errs []error) (some []error) {
	for _, err := range errs[:min(len(errs), most+1)] {
		if err != nil {
			some = append(some, err)
		}
	}
	return some
}
