package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unclear are words that a technical sentence does not need, because it names who does what.
var unclear = regexp.MustCompile(`(?i)\b(tells|somebody|nobody|is to be)\b`)

func TestSourceNamesWhoDoesWhat(t *testing.T) {
	check := func(place, text string) {
		if word := unclear.FindString(text); word != "" {
			t.Errorf("%s: %q: name who does what", place, word)
		}
	}
	for _, p := range goFiles(t) {
		for _, group := range p.Comments {
			check(p.name, group.Text())
		}
	}
	for _, name := range sourceFiles(t, ".md", ".sql", ".sh") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			check(name, line)
		}
	}
}
