package commandline

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/tenancy"
)

// moveFlags are the flags of tenants move.
type moveFlags struct {
	to, toSchema       string
	keep, rebuild      []string
	rebuildAll, active bool
	sure               yes
}

func (c tenantCommands) moveCommand() *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move TENANT...",
		Short: "Move tenants to another store",
		Long: `Moves tenants to the store of --to: the URL of a database, or a file that exists. Each tenant moves in one transaction there, in
which all rows are compared. It is archived in the store that it leaves: drop it there when you no longer need it, and never unarchive
it: tenants unarchive refuses it. Both stores must be migrated. After an error or a crash, repeat the command.

Each projection needs --keep or --rebuild. A kept projection continues at its checkpoint: its read model must not be in the store
that the tenant leaves, since only a program can copy it (see admin.MoveTenant). A rebuilt projection begins at the first event.`,
		Example: `  millrace tenants move default --file shop.db --to postgres://db.example.com/shop --rebuild-all
  millrace tenants move acme --to postgres://other.example.com/shop --keep mails --rebuild totals,orders --yes`,
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			to, err := c.openTarget(ctx, f)
			if err != nil {
				return err
			}
			defer to.Close()
			return c.move(ctx, s, to, names, f)
		}),
	}
	cmd.Flags().StringVar(&f.to, "to", "", "the URL of a database, or a file, to which the tenants move")
	cmd.Flags().StringVar(&f.toSchema, "to-schema", "", "the control schema there, like --schema")
	cmd.Flags().StringSliceVar(&f.keep, "keep", nil, "projections that continue at their checkpoints")
	cmd.Flags().StringSliceVar(&f.rebuild, "rebuild", nil, "projections that begin at the first event")
	cmd.Flags().BoolVar(&f.rebuildAll, "rebuild-all", false,
		"all projections that --keep does not name begin at the first event")
	cmd.Flags().BoolVar(&f.active, "active", false, "also tenants that are archived become active in the other store")
	f.sure.add(cmd)
	return cmd
}

// openTarget opens the store of --to.
func (c tenantCommands) openTarget(ctx context.Context, f moveFlags) (store, error) {
	if f.to == "" {
		return nil, misuse("--to must name the other store")
	}
	target := *c.cli
	target.file, target.databaseURL, target.schema, target.sessionURL = "", f.to, f.toSchema, ""
	if _, err := os.Stat(f.to); err == nil || !strings.ContainsAny(f.to, ":=") {
		target.file, target.databaseURL = f.to, ""
	}
	return target.open(ctx)
}

// actions returns what happens to each projection of a tenant.
func (f *moveFlags) actions(ctx context.Context, from store, tenant string) (map[string]admin.MoveAction, error) {
	list, err := projectionsOf(ctx, from, admin.StatusFilter{Tenants: []string{tenant}})
	if err != nil {
		return nil, err
	}
	actions := make(map[string]admin.MoveAction)
	for _, id := range whole(list) {
		keeps, rebuilds := slices.Contains(f.keep, id.Name), slices.Contains(f.rebuild, id.Name)
		switch {
		case keeps && rebuilds:
			return nil, misuse("--keep and --rebuild both name the projection %q", id.Name)
		case keeps:
			actions[id.Name] = admin.MoveKeep
		case rebuilds || f.rebuildAll:
			actions[id.Name] = admin.MoveRebuild
		default:
			return nil, misuse("projection %q of tenant %q needs --keep or --rebuild", id.Name, tenant)
		}
	}
	for _, name := range slices.Concat(f.keep, f.rebuild) {
		if actions[name] == 0 {
			return nil, misuse("--keep or --rebuild: tenant %q has no projection %q", tenant, name)
		}
	}
	return actions, nil
}

type movedJSON struct {
	Tenants []movedTenantJSON `json:"tenants"`
}

type movedTenantJSON struct {
	Tenant string `json:"tenant"`
	// Earlier is set if an earlier command moved the tenant. The other members are missing then.
	Earlier bool          `json:"earlier,omitempty"`
	State   tenancy.State `json:"state,omitempty"`
	Head    int64         `json:"head,omitempty"`
	// Rows is the number of rows by table, all of which were compared.
	Rows map[string]int64 `json:"rows,omitempty"`
}

func (c tenantCommands) move(ctx context.Context, from, to store, names []string, f moveFlags) error {
	all := movedJSON{Tenants: []movedTenantJSON{}}
	var failed error
	for _, name := range names {
		moved, err := c.moveOne(ctx, from, to, name, f)
		if err != nil {
			failed = err
			break
		}
		all.Tenants = append(all.Tenants, moved)
	}
	if failed != nil && len(all.Tenants) == 0 {
		return failed
	}
	if err := c.printMoved(all); err != nil {
		return err
	}
	return failed
}

func (c tenantCommands) moveOne(ctx context.Context, from, to store, name string, f moveFlags) (movedTenantJSON,
	error) {
	actions, err := f.actions(ctx, from, name)
	if err != nil {
		return movedTenantJSON{}, err
	}
	if err := c.confirm(f.sure, "move tenant %q to %s, and archive it here", name, console.OneLine(f.to)); err != nil {
		return movedTenantJSON{}, err
	}
	progress := c.progress()
	report, err := admin.MoveTenant(ctx, from, to, name,
		admin.MoveOptions{Projections: actions, Active: f.active, Progress: func(p admin.MoveProgress) {
			progress.show("moving tenant %s: %s of %s", name, plural(p.Rows, "row"),
				strings.ReplaceAll(p.Table, "_", " "))
		}})
	progress.end()
	return movedTenantJSON{Tenant: name, Earlier: report.Earlier, State: report.State, Head: report.Head,
		Rows: report.Rows}, err
}

func (c tenantCommands) printMoved(all movedJSON) error {
	table := console.Table{
		Columns: []console.Column{
			{Title: "tenant", Least: 12}, {Title: "state"}, {Title: "last position", Right: true},
			{Title: "rows compared", Right: true},
		},
	}
	for _, t := range all.Tenants {
		if t.Earlier {
			table.Add(t.Tenant, "moved earlier", "", "")
			continue
		}
		var rows int64
		for n := range maps.Values(t.Rows) {
			rows += n
		}
		table.Add(t.Tenant, string(t.State), number(t.Head), number(rows))
	}
	return c.print(all, func() error { return c.table(table, "no tenants") })
}
