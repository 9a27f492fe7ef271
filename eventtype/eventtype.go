// Package eventtype has the registry of a program's event types. With it, a program changes its event types for years,
// and handlers and readers only ever meet the current ones: old events are never migrated, but upcast each time that
// they are read.
//
// # The registry
//
// New makes a registry of declarations, and a store gets it as Options.Types:
//
//	types, err := eventtype.New(
//		eventtype.Of[OrderPlaced](),                              // "OrderPlaced.v2"
//		eventtype.Upcast(func(old OrderPlacedV1) (OrderPlaced, error) { … }), // "OrderPlaced" becomes "OrderPlaced.v2"
//		eventtype.Of[OrderCancelled](),
//		eventtype.Renamed("order_cancelled", "OrderCancelled"),
//	)
//	store, err := pgstore.Open(ctx, dsn, pgstore.Options{Types: types})
//
// New checks everything, so that a program with a mistake does not start. A store with a registry refuses appends of
// types that are not registered, with ErrNotRegistered, before it writes anything. A store without one works as if
// there were no package eventtype.
//
// # Versions
//
// The version of an event type is a suffix of its name, as CloudEvents advises: "OrderPlaced.v2". A name without a
// suffix has version 1. A name is stored with each event, so it never gets another meaning: a new shape is a new
// version, and a Go type of its own. Each older version must lead to the newest one, over as many steps as there are.
//
// A type is current if no upcaster leads away from it. Older types are only read, and may be appended while a release
// is rolled out.
//
// # What is upcast
//
// Events are upcast wherever a program gets them: by ReadStream, ReadAll and Follow, and by all handlers of
// projections, also in rebuilds and replays of dead letters. Selections name current types: those of ReadOptions, of
// Projection.Types, and of typed handlers. They select the older events as well. An older type in a selection is an
// error, ErrOutdated. Dead letters have the types of stored events, and DeadLetterFilter.Type is such a type.
//
// Positions, streams, versions, headers, causation, correlation and times are those of the stored event. What the store
// does with events by itself keeps them as they are stored: dead letters, moves, exports, erasures. So does a read with
// ReadOptions.Stored. A projection.Failure has the stored event, too.
//
// An event is split by Split: its parts have the same position, stream and version, and are numbered by Envelope.Part.
// A handler handles all of them in one transaction or none, and a delivery is acknowledged after the last one. The
// limits of batches count stored events. A reader that stops between the parts of an event, and continues later, begins
// again with the first.
//
// # Upcasters
//
// An upcaster is a pure function of the event: it may be called at any time, on several goroutines at once, and again
// for the same event. An upcaster that returns an error or panics is the event's fault, like a body that does not
// decode. The error is an *event.DecodeError with ErrUpcast. A projection does not try the event again, and parks it
// with its stream. A reader yields the event as stored, with the error, and later events follow. No upcaster is called
// for a redacted event, which only gets the name of the current type, or of each that it may become.
//
// docs/shapes.md has the order of releases.
package eventtype

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/valid"
)

var (
	// ErrNotRegistered is returned for an append or a selection of an event type that the registry lacks.
	ErrNotRegistered = upcast.ErrNotRegistered
	// ErrOutdated is returned for a selection of an event type that becomes another. The error names the current type.
	ErrOutdated = upcast.ErrOutdated
	// ErrUpcast is in the *event.DecodeError for an event whose upcaster returned an error, panicked, or returned
	// something else than it declares.
	ErrUpcast = upcast.ErrUpcast
)

// Types is a registry of event types. It does not change, and is safe for concurrent use.
type Types struct {
	graph *upcast.Graph
	// of are the Go types by their event types. Those that Named declares have none.
	of map[string]reflect.Type
}

// New returns a registry. The order of the declarations does not matter, and a Go type may be declared several times.
// The error names everything that is wrong: names whose version cannot be read, two Go types for a name, two upcasters
// of a type, targets that are not declared, cycles, and versions that do not lead to the newest one.
func New(declarations ...Declaration) (*Types, error) {
	var names []string
	var steps []upcast.Step
	var found []error
	types := make(map[string]reflect.Type)
	for _, d := range declarations {
		if d.err != nil {
			found = append(found, d.err)
			continue
		}
		for _, n := range d.names {
			names = append(names, n.name)
			switch before := types[n.name]; {
			case n.of == nil || before == n.of:
			case before != nil:
				found = append(found, fmt.Errorf("event type %s has two Go types: %v and %v",
					excerpt.Quoted(n.name), before, n.of))
			default:
				types[n.name] = n.of
			}
		}
		if d.step != nil {
			steps = append(steps, *d.step)
		}
	}
	graph, err := upcast.New(names, steps)
	if err := errors.Join(append(found, err)...); err != nil {
		return nil, fmt.Errorf("event types: %w", err)
	}
	return &Types{graph, types}, nil
}

// Upcast returns the current events in place of a stored one, as handlers and readers get them. Tests of upcasters call
// it.
func (t *Types) Upcast(e event.Envelope) ([]event.Envelope, error) { return t.Engine().Upcast(e) }

// Stored returns the types of the stored events that a selection of current types selects: these types, and those that
// become them. It is for a program that reads events as they are stored. Without types it returns none. Its errors are
// ErrNotRegistered and ErrOutdated.
func (t *Types) Stored(current ...string) ([]string, error) {
	selected, err := t.Engine().Select(current)
	if err != nil {
		return nil, err
	}
	return selected.Types, nil
}

// Check returns an error for an event that the program would not append: ErrNotRegistered, or an *event.DecodeError if
// event.New does not make such a body of the Go type of the event (see event.Strict). So null is refused where
// event.New writes an object. Stores only check the type. Check is for bodies that come from outside, such as those of
// the command line.
func (t *Types) Check(e event.Event) error {
	if t == nil {
		return nil
	}
	of := t.of[e.Type]
	if err := t.graph.Registered(e.Type); err != nil || of == nil {
		return err
	}
	body := valid.Body(e.Body)
	err := usercode.Protect(func() error {
		return event.Envelope{Type: e.Type, Body: body}.Decode(reflect.New(of).Interface(), event.Strict)
	})
	if err == nil && string(bytes.TrimSpace(body)) == "null" && isObject(of) {
		// Strict accepts it for a type without members.
		err = errors.New("event.New writes an object, not null")
		err = &event.DecodeError{Type: e.Type, Into: of.String(), Err: err}
	}
	return err
}

// isObject reports whether event.New writes an object for each value of a Go type.
func isObject(of reflect.Type) bool {
	return of.Kind() == reflect.Struct &&
		!of.Implements(reflect.TypeFor[json.Marshaler]()) && !of.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Engine is called by stores.
func (t *Types) Engine() *upcast.Graph {
	if t == nil {
		return nil
	}
	return t.graph
}

// Declaration is a part of a registry: an event type, or an upcaster with its types.
type Declaration struct {
	names []named
	step  *upcast.Step
	err   error
}

// named is a name of an event type, with its Go type if there is one.
type named struct {
	name string
	of   reflect.Type
}

// Of declares the event type of a Go type, by the EventType of its zero value.
func Of[T event.Typed]() Declaration {
	n, err := nameOf[T]()
	return Declaration{names: []named{n}, err: err}
}

// Named declares event types without Go types, for programs that use event.Untyped.
func Named(names ...string) (d Declaration) {
	for _, name := range names {
		d.names = append(d.names, named{name: name})
	}
	return d
}

// Upcast declares two Go types, and a function that leads from the event type of the first to that of the second. The
// options are those of event.As: with event.Strict, a body of another shape is an error.
func Upcast[Old, Current event.Typed](f func(old Old) (Current, error), options ...event.DecodeOption) Declaration {
	from, fromErr := nameOf[Old]()
	to, toErr := nameOf[Current]()
	return Declaration{names: []named{from, to}, err: errors.Join(fromErr,
		toErr, missing(f == nil, "Upcast", from.name)),
		step: &upcast.Step{From: from.name, To: []string{to.name}, Make: func(e event.Envelope) ([]event.Event, error) {
			old, err := event.As[Old](e, options...)
			if err != nil {
				return nil, err
			}
			current, err := f(old.Body)
			if err != nil {
				return nil, err
			}
			return []event.Event{event.New(current)}, nil
		}}}
}

// UpcastJSON declares an event type without a Go type, and a function that leads from it to another type. That one is
// declared elsewhere. The function gets a copy of the body.
func UpcastJSON(from, to string, f func(body json.RawMessage) (json.RawMessage, error)) Declaration {
	return Declaration{names: []named{{name: from}}, err: missing(f == nil, "UpcastJSON", from),
		step: &upcast.Step{From: from, To: []string{to}, Make: func(e event.Envelope) ([]event.Event, error) {
			body, err := f(append(json.RawMessage(nil), e.Body...))
			return []event.Event{event.Untyped(to, body)}, err
		}}}
}

// Renamed declares an old name of an event type, whose body is unchanged. The type is declared elsewhere.
func Renamed(from, to string) Declaration {
	return Declaration{names: []named{{name: from}}, step: &upcast.Step{From: from, To: []string{to}}}
}

// Split declares a Go type, and a function that makes one or more events in place of one. Only their types and bodies
// are used. Their types are among to, and are declared elsewhere.
func Split[Old event.Typed](f func(old Old) ([]event.Event, error), to ...string) Declaration {
	from, err := nameOf[Old]()
	return Declaration{names: []named{from}, err: errors.Join(err, missing(f == nil, "Split", from.name)),
		step: &upcast.Step{From: from.name, To: to, Splits: true, Make: func(e event.Envelope) ([]event.Event, error) {
			old, err := event.As[Old](e)
			if err != nil {
				return nil, err
			}
			return f(old.Body)
		}}}
}

// nameOf returns the event type of a Go type.
func nameOf[T event.Typed]() (n named, err error) {
	name, err := usercode.EventType[T]()
	return named{name: name, of: reflect.TypeFor[T]()}, err
}

func missing(is bool, by, from string) error {
	if !is {
		return nil
	}
	return fmt.Errorf("the function of %s for event type %s is nil", by, excerpt.Quoted(from))
}
