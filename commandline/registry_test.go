package commandline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The event types of a program. "Placed" becomes "Placed.v3" in two steps, "Both" is split, and the upcasters of "Bad"
// and "Worse" fail.
type (
	placed1 struct {
		Amount string `json:"amount"`
	}
	placed2 struct {
		Euros int `json:"euros"`
	}
	placed struct {
		Cents int    `json:"cents"`
		Note  string `json:"note,omitzero"`
	}
	both  struct{}
	paid  struct{}
	sent  struct{}
	bad   struct{}
	worse struct{}
)

func (placed1) EventType() string { return "Placed" }
func (placed2) EventType() string { return "Placed.v2" }
func (placed) EventType() string  { return "Placed.v3" }
func (both) EventType() string    { return "Both" }
func (paid) EventType() string    { return "Paid" }
func (sent) EventType() string    { return "Sent" }
func (bad) EventType() string     { return "Bad" }
func (worse) EventType() string   { return "Worse" }

func registry(t *testing.T) Options {
	t.Helper()
	types, err := eventtype.New(
		eventtype.Upcast(func(old placed1) (p placed2, err error) {
			_, err = fmt.Sscan(old.Amount, &p.Euros)
			return p, err
		}),
		eventtype.Upcast(func(old placed2) (placed, error) { return placed{Cents: 100 * old.Euros}, nil }),
		eventtype.Split(func(both) ([]event.Event,
			error) {
			return []event.Event{event.New(paid{}), event.New(sent{})}, nil
		}, "Paid", "Sent"),
		eventtype.Of[paid](), eventtype.Of[sent](), eventtype.Named("Noted"), eventtype.Renamed("noted", "Noted"),
		eventtype.Upcast(func(bad) (paid, error) { return paid{}, errors.New("on purpose") }),
		eventtype.Upcast(func(worse) (paid, error) { panic("on purpose") }),
	)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Types: types}
}

// storedThen are events as earlier releases have appended them to one stream, the first at position 1. currentThen are
// the lines that shownLines makes of what a program with the registry prints of each.
var storedThen = []struct{ eventType, body string }{
	{"Placed", `{"amount":"5"}`}, {"Placed.v2", `{"euros":6}`}, {"Placed.v3", `{"cents":7}`}, {"Both", `{}`},
	{"noted", `[1]`},
	{"Bad", `{}`}, {"Worse", `{}`}, {"Placed", `{"amount":"?"}`}, {"Strange", `{"x":1}`}, {"Noted", `[2]`},
}

var currentThen = [][]string{
	{`1 Placed.v3 {"cents":500}`}, {`2 Placed.v3 {"cents":600}`}, {`3 Placed.v3 {"cents":7}`},
	{`4.1 Paid {}`, `4.2 Sent {}`}, {`5 Noted [1]`},
	{`6 unreadable Bad {}`}, {`7 unreadable Worse {}`}, {`8 unreadable Placed {"amount":"?"}`}, {`9 Strange {"x":1}`},
	{`10 Noted [2]`},
}

// storedLines are the lines of all events as they are stored.
func storedLines() (lines []string) {
	for i, e := range storedThen {
		lines = append(lines, fmt.Sprintf("%d %s %s", i+1, e.eventType, e.body))
	}
	return lines
}

// currentLines are the lines of current events of these types, or of all, and of those whose upcasters fail and may be
// of them.
func currentLines(types ...string) (lines []string) {
	for _, line := range slices.Concat(currentThen...) {
		name := strings.Fields(line)[1]
		switch {
		case len(types) == 0 || slices.Contains(types, name):
		case strings.Contains(line, "unreadable Placed") && slices.Contains(types, "Placed.v3"):
		case (strings.Contains(line, "unreadable Bad") || strings.Contains(line, "unreadable Worse")) &&
			slices.Contains(types, "Paid"):
		default:
			continue
		}
		lines = append(lines, line)
	}
	return lines
}

type shownEvent struct {
	eventJSON
	Unreadable *struct {
		eventJSON
		Reason string `json:"reason"`
	} `json:"unreadable"`
}

// shownLines returns what a command has printed as JSON in short lines. The reason for an event that cannot be upcast
// must name it.
func shownLines(t *testing.T, out string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			continue // of the error output
		}
		var e shownEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		what := ""
		if u := e.Unreadable; u != nil {
			e.eventJSON, what = u.eventJSON, "unreadable "
			if want := fmt.Sprintf("decode event %d (%s of stream \"s\") as ", e.Position,
				e.Type); !strings.HasPrefix(u.Reason, want) || !strings.Contains(u.Reason, "the upcaster failed at") {
				t.Errorf("reason %q, want one with %q", u.Reason, want)
			}
		}
		if e.Stream != "s" {
			t.Errorf("the stream is %q", e.Stream)
		}
		version := number(e.Version)
		if e.Part > 0 {
			version += "." + number(e.Part)
		}
		var body bytes.Buffer
		if err := json.Compact(&body, e.Body); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, version+" "+what+e.Type+" "+body.String())
	}
	return lines
}

func mustShow(t *testing.T, what, out string, want []string) {
	t.Helper()
	if got := shownLines(t, out); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// withStoredThen makes a store with the stored events, and returns the command line of the program that knows what they
// become.
func withStoredThen(t *testing.T, p place) (program place) {
	t.Helper()
	p.must(t, done, "migrate", "up")
	for _, e := range storedThen {
		p.must(t, done, "events", "append", "s", e.eventType, e.body)
	}
	program = p
	program.options = registry(t)
	return program
}

func TestProgramShowsCurrentEvents(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := withStoredThen(t, p)
		for _, command := range []string{"events stream s", "events tail -n 99"} {
			args := append(strings.Fields(command), "--json")
			mustShow(t, command, program.must(t, failed, args...), currentLines())
			mustShow(t, command+" --stored", program.must(t, done, append(args, "--stored")...), storedLines())
			mustShow(t, command+" without a registry", p.must(t, done, args...), storedLines())
		}
		mustShow(t, "last lines", program.must(t, done, "events", "tail", "-n", "2", "--json"),
			currentLines("Strange", "Noted")[1:])
		mustShow(t, "last parts", program.must(t, failed, "events", "tail", "-n", "7", "--json"), currentLines()[4:])
		mustShow(t, "from", program.must(t, done, "events", "stream", "s", "--from", "9", "--json"), currentLines()[9:])
		for selected, status := range map[string]int{"Placed.v3": failed, "Paid": failed, "Sent": done, "Noted": done,
			"Placed.v3,Sent": failed} {
			types := strings.Split(selected, ",")
			mustShow(t, selected, program.must(t, status, "events", "tail", "--json", "--type", selected),
				currentLines(types...))
			want := fmt.Sprintf("%d\n", len(currentLines(types...)))
			if out := program.must(t, done, "events", "count", "--type", selected); out != want {
				t.Errorf("count of %s: %q, want %q", selected, out, want)
			}
		}
		for line, want := range map[string]string{
			"events count": "11\n", "events count --stored": "10\n", "events count --stored --type Placed": "2\n",
		} {
			if out := program.must(t, done, strings.Fields(line)...); out != want {
				t.Errorf("%s: %q, want %q", line, out, want)
			}
		}
		for selected, says := range map[string]string{
			"Placed": `event type "Placed" is outdated: it becomes "Placed.v3"`,
			"Plcaed": `event type "Plcaed" is not registered`,
		} {
			for _, command := range []string{"tail", "count", "export", "export --current"} {
				args := append(append([]string{"events"}, strings.Fields(command)...), "--type", selected)
				if out := program.must(t, misused, args...); !strings.Contains(out, says) {
					t.Errorf("%q: %s, want %s", args, out, says)
				}
			}
		}
		text := program.must(t, failed, "events", "stream", "s")
		for _, want := range []string{
			"s@1  Placed.v3  {\"cents\":500}\n", "s@4.1  Paid  {}\n", "s@4.2  Sent  {}\n",
			"s@6  Bad  decode event 6 (Bad of stream \"s\") as Paid: the upcaster failed at \"Bad\": on purpose; the body as stored: {}\n",
			"3 events of tenant \"default\" cannot be read, the first at position 6\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("printed %s, want %s", text, want)
			}
		}
	})
}

func TestProgramFollowsCurrentEvents(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := withStoredThen(t, p)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out, errs lockedBuffer
		ended := make(chan int, 1)
		go func() {
			args := []string{"events", "tail", "-f", "-n", "0", "--json"}
			ended <- execute(ctx, append(args, p.flags...), program.options, strings.NewReader(""), &out, &errs)
		}()
		shown := func(what string) func() bool {
			return func() bool { return strings.Contains(out.String(), what) }
		}
		eventually(t, "the follower has begun", func() bool {
			p.must(t, done, "events", "append", "s", "noted", "0")
			return shown(`"Noted"`)()
		})
		p.must(t, done, "events", "append", "s", "Bad", "{}")
		p.must(t, done, "events", "append", "s", "Both", "{}")
		eventually(t, "the parts of a split event", shown(`"Sent"`))
		interrupt()
		if status := <-ended; status != failed ||
			!strings.Contains(errs.String(), "1 event of tenant \"default\" cannot be read") {
			t.Errorf("status %d: %s", status, errs.String())
		}
		got := shownLines(t, out.String())
		for i, want := range []string{" unreadable Bad {}", ".1 Paid {}", ".2 Sent {}"} {
			if line := got[len(got)-3+i]; !strings.HasSuffix(line, want) {
				t.Errorf("shown %q, want one that ends with %q", line, want)
			}
		}
	})
}

// An export is a copy unless it is asked for current events. Both can be imported.
func TestProgramExportsCopiesAndCurrentEvents(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := withStoredThen(t, p)
		p.must(t, done, "tenants", "create", "copy", "now")
		mustShow(t, "export", program.must(t, done, "events", "export"), storedLines())
		mustShow(t, "export --current", program.must(t, failed, "events", "export", "--current"), currentLines())
		if out := p.must(t, misused, "events", "export", "--current"); !strings.Contains(out,
			"--current needs a registry of event types") {
			t.Error(out)
		}
		wants := []string{storedLines()[0], storedLines()[1], storedLines()[2], storedLines()[7]}
		mustShow(t, "export of a type", program.must(t, done, "events", "export", "--type", "Placed.v3"), wants)
		mustShow(t, "export --stored", program.must(t, done, "events", "export", "--stored"), storedLines())
		for _, p := range []place{p, program} {
			out := p.must(t, done, "events", "export", "--stored", "--type", "Placed,Gone")
			mustShow(t, "export of stored types", out, []string{storedLines()[0], storedLines()[7]})
		}
		if out := program.must(t, misused, "events", "export", "--stored", "--current"); !strings.Contains(out,
			"--stored and --current exclude each other") {
			t.Error(out)
		}
		stored, current := filepath.Join(t.TempDir(), "stored.ndjson"), filepath.Join(t.TempDir(), "current.ndjson")
		program.must(t, done, "events", "export", "--output", stored)
		if out := program.must(t, failed, "events", "export", "--current", "--output", current); !strings.Contains(out,
			"wrote 8 events up to position 10") ||
			!strings.Contains(out, "3 events of tenant \"default\" cannot be read, the first at position 6") {
			t.Error(out)
		}
		mustShow(t, "the file", readText(t, current), currentLines())
		p.must(t, done, "events", "import", stored, "--tenant", "copy")
		mustShow(t, "the copy", program.must(t, failed, "events", "stream", "s", "--tenant", "copy", "--json"),
			currentLines())
		out := p.must(t, failed, "events", "import", current, "--tenant", "now")
		if !strings.Contains(out, "imported 8 events\n") ||
			!strings.Contains(out,
				`line 7: event 6 (Bad of stream "s", version 6) could not be read when the file was written: decode event 6`) {
			t.Error(out)
		}
		mustShow(t, "the current events", program.must(t, done, "events", "stream", "s", "--tenant", "now", "--json"),
			[]string{
				`1 Placed.v3 {"cents":500}`, `2 Placed.v3 {"cents":600}`, `3 Placed.v3 {"cents":7}`, `4 Paid {}`,
				`5 Sent {}`, `6 Noted [1]`, `7 Strange {"x":1}`, `8 Noted [2]`,
			})
	})
}

func TestProgramAppendsOnlyWhatItsTypesWrite(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := p
		program.options = registry(t)
		p.must(t, done, "migrate", "up")
		for line, says := range map[string]string{
			`events append s Plcaed.v3 {"cents":1}`:   `millrace: event type "Plcaed.v3" is not registered`,
			`events append s Placed.v3 {"cent":1}`:    "decode the body of an event of type Placed.v3 as commandline.placed at cent: the type has no such field",
			`events append s Placed.v3 {"cents":"1"}`: "decode the body of an event of type Placed.v3 as commandline.placed at cents: json: cannot unmarshal",
			`events append s Placed.v3 {}`:            "at cents: the body has no such member",
			`events append s Placed.v3 --key k`:       "the body has no such member",
			`events append s Paid`:                    "event.New writes an object, not null",
			`events append s Paid null`:               "event.New writes an object, not null",
		} {
			if out := program.must(t, misused, strings.Fields(line)...); !strings.Contains(out, says) {
				t.Errorf("%s: printed %q, want %q", line, out, says)
			}
		}
		if out := p.must(t, done, "events", "count"); out != "0\n" {
			t.Errorf("%s events were appended", out)
		}
		for _, line := range []string{`Placed.v3 {"cents":1}`, `Placed.v3 {"cents":1,"note":"n"}`,
			`Placed {"amount":"5"}`, `Noted [1]`, `Noted`, `Paid {}`} {
			program.must(t, done, append([]string{"events", "append", "s"}, strings.Fields(line)...)...)
		}
		p.must(t, done, "events", "append", "s", "Plcaed.v3", `{"cent":1}`)
	})
}

// parkAll parks all events for a projection.
func parkAll(t *testing.T, p place) {
	t.Helper()
	m, err := openModels(t.Context(), p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rt, err := millrace.New(nodeConfig(m.Store))
	if err != nil {
		t.Fatal(err)
	}
	err = rt.Register(millrace.Projection{Name: "totals", OnFailure: projection.ActionPark,
		Retry:           projection.RetryPolicy{MaxAttempts: 1},
		MaxFailureShare: projection.NoLimit,
		Handler: m.Each(func(context.Context, kit.Tx, event.Envelope) error {
			return errors.New("division by zero")
		})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RunUntilIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestProgramShowsCurrentEventsOfDeadLettersAndSelectsByStoredTypes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		program := withStoredThen(t, p)
		parkAll(t, p)
		for id, want := range map[string][]string{
			"1": {"type Placed\n", "current type: Placed.v3\nbody: {\"cents\":500}\n"},
			"3": {"type Placed.v3\n", "\nbody: {\"cents\":7}\n"},
			"4": {"type Both\n", "current type: Paid\nbody: {}\ncurrent type: Sent\nbody: {}\n"},
			"6": {
				"type Bad\n",
				"the body is as stored: decode event 6 (Bad of stream \"s\") as Paid: the upcaster failed at \"Bad\": on purpose\nbody: {}\n",
			},
			"7": {"type Worse\n", "the upcaster failed at \"Worse\": ", "on purpose", "\nbody: {}\n"},
			"9": {"type Strange\n", "\nbody: {\"x\":1}\n"},
		} {
			out := program.must(t, done, "dead-letters", "show", "totals", id)
			for _, part := range want {
				if !strings.Contains(out, part) {
					t.Errorf("dead letter %s: %s, want %q", id, out, part)
				}
			}
			plain := p.must(t, done, "dead-letters", "show", "totals", id)
			if out := program.must(t, done, "dead-letters", "show", "totals", id, "--stored"); out != plain ||
				strings.Contains(out, "current type") {
				t.Errorf("dead letter %s as stored: %s, and without a registry: %s", id, out, plain)
			}
		}
		for id, want := range map[string]string{
			"1": `"type":"Placed.v3"`,
			"4": `"parts":[{"tenant":"default","position":4,"stream":"s","version":4,"part":1,"type":"Paid"`,
			"6": `"unreadable":"decode event 6 `,
		} {
			if out := program.must(t, done, "dead-letters", "show", "totals", id, "--json"); !strings.Contains(out,
				want) || (id == "4") == strings.Contains(out, `"event":`) {
				t.Errorf("dead letter %s: %s, want %s", id, out, want)
			}
		}
		for eventType, want := range map[string]string{
			"Placed.v3": "1\n", "Placed": "2\n", "Paid": "0\n", "Both": "1\n",
		} {
			if out := program.must(t, done, "dead-letters", "count", "totals", "--type", eventType); out != want {
				t.Errorf("count of %s: %q, want %q", eventType, out, want)
			}
		}
		for _, command := range []string{"list", "count", "replay", "discard", "purge"} {
			if out := program.must(t, misused, "dead-letters", command, "totals", "--stored"); !strings.Contains(out,
				"unknown flag: --stored") {
				t.Errorf("%s: %s", command, out)
			}
		}
		if out := program.must(t, done, "dead-letters", "discard", "totals", "--type", "Placed", "--limit", "1",
			"--yes"); out != "totals: discarded 1 event\n" {
			t.Error(out)
		}
		if out := p.must(t, done, "dead-letters", "list", "totals", "--json"); strings.Count(out,
			`"type":"Placed"`) != 1 || !strings.Contains(out, `"position":8,`) {
			t.Error(out)
		}
	})
}
