package commandline

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/report"
)

func (c storeCommands) nodesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "nodes",
		Short:   "List the processes that run projections",
		Long:    "Lists the processes that run projections. A process that died is listed for an hour.",
		Example: "  millrace nodes\n  millrace nodes --json | jq '.nodes[] | select(.alive | not)'",
		Args:    cobra.NoArgs,
		RunE: c.withSummary(func(summary admin.Summary) error {
			return c.print(nodesJSON{summary.Nodes},
				func() error { return c.table(report.Nodes(summary.Nodes), "no node runs projections") })
		}),
	}
}

type nodesJSON struct {
	Nodes []admin.NodeStatus `json:"nodes"`
}

func (c storeCommands) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of millrace",
		Example: "  millrace version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionJSON{Version: "(devel)"}
			if info, ok := debug.ReadBuildInfo(); ok {
				v = versionOf(info)
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

// versionOf returns the version of this module, which is that of the program or one of those that it is built with.
func versionOf(info *debug.BuildInfo) versionJSON {
	v := versionJSON{Version: info.Main.Version, Go: info.GoVersion}
	for _, used := range info.Deps {
		if used.Path != module {
			continue
		}
		if used.Replace != nil {
			used = used.Replace
		}
		return versionJSON{Version: cmp.Or(used.Version, "(devel)"), Go: info.GoVersion}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Commit = setting.Value
		}
	}
	return v
}

// module is the path of this module.
const module = "github.com/millrace-go/millrace"

type versionJSON struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}
