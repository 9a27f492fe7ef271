package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResultsAreWrittenBetweenTheirMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	const before = "# Figures\n\n<!-- bench:s -->\nold\n<!-- end of bench:s -->\n\nText.\n\n<!-- bench:t -->\nkept\n<!-- end of bench:t -->\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	r := measured()
	r.goals = []goal{{contender: "millrace", metric: "events/s", to: "handwritten", atLeast: 0.9}}
	p := newReporter(options{quick: true}, &strings.Builder{})
	s := scenario{name: "s"}
	for range 2 { // a second run replaces the first
		if err := p.write(path, s, []result{r}); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(content)
	for _, want := range []string{
		"# Figures\n\n<!-- bench:s -->\n\n`make bench BENCH='-scenario s -quick'`: ",
		"| c | events/s | ratio | CPU, % | ratio |\n|---|---:|---:|---:|---:|\n| handwritten | 200 |  | – |  |\n",
		"| c: millrace: events/s ≥ 0.9 × handwritten | 0.500 | not met |\n\n![s](performance/s.svg)\n\n<!-- end of bench:s -->\n\nText.\n\n<!-- bench:t -->\nkept\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the file lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") || strings.Count(got, "millrace |") != 1 {
		t.Errorf("the earlier text is left:\n%s", got)
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(path), "performance", "s.svg"))
	if err != nil || !strings.Contains(string(svg), "<svg") || !strings.Contains(string(svg), "handwritten") ||
		!strings.Contains(string(svg), "higher is better") ||
		!strings.Contains(string(svg), "font-family:Liberation Sans,Arial") || strings.Contains(string(svg), "Serif") {
		t.Errorf("the plot is %.300s, %v", svg, err)
	}
	if err := p.write(path, scenario{name: "u"}, []result{r}); err == nil || !strings.Contains(err.Error(), "bench:u") {
		t.Errorf("got %v, want the missing markers", err)
	}
}

// TestEveryScenarioHasAPlaceInTheDocs writes all blocks into a copy of docs/performance.md.
func TestEveryScenarioHasAPlaceInTheDocs(t *testing.T) {
	content, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, s := range scenarios {
		changed, err := between(text, s.name, "new\n")
		if err != nil {
			t.Error(err)
		}
		text = changed
	}
	if got := strings.Count(text, "<!-- bench:"); got != len(scenarios) {
		t.Errorf("%d blocks, want one for each of %d scenarios", got, len(scenarios))
	}
}
