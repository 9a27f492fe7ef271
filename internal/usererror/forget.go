package usererror

import (
	"slices"
	"sync"
)

// Forget lets go of the errors of users in err, which may refer to memory of any size. Their texts stay, and errors.Is
// still finds the errors of RecognizeErrors.
func Forget(err error) {
	for _, f := range failuresIn(err) {
		if before := f.own.Load(); before.original != nil {
			f.own.Store(&own{found: recognized(before.found)})
		}
	}
}

// failuresIn returns the failures in the tree of err, whose other errors are the library's.
func failuresIn(err error) (found []*Failure) {
	switch x := err.(type) {
	case *Failure:
		found = append(found, x)
	case interface{ Unwrap() error }:
		found = failuresIn(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range x.Unwrap() {
			found = append(found, failuresIn(err)...)
		}
	}
	return found
}

// recognized returns those of errs that are errors of RecognizeErrors.
func recognized(errs []error) (some []error) {
	for _, sentinel := range sentinels {
		if slices.ContainsFunc(errs, func(err error) bool { return same(err, sentinel) }) {
			some = append(some, sentinel)
		}
	}
	return some
}

// recentErrors is how many errors a Recent remembers: more than a person looks at, and little memory even if each has a
// large body.
const recentErrors = 16

// Recent remembers the errors that were added last, and forgets the others. The zero value remembers none.
type Recent struct {
	mu   sync.Mutex
	errs [recentErrors]*Failure
	next int
}

// Add adds the errors of users in err, unless they were added before.
func (r *Recent) Add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range failuresIn(err) {
		if f.own.Load().original == nil || slices.Contains(r.errs[:], f) {
			continue
		}
		if oldest := r.errs[r.next]; oldest != nil {
			Forget(oldest)
		}
		r.errs[r.next], r.next = f, (r.next+1)%recentErrors
	}
}
