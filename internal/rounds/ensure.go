package rounds

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/tenancy"
)

// Ensure is one round of making rows. Its methods may be called in another goroutine than those of Rows. Some of the
// rows may have been made even if the round failed.
type Ensure struct {
	// Names are the tenants to list, nil for all. An empty list means that the round is over.
	Names []string
	// Renames are carried out first. No other node seems to register their earlier names.
	Renames []engine.Rename

	registered  registered
	ensured     map[string]int32              // as in Rows when the round began
	unbegun     map[string]Unbegun            // the same
	incarnation engine.Incarnation            // the same
	atOnce      int                           // how many rows the next transaction makes
	changed     map[string]bool               // tenants that may lack rows although they had them
	fresh       []engine.Tenant               // tenants that need rows
	made        []engine.Tenant               // tenants whose rows were made
	removed     []string                      // tenants that do not exist any more, or are not active
	left        engine.LeftOut                // what Made got
	failed      map[string]engine.SwapFailure // by name, the tenants whose hooks failed
}

// Over reports whether there is nothing to do.
func (e *Ensure) Over() bool { return e.Names != nil && len(e.Names) == 0 }

// Listed records the tenants of Names. A tenant that was created again under its name needs new rows. Tenants that have
// gone are noted.
func (e *Ensure) Listed(tenants []engine.Tenant, now time.Time) {
	runs := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		if t.State != tenancy.Active && t.State != tenancy.Paused {
			continue
		}
		runs[t.Name] = true
		if (e.changed[t.Name] || e.ensured[t.Name] != t.Row) && !now.Before(e.unbegun[t.Name].again) {
			e.fresh = append(e.fresh, t)
		}
	}
	before := slices.Values(e.Names)
	if e.Names == nil {
		before = maps.Keys(e.ensured)
	}
	for name := range before {
		if !runs[name] {
			e.removed = append(e.removed, name)
		}
	}
}

// Part is what one transaction makes. It has no Projections if the node runs none for its tenants.
type Part struct {
	Projections []engine.NewProjection
	rows        int
	tenants     []engine.Tenant
}

// More reports whether tenants need rows.
func (e *Ensure) More() bool { return len(e.fresh) > 0 }

// Next returns the next part: as many tenants as fit the limit of rows, but at least one. Made follows.
func (e *Ensure) Next() (p Part) {
	for i, tenant := range e.fresh {
		projections, rows := e.registered.of(tenant.Name)
		if i > 0 && p.rows+rows > e.atOnce {
			break
		}
		p.Projections, p.rows, p.tenants = append(p.Projections, projections...), p.rows+rows, e.fresh[:i+1]
	}
	return p
}

// Made records the result of a part. It returns err, unless it only says which hooks failed. If a transaction fails,
// the next round begins with half as many rows.
func (e *Ensure) Made(p Part, left engine.LeftOut, err error) error {
	e.left.Retired = append(e.left.Retired, left.Retired...)
	e.left.Waiting = append(e.left.Waiting, left.Waiting...)
	var hooks *engine.SwapError
	switch {
	case errors.As(err, &hooks):
		if e.failed == nil {
			e.failed = make(map[string]engine.SwapFailure)
		}
		maps.Copy(e.failed, hooks.Tenants)
	case err != nil:
		e.atOnce = max(1, p.rows/2)
		return err
	}
	if p.rows > 0 {
		e.atOnce = min(rowsMost, 2*e.atOnce)
	}
	for _, t := range p.tenants {
		if e.failed[t.Name].Err == nil {
			e.made = append(e.made, t)
		}
	}
	e.fresh = e.fresh[len(p.tenants):]
	return nil
}

// MadeRows reports whether rows were made.
func (e *Ensure) MadeRows() bool { return len(e.made) > 0 }

// RenamesAtOnce returns Renames in parts, each for one transaction.
func (e *Ensure) RenamesAtOnce() [][]engine.Rename {
	return slices.Collect(slices.Chunk(e.Renames, rowsMost))
}
