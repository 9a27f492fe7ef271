package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// unclear are words that a technical sentence does not need, because it names who does what.
var unclear = regexp.MustCompile(`(?i)\b(tells|somebody|nobody|is to be)\b`)

// unclearLines is how many lines of comments and documents may have such words. It only goes down: whoever removes some lowers
// it. unclearSlack is how far the count may fall below it.
const (
	unclearLines = 191
	unclearSlack = 200
)

func TestSourceNamesWhoDoesWhat(t *testing.T) {
	count := 0
	for _, p := range goFiles(t) {
		for _, group := range p.Comments {
			for _, line := range group.List {
				if unclear.MatchString(line.Text) {
					count++
				}
			}
		}
	}
	line := regexp.MustCompile(`(?m)^.*$`)
	for _, name := range sourceFiles(t, ".md", ".sql", ".sh") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range line.FindAllString(string(content), -1) {
			if unclear.MatchString(text) {
				count++
			}
		}
	}
	switch {
	case count > unclearLines:
		t.Errorf("%d lines of comments and documents have a word of %v; at most %d may: name who does what", count, unclear, unclearLines)
	case count < unclearLines-unclearSlack:
		t.Errorf("only %d lines of comments and documents have a word of %v: lower unclearLines, now %d", count, unclear, unclearLines)
	}
	t.Logf("%d lines of at most %d", count, unclearLines)
}
