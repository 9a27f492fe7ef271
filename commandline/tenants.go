package commandline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/tenancy"
)

func (c tenantCommands) tenantsCommand() *cobra.Command {
	list := &cobra.Command{
		Use:     "list",
		Short:   "List the tenants and their states",
		Example: "  millrace tenants list",
		Args:    cobra.NoArgs,
		RunE:    c.with(func(ctx context.Context, s store, _ []string) error { return c.listTenants(ctx, s) }),
	}
	create := &cobra.Command{
		Use:   "create TENANT...",
		Short: "Create tenants",
		Long: `Creates tenants that do not exist. In PostgreSQL the tables of your read models are missing in them, since only your program
knows the steps of Options.TenantSetup: it runs them when it calls Migrate, or CreateTenant for these tenants. Until then, projections
wait for the tables. A file has no such steps.`,
		Example: "  millrace tenants create acme globex",
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			for _, name := range names {
				if err := valid.Tenant(name); err != nil {
					return misuseError{err}
				}
			}
			c.warnOfSetup()
			if err := s.CreateTenants(ctx, names...); err != nil {
				return err
			}
			return c.changed("created", names)
		}),
	}
	archive := c.eachTenant("archive", "archived", "Make tenants read-only and stop their projections",
		`Stops appends to tenants and their projections, and returns when no projection of them runs any more. Their events and read
models can still be read.`, func(ctx context.Context, s store, name string) error { return s.ArchiveTenant(ctx, name) })
	pause := c.eachTenant("pause", "paused", "Stop all projections of tenants",
		"Stops all projections of tenants until they are resumed, and returns when none of them runs any more. Appends still work.",
		func(ctx context.Context, s store, name string) error {
			return withAdmin(s, func(a *admin.Admin) error { return a.PauseTenant(ctx, name) })
		})
	resume := c.eachTenant("resume", "resumed", "Undo a pause of tenants",
		"Starts the projections of paused tenants again, except those that are paused themselves.",
		func(ctx context.Context, s store, name string) error {
			return withAdmin(s, func(a *admin.Admin) error { return a.ResumeTenant(ctx, name) })
		})
	all := []*cobra.Command{create, archive, c.unarchiveCommand(), pause, resume, c.moveCommand(), c.dropCommand()}
	for _, cmd := range all {
		cmd.Args, cmd.ValidArgsFunction = cobra.MinimumNArgs(1), c.completeTenants
	}
	create.ValidArgsFunction = nil // the names are new
	return group("tenants", "List, create, archive, recover, move and drop tenants",
		append([]*cobra.Command{list, c.recoverCommand()}, all...)...)
}

func (c tenantCommands) unarchiveCommand() *cobra.Command {
	var notMovedTo string
	cmd := c.eachTenant("unarchive", "unarchived", "Undo an archive",
		`Allows appends to archived tenants again, and starts their projections. It refuses a tenant that tenants move has moved to another
store, or may have: repeat that command then. If you know that the other store does not have the tenant, and that no process moves it
any more, give its name as the error shows it by --not-moved-to.`,
		func(ctx context.Context, s store, name string) error {
			if notMovedTo != "" {
				if err := admin.AbandonMove(ctx, s, name, notMovedTo); err != nil {
					return err
				}
			}
			return s.UnarchiveTenant(ctx, name)
		})
	cmd.Flags().StringVar(&notMovedTo, "not-moved-to", "",
		"the name of a store that does not have the tenant, although a move to it began")
	return cmd
}

// warnOfSetup says what new tenants may lack, before they are created: a node may use them at once.
func (c *cli) warnOfSetup() {
	_, _ = fmt.Fprintln(c.errs,
		"this command cannot know the set-up steps of your program: what they create is missing in new tenants until it calls Migrate")
}

func withAdmin(s store, do func(a *admin.Admin) error) error {
	a, err := admin.New(s)
	if err != nil {
		return err
	}
	return do(a)
}

// eachTenant returns a command that does one thing to each of the tenants that its arguments name.
func (c *cli) eachTenant(verb, past, short, long string,
	do func(ctx context.Context, s store, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " TENANT...", Short: short, Long: long, Example: "  millrace tenants " + verb + " acme",
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			for i, name := range names {
				if err := do(ctx, s, name); err != nil {
					return c.reportPartial(past, names[:i], err)
				}
			}
			return c.changed(past, names)
		}),
	}
}

func (c tenantCommands) dropCommand() *cobra.Command {
	var sure yes
	var opts tenancy.DropOptions
	cmd := &cobra.Command{
		Use:   "drop TENANT...",
		Short: "Remove tenants permanently",
		Long: `Removes tenants permanently: their events, projections, checkpoints and dead letters, and in PostgreSQL everything else in
their schemas. In a file, your own tables stay. It waits until no projection of the tenant runs any more. An interrupted drop
must be repeated.`,
		Example: "  millrace tenants drop acme\n  millrace tenants drop acme --yes --dependents",
		RunE: c.with(func(ctx context.Context, s store, names []string) error {
			for i, name := range names {
				if err := c.dropTenant(ctx, s, name, sure, opts); err != nil {
					return c.reportPartial("dropped", names[:i], err)
				}
			}
			return c.changed("dropped", names)
		}),
	}
	sure.add(cmd)
	cmd.Flags().BoolVar(&opts.Dependents, "dependents", false,
		"also drop views, functions and foreign keys outside of the tenant's schema that depend on it; a file has none")
	return cmd
}

func (c tenantCommands) dropTenant(ctx context.Context, s store, name string, sure yes,
	opts tenancy.DropOptions) error {
	what, err := c.describeTenant(ctx, s, name)
	if err != nil {
		return err
	}
	if err := c.confirm(sure, "remove tenant %q permanently, with %s", name, what); err != nil {
		return err
	}
	opts.Confirm = name
	return s.DropTenant(ctx, name, opts)
}

// describeTenant says what a tenant has.
func (c tenantCommands) describeTenant(ctx context.Context, s store, name string) (string, error) {
	found, err := tenantsOf(ctx, s, []string{name})
	if err != nil {
		return "", err
	}
	if len(found) == 0 || found[0].State == tenancy.Dropping {
		return "what is left of it", nil
	}
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: []string{name}})
	if err != nil {
		return "", err
	}
	return "its events up to position " + number(found[0].Head) + " and " + plural(len(list), "projection"), nil
}

// tenantsOf returns those of the tenants that exist, or all if names is nil.
func tenantsOf(ctx context.Context, s store, names []string) (found []admin.TenantStatus, err error) {
	all, err := s.Tenants(ctx) // its error names a store that is not migrated
	if err != nil {
		return nil, err
	}
	if names == nil {
		names = all
	}
	a, err := admin.New(s)
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(names, 500) {
		status, err := a.Status(ctx, admin.StatusFilter{Tenants: some, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, t := range status.Tenants {
			if t.State != "" {
				found = append(found, t)
			}
		}
	}
	return found, nil
}

type tenantsJSON struct {
	Tenants []tenantJSON `json:"tenants"`
}

type tenantJSON struct {
	Tenant string        `json:"tenant"`
	State  tenancy.State `json:"state,omitempty"`
	// Head is the highest visible position.
	Head int64 `json:"head"`
}

func (c tenantCommands) listTenants(ctx context.Context, s store) error {
	if err := c.noTenants(); err != nil {
		return err
	}
	tenants, err := tenantsOf(ctx, s, nil)
	if err != nil {
		return err
	}
	all := tenantsJSON{Tenants: []tenantJSON{}}
	table := console.Table{
		Columns: []console.Column{
			{Title: "tenant", Least: 12}, {Title: "state"}, {Title: "last position", Right: true},
		},
	}
	for _, t := range tenants {
		all.Tenants = append(all.Tenants, tenantJSON{t.Tenant, t.State, t.Head})
		table.Add(t.Tenant, string(t.State), number(t.Head))
	}
	return c.print(all, func() error { return c.table(table, "no tenants") })
}

type changedJSON struct {
	// Done is what was done, in one word such as "paused", and To the names.
	Done string   `json:"done"`
	To   []string `json:"to"`
}

// changed says what was done to which names. The first word of done says it to programs.
func (c *cli) changed(done string, names []string) error {
	word, _, _ := strings.Cut(done, " ")
	return c.print(changedJSON{word, append([]string{}, names...)}, func() error {
		for _, name := range names {
			if err := c.say("%s %s", done, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// reportPartial prints what was done before an error, and returns the error.
func (c *cli) reportPartial(done string, names []string, err error) error {
	if len(names) > 0 {
		_ = c.changed(done, names)
	}
	return err
}
