// Package program is what the commands of this module have in common: how their flags are written and their errors told,
// the schemas that one run claims in a database and removes again, and the figures that they print.
package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Execute runs a command with these arguments, and tells its error in one line. Flags may have one dash or two.
func Execute(ctx context.Context, cmd *cobra.Command, args []string, out, errs io.Writer) error {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetArgs(doubleDashes(args))
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(errs, "%s: %s\n", cmd.Name(), OneLine(err.Error()))
	}
	return err
}

// doubleDashes takes -name for --name, as the flag package of the standard library does. There are no short flags but
// -h.
func doubleDashes(args []string) []string {
	var long []string
	for i, arg := range args {
		if arg == "--" {
			return append(long, args[i:]...)
		}
		if len(arg) > 2 && arg[0] == '-' && arg[1] >= 'a' && arg[1] <= 'z' {
			arg = "-" + arg
		}
		long = append(long, arg)
	}
	return long
}

// DatabaseURL is what -database-url says, and DATABASE_URL where it was not given.
func DatabaseURL(cmd *cobra.Command, given string) string {
	if cmd.Flags().Changed("database-url") {
		return given
	}
	return os.Getenv("DATABASE_URL")
}

const mostWriters = 1000

// ValidWriters tells whether that many may append at once; each has a connection.
func ValidWriters(n int) error {
	if n < 1 || n > mostWriters {
		return fmt.Errorf("-writers is %d, but must be from 1 to %d", n, mostWriters)
	}
	return nil
}

// OneLine keeps text that may have line breaks, or worse, in its place.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' }), "; ")
}
