package commandline

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/projection"
)

// completionLimit bounds how long a shell waits for names.
const completionLimit = 3 * time.Second

// lookUp returns names from the store. A shell shows no errors.
func (c *cli) lookUp(cmd *cobra.Command, read func(ctx context.Context,
	s store) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionLimit)
	defer cancel()
	s, err := c.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer s.Close()
	names, err := read(ctx, s)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) completeTenants(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, directive := c.lookUp(cmd, func(ctx context.Context, s store) ([]string, error) { return s.Tenants(ctx) })
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
}

// completeProjections completes the arguments of a command by what its usage names: PROJECTION, PROJECTION@VERSION and
// PROJECTION..., and ID for parked events of the first argument.
func (c *cli) completeProjections(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0 || strings.Contains(cmd.Use, "PROJECTION..."):
		versions := strings.Contains(cmd.Use, "PROJECTION@VERSION")
		return c.lookUp(cmd, func(ctx context.Context, s store) ([]string, error) {
			names, err := c.projectionNames(ctx, s)
			return slices.DeleteFunc(names, func(name string) bool {
				_, version := (millrace.ProjectionID{Name: name}).Version()
				return slices.Contains(args, name) || versions && version == 1
			}), err
		})
	case strings.Contains(cmd.Use, "ID") && !c.allTenants:
		return c.lookUp(cmd, func(ctx context.Context, s store) (ids []string, err error) {
			tenant, err := c.oneTenant()
			if err != nil {
				return nil, err
			}
			letters, err := s.DeadLetters(full(tenant, args[0])).List(ctx, projection.DeadLetterPage{})
			for _, l := range letters {
				if id := number(l.ID); !slices.Contains(args[1:], id) {
					ids = append(ids, cobra.CompletionWithDesc(id,
						console.OneLine(l.Type+" of "+l.Stream+": "+l.Error)))
				}
			}
			return ids, err
		})
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// projectionNames returns the names of the projections of the selected tenants, sorted and each once.
func (c *cli) projectionNames(ctx context.Context, s store) (names []string, err error) {
	list, err := projectionsOf(ctx, s, admin.StatusFilter{Tenants: c.selected()})
	for _, id := range whole(list) {
		names = append(names, id.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// completeFlags adds the completion of values of flags. Only those that name files are completed with files.
func (c *cli) completeFlags(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	completeFlag(cmd, "file", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	})
	completeFlag(cmd, "tenant", func(cmd *cobra.Command,
		_ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return c.completeTenants(cmd, nil, typed)
	})
}

// eventFiles completes the names of files with events.
func eventFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"ndjson", "gz"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeFlag adds the completion of a flag.
func completeFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// oneOf completes one of these values.
func oneOf(values ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}
