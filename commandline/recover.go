package commandline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/projection"
)

// recoverFlags are the flags of recover. others is what is done with projections that no other flag names.
type recoverFlags struct {
	opts   admin.RecoverOptions
	others string
	sure   yes
}

func (c tenantCommands) recoverCommand() *cobra.Command {
	var f recoverFlags
	cmd := &cobra.Command{
		Use:   "recover TENANT",
		Short: "Let the projections of a tenant continue after its events were restored",
		Long: `After the events of a tenant were restored from a backup, its projections have handled events that are gone. Without flags, this
command shows the events, the checkpoints, and the tables that were restored too. It changes nothing.

Then say how each projection continues, all in one command:

- --continue: it handles no event again, and all events that are appended after the restored ones. Projections that deliver, for
  instance mails, do so unless a flag names them.
- --reset PROJECTION=POSITION: its read model was restored too, and had handled the events up to this position.
- --rebuild: its read model is emptied, and all events are applied again.

Dead letters of events that are gone are deleted. Projections must not run: they have stopped, or the tenant is paused.`,
		Example: `  millrace tenants recover acme
  millrace tenants recover acme --continue totals,mails --rebuild search
  millrace tenants recover acme --reset totals=120000 --others rebuild --end 120500 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, s store, args []string) error {
			return c.recoverTenant(ctx, s, args[0], f)
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completeTenants(cmd, args, typed)
		},
	}
	cmd.Flags().StringSliceVar(&f.opts.Continue, "continue", nil, "projections that continue")
	cmd.Flags().StringToInt64Var(&f.opts.Reset, "reset", nil,
		"projections whose read models were restored, with their positions: totals=120000")
	cmd.Flags().StringSliceVar(&f.opts.Rebuild, "rebuild", nil, "projections that are rebuilt")
	cmd.Flags().StringVar(&f.others, "others", "",
		"what the projections do that no flag names and that do not deliver: continue or rebuild")
	cmd.Flags().Int64Var(&f.opts.End, "end", 0,
		"position of the last restored event; -1 if there is none (default: where the events ended when the restore was noticed)")
	redeliverFlag(cmd, &f.opts.Redeliver)
	completeFlag(cmd, "others", oneOf("continue", "rebuild"))
	f.sure.add(cmd)
	return cmd
}

func (c tenantCommands) recoverTenant(ctx context.Context, s store, tenant string, f recoverFlags) error {
	if f.others != "" && f.others != "continue" && f.others != "rebuild" {
		return misuse("--others must be continue or rebuild: %q", f.others)
	}
	if err := c.noTenants(); err != nil {
		return err
	}
	return withAdmin(s, func(a *admin.Admin) error {
		restored, err := a.RestoredTenant(ctx, tenant, f.opts.End)
		if err != nil {
			return err
		}
		if len(f.opts.Continue)+len(f.opts.Reset)+len(f.opts.Rebuild) == 0 && f.others == "" {
			return c.showRestored(restored)
		}
		if err := f.nameOthers(restored); err != nil {
			return err
		}
		// Events that are appended before the answer do not count as restored.
		f.opts.End = cmp.Or(restored.End, projection.None)
		if err := c.confirm(f.sure, "recover %s, whose restored events end at %d: %s", tenant, restored.End,
			f.effects(restored)); err != nil {
			return err
		}
		result, err := a.RecoverTenant(ctx, tenant, f.opts)
		if len(result.Projections) > 0 {
			if err := c.printRecovered(tenant, result); err != nil {
				return err
			}
		}
		return pending(err)
	})
}

// nameOthers adds the projections that --others is about. Without it, no projection may be left out but those that
// deliver.
func (f *recoverFlags) nameOthers(restored admin.RestoredTenant) error {
	var left []string
	for _, p := range restored.Projections {
		_, reset := f.opts.Reset[p.ID.Name]
		switch named := reset || slices.Contains(f.opts.Continue, p.ID.Name) ||
			slices.Contains(f.opts.Rebuild, p.ID.Name); {
		case named || p.Delivers:
		case f.others == "continue":
			f.opts.Continue = append(f.opts.Continue, p.ID.Name)
		case f.others == "rebuild":
			f.opts.Rebuild = append(f.opts.Rebuild, p.ID.Name)
		default:
			left = append(left, p.ID.Name)
		}
	}
	if len(left) > 0 {
		return misuse("say how these projections continue too, or use --others: %s", strings.Join(left, ", "))
	}
	return nil
}

// effects says what happens to each projection.
func (f *recoverFlags) effects(restored admin.RestoredTenant) string {
	var effects []string
	for _, p := range restored.Projections {
		name := p.ID.Name
		effect := fmt.Sprintf("%s continues after %d", name, min(p.Checkpoint, restored.End))
		if position, reset := f.opts.Reset[name]; reset {
			effect = fmt.Sprintf("%s is set from %d to %d", name, p.Checkpoint, position)
		}
		if slices.Contains(f.opts.Rebuild, name) {
			effect = name + " is rebuilt"
		}
		effects = append(effects, effect)
	}
	return strings.Join(effects, "; ")
}

type restoredJSON struct {
	Tenant string `json:"tenant"`
	// Head is the position of the last event, End that of the last restored one, and EndTime when that was appended.
	Head    int64     `json:"head"`
	End     int64     `json:"end"`
	EndTime time.Time `json:"endTime,omitzero"`
	// Tables are those that were restored with the events.
	Tables      []string                 `json:"tables"`
	Projections []restoredProjectionJSON `json:"projections"`
}

type restoredProjectionJSON struct {
	Projection string `json:"projection"`
	Running    bool   `json:"running"`
	Reason     string `json:"reason,omitempty"`
	// Checkpoint is the lowest of its partitions, and Highest the highest position that was handled.
	Checkpoint int64 `json:"checkpoint"`
	Highest    int64 `json:"highest"`
	// Parked is how many parked events are gone.
	Parked   int64 `json:"parked"`
	Delivers bool  `json:"delivers"`
}

func (c tenantCommands) showRestored(r admin.RestoredTenant) error {
	all := restoredJSON{r.Tenant, r.Head, r.End, r.EndTime, append([]string{}, r.Tables...), []restoredProjectionJSON{}}
	table := console.Table{Columns: []console.Column{{Title: "projection", Least: 12}, {Title: "state"},
		{Title: "checkpoint", Right: true},
		{Title: "parked and gone", Right: true}, {Title: "delivers"}, {Title: "continues after", Right: true}}}
	for _, p := range r.Projections {
		all.Projections = append(all.Projections, restoredProjectionJSON{p.ID.Name,
			p.Running, p.Reason, p.Checkpoint, p.Highest, p.Parked, p.Delivers})
		state, delivers := "stopped", "no"
		if p.Running {
			state = "running"
		}
		if p.Delivers {
			delivers = "yes"
		}
		table.Add(p.ID.Name, state, number(p.Checkpoint), number(p.Parked), delivers, number(min(p.Checkpoint, r.End)))
	}
	return c.print(all, func() error {
		lines := []string{fmt.Sprintf("the restored events of %s end at %d", r.Tenant, r.End)}
		if !r.EndTime.IsZero() {
			lines[0] += ", appended at " + r.EndTime.Format(time.RFC3339)
		}
		if r.Head > r.End {
			lines = append(lines, fmt.Sprintf("events were appended since, up to %d", r.Head))
		}
		if len(r.Tables) > 0 {
			lines = append(lines, "tables in the schema of the tenant, which were restored too: "+
				strings.Join(r.Tables, ", "))
		}
		view := console.NewView(c.out)
		if err := view.Print(lines...); err != nil {
			return err
		}
		return c.table(table, "no projections")
	})
}

type recoveredJSON struct {
	Tenant  string                    `json:"tenant"`
	End     int64                     `json:"end"`
	Results []recoveredProjectionJSON `json:"results"`
}

type recoveredProjectionJSON struct {
	Projection string `json:"projection"`
	// Rebuild is set if the projection is rebuilt, and Unchanged if it runs, and was left as it is.
	Rebuild   bool `json:"rebuild"`
	Unchanged bool `json:"unchanged"`
	// From is the checkpoint before, Position the one now.
	From     int64 `json:"from"`
	Position int64 `json:"position"`
	// Removed is how many parked events are gone, Resolved how many dead letters were resolved.
	Removed  int64 `json:"removed"`
	Resolved int64 `json:"resolved"`
}

func (c tenantCommands) printRecovered(tenant string, r admin.RecoverResult) error {
	all := recoveredJSON{tenant, r.End, []recoveredProjectionJSON{}}
	var lines []string
	for _, p := range r.Projections {
		all.Results = append(all.Results, recoveredProjectionJSON{p.ID.Name,
			p.Rebuild, p.Unchanged, p.From, p.Position, p.Removed, p.Resolved})
		line := fmt.Sprintf("%s continues after %d, from %d", report.Name(p.ID), p.Position, p.From)
		switch {
		case p.Unchanged:
			line = report.Name(p.ID) + " runs, and was left as it is"
		case p.Rebuild:
			line = "rebuilding " + report.Name(p.ID)
		}
		if p.Removed > 0 {
			line += fmt.Sprintf("; %s of events that are gone deleted", plural(p.Removed, "dead letter"))
		}
		if p.Resolved > 0 {
			line += fmt.Sprintf("; %s resolved", plural(p.Resolved, "dead letter"))
		}
		lines = append(lines, line)
	}
	return c.print(all, func() error { return console.NewView(c.out).Print(lines...) })
}
