package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/health"
	"github.com/millrace-go/millrace/projection"
)

// Findings returns what a person should look at:
//
//   - parked events
//   - projections that have failed, that wait for a missing object, or that no living node registers
//   - projections that have had no living owner for longer than millrace.Config.LeaseDuration
//   - projections that have not moved for 30 s although events wait, because their reads fail or hang, or because of
//     another fault that is counted against no event
//   - tenants whose settled marks have been held back for longer than 30 s, or whose events cannot be read
//
// Lags are no findings, since each deployment has limits of its own: see Lagging.
func (s Summary) Findings() (found []projection.Finding) {
	add := func(check, advice, problem string, args ...any) {
		found = append(found, projection.Finding{Check: check, Problem: fmt.Sprintf(problem, args...), Advice: advice})
	}
	if s.Parked > 0 {
		add("dead letters", "repair the cause, then replay or discard them",
			"parked events: %d, the oldest failed %v ago in %s", s.Parked,
			time.Since(s.OldestParked).Round(time.Second), s.OldestParkedIn)
	}
	for _, of := range []struct {
		n               int
		problem, advice string
	}{
		{s.NotOwned, "projections that should run and have no living owner", "start a node that registers them"},
		{
			s.Unregistered, "projections that no living node registers",
			"deploy their code, or pause, rename or forget them",
		},
		{
			s.States[StateFailed], "projections that have failed and wait until they are resumed",
			"repair the causes that their status names, then resume them; those of a restored tenant: millrace tenants recover",
		},
		{
			s.States[StateMissingObject], "projections that wait for a missing object",
			"create the objects that their status names, or grant the privileges",
		},
	} {
		if of.n > 0 {
			add("projections", of.advice, "%s: %d", of.problem, of.n)
		}
	}
	if len(s.Standing) > 0 {
		add("standstill", "see by its error what keeps the first from reading its events",
			"projections that do not move although events wait: %d, the first %s",
			max(s.StandingCount, len(s.Standing)), s.Standing[0])
	}
	for _, t := range s.Held {
		switch {
		case t.Held == nil:
			add("settled mark", "repair the cause", "%s",
				health.Held(engine.HeldTenant{Tenant: t.Tenant, Reason: t.Reason}))
		case time.Since(t.Held.Since) >= health.HeldLong:
			held := engine.Held{Below: t.Held.Below, Holders: t.Held.Holders}
			add("settled mark", "end these transactions if they hang", "%s",
				health.Held(engine.HeldTenant{Tenant: t.Tenant, Since: t.Held.Since, Held: &held}))
		}
	}
	return found
}

// Findings returns what a person should look at in the deployment by the rows of the control schema alone: dead
// letters, and projections that have failed, that no living node registers, or that have no living owner. It sends two
// statements, whatever the number of tenants and projections, so that probes may call it often. Summary.Findings also
// has what nodes report.
func (a *Admin) Findings(ctx context.Context) ([]projection.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	s, _, err := a.overview(ctx)
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return s.Findings(), nil
}

// String says which projection stands still, for how long, and why.
func (s Standstill) String() string {
	return health.Standstill(s.ID, s.Since, s.Reason)
}

// heldTenant returns the end of a tenant's events as a node reports it.
func heldTenant(h engine.HeldTenant) TenantStatus {
	t := TenantStatus{Tenant: h.Tenant, Head: h.Mark, Mark: h.Mark, Held: heldMark(h.Held), Reason: h.Reason}
	if h.Held != nil {
		t.Head = h.Held.Below
	}
	return t
}
