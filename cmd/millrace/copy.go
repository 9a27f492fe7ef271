package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/storecopy"
)

// copyFlags are the flags of copy.
type copyFlags struct {
	keep, rebuild []string
	rebuildAll    bool
	sure          yes
}

func (c *cli) copyCommand() *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy the store in a file to PostgreSQL",
		Long: `Copies all tenants of the file of --file to the database of --database-url or DATABASE_URL, compares all rows, and opens the
tenants there. No node may run on the file, and the target must be migrated. The file is closed for appends, and stays closed.
An interrupted copy continues when the command is repeated.

Each projection of the file needs --keep or --rebuild. A kept projection continues at its checkpoint: its read model must not be
in the file, since only a program can copy it (see package storecopy). A rebuilt projection begins at the first event.`,
		Example: `  millrace copy --file shop.db --database-url postgres://db.example.com/shop --rebuild-all
  millrace copy --file shop.db --keep mails --rebuild totals,orders --yes
  millrace copy cancel --file shop.db`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withBoth(cmd.Context(), func(ctx context.Context, from file, to database) error { return c.copy(ctx, from, to, f) })
		},
	}
	cmd.Flags().StringSliceVar(&f.keep, "keep", nil, "projections that continue at their checkpoints")
	cmd.Flags().StringSliceVar(&f.rebuild, "rebuild", nil, "projections that begin at the first event")
	cmd.Flags().BoolVar(&f.rebuildAll, "rebuild-all", false, "all projections that --keep does not name begin at the first event")
	f.sure.add(cmd)
	cmd.AddCommand(c.copyCancelCommand())
	return cmd
}

// withBoth opens both stores.
func (c *cli) withBoth(ctx context.Context, do func(ctx context.Context, from file, to database) error) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	if err := c.noTenants(); err != nil {
		return err
	}
	url := c.url()
	if c.file == "" || url == "" {
		return misuse("copy needs both stores: --file, and --database-url or DATABASE_URL")
	}
	source, target := *c, *c
	source.databaseURL, source.schema, source.sessionURL = "", "", ""
	target.file, target.databaseURL = "", url
	from, err := source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := target.open(ctx)
	if err != nil {
		return err
	}
	defer to.Close()
	return c.explained(ctx, do(ctx, from.(file), to.(database)))
}

// options returns what happens to each projection of the file.
func (f *copyFlags) options(ctx context.Context, from file) (map[string]storecopy.ReadModel, error) {
	list, err := projectionsOf(ctx, from, allProjections)
	if err != nil {
		return nil, err
	}
	models := make(map[string]storecopy.ReadModel)
	for _, id := range whole(list) {
		models[id.Name] = 0
	}
	for _, given := range []struct {
		flag  string
		names []string
		model storecopy.ReadModel
	}{{"--keep", f.keep, storecopy.Keep}, {"--rebuild", f.rebuild, storecopy.Rebuild}} {
		for _, name := range given.names {
			model, found := models[name]
			switch {
			case !found:
				return nil, misuse("%s: the file has no projection %q", given.flag, name)
			case model != 0 && model != given.model:
				return nil, misuse("--keep and --rebuild both name the projection %q", name)
			}
			models[name] = given.model
		}
	}
	for name, model := range models {
		if model == 0 && f.rebuildAll {
			models[name] = storecopy.Rebuild
		}
	}
	for _, id := range whole(list) {
		if models[id.Name] == 0 {
			return nil, misuse("projection %q needs --keep or --rebuild", id.Name)
		}
	}
	return models, nil
}

type copiedJSON struct {
	Tenants []copiedTenantJSON `json:"tenants"`
}

type copiedTenantJSON struct {
	Tenant string `json:"tenant"`
	Head   int64  `json:"head"`
	// Rows is the number of rows by table, all of which were compared.
	Rows map[string]int64 `json:"rows"`
}

func (c *cli) copy(ctx context.Context, from file, to database, f copyFlags) error {
	models, err := f.options(ctx, from)
	if err != nil {
		return err
	}
	tenants, err := from.Tenants(ctx)
	if err != nil {
		return err
	}
	if err := c.confirm(f.sure, "copy %s of %s to PostgreSQL, and close the file for appends", plural(len(tenants), "tenant"), c.file); err != nil {
		return err
	}
	progress := c.progress()
	report, err := storecopy.Run(ctx, from.Store, to.Store, storecopy.Options{Projections: models, Progress: func(p storecopy.Progress) {
		if p.Table == "" {
			progress.show("%s tenant %s", p.Phase, p.Tenant)
			return
		}
		progress.show("%s tenant %s: %s of %s", p.Phase, p.Tenant, plural(p.Rows, "row"), p.Table)
	}})
	progress.end()
	if err != nil {
		return fmt.Errorf("%w; repeat the command to continue, or run millrace copy cancel", err)
	}
	return c.printCopied(report)
}

func (c *cli) printCopied(report storecopy.Report) error {
	all := copiedJSON{Tenants: []copiedTenantJSON{}}
	table := console.Table{Columns: []console.Column{{Title: "tenant", Least: 12}, {Title: "last position", Right: true}, {Title: "rows compared", Right: true}}}
	for _, t := range report.Tenants {
		copied := copiedTenantJSON{Tenant: t.Tenant, Head: t.Head, Rows: make(map[string]int64)}
		var rows int64
		for _, of := range t.Tables {
			copied.Rows[of.Table] = of.Rows
			rows += of.Rows
		}
		all.Tenants = append(all.Tenants, copied)
		table.Add(t.Tenant, number(t.Head), number(rows))
	}
	return c.print(all, func() error { return c.table(table, "the file had nothing to copy") })
}

func (c *cli) copyCancelCommand() *cobra.Command {
	var sure yes
	cmd := &cobra.Command{
		Use:     "cancel",
		Short:   "Undo a copy that has opened no tenant yet",
		Long:    "Removes the copied rows from PostgreSQL, and opens the file for appends again.",
		Example: "  millrace copy cancel --file shop.db --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withBoth(cmd.Context(), func(ctx context.Context, from file, to database) error {
				if err := c.confirm(sure, "remove from PostgreSQL what was copied from %s", c.file); err != nil {
					return err
				}
				if err := storecopy.Cancel(ctx, from.Store, to.Store); err != nil {
					return err
				}
				return c.changed("cancelled", []string{c.file})
			})
		},
	}
	sure.add(cmd)
	return cmd
}
