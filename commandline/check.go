package commandline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// checkFlags are the flags of check.
type checkFlags struct {
	maxLag             time.Duration
	allowParked, quiet bool
}

func (c storeCommands) checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report whether the projections of all tenants work now",
		Long: `Reports what does not work now, in all tenants:

- projections that have failed, wait for a missing object, have had no living owner for longer than LeaseDuration, or that
  no node registers
- projections that have stopped because the events of their tenant were restored or deleted
- running projections with an event that has waited for longer than --max-lag
- projections that have not moved for 30 s although events wait, since their reads fail or hang
- parked events
- tenants whose events cannot be read, or are held back by an open append for more than 30 s

Exits with 3 if it finds something, so it fits cron and monitoring systems. To examine the set-up of the store, use doctor.

Paused projections are no findings. Neither is the lag of a new version of a projection until it is swapped in.`,
		Example: `  millrace check
  millrace check --max-lag 10m --quiet --timeout 30s
  millrace check --json | jq -r '.findings[].problem'`,
		Args: cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, s store, _ []string) error {
			if f.maxLag <= 0 {
				return misuse("--max-lag must be positive: %v", f.maxLag)
			}
			if err := c.noTenants(); err != nil {
				return err
			}
			found, err := f.examine(ctx, s)
			if err != nil {
				return err
			}
			return c.printChecked(found, f.quiet)
		}),
	}
	cmd.Flags().DurationVar(&f.maxLag, "max-lag", time.Minute,
		"longest time that an event may wait for a running projection")
	cmd.Flags().BoolVar(&f.allowParked, "allow-parked", false, "parked events are no findings")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if nothing is found")
	return cmd
}

// mostConcerned is how many projections are shown.
const mostConcerned = 20

type checkJSON struct {
	Findings []projection.Finding `json:"findings"`
	// Projections are those that the findings are about, at most mostConcerned, and More is how many others there are.
	Projections []admin.ProjectionStatus `json:"projections"`
	More        int                      `json:"more,omitempty"`
}

// examine returns what is found in a store.
func (f checkFlags) examine(ctx context.Context, s store) (all checkJSON, err error) {
	list, err := projectionsOf(ctx, s, allProjections)
	if err != nil {
		return all, err
	}
	var summary admin.Summary
	err = withAdmin(s, func(a *admin.Admin) (err error) {
		summary, err = a.Summary(ctx)
		return err
	})
	if err != nil {
		return all, err
	}
	if f.allowParked {
		summary.Parked = 0
	}
	summary.States = make(map[admin.State]int) // of the projections of the list, which is newer than what nodes report
	var concerned []admin.ProjectionStatus
	var lagging int
	var longest admin.ProjectionStatus
	var restored []string
	inUse := versionsInUse(list)
	for _, p := range list {
		summary.States[p.State]++
		lags := runs(p) && p.Lag > f.maxLag && inUse(p.ID)
		if lags {
			lagging++
		}
		if lags && p.Lag > longest.Lag {
			longest = p
		}
		if lags || f.bad(p, summary) {
			concerned = append(concerned, p)
		}
		if isRestored(p) {
			restored = append(restored, p.ID.Tenant)
		}
	}
	summary.States[admin.StateFailed] -= len(restored) // they have a finding of their own
	all.Findings = append([]projection.Finding{}, summary.Findings()...)
	if n := len(restored); n > 0 {
		all.Findings = append(all.Findings, projection.Finding{Check: "restores",
			Advice: "do not resume them: millrace tenants recover " + restored[0] + " shows how each can continue",
			Problem: fmt.Sprintf("projections that have stopped because the events of their tenants were restored or deleted: %d, of %s", n,
				strings.Join(slices.Compact(restored), ", "))})
	}
	if lagging > 0 {
		all.Findings = append(all.Findings, projection.Finding{Check: "lag",
			Advice: "see by their rates whether they catch up: projections watch",
			Problem: fmt.Sprintf("projections with events that have waited for longer than %v: %d, the longest for %v in %s", f.maxLag, lagging,
				longest.Lag.Round(time.Second), longest.ID)})
	}
	worst := report.Worst(concerned, mostConcerned)
	all.Projections, all.More = append([]admin.ProjectionStatus{}, worst...), len(concerned)-len(worst)
	return all, nil
}

// isRestored reports whether a projection has stopped since the events of its tenant were restored or deleted.
func isRestored(p admin.ProjectionStatus) bool {
	return p.State == admin.StateFailed && strings.HasSuffix(p.Reason, tenancy.ErrRestored.Error())
}

// runs reports whether a projection runs, so that its lag counts. A projection that does not run is paused, or has a
// finding of its own.
func runs(p admin.ProjectionStatus) bool {
	switch p.State {
	case admin.StateFailed, admin.StateNotOwned, admin.StateUnregistered, admin.StatePaused:
		return false
	}
	return true
}

// versionsInUse returns a function that reports whether readers use a projection: there is no earlier version of it.
func versionsInUse(list []admin.ProjectionStatus) func(id millrace.ProjectionID) bool {
	first := make(map[millrace.ProjectionID]int)
	for _, p := range list {
		name, version := p.ID.Version()
		if earlier, found := first[full(p.ID.Tenant, name)]; !found || version < earlier {
			first[full(p.ID.Tenant, name)] = version
		}
	}
	return func(id millrace.ProjectionID) bool {
		name, version := id.Version()
		return version == first[full(id.Tenant, name)]
	}
}

// bad reports whether a finding of a summary is about a projection.
func (f checkFlags) bad(p admin.ProjectionStatus, summary admin.Summary) bool {
	switch p.State {
	case admin.StateFailed, admin.StateUnregistered, admin.StateMissingObject:
		return true
	case admin.StateNotOwned:
		return summary.NotOwned > 0
	}
	stands := slices.ContainsFunc(summary.Standing, func(s admin.Standstill) bool { return s.ID == p.ID })
	return stands || p.Parked > 0 && !f.allowParked
}

func (c storeCommands) printChecked(found checkJSON, quiet bool) error {
	if quiet && len(found.Findings) == 0 {
		return nil
	}
	return c.printFound(found, found.Findings, func(view *console.View) error {
		if len(found.Projections) == 0 {
			return nil
		}
		if err := view.Print(""); err != nil {
			return err
		}
		if err := view.Table(report.Projections(found.Projections)); err != nil {
			return err
		}
		lines := report.Problems(found.Projections)
		if found.More > 0 {
			lines = append([]string{fmt.Sprintf("and %d more that are no worse", found.More)}, lines...)
		}
		return view.Print(lines...)
	})
}

// printFound prints findings and what to do about them, and then what more prints. all is for --json. It returns
// errFound if there are findings.
func (c storeCommands) printFound(all any, found []projection.Finding, more func(view *console.View) error) error {
	err := c.print(all, func() error {
		if len(found) == 0 {
			return c.say("nothing is wrong")
		}
		view := console.NewView(c.out)
		for _, f := range found {
			if err := view.Print(f.Check+": "+f.Problem, "  what to do: "+f.Advice); err != nil {
				return err
			}
		}
		return more(view)
	})
	if err == nil && len(found) > 0 {
		err = errFound
	}
	return err
}
