package commandline

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
)

func (c *cli) nodesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "nodes",
		Short:   "List the processes that run projections",
		Long:    "Lists the processes that run projections. A process that died is listed for an hour.",
		Example: "  millrace nodes\n  millrace nodes --json | jq '.nodes[] | select(.alive | not)'",
		Args:    cobra.NoArgs,
		RunE: c.withSummary(func(summary admin.Summary) error {
			return c.print(nodesJSON{summary.Nodes}, func() error { return c.table(report.Nodes(summary.Nodes), "no node runs projections") })
		}),
	}
}

type nodesJSON struct {
	Nodes []admin.NodeStatus `json:"nodes"`
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  millrace version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionJSON{Version: "(devel)"}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version, v.Go = info.Main.Version, info.GoVersion
				for _, setting := range info.Settings {
					if setting.Key == "vcs.revision" {
						v.Commit = setting.Value
					}
				}
			}
			return c.print(v, func() error {
				if v.Commit == "" {
					return c.say("millrace %s, built with %s", v.Version, v.Go)
				}
				return c.say("millrace %s, commit %s, built with %s", v.Version, v.Commit, v.Go)
			})
		},
	}
}

type versionJSON struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}
