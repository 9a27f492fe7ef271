package runbook_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const pageFile = "../../docs/runbook.md"

// entry is a section of the page about one symptom.
type entry struct {
	title, anchor string
	blocks        []block
}

// block is a block of code of an entry: commands of a console, or SQL.
type block struct {
	language, text string
	commands       []command
}

// command is a command of a console, and what the page says that it prints.
type command struct {
	line  string
	shown []string
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchorOf returns the anchor that GitHub makes for a heading.
func anchorOf(title string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// entriesOf returns the sections of the third level.
func entriesOf(page string) (all []entry) {
	var open *block
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case open != nil && line == "```":
			open.commands = commandsOf(*open)
			last := &all[len(all)-1]
			last.blocks = append(last.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case strings.HasPrefix(line, "### "):
			title := strings.TrimPrefix(line, "### ")
			all = append(all, entry{title: title, anchor: anchorOf(title)})
		case strings.HasPrefix(line, "```") && len(all) > 0:
			open = &block{language: strings.TrimPrefix(line, "```")}
		}
	}
	return all
}

func commandsOf(b block) (all []command) {
	if b.language != "console" {
		return nil
	}
	for line := range strings.Lines(b.text) {
		line = strings.TrimRight(line, "\n")
		if of, found := strings.CutPrefix(line, "$ "); found {
			all = append(all, command{line: of})
		} else if line != "" && len(all) > 0 {
			last := &all[len(all)-1]
			last.shown = append(last.shown, line)
		}
	}
	return all
}

func readEntries(t *testing.T, pageFile string) []entry {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	return entriesOf(string(page))
}

// masks are what differs between the page and a run: ids, times, ages, rates, and the widths of columns.
var masks = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "<time>"},
	{regexp.MustCompile(`\b\d+\.\d s ago`), "<age> ago"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b|\b(\d+h)?\d+m\b`), "<age>"},
	{regexp.MustCompile(` (<age>|\d+/s|-)( |$)`), " ~$2"},
	{regexp.MustCompile(` (<age>|\d+/s|-)( |$)`), " ~$2"}, // again for those that share a blank with their neighbour
	{regexp.MustCompile(`\s+`), " "},
}

func masked(line string) string {
	line = strings.Join(strings.Fields(line), " ")
	for _, m := range masks {
		line = m.of.ReplaceAllString(line, m.by)
	}
	return strings.TrimSpace(line)
}

// agrees reports whether a line of an output is what the page shows, where … stands for any text.
func agrees(shown, printed string) bool {
	var parts []string
	for part := range strings.SplitSeq(masked(shown), "…") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(masked(printed))
}

// missing returns the first line that the page shows and that an output does not have, in the order of the page.
func missing(shown, printed []string) (line string, found bool) {
	for _, line := range shown {
		at := slices.IndexFunc(printed, func(p string) bool { return agrees(line, p) })
		if at < 0 {
			return line, true
		}
		printed = printed[at+1:]
	}
	return "", false
}

func TestOutputsAreComparedWithThePage(t *testing.T) {
	t.Parallel()
	entries := entriesOf("# Page\n\n### A lag, and more\n\ntext\n\n```console\n$ millrace nodes\nnode  state\na     alive  0.1 s ago\n\n$ millrace doctor\n```\n\n```sql\nselect 1;\n```\n")
	if len(entries) != 1 || entries[0].anchor != "a-lag-and-more" || len(entries[0].blocks) != 2 ||
		len(entries[0].blocks[0].commands) != 2 {
		t.Fatalf("the page has %+v", entries)
	}
	shown := entries[0].blocks[0].commands[0].shown
	for _, of := range []struct {
		printed []string
		agree   bool
	}{
		{[]string{"node    state", "z  dead  1.0 s ago", "a   alive   22.5 s ago"}, true},
		{[]string{"node    state", "a   dead   22.5 s ago"}, false},
		{[]string{"a   alive   22.5 s ago", "node    state"}, false},
	} {
		if line, found := missing(shown, of.printed); found == of.agree {
			t.Errorf("%q: missing is %q", of.printed, line)
		}
	}
	for _, of := range []struct {
		shown, printed string
		agree          bool
	}{
		{"totals live 5 0 0 - 3/s shop-1", "totals  live  5  0  0  12.3s  -  shop-1", true},
		{"totals live 5 0 …", "totals  live  5  0  1  12.3s", true},
		{"totals live 5", "totals  live  6", false},
		{"pid 4711 waits", "pid 4712 waits", false},
	} {
		if agrees(of.shown, of.printed) != of.agree {
			t.Errorf("%q and %q: want %v", of.shown, of.printed, of.agree)
		}
	}
}
