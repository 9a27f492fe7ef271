package commandline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// yes is the flag --yes of commands that cannot be undone.
type yes struct{ given bool }

func (y *yes) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&y.given, "yes", "y", false, "do it without asking")
}

// confirm shows what a command is about to do, and asks. Without a terminal it needs --yes.
func (c *cli) confirm(y yes, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if y.given {
		return nil
	}
	if !isTerminal(c.in) {
		return misuse("this would %s: add --yes", what)
	}
	fmt.Fprintf(c.errs, "This will %s. Continue? [y/N] ", what)
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("nothing was changed: the answer was not yes")
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
