package rounds

import (
	"maps"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// Report is what a node logs and publishes of a round of making rows.
type Report struct {
	// LeftOut are the reasons for which projections do not run, each in one report only.
	LeftOut []LeftOut
	// Failed are the tenants whose hooks failed in this round. Unbegun are all whose hooks have to succeed first. It is
	// set if Changed is true.
	Failed  map[string]engine.SwapFailure
	Unbegun map[string]Unbegun
	Changed bool
	// Removed are the tenants that do not exist any more, or are not active.
	Removed []string
	// Again reports that another search should follow: perhaps no node keeps a rename waiting.
	Again bool
	// More reports that tenants are left for the next round.
	More bool
}

// LeftOut says why a projection does not run for these tenants: it is retired for a reason or, if Earlier is not empty,
// it waits until no node registers that name.
type LeftOut struct {
	Projection       string
	Retired, Earlier string
	Tenants          []string
}

// Ended ends a round. err is why it was not completed.
func (r *Rows) Ended(e *Ensure, now time.Time, err error) (report Report) {
	report.More = err == nil && e.More()
	r.atOnce = e.atOnce
	report.Again = r.wait(e)
	report.LeftOut = r.reasons(e.left)
	report.Failed, report.Changed = e.failed, len(e.failed) > 0 || len(r.unbegun) > 0
	if report.Changed {
		r.putOff(e, now)
		report.Unbegun = r.unbegun
	}
	if err != nil || report.More || len(e.failed) > 0 {
		r.ListAll()
	}
	made := e.made
	if e.incarnation != r.incarnation && e.incarnation != 0 {
		made = nil // the rows may be lost
	}
	if len(e.removed) == 0 && len(made) == 0 {
		return report
	}
	r.ensured = maps.Clone(r.ensured)
	for _, name := range e.removed {
		delete(r.ensured, name)
	}
	for _, t := range made {
		r.ensured[t.Name] = t.Row
	}
	report.Removed = e.removed
	return report
}

// ended returns the tenants for which nothing waits any more: their rows were made, or they are gone.
func (e *Ensure) ended() map[string]bool {
	ended := make(map[string]bool)
	for _, t := range e.made {
		ended[t.Name] = true
	}
	for _, name := range e.removed {
		ended[name] = true
	}
	return ended
}

// wait remembers the renames that wait. It reports whether there are others than before.
func (r *Rows) wait(e *Ensure) (others bool) {
	before, ended := r.waiting, e.ended()
	r.waiting = maps.Clone(before)
	maps.DeleteFunc(r.waiting, func(rename engine.Rename, _ bool) bool { return ended[rename.Tenant] })
	for _, p := range e.left.Waiting {
		others = others || !before[p.Rename()]
		r.waiting[p.Rename()] = true
	}
	return others
}

// reasons returns why projections do not run, as far as that was not reported yet.
func (r *Rows) reasons(left engine.LeftOut) (fresh []LeftOut) {
	tenants := make(map[reason][]string)
	for _, p := range left.Retired {
		why := reason{projection: p.Name, retired: p.What()}
		tenants[why] = append(tenants[why], p.Tenant)
	}
	for _, p := range left.Waiting {
		why := reason{projection: p.Name, earlier: p.RenamedFrom}
		tenants[why] = append(tenants[why], p.Tenant)
	}
	for why, of := range tenants {
		if r.reported[why] {
			continue
		}
		r.reported[why] = true
		fresh = append(fresh, LeftOut{
			Projection: why.projection, Retired: why.retired, Earlier: why.earlier, Tenants: of,
		})
	}
	return fresh
}

// putOff puts off the next try with the tenants whose hooks failed.
func (r *Rows) putOff(e *Ensure, now time.Time) {
	unbegun, ended := make(map[string]Unbegun), e.ended()
	for tenant, u := range r.unbegun {
		if !ended[tenant] {
			unbegun[tenant] = u
		}
	}
	for tenant, failure := range e.failed {
		since := now
		if before, failed := unbegun[tenant]; failed {
			since = before.Since
		}
		unbegun[tenant] = Unbegun{SwapFailure: failure, Since: since, again: now.Add(swapAgain)}
	}
	r.unbegun = unbegun
}
