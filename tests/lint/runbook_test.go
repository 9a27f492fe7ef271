package lint_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	alertsFile, runbookFile = "docs/alerts.yml", "docs/runbook.md"
	// runbookURL is what the annotation runbook_url of an alert begins with.
	runbookURL = "https://" + module + "/blob/main/" + runbookFile + "#"
)

var (
	entryHeading = regexp.MustCompile(`(?m)^### (.+)$`)
	alertName    = regexp.MustCompile("`(Millrace\\w+)`")
	// symptomRow is a row of the table of symptoms: the alerts, the title and the anchor of the entry.
	symptomRow = regexp.MustCompile(`(?m)^\| .+ \|(.*)\| \[(.+)\]\(#(.+)\) \|$`)
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchor returns the anchor that GitHub makes for a heading.
func anchor(title string) string {
	return strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// runbookFaults returns what is wrong with the links between alerts, the table of symptoms, and the entries.
func runbookFaults(alerts, page string) (found []string) {
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	var entries, listed, names []string
	alertsOf := make(map[string][]string)
	for _, m := range entryHeading.FindAllStringSubmatch(page, -1) {
		entries = append(entries, anchor(m[1]))
	}
	for _, m := range symptomRow.FindAllStringSubmatch(page, -1) {
		listed = append(listed, m[3])
		if anchor(m[2]) != m[3] {
			add("the row of %q links to #%s", m[2], m[3])
		}
		for _, name := range alertName.FindAllStringSubmatch(m[1], -1) {
			alertsOf[m[3]] = append(alertsOf[m[3]], name[1])
			names = append(names, name[1])
		}
	}
	if !slices.Equal(entries, listed) {
		add("the table of symptoms lists %q, and the entries are %q", listed, entries)
	}
	var defined []string
	for part := range strings.SplitSeq(alerts, "- alert: ") {
		name, rule, isAlert := strings.Cut(part, "\n")
		if !isAlert || !strings.HasPrefix(name, "Millrace") {
			continue
		}
		defined = append(defined, name)
		_, url, _ := strings.Cut(rule, `runbook_url: "`)
		url, _, _ = strings.Cut(url, `"`)
		of, isURL := strings.CutPrefix(url, runbookURL)
		if !isURL || !slices.Contains(alertsOf[of], name) {
			add("alert %s links to %q, which is no entry that names it", name, url)
		}
	}
	for _, name := range names {
		if !slices.Contains(defined, name) {
			add("there is no alert %s", name)
		}
	}
	return found
}

func TestEachAlertLinksToTheRunbook(t *testing.T) {
	alerts, page := contentOf(t, alertsFile), contentOf(t, runbookFile)
	for _, fault := range runbookFaults(alerts, page) {
		t.Error(fault)
	}
	if n := strings.Count(alerts, runbookURL); n < 10 {
		t.Errorf("only %d alerts link to %s", n, runbookFile)
	}
	for _, broken := range []struct{ old, new string }{
		{"#events-are-parked\"", "#events-are-lost\""},
		{"alert: MillraceTakeovers", "alert: MillraceTakeover"},
	} {
		if len(runbookFaults(strings.Replace(alerts, broken.old, broken.new, 1), page)) == 0 {
			t.Errorf("not noticed: %q in place of %q in %s", broken.new, broken.old, alertsFile)
		}
	}
	for _, broken := range []struct{ old, new string }{
		{"\n### A node died\n", "\n### A node\n"},
		{"](#a-node-died) |", "](#a-node-is-frozen) |"},
	} {
		if len(runbookFaults(alerts, strings.Replace(page, broken.old, broken.new, 1))) == 0 {
			t.Errorf("not noticed: %q in place of %q in %s", broken.new, broken.old, runbookFile)
		}
	}
}
