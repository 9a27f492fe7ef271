package engine

import (
	"fmt"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// RetiredReason says why a name is retired.
type RetiredReason string

// The reasons for which no projection of a name is created any more.
const (
	Forgotten RetiredReason = "forgotten"
	Renamed   RetiredReason = "renamed"
	Replaced  RetiredReason = "replaced"
	// Unused means that the tenant began with a later version.
	Unused RetiredReason = "unused"
)

// Retired is a name under which no projection of a tenant is created any more. It is the error of operations on the
// name, and wraps projection.ErrRetired.
type Retired struct {
	Tenant, Name string
	Reason       RetiredReason
	// Successor is the name that the projection has now. It is empty if the projection was forgotten.
	Successor string
}

func (r *Retired) Error() string {
	return fmt.Sprintf("%v: it was %s", projection.ErrRetired, r.What())
}

// ByVersion reports whether a later version has the place of the projection.
func (r *Retired) ByVersion() bool { return r.Reason == Replaced || r.Reason == Unused }

func (r *Retired) Unwrap() error { return projection.ErrRetired }

// What says what happened to the projection of that name.
func (r *Retired) What() string {
	switch r.Reason {
	case Renamed:
		return "renamed to " + excerpt.Quoted(r.Successor)
	case Replaced:
		return "replaced by " + excerpt.Quoted(r.Successor)
	case Unused:
		return "never used, since the tenant began with " + excerpt.Quoted(r.Successor)
	}
	return "forgotten"
}
