package machine

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/tenancy"
)

var rewrite = flag.Bool("rewrite", false, "write what the machine does into testdata and doc.go")

// TestScripts runs the scripts of testdata: lines with inputs, "----", and the whole trace as the expectation.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := script(t, string(text), nil)
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script runs a script and returns it with what the machine did. seen, if not nil, is called with each transition.
func script(t *testing.T, text string, seen func(before State, in Input, after State)) string {
	w := &stage{t: t, now: time.Unix(1000, 0), seen: seen}
	var out strings.Builder
	defer func() {
		if t.Failed() && seen == nil {
			t.Logf("the last block did:\n%s", w.out.String())
		}
	}()
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		head, want, _ := strings.Cut(block, "\n----\n")
		head = strings.TrimSuffix(head, "\n----")
		w.out.Reset()
		for _, line := range strings.Split(head, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				w.line(line)
			}
		}
		got := w.out.String()
		if seen == nil && !*rewrite && strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("after %q:\n got:\n%s\nwant:\n%s", head, got, want)
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", head, got)
	}
	return strings.TrimSpace(out.String()) + "\n"
}

// stage is the world of a script: it plays the shell, and its lines say how jobs end.
type stage struct {
	t       *testing.T
	m       Machine
	now     time.Time
	out     strings.Builder
	seen    func(before State, in Input, after State)
	run     BatchRun
	replay  CommandRun
	step    any // of run or replay, that waits for its end
	verbose bool
}

func (w *stage) line(line string) {
	word, rest, _ := strings.Cut(line, " ")
	a := readArgs(w.t, rest)
	switch word {
	case "config":
		w.m = New(a.config(), a.row())
		w.m.LeaseDeadline = w.now.Add(time.Hour)
		w.verbose = a["log"] != ""
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	default:
		if in := w.input(word, rest, a); in != nil {
			w.take(in)
		}
	}
}

func (w *stage) take(in Input) {
	before := w.m
	m := w.m
	effects := m.Step(in, w.now)
	w.m = m
	if w.seen != nil {
		w.seen(before.State, in, m.State)
	}
	for _, e := range effects {
		if _, logs := e.(Log); !logs || w.verbose {
			fmt.Fprintln(&w.out, w.show(e))
		}
	}
	taken := fmt.Sprint(m.Taken())
	if m.Taken() == NotTaking {
		taken = "-"
	}
	fmt.Fprintf(&w.out, "= %s checkpoint=%d position=%d taken=%s\n", name(m.State), m.Lease.Checkpoint,
		m.Position, taken)
	if before.Sent.Op == m.Sent.Op {
		return
	}
	switch job := w.working().Job.(type) {
	case Apply:
		w.ran(job.Run.Begin())
	case Command:
		w.replayed(job.Replay.Begin())
	}
}

// ran shows the next step of a run, and ends a run that is over.
func (w *stage) ran(run BatchRun, step RunStep) {
	w.run, w.step = run, step
	if end, ends := step.(EndRun); ends {
		w.end(end.Result)
		return
	}
	fmt.Fprintln(&w.out, " ", showStep(step))
}

func (w *stage) replayed(r CommandRun, step ReplayStep) {
	w.replay, w.step = r, step
	if end, ends := step.(EndCommandRun); ends {
		w.end(end.Result)
		return
	}
	fmt.Fprintln(&w.out, " ", showStep(step))
}

func (w *stage) end(r Result) {
	w.step = nil
	w.take(Done{Op: w.working().Op, Result: r, Jitter: 0.5})
}

func (w *stage) working() Working {
	st, working := w.m.State.(Working)
	if !working {
		w.t.Fatalf("nothing is under way in state %s", name(w.m.State))
	}
	return st
}

// input returns the input of a line, or nil if the line ended a step within a job.
func (w *stage) input(word, rest string, a args) Input {
	switch word {
	case "start":
		return Started{Stale: a["stale"] != ""}
	case "deadline":
		return LeaseDeadline{w.now.Add(a.dur("in", 0))}
	case "tail":
		return TailAdvanced{
			Tail{
				Incarnation: engine.Incarnation(a.num("incarnation", 0)), Mark: a.num("mark", 0),
				From: a.num("from", 0), Events: a.events(),
			},
		}
	case "tail-failed":
		if rest == "restored" {
			return TailFailed{tenancy.ErrRestored}
		}
		return TailFailed{errors.New(rest)}
	case "tail-dropped":
		return TailDropped{}
	case "revalidate":
		return Revalidate{a.row()}
	case "unanswered":
		return Unanswered{}
	case "gate":
		in := ServerAnswers{Waited: a["opened"] != "", Jitter: 0.5}
		if a["row"] != "" {
			row := a.row()
			in.Lease = &row
		}
		return in
	case "resume":
		return Resumed{}
	case "command":
		return CommandPending{}
	case "tick":
		return Tick{}
	case "drain":
		return Drain{}
	case "late":
		return Done{Op: int(a.num("op", 1)), Result: OK{}}
	}
	if w.step != nil {
		w.answer(word, a)
		return nil
	}
	var r Result = OK{}
	switch word {
	case "ok":
	case "row":
		r = Loaded{a.row()}
	case "recorded":
		r = Recorded{w.now}
	case "answer":
		answer := Answer{}
		if action := a.action("action"); action != nil {
			answer.Action = action
		}
		r = answer
	case "moved":
		r = Advanced{Moved: true}
	case "fault":
		r = Faulted{a.fault()}
	default:
		w.t.Fatalf("unknown input %q", word)
	}
	return Done{Op: w.working().Op, Result: r, Jitter: 0.5}
}

// answer ends a step within a job.
func (w *stage) answer(word string, a args) {
	switch step := w.step.(type) {
	case ReadPage:
		if word == "page" {
			w.ran(w.run.Read(a.page()))
			return
		}
	case CountFailed:
		if word == "failed" {
			w.ran(w.run.Counted(a.num("letters", 0)))
			return
		}
	case ListParked:
		if word == "streams" {
			w.ran(w.run.Listed(a.listed()))
			return
		}
	case FindParked:
		if word == "streams" {
			w.ran(w.run.FoundParked(a.set("parked")))
			return
		}
	case BeginAttempt:
		if word == "counted" {
			w.ran(w.run.Begun())
			return
		}
	case ApplyBatch:
		if word == "applied" {
			partial, fault := a.partial(), a.faultOrNil()
			if partial != nil && fault != nil {
				partial.Err = fault
			}
			w.end(w.run.Applied(RunResult{Partial: partial, Fault: fault, Outage: a["outage"] != "", Next: a.next(),
				NoRoom: a["no-room"] != ""}))
			return
		}
	case ScheduleReplay:
		if word == "scheduled" {
			w.replayed(w.replay.Scheduled(Scheduled{Made: a["found"] != "", Next: a.dur("next", 0)}))
			return
		}
	case FindCommand:
		if word == "found" {
			w.replayed(w.replay.FoundCommand(a.queue()))
			return
		}
	case Discard:
		if word == "discarded" {
			w.replayed(w.replay.Discarded(a.num("letters", 0)))
			return
		}
	case BeginReplay:
		if word == "replay" {
			w.replayed(w.replay.Begun(a.letter(step.Command)))
			return
		}
	case ReadEvent:
		switch word {
		case "page":
			w.replayed(w.replay.Read(a.page()))
			return
		case "fault":
			w.replayed(w.replay.Applied(a.fault(), false, w.now))
			return
		}
	case ApplyReplay:
		if word == "applied" {
			w.replayed(w.replay.Applied(a.faultOrNil(), a["outage"] != "", w.now))
			return
		}
	case RecordFailedReplay:
		if word == "ended" {
			w.replayed(w.replay, w.replay.Ended(step))
			return
		}
	}
	if word != "fault" {
		w.t.Fatalf("%q does not end the step %T", word, w.step)
	}
	if _, runs := w.working().Job.(Apply); runs {
		w.end(w.run.Faulted(a.fault()))
		return
	}
	w.end(w.replay.Faulted(a.fault()))
}

// TestMachineHasNoFlags checks that no bool beside State hides a part of the state. Columns of the row and settings do
// not count.
func TestMachineHasNoFlags(t *testing.T) {
	for _, v := range []any{Machine{}, ReplayQueue{}, Tail{}, Buffer{}, BatchSizer{}, Breaker{}, Crash{}, Faults{},
		Sent{}, Working{}, RetryWait{}, OutageWait{},
		EventWait{}, AtGate{}, FaultWait{}, Misconfigured{}, Unconfirmed{}, FeedFailed{}, Halted{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Type.Kind() == reflect.Bool {
				t.Errorf("%s.%s is a flag", typ.Name(), f.Name)
			}
		}
		if n := typ.NumField(); n > 15 {
			t.Errorf("%s has %d fields", typ.Name(), n)
		}
	}
}
