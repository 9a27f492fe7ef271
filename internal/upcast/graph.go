// Package upcast makes current events of those that a store has: by functions that each lead from one event type to the
// next. It is the core of package eventtype, which is its public face.
package upcast

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
)

var (
	// ErrNotRegistered is returned for an event type that a registry lacks.
	ErrNotRegistered = errors.New("the event type is not registered")
	// ErrOutdated is returned for a selection of an event type that becomes another.
	ErrOutdated = errors.New("the event type is outdated")
	// ErrUpcast is in the error for an event whose upcaster failed.
	ErrUpcast = errors.New("the upcaster failed")
)

// Step leads from an event type to those that take its place.
type Step struct {
	From string
	To   []string
	// Splits reports that one event may become several.
	Splits bool
	// Make returns the events in place of one. Only their types and bodies are used. It is nil if only the name
	// changes.
	Make func(e event.Envelope) ([]event.Event, error)
}

// Graph has the event types of a store. It does not change. A nil Graph knows no types: it refuses none, and every
// event is current.
type Graph struct {
	registered  map[string]bool
	roads       map[string]*road
	fingerprint string
}

// road leads from an old type to the current types, its ends, in the order of the events.
type road struct {
	step Step
	ends []string
	// splits reports that a step of the road splits events.
	splits bool
}

// New returns the Graph of these types and steps. The types include those that steps come from. Its error has all that
// is wrong.
func New(types []string, steps []Step) (*Graph, error) {
	g := &Graph{registered: make(map[string]bool), roads: make(map[string]*road)}
	for _, t := range types {
		g.registered[t] = true
	}
	check := checking{Graph: g, steps: steps}
	check.names(types)
	check.targets()
	if !check.cycles() {
		for _, r := range g.roads {
			r.ends, r.splits = g.follow(r.step)
		}
		check.versions(types)
	}
	if len(check.found) > 0 {
		return nil, errors.Join(check.found...)
	}
	g.fingerprint = g.hash()
	return g, nil
}

// Fingerprint distinguishes the roads of a graph from those of others. It is empty if there are none.
func (g *Graph) Fingerprint() string {
	if g == nil {
		return ""
	}
	return g.fingerprint
}

func (g *Graph) hash() string {
	if len(g.roads) == 0 {
		return ""
	}
	lines := make([]string, 0, len(g.roads))
	for from, r := range g.roads {
		lines = append(lines, fmt.Sprintf("%q %q %q", from, r.step.To, r.ends))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:4])
}

// follow returns the current types to which a step leads.
func (g *Graph) follow(s Step) (ends []string, splits bool) {
	splits = s.Splits
	for _, to := range s.To {
		further := []string{to}
		if r := g.roads[to]; r != nil {
			var split bool
			further, split = g.follow(r.step)
			splits = splits || split
		}
		for _, end := range further {
			if !slices.Contains(ends, end) {
				ends = append(ends, end)
			}
		}
	}
	return ends, splits
}

// Registered returns an error if events of a type must not be appended.
func (g *Graph) Registered(eventType string) error {
	if g == nil || g.registered[eventType] {
		return nil
	}
	return &typeError{eventType, ErrNotRegistered, "is not registered"}
}

// Outdated reports whether events of a type become others.
func (g *Graph) Outdated(eventType string) bool { return g != nil && g.roads[eventType] != nil }

// typeError is an error about one event type.
type typeError struct {
	eventType string
	err       error
	is        string
}

func (e *typeError) Error() string { return "event type " + excerpt.Quoted(e.eventType) + " " + e.is }

func (e *typeError) Unwrap() error { return e.err }
