// Package program holds what the commands of this module share: flags, signals and errors; the schemas that a run
// creates in a database and removes; and the figures that they print.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-go/millrace/internal/console"
)

// Main runs a command until it ends or a signal interrupts it. It returns the exit status: 0 after success, 128 and the
// signal's number after a signal, 1 after any other failure.
func Main(cmd *cobra.Command, args []string, out, errs io.Writer) int {
	ctx, stop := interruptible(context.Background())
	defer stop()
	err := Execute(ctx, cmd, args, out, errs)
	var by interruptedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &by):
		return exitStatus(by.signal)
	}
	return 1
}

// Execute runs a command with these arguments, and prints its error in one line. Flags may have one dash or two.
func Execute(ctx context.Context, cmd *cobra.Command, args []string, out, errs io.Writer) error {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetArgs(doubleDashes(args))
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := interruption(ctx, cmd.ExecuteContext(ctx))
	if err != nil {
		fmt.Fprintf(errs, "%s: %s\n", cmd.Name(), console.OneLine(err.Error()))
	}
	return err
}

// doubleDashes reads -name as --name, as the flag package of the standard library does. The only short flag is -h.
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

// DatabaseURL returns the value of -database-url or, without that flag, of DATABASE_URL.
func DatabaseURL(cmd *cobra.Command, given string) string {
	if cmd.Flags().Changed("database-url") {
		return given
	}
	return os.Getenv("DATABASE_URL")
}

const mostWriters = 1000

// ValidWriters checks a number of writers; each has a connection.
func ValidWriters(n int) error {
	if n < 1 || n > mostWriters {
		return fmt.Errorf("-writers must be from 1 to %d: %d", mostWriters, n)
	}
	return nil
}
