package commandline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// inline is a command in a text, and line is a command in a block of code or in an example of the help.
	inline = regexp.MustCompile("`(millrace [^`]+)`")
	line   = regexp.MustCompile(`(?m)^(?:[A-Z_]+=\S+ )*(millrace [^|\n]*)`)
	fence  = regexp.MustCompile("(?ms)^```(?:sh|)\n(.*?)^```$")
	// words are the words of a shell command: bare, or in quotes.
	words = regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`)
)

// commandsIn returns the commands of the command line that a document shows.
func commandsIn(document string) (commands []string) {
	for _, match := range inline.FindAllStringSubmatch(document, -1) {
		commands = append(commands, match[1])
	}
	for _, block := range fence.FindAllStringSubmatch(document, -1) {
		for _, match := range line.FindAllStringSubmatch(block[1], -1) {
			commands = append(commands, match[1])
		}
	}
	return commands
}

// parses returns an error if there is no such command, or if it does not take these flags and arguments.
func parses(command string) error {
	var args []string
	command = command[:strings.IndexAny(command+";", ";#&")]
	for _, word := range words.FindAllStringSubmatch(command, -1)[1:] {
		args = append(args, word[1]+word[2]+word[3])
	}
	found, rest, err := (&cli{}).command().Find(args)
	if err != nil {
		return err
	}
	if err := found.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if left := found.Flags().Args(); len(left) > 0 {
		if found.HasSubCommands() {
			return fmt.Errorf("%s has no command %q", found.CommandPath(), left[0])
		}
		return found.ValidateArgs(left)
	}
	return nil
}

func TestCommandsOfDocumentsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	check := func(where, command string) {
		t.Helper()
		seen++
		if strings.ContainsAny(command, "…") {
			return // a part is left out
		}
		if err := parses(command); err != nil {
			t.Errorf("%s: %s: %v", where, command, err)
		}
	}
	for _, file := range append(files, "../README.md") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(content)) {
			check(file, command)
		}
	}
	var examples func(c *cobra.Command)
	examples = func(c *cobra.Command) {
		for shown := range strings.Lines(c.Example) {
			if match := line.FindStringSubmatch(strings.TrimSpace(shown)); match != nil {
				check(c.CommandPath()+" --help", match[1])
			}
		}
		for _, inner := range c.Commands() {
			examples(inner)
		}
	}
	examples((&cli{}).command())
	if seen < 100 {
		t.Errorf("only %d commands were seen", seen)
	}
}

func TestCommandThatDoesNotExistIsNoticed(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"millrace look", "millrace projections look totals", "millrace projections pause --sideways totals",
		"millrace projections rename a b c",
	} {
		if parses(command) == nil {
			t.Errorf("%s exists", command)
		}
	}
	if got := commandsIn("run `millrace check`:\n```sh\nA=b millrace doctor # why\npsql\n```\n"); fmt.Sprint(got) != "[millrace check millrace doctor # why]" {
		t.Errorf("%q", got)
	}
}
