package machine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// args are the arguments of a line of a script.
type args map[string]string

func readArgs(t *testing.T, s string) args {
	a := args{}
	for _, f := range strings.Fields(s) {
		k, v, ok := strings.Cut(f, "=")
		if !ok {
			v = "true"
		}
		a[k] = v
	}
	return a
}

func (a args) num(k string, def int64) int64 {
	if a[k] == "" {
		return def
	}
	n, err := strconv.ParseInt(a[k], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) dur(k string, def time.Duration) time.Duration {
	if a[k] == "" {
		return def
	}
	d, err := time.ParseDuration(a[k])
	if err != nil {
		panic(err)
	}
	return d
}

var actionNames = map[string]projection.Action{"retry": projection.ActionRetry, "park": projection.ActionPark,
	"park-stream": projection.ActionParkStream,
	"skip":        projection.ActionSkip, "stop": projection.ActionStop}

func (a args) action(k string) *projection.Action {
	action, known := actionNames[a[k]]
	if !known {
		return nil
	}
	return &action
}

func (a args) set(k string) map[string]bool {
	set := map[string]bool{}
	for _, s := range strings.Split(a[k], ",") {
		set[s] = true
	}
	return set
}

// listed returns the parked streams: those of parked=, or many.
func (a args) listed() []string {
	if n := a.num("many", 0); n > 0 {
		return make([]string, n)
	}
	if a["parked"] == "" {
		return nil
	}
	return slices.Sorted(maps.Keys(a.set("parked")))
}

// events reads "1,2/stream,3/stream:type". An event with "!" at its end cannot be read.
func (a args) events() (list events) {
	if a["events"] == "" {
		return nil
	}
	for _, f := range strings.Split(a["events"], ",") {
		var unreadable error
		f, marked := strings.CutSuffix(f, "!")
		if marked {
			unreadable = errors.New("too large")
		}
		f, typ, _ := strings.Cut(f, ":")
		pos, stream, _ := strings.Cut(f, "/")
		n, err := strconv.ParseInt(pos, 10, 64)
		if err != nil {
			panic(err)
		}
		list = append(list, event.Envelope{Position: n, Stream: stream, Type: typ, Unreadable: unreadable})
	}
	return list
}

func (a args) page() engine.Page { return engine.Page{Events: a.events(), To: a.num("to", 0)} }

func (a args) next() *engine.Page {
	if a["next"] == "" {
		return nil
	}
	return &engine.Page{Events: a.events(), To: a.num("next", 0)}
}

func (a args) config() *Config {
	def := &engine.Definition{MaxEvents: int(a.num("max", 4)), MaxBytes: 1 << 20}
	def.Retry = projection.RetryPolicy{
		MaxAttempts: max(0, int(a.num("retries", 2))) + 1, Base: 100 * time.Millisecond, Cap: 5 * time.Second,
		Factor: 2,
	}
	def.MaxParked, def.MaxFailureShare = a.num("max-parked", -1), -1
	def.MaxBlocked = a.num("max-blocked", -1)
	if a["share"] != "" {
		def.MaxFailureShare = 0.5
	}
	def.OnFailure = projection.ActionPark // a script says park-stream where it means it
	if action := a.action("on-failure"); action != nil {
		def.OnFailure = *action
	}
	if a["handler"] != "" {
		def.FailureHandler = neverCalled
	}
	def.Replay = engine.Policy{Replay: projection.ReplayPolicy{Interval: a.dur("replay", 0)}}.WithDefaults().Replay
	if n := a.num("breaker", 0); n > 0 {
		def.Breaker = engine.BreakerDefaults(projection.BreakerPolicy{
			IsOutage: func(error) bool { panic("not called") }, Failures: int(n),
		})
	}
	if a["type"] != "" {
		def.Types = []string{a["type"]}
	}
	def.Faults = faults.Limits{MissingObject: a.dur("missing", 0)}.WithDefaults()
	return &Config{
		Def: def, HeartbeatInterval: time.Second, AdvanceEvery: time.Second, Start: time.Unix(1000, 0),
		ReplayBackoff: 100 * time.Millisecond,
	}
}

func (a args) row() engine.Lease {
	r := engine.Lease{Row: 1, Owner: "node", Epoch: a.num("epoch", 1), Checkpoint: a.num("checkpoint", 0),
		CrashCount: int(a.num("crashes", 0)), Failed: a["failed"],
		FailingPosition: a.num("failing", 0), Attempts: int(a.num("attempts", 0)),
		CrashPosition: a.num("crash_position", 0), CrashAttempts: int(a.num("crash_attempts", 0)),
		Parked: a.num("parked", 0), ParkedStreams: a["parked-streams"] != "", HasCommands: a["commands"] != "",
		Incarnation: engine.Incarnation(a.num("incarnation", 0))}
	if a["paused"] != "" {
		r.Desired = engine.WantPause
	}
	if a["halted"] != "" {
		r.Halted, r.Failed = true, a["halted"]
	}
	return r
}

var classNames = map[string]faults.Class{"infra": faults.Infrastructure, "lease": faults.LeaseLost,
	"handler": faults.Handler,
	"config":  faults.Configuration, "unclear": faults.Unclear, "interrupted": faults.Interrupted,
	"missing": faults.MissingObject}

func (a args) faultOrNil() *faults.Fault {
	if a["class"] == "" {
		return nil
	}
	return a.fault()
}

func (a args) fault() *faults.Fault {
	if a["changed"] != "" {
		return &faults.Fault{Class: faults.Infrastructure, Err: event.ErrIncarnationChanged}
	}
	err := errors.New("boom")
	if a["final"] != "" {
		err = backoff.Permanent(err)
	}
	switch a["asks"] {
	case "retry":
		err = projection.Retry(err)
	case "park":
		err = projection.Park(err)
	case "park-stream":
		err = projection.ParkStream(err)
	case "skip":
		err = projection.Skip(err)
	case "stop":
		err = projection.Stop(err)
	}
	class, known := classNames[a["class"]]
	if !known {
		panic("class " + a["class"])
	}
	f := &faults.Fault{Class: class, Unreachable: a["unreachable"] != "", Probe: a["probe"] != "",
		Position: a.num("pos", 0),
		Conflict: a["conflict"] != "" || a["blocked"] != "", Blocked: a["blocked"] != "", Err: err}
	if row := a.num("rival", 0); row != 0 {
		f.Rivals = []faults.Rival{{ID: projection.ID{Tenant: "t", Name: "other"}, Row: int32(row)}}
	}
	return f
}

// partial reads how far a delivery came: "to=2 rejected=2".
func (a args) partial() *engine.PartialResult {
	if a["to"] == "" {
		return nil
	}
	p := &engine.PartialResult{To: a.num("to", 0)}
	if a["rejected"] != "" {
		p.Rejected = []engine.Rejected{{DeadLetter: projection.DeadLetter{Position: a.num("rejected", 0), Attempts: 1}}}
		p.FailureWindow.Failed()
	}
	for range a.num("failures", 0) {
		p.FailureWindow.Failed()
	}
	return p
}

func (a args) queue() engine.NextCommand {
	q := engine.NextCommand{Parked: a.num("parked", 0), ParkedStreams: a["parked-streams"] != ""}
	if id := a.num("command", 0); id != 0 {
		q.Command = &engine.Command{ID: id, Replay: a["discard"] == ""}
	}
	return q
}

func (a args) letter(command int64) *engine.Replay {
	if a["over"] != "" {
		return nil
	}
	return &engine.Replay{Command: command, DeadLetter: a.num("letter", 1), Position: a.num("pos", 1),
		Attempts: int(a.num("attempts", 1)),
		Begun:    int(a.num("begun", 1)), OutOfOrder: a["late"] != ""}
}

func neverCalled(context.Context, projection.Failure) projection.Action { panic("not called") }
