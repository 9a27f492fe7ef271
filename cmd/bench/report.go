package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// reporter prints results, and remembers the outcomes of the goals.
type reporter struct {
	o        options
	out      io.Writer
	machine  machine
	versions map[string]string
	settings map[string]string // of the server, of the last result

	goals  int
	missed []string
}

func newReporter(o options, out io.Writer) *reporter {
	return &reporter{o: o, out: out, machine: thisMachine(), versions: buildVersions()}
}

// line is the JSON of a contender's result. It says everything about how it was measured.
type line struct {
	Scenario  string            `json:"scenario"`
	Case      string            `json:"case"`
	Contender string            `json:"contender"`
	Rounds    int               `json:"rounds"`
	Quick     bool              `json:"quick"`
	Metrics   []metricLine      `json:"metrics"`
	Goals     []outcome         `json:"goals,omitempty"`
	Machine   machine           `json:"machine"`
	Versions  map[string]string `json:"versions"`
	Settings  map[string]string `json:"settings,omitempty"`
	// RoundTrip is how much longer each round trip took, in nanoseconds.
	RoundTrip time.Duration `json:"roundTrip,omitempty"`
}

// metricLine is a metric of a contender. Figures that cannot be measured are null.
type metricLine struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit"`
	Better direction  `json:"better"`
	Median *float64   `json:"median"`
	Rounds []*float64 `json:"rounds"`
	// Ratio is the ratio to the first contender, RatioLow and RatioHigh those of single rounds.
	Ratio     *float64 `json:"ratio,omitempty"`
	RatioLow  *float64 `json:"ratioLow,omitempty"`
	RatioHigh *float64 `json:"ratioHigh,omitempty"`
}

// report prints a result as a table or as JSON.
func (p *reporter) report(r result, settings map[string]string) error {
	p.settings = settings
	outcomes, err := r.outcomes()
	if err != nil {
		return err
	}
	p.count(r, outcomes)
	if !p.o.json {
		return p.table(r, outcomes)
	}
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	for c, name := range r.contenders {
		l := line{Scenario: r.scenario, Case: r.name, Contender: name, Rounds: len(r.rounds[c]), Quick: p.o.quick,
			Machine: p.machine, Versions: p.versions, Settings: settings, RoundTrip: p.o.roundTrip}
		for m := range r.metrics {
			l.Metrics = append(l.Metrics, r.line(c, m))
		}
		for i, o := range outcomes {
			if r.goals[i].contender == name {
				l.Goals = append(l.Goals, o)
			}
		}
		if err := encoder.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (p *reporter) count(r result, outcomes []outcome) {
	for _, o := range outcomes {
		p.goals++
		if !o.Met {
			p.missed = append(p.missed, fmt.Sprintf("%s, %s: %s: %s (%s)",
				r.scenario, r.name, o.Goal, short(o.Value), o.verdict()))
		}
	}
}

// line returns the figures of a contender's metric.
func (r result) line(c, m int) metricLine {
	values := r.of(c, m)
	l := metricLine{
		Name: r.metrics[m].name, Unit: r.metrics[m].unit, Better: r.metrics[m].better, Median: finite(median(values)),
	}
	for _, v := range values {
		l.Rounds = append(l.Rounds, finite(v))
	}
	if c > 0 {
		low, high := spread(values, r.of(0, m))
		l.Ratio, l.RatioLow, l.RatioHigh = finite(median(values)/median(r.of(0, m))), finite(low), finite(high)
	}
	return l
}

// finite returns nil for what JSON cannot express.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// cells returns the table of a result: a header, and a row for each contender.
func (r result) cells() [][]string {
	header := []string{r.name}
	for _, m := range r.metrics {
		header = append(header, m.title())
		if len(r.contenders) > 1 {
			header = append(header, "ratio")
		}
	}
	rows := [][]string{header}
	for c, name := range r.contenders {
		row := []string{name}
		for m := range r.metrics {
			l := r.line(c, m)
			row = append(row, cell(l.Median))
			if len(r.contenders) > 1 {
				row = append(row, l.ratioCell())
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// title returns the heading of a metric.
func (m metric) title() string {
	if m.name == m.unit || m.unit == "" {
		return m.name
	}
	return m.name + ", " + m.unit
}

func cell(v *float64) string {
	if v == nil {
		return "–"
	}
	return short(*v)
}

// ratioCell returns the ratio and those of the rounds.
func (l metricLine) ratioCell() string {
	if l.Ratio == nil || l.RatioLow == nil || l.RatioHigh == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s–%s)", short(*l.Ratio), short(*l.RatioLow), short(*l.RatioHigh))
}

// table prints a result for people.
func (p *reporter) table(r result, outcomes []outcome) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", r.scenario)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range r.cells() {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, o := range outcomes {
		fmt.Fprintf(&b, "goal %s: %s (%s)\n", o.Goal, o.verdict(), short(o.Value))
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// summarize prints how many goals were met. With -json, the lines have them.
func (p *reporter) summarize() error {
	if p.o.json {
		return nil
	}
	text := fmt.Sprintf("\n%s; %s\n%d of %d goals met\n", p.machine, p.environment(), p.goals-len(p.missed), p.goals)
	for _, m := range p.missed {
		text += "  " + m + "\n"
	}
	_, err := io.WriteString(p.out, text)
	return err
}

// environment describes the versions and the server.
func (p *reporter) environment() string {
	text := p.versions["go"]
	if revision := p.versions["millrace"]; revision != "" {
		text += ", millrace " + revision
	}
	if version := p.settings["server_version"]; version != "" {
		version, _, _ = strings.Cut(version, " ")
		text += fmt.Sprintf(", PostgreSQL %s (fsync %s, synchronous_commit %s, shared_buffers %s)", version,
			p.settings["fsync"], p.settings["synchronous_commit"], p.settings["shared_buffers"])
	}
	if p.o.roundTrip > 0 {
		text += fmt.Sprintf(", round trips %v longer", p.o.roundTrip)
	}
	return text
}
