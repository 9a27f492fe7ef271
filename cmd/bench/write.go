package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write puts the tables of a scenario into a Markdown file, between its markers, and its plot into a folder beside the
// file that has the file's name. The rest of the file stays.
func (p *reporter) write(path string, s scenario, results []result) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	folder := strings.TrimSuffix(path, filepath.Ext(path))
	plotted := filepath.Join(folder, s.name+".svg")
	text, err := p.markdown(s, results, filepath.ToSlash(filepath.Join(filepath.Base(folder), s.name+".svg")))
	if err != nil {
		return err
	}
	changed, err := between(string(content), s.name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := plotResults(plotted, results); err != nil {
		return fmt.Errorf("plot %s: %w", s.name, err)
	}
	return os.WriteFile(path, []byte(changed), 0o644)
}

// between replaces the text between the markers of a scenario.
func between(content, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- end of bench:"+name+" -->"
	before, rest, found := strings.Cut(content, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("there are no markers %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}

// markdown returns the tables, goals and plot of a scenario.
func (p *reporter) markdown(s scenario, results []result, plotted string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n`%s`: %s; %s.\n", p.o.repeat(s.name), p.machine, p.environment())
	for _, r := range results {
		b.WriteString("\n")
		for i, row := range r.cells() {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|---%s|\n", strings.Repeat("|---:", len(row)-1))
			}
		}
	}
	b.WriteString("\n| goal | measured | |\n|---|---:|---|\n")
	goals := 0
	for _, r := range results {
		outcomes, err := r.outcomes()
		if err != nil {
			return "", err
		}
		for _, o := range outcomes {
			goals++
			fmt.Fprintf(&b, "| %s: %s | %s | %s |\n", r.name, o.Goal, o.measured(), o.verdict())
		}
	}
	text := b.String()
	if goals == 0 {
		text = text[:strings.LastIndex(text, "\n| goal")]
	}
	return text + fmt.Sprintf("\n![%s](%s)\n\n", s.name, plotted), nil
}

// measured returns the value of an outcome for people.
func (o outcome) measured() string {
	if !o.Known {
		return "–"
	}
	return short(o.Value)
}

// repeat returns the command that repeats a scenario.
func (o options) repeat(scenario string) string {
	command := "make bench BENCH='-scenario " + scenario
	if o.quick {
		command += " -quick"
	}
	return command + "'"
}
