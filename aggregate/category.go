package aggregate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/valid"
)

var (
	// ErrUnknownType is the error of an event that a category does not fold: see Category.Ignore.
	ErrUnknownType = errors.New("the category does not fold events of this type")
	// ErrID is the error of an id that cannot be that of an aggregate.
	ErrID = errors.New("not the id of an aggregate")
	// ErrKey is the error of a key that cannot be an idempotency key.
	ErrKey = errors.New("not an idempotency key")
)

// Store is a store, one of its tenants, or what Within returns. A store is its default tenant.
type Store interface {
	// Streams is for packages of this module.
	Streams() streams.Log
}

// Fold applies the events of one type to a state. On makes one.
type Fold[S any] struct {
	of    reflect.Type
	kind  string
	apply func(state S, e *event.Envelope) (S, error)
	err   error // the event type cannot be found
	// decided decodes an event of a decision. It returns the function that applies it later, when the rest of the
	// envelope is known.
	decided func(e *event.Envelope) (applied[S], error)
}

// applied returns a state after an event that was decoded before.
type applied[S any] func(state S, e *event.Envelope) S

// On makes a Fold of a pure function: its result depends on the state and the event alone. It may change the maps and
// slices of the state that it gets. It is not called for a redacted event, unless event.IncludeRedacted is among the
// options. It runs while a load reads, with a connection of the store, so it must not wait for the store.
//
// The function also gets the events of a decision, before other processes can read them. Then Envelope.Time is the time
// of the decision by the clock of this process, and Position is 0 until they are appended.
func On[S any, T event.Typed](f func(state S, e event.Of[T]) S, options ...event.DecodeOption) Fold[S] {
	decode := func(e event.Envelope) (event.Of[T], error) { return event.As[T](e, options...) }
	apply := func(state S, e *event.Envelope) (S, error) {
		if handler.SkipsRedacted(*e, options) {
			return state, nil
		}
		of, err := decode(*e)
		if err != nil {
			return state, err
		}
		return f(state, of), nil
	}
	kind, err := usercode.EventType[T]()
	return Fold[S]{of: reflect.TypeFor[T](), kind: kind, err: err, apply: apply,
		decided: func(e *event.Envelope) (applied[S], error) {
			of, err := decode(*e)
			body := of.Body
			return func(state S, e *event.Envelope) S { return f(state, event.Of[T]{Envelope: *e, Body: body}) }, err
		}}
}

// Category describes the aggregates of one kind, whose states are of type S. Its zero state is the one before the first
// event. A Category does not change, so it can be a variable of a package and is safe for concurrent use.
type Category[S any] struct {
	name    string
	folds   map[string]Fold[S]
	ignored []string
	checks  []func(state S) error
	// every is the number of events after which a snapshot is saved, 0 for never. revision is the revision of the
	// folds, and fingerprint what a snapshot depends on beside the events, empty without snapshots.
	every       int64
	revision    int
	fingerprint string
	cache       *cache
	err         error
}

// New returns a category with a fold for each type of event. The stream of an aggregate is the name of the category, a
// hyphen and its id. If something is wrong, such as two folds for one type, every use of the category returns the
// error, and so does Validate.
func New[S any](name string, folds ...Fold[S]) *Category[S] {
	c := &Category[S]{name: name, folds: make(map[string]Fold[S], len(folds))}
	c.err = valid.ID("the name of the category", name)
	switch {
	case c.err == nil && strings.Contains(name, "-"):
		c.err = fmt.Errorf("the name of the category must not contain a hyphen: %s", excerpt.Quoted(name))
	case c.err == nil && len(folds) == 0:
		c.err = errors.New("the category has no folds")
	}
	for _, f := range folds {
		switch first, twice := c.folds[f.kind]; {
		case c.err != nil:
		case f.apply == nil:
			c.err = errors.New("a fold is not made by On")
		case f.err != nil:
			c.err = f.err
		case f.kind == "":
			c.err = fmt.Errorf("the fold of %v has no event type: its EventType is empty", f.of)
		case twice:
			c.err = fmt.Errorf("two folds have the event type %s: those of %v and %v", excerpt.Quoted(f.kind), first.of,
				f.of)
		}
		c.folds[f.kind] = f
	}
	return c
}

// Ignore returns a copy of the category for which events of these types change nothing. Other types without a fold are
// an error, ErrUnknownType: in a rollout a stream may have events of the next release, and a decision without them
// would be wrong.
func (c *Category[S]) Ignore(types ...string) *Category[S] {
	ignoring := *c
	ignoring.ignored = append(slices.Clone(c.ignored), types...)
	for _, kind := range types {
		if f, folded := c.folds[kind]; folded && ignoring.err == nil {
			ignoring.err = fmt.Errorf("the category ignores the event type %s, and has a fold for it, of %v",
				excerpt.Quoted(kind), f.of)
		}
	}
	ignoring.fingerprint = ignoring.print()
	if c.cache != nil {
		ignoring.cache = newCache(c.cache.max)
	}
	return &ignoring
}

// Check returns a copy of the category with a condition that holds for every state after a decision. If it returns an
// error, nothing is appended, and Do returns that error.
func (c *Category[S]) Check(condition func(state S) error) *Category[S] {
	checked := *c
	checked.checks = append(slices.Clone(c.checks), condition)
	return &checked
}

// Validate returns the first reason why the category cannot be used, such as two folds for one type. Call it when the
// program starts.
func (c *Category[S]) Validate() error {
	if c.err != nil {
		return fmt.Errorf("category %s: %w", excerpt.Quoted(c.name), c.err)
	}
	return nil
}

// Stream returns the stream of an aggregate.
func (c *Category[S]) Stream(id string) string { return c.name + "-" + id }

// ID returns the id of the aggregate whose stream it is, and false if the stream is none of the category.
func (c *Category[S]) ID(stream string) (id string, ok bool) {
	return strings.CutPrefix(stream, c.name+"-")
}

// stream returns the stream of an aggregate, or ErrID.
func (c *Category[S]) stream(id string) (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	stream := c.Stream(id)
	switch {
	case id == "":
		return "", fmt.Errorf("%w: it is empty, and the category is %s", ErrID, c.name)
	case strings.HasPrefix(id, c.name+"-"):
		return "", fmt.Errorf("%w: %s is a stream of the category %s, whose id is what follows the hyphen",
			ErrID, excerpt.Quoted(id), c.name)
	}
	if err := valid.ID("the stream", stream); err != nil {
		return "", fmt.Errorf("%w: %w", ErrID, err)
	}
	return stream, nil
}

// Aggregate is the state of one aggregate, as of the last event that was folded.
type Aggregate[S any] struct {
	// ID is the id of the aggregate, and Stream its stream: see Category.Stream.
	ID     string
	Stream string
	// State is folded from the stream's events. It is the zero value if there are none.
	State S
	// Version is the version of the stream, and Position the position of its last event. Both are 0 if the stream has
	// no events.
	Version, Position int64
	// Snapshot is the version of the snapshot with which the load began, 0 if it read the whole stream.
	Snapshot int64
}

// Load reads an aggregate. One without events has the zero state and version 0.
//
// It returns the errors of the store's ReadStream, ErrUnknownType, and an *event.DecodeError for an event whose body
// does not fit its type.
func (c *Category[S]) Load(ctx context.Context, s Store, id string) (Aggregate[S], error) {
	stream, err := c.stream(id)
	if err != nil {
		return Aggregate[S]{}, err
	}
	l := c.unread(id, stream)
	if err := c.read(ctx, s.Streams(), &l); err != nil {
		return Aggregate[S]{}, err
	}
	return l.Aggregate, nil
}

// loaded is an aggregate as it was read.
type loaded[S any] struct {
	Aggregate[S]
	// last is the time of the last event, and begun when the load from the store began.
	last, begun time.Time
	// saves reports that snapshots can be saved. saved is the version of the stream's snapshot, 0 if there is none of
	// these events, and generation that of its snapshots.
	saves             bool
	saved, generation int64
}

func (c *Category[S]) unread(id, stream string) loaded[S] {
	return loaded[S]{Aggregate: Aggregate[S]{ID: id, Stream: stream}}
}

// read adds the events after the version of an aggregate.
func (c *Category[S]) read(ctx context.Context, from streams.Log, l *loaded[S]) error {
	if err := c.readPages(ctx, from, l); err != nil {
		return fmt.Errorf("load %s: %w", excerpt.Quoted(l.Stream), err)
	}
	return nil
}

func (c *Category[S]) readPages(ctx context.Context, from streams.Log, l *loaded[S]) error {
	began := false // by a snapshot
	r := streams.Read{Stream: l.Stream, Limit: streams.PageEvents,
		Begin: func(s *streams.Snapshot) bool {
			began = l.begin(s)
			return began
		},
		Each: func(e *event.Envelope) (err error) {
			l.State, err = c.apply(l.State, e)
			l.Version, l.Position, l.last = e.Version, e.Position, e.Time
			return err
		}}
	source, caches := from.Source()
	caches = caches && c.cache != nil
	key := cacheKey{source, l.Stream}
	if l.Version == 0 {
		r.Fingerprint, l.begun = c.fingerprint, time.Now()
		if caches {
			r.Last = l.recall(c.cache, key)
		}
	}
	recalled := l.Version
	for {
		r.After = l.Version
		page, err := from.Read(ctx, r)
		if err != nil {
			return err
		}
		if page.Changed || r.Fingerprint != "" && !l.found(page, r.Last != nil && !began) {
			*l = c.unread(l.ID, l.Stream) // the cached state is not used
			r.Fingerprint, r.Last, began, recalled, l.begun = c.fingerprint, nil, false, 0, time.Now()
			continue
		}
		r.Fingerprint = ""
		if page.Damaged {
			continue
		}
		r.Last = nil
		if page.Stored < r.Limit && !page.Truncated {
			break
		}
		r.Limit = streams.NextLimit(page.Stored, page.Truncated, r.Limit)
	}
	if l.saved > l.Version {
		l.saved = 0 // it is of events that are gone
	}
	if caches && l.Version > recalled {
		l.store(c.cache, key)
	}
	return nil
}

// found notes what a page says about the snapshots of the stream. It returns false if the state is from the cache, and
// an erasure has ended its generation since. A cached state whose generation is not known saves no snapshot.
func (l *loaded[S]) found(page streams.Page, cached bool) bool {
	if cached && l.saves && l.generation != page.Generation {
		return false
	}
	l.saves = page.Saves && (!cached || l.saves)
	l.saved, l.generation = page.Saved, page.Generation
	return true
}

// begin begins with a snapshot. It returns false if the snapshot is damaged.
func (l *loaded[S]) begin(s *streams.Snapshot) (ok bool) {
	state, ok := decode[S](s.State)
	if ok {
		l.State, l.Version, l.Position, l.last, l.Snapshot = state, s.Version, s.Position, s.Time, s.Version
	}
	return ok
}

// apply folds an event.
func (c *Category[S]) apply(state S, e *event.Envelope) (S, error) {
	if e.Unreadable != nil {
		return state, e.Unreadable
	}
	if f, folded := c.folds[e.Type]; folded {
		return f.apply(state, e)
	}
	if err := c.ignores(e.Type); err != nil {
		return state, fmt.Errorf("event %d of stream %s, %s: %w",
			e.Version, excerpt.Quoted(e.Stream), excerpt.Quoted(e.Type), err)
	}
	return state, nil
}

// ignores returns ErrUnknownType unless events of the type, which has no fold, change nothing.
func (c *Category[S]) ignores(kind string) error {
	if slices.Contains(c.ignored, kind) {
		return nil
	}
	return ErrUnknownType
}
