package chaos_test

import (
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/projection"
)

// stored is a committed event. A server that lost events assigns their positions and versions again; the token, which
// the writer chose, then differs.
type stored struct {
	Position int64
	Stream   string
	Version  int64
	Type     string
	Token    string
}

// application is a row of the table public.applied.
type application struct {
	Position int64
	Stream   string
	Version  int64
	Node     string
	Token    string
}

// The kinds of findings.
const (
	kindLost     = "lost"                       // an event that was never applied
	kindDoubled  = "doubled"                    // an event that was applied again
	kindOrder    = "out of global order"        // an event after one of a higher position
	kindStream   = "out of stream order"        // an event after one of a higher version of its stream
	kindForeign  = "never committed"            // an application of no event, or of another one than was committed
	kindUnasked  = "not selected"               // an event of a type that the projection does not select
	kindParked   = "parked"                     // an unexpected dead letter
	kindUnparked = "not parked"                 // a missing dead letter
	kindAppend   = "acknowledged and not there" // an event whose append succeeded
	kindTwice    = "appended twice"             // an event of a command that has its effect twice
	kindState    = "loaded wrongly"             // an aggregate
	kindFollower = "followed wrongly"           // a follower without a projection
	kindLagging  = "never caught up"            // a checkpoint that did not reach its tenant's head
	kindGivenUp  = "discarded and applied"      // an event that was discarded
	kindEpoch    = "epoch did not rise"         // a lease that was claimed without fencing off its previous owner
	kindStolen   = "taken from a living owner"
	kindNode     = "node misbehaved"
	kindRefused  = "append refused" // an append that failed without a reason
)

// finding is a violation of a promise.
type finding struct {
	kind   string
	of     projection.ID
	at     int64
	detail string
}

func (f finding) String() string {
	return fmt.Sprintf("%s: %s at %d: %s", f.kind, f.of, f.at, f.detail)
}

func nodeFinding(format string, args ...any) finding {
	return finding{kind: kindNode, detail: fmt.Sprintf(format, args...)}
}

// history is everything about one projection that has handled all events.
type history struct {
	of                  projection.ID
	types               []string      // nil: all
	split               bool          // it had partitions at some time, so only the order of each stream counts
	events              []stored      // by position
	applied             []application // in the order in which they were applied
	parked, expected    []int64       // the parked events, and those that must be parked
	replayed, discarded []int64       // replayed events are in order only among the events of their stream
	blocked             int           // how many events were parked because of an earlier event of their stream
}

// deadLetter is a row of millrace.dead_letters.
type deadLetter struct {
	Position int64
	State    projection.DeadLetterState
	Blocked  bool
}

// addDeadLetters sorts dead letters by their state.
func (h *history) addDeadLetters(letters []deadLetter) {
	for _, l := range letters {
		switch {
		case h.of.Name != shipments: // others are never replayed or discarded
			h.parked = append(h.parked, l.Position)
		case l.State == projection.DeadLetterResolved:
			h.replayed = append(h.replayed, l.Position)
		case l.State == projection.DeadLetterDiscarded:
			h.discarded = append(h.discarded, l.Position)
		default:
			h.parked = append(h.parked, l.Position)
		}
		if l.Blocked {
			h.blocked++
		}
	}
}

// check compares the applied events with the committed ones.
func check(h history) (findings []finding) {
	found := func(kind string, at int64, format string, args ...any) {
		findings = append(findings, finding{kind, h.of, at, fmt.Sprintf(format, args...)})
	}
	committed := make(map[int64]stored, len(h.events))
	for _, e := range h.events {
		committed[e.Position] = e
	}
	replayed, discarded := positions(h.replayed), positions(h.discarded)
	first := make(map[int64]application, len(h.applied))
	versions := make(map[string]application)
	var highest application
	for _, a := range h.applied {
		before, again := first[a.Position]
		event, exists := committed[a.Position]
		switch {
		case again:
			found(kindDoubled, a.Position, "by %s, and earlier by %s", a.Node, before.Node)
		case !exists:
			found(kindForeign, a.Position, "%s version %d by %s", a.Stream, a.Version, a.Node)
		case event.Stream != a.Stream || event.Version != a.Version || event.Token != a.Token:
			found(kindForeign, a.Position, "%s version %d %s by %s, but %s version %d %s was committed",
				a.Stream, a.Version, a.Token, a.Node, event.Stream, event.Version, event.Token)
		case h.types != nil && !slices.Contains(h.types, event.Type):
			found(kindUnasked, a.Position, "%s by %s", event.Type, a.Node)
		case discarded[a.Position]:
			found(kindGivenUp, a.Position, "%s by %s", event.Type, a.Node)
		}
		if !again {
			first[a.Position] = a
			if highest.Position > a.Position && !replayed[a.Position] && !h.split {
				found(kindOrder, a.Position, "by %s, after %d by %s", a.Node, highest.Position, highest.Node)
			}
			if last := versions[a.Stream]; last.Version > a.Version {
				found(kindStream, a.Position, "%s version %d by %s, after version %d by %s", a.Stream, a.Version,
					a.Node, last.Version, last.Node)
			} else {
				versions[a.Stream] = a
			}
		}
		if a.Position > highest.Position && !replayed[a.Position] {
			highest = a
		}
	}
	for _, at := range h.parked {
		if !slices.Contains(h.expected, at) {
			found(kindParked, at, "%s", committed[at].Type)
		}
	}
	for _, at := range h.expected {
		if !slices.Contains(h.parked, at) {
			found(kindUnparked, at, "%s", committed[at].Type)
		}
	}
	for _, e := range h.events {
		_, applied := first[e.Position]
		concerns := h.types == nil || slices.Contains(h.types, e.Type)
		if concerns && !applied && !discarded[e.Position] && !slices.Contains(h.parked, e.Position) &&
			!slices.Contains(h.expected, e.Position) {
			found(kindLost, e.Position, "%s version %d", e.Stream, e.Version)
		}
	}
	return findings
}

// positions makes a set.
func positions(list []int64) map[int64]bool {
	set := make(map[int64]bool, len(list))
	for _, at := range list {
		set[at] = true
	}
	return set
}
