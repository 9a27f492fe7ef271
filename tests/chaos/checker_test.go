package chaos_test

import (
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/projection"
)

// stored is an event as it stands in its tenant's events. A server that lost events hands out their positions and versions
// again; the token is the writer's name for the event, and tells it from another one in the same place.
type stored struct {
	Position int64
	Stream   string
	Version  int64
	Type     string
	Token    string
}

// application is one row of the table of what was applied.
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
	kindOrder    = "out of global order"        // an event behind one of a higher position
	kindStream   = "out of stream order"        // an event behind one of a higher version of its stream
	kindForeign  = "never committed"            // something applied that is no event, or another one than was committed
	kindUnasked  = "does not concern it"        // an event of a type that the projection did not select
	kindParked   = "parked"                     // a dead letter that nobody expected
	kindUnparked = "not parked"                 // one that was expected and is not there
	kindAppend   = "acknowledged and not there" // an append whose success the writer was told of
	kindBehind   = "never caught up"            // a checkpoint that did not reach its tenant's head
	kindGivenUp  = "discarded and applied"      // an event that somebody gave up
	kindEpoch    = "epoch did not rise"         // a lease that was claimed without fencing off its last owner
	kindStolen   = "taken from a living owner"
	kindNode     = "node did not behave"
)

// finding is one thing that is wrong.
type finding struct {
	kind   string
	of     projection.ID
	at     int64
	detail string
}

func (f finding) String() string {
	return fmt.Sprintf("%s: %s at %d: %s", f.kind, f.of, f.at, f.detail)
}

// course is all that is to be known of one projection when it should be done: the committed events by position, what it
// applied in the order in which it did, what was parked, and what is expected to be. What was replayed is in order among the
// events of its stream only, and what was discarded need not be applied.
type course struct {
	of                  projection.ID
	types               []string // nil: all
	events              []stored
	applied             []application
	parked, expected    []int64
	replayed, discarded []int64
	behind              int // how many events were parked behind one of their stream
}

// letter is a dead letter.
type letter struct {
	Position int64
	State    projection.DeadLetterState
	Behind   bool
}

// take takes its dead letters in.
func (c *course) take(letters []letter) {
	for _, l := range letters {
		switch {
		case c.of.Name != shipments: // nobody replays or discards any of the others
			c.parked = append(c.parked, l.Position)
		case l.State == projection.DeadLetterResolved:
			c.replayed = append(c.replayed, l.Position)
		case l.State == projection.DeadLetterDiscarded:
			c.discarded = append(c.discarded, l.Position)
		default:
			c.parked = append(c.parked, l.Position)
		}
		if l.Behind {
			c.behind++
		}
	}
}

// check compares what was applied with what was committed.
func check(c course) (findings []finding) {
	found := func(kind string, at int64, format string, args ...any) {
		findings = append(findings, finding{kind, c.of, at, fmt.Sprintf(format, args...)})
	}
	committed := make(map[int64]stored, len(c.events))
	for _, e := range c.events {
		committed[e.Position] = e
	}
	replayed, discarded := positions(c.replayed), positions(c.discarded)
	first := make(map[int64]application, len(c.applied))
	versions := make(map[string]application)
	var highest application
	for _, a := range c.applied {
		before, again := first[a.Position]
		event, exists := committed[a.Position]
		switch {
		case again:
			found(kindDoubled, a.Position, "by %s, and before by %s", a.Node, before.Node)
		case !exists:
			found(kindForeign, a.Position, "%s version %d by %s", a.Stream, a.Version, a.Node)
		case event.Stream != a.Stream || event.Version != a.Version || event.Token != a.Token:
			found(kindForeign, a.Position, "%s version %d %s by %s, and committed is %s version %d %s",
				a.Stream, a.Version, a.Token, a.Node, event.Stream, event.Version, event.Token)
		case c.types != nil && !slices.Contains(c.types, event.Type):
			found(kindUnasked, a.Position, "%s by %s", event.Type, a.Node)
		case discarded[a.Position]:
			found(kindGivenUp, a.Position, "%s by %s", event.Type, a.Node)
		}
		if !again {
			first[a.Position] = a
			if highest.Position > a.Position && !replayed[a.Position] {
				found(kindOrder, a.Position, "by %s, behind %d by %s", a.Node, highest.Position, highest.Node)
			}
			if last := versions[a.Stream]; last.Version > a.Version {
				found(kindStream, a.Position, "%s version %d by %s, behind version %d by %s", a.Stream, a.Version, a.Node, last.Version, last.Node)
			} else {
				versions[a.Stream] = a
			}
		}
		if a.Position > highest.Position && !replayed[a.Position] {
			highest = a
		}
	}
	for _, at := range c.parked {
		if !slices.Contains(c.expected, at) {
			found(kindParked, at, "%s", committed[at].Type)
		}
	}
	for _, at := range c.expected {
		if !slices.Contains(c.parked, at) {
			found(kindUnparked, at, "%s", committed[at].Type)
		}
	}
	for _, e := range c.events {
		_, applied := first[e.Position]
		concerns := c.types == nil || slices.Contains(c.types, e.Type)
		if concerns && !applied && !discarded[e.Position] && !slices.Contains(c.parked, e.Position) && !slices.Contains(c.expected, e.Position) {
			found(kindLost, e.Position, "%s version %d", e.Stream, e.Version)
		}
	}
	return findings
}

// positions is a set of them.
func positions(list []int64) map[int64]bool {
	set := make(map[int64]bool, len(list))
	for _, at := range list {
		set[at] = true
	}
	return set
}
