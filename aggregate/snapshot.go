package aggregate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/streams"
	"github.com/millrace-go/millrace/internal/usercode"
)

// maxSnapshot limits a state in a snapshot, in bytes of JSON. It is read with each load.
const maxSnapshot = 8 << 20

// Snapshot returns a copy of the category that saves a snapshot of an aggregate with an append, whenever every or more
// events came since the last one. A load then reads the snapshot and the events after it, in one round trip. Every 100
// to 1,000 suits streams that grow longer than that. Shorter streams are read faster without a snapshot.
//
// revision is the revision of the folds: raise it with each change of one of them or of an upcaster, and after events
// were changed by other means than this library. A snapshot of another revision, or of other types of the state or of
// events, is ignored, and replaced in time: a snapshot never decides what is true. An erasure of one of the stream's
// events removes its snapshot.
//
// The state must be of a type that JSON keeps, so all fields are exported, and its parts must not share memory: two
// pointers to one value lead to two values afterwards. A state whose JSON would not decode to an equal value, is not
// UTF-8, or has more than 8 MiB, is not saved. Aggregate.Snapshot shows whether a load has used a snapshot.
func (c *Category[S]) Snapshot(every, revision int) *Category[S] {
	saving := *c
	saving.every, saving.revision = int64(every), revision
	if every < 1 && saving.err == nil {
		saving.err = fmt.Errorf("Snapshot must be every 1 or more events: %d", every)
	}
	if err := keptByJSON(reflect.TypeFor[S](), nil); err != nil && saving.err == nil {
		saving.err = fmt.Errorf("the state has no snapshots: %w", err)
	}
	saving.fingerprint = saving.print()
	return &saving
}

// print returns the fingerprint.
func (c *Category[S]) print() string {
	if c.every == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d ", c.name, c.revision)
	describe(&b, reflect.TypeFor[S](), nil)
	for _, kind := range slices.Sorted(maps.Keys(c.folds)) {
		fmt.Fprintf(&b, "\n%s ", kind)
		describe(&b, c.folds[kind].of, nil)
	}
	fmt.Fprintf(&b, "\n%q", slices.Sorted(slices.Values(c.ignored)))
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:12])
}

// describe writes a type with its fields. around are the types that it stands in.
func describe(b *strings.Builder, t reflect.Type, around []reflect.Type) {
	fmt.Fprintf(b, "%s %s", t.Kind(), t)
	if slices.Contains(around, t) {
		return
	}
	around = append(around, t)
	switch t.Kind() {
	case reflect.Map:
		describe(b, t.Key(), around)
		describe(b, t.Elem(), around)
	case reflect.Array, reflect.Pointer, reflect.Slice:
		describe(b, t.Elem(), around)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			fmt.Fprintf(b, "{%s %q ", f.Name, f.Tag)
			describe(b, f.Type, around)
			b.WriteString("}")
		}
	}
}

// keptByJSON returns an error for a type of which JSON leaves something out. What only shows with a value is found when
// it is saved.
func keptByJSON(t reflect.Type, around []reflect.Type) error {
	if slices.Contains(around, t) || encodesItself(t) {
		return nil
	}
	around = append(around, t)
	switch t.Kind() {
	case reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.Func, reflect.Interface, reflect.UnsafePointer:
		return fmt.Errorf("JSON does not keep a %v", t)
	case reflect.Map:
		switch key := t.Key(); key.Kind() {
		case reflect.Array, reflect.Bool, reflect.Float32, reflect.Float64, reflect.Pointer, reflect.Struct:
			if !encodesItself(key) {
				return fmt.Errorf("JSON has no keys of %v", t)
			}
		}
		return errors.Join(keptByJSON(t.Key(), around), keptByJSON(t.Elem(), around))
	case reflect.Array, reflect.Pointer, reflect.Slice:
		return keptByJSON(t.Elem(), around)
	case reflect.Struct:
		for i := range t.NumField() {
			if err := fieldIsKept(t, t.Field(i), around); err != nil {
				return err
			}
		}
	}
	return nil
}

func fieldIsKept(t reflect.Type, f reflect.StructField, around []reflect.Type) error {
	if !f.IsExported() || f.Tag.Get("json") == "-" {
		return fmt.Errorf("JSON does not keep the field %s of %v", f.Name, t)
	}
	if err := keptByJSON(f.Type, around); err != nil {
		return fmt.Errorf("field %s of %v: %w", f.Name, t, err)
	}
	return nil
}

// encodesItself reports whether values of a type read and write their own JSON or text.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Implements(reflect.TypeFor[json.Marshaler]()) && p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) &&
			p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// sumLength is the length of the checksum before the state in a snapshot, in hexadecimal digits. A file does not notice
// when bytes change.
const sumLength = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns a state as a snapshot has it, and false if JSON does not keep it, a method of it panics, it is too
// large, or a method writes bytes that PostgreSQL does not store as text.
func encode[S any](state S) (snapshot []byte, ok bool) {
	err := usercode.Protect(func() error {
		body, err := json.Marshal(state)
		if err != nil || len(body) > maxSnapshot || !utf8.Valid(body) {
			return err
		}
		snapshot = append(fmt.Appendf(nil, "%0*x", sumLength, crc32.Checksum(body, castagnoli)), body...)
		decoded, fits := decode[S](snapshot)
		ok = fits && reflect.DeepEqual(decoded, state)
		return nil
	})
	return snapshot, ok && err == nil
}

// decode returns the state of a snapshot, and false if it does not have one.
func decode[S any](snapshot []byte) (state S, ok bool) {
	if len(snapshot) < sumLength {
		return state, false
	}
	sum, body := snapshot[:sumLength], snapshot[sumLength:]
	if !bytes.Equal(sum, fmt.Appendf(nil, "%0*x", sumLength, crc32.Checksum(body, castagnoli))) {
		return state, false
	}
	if json.Unmarshal(body, &state) != nil {
		return *new(S), false
	}
	return state, true
}

// due reports whether the append of n events to an aggregate saves a snapshot.
func (c *Category[S]) due(l *loaded[S], n int) bool {
	return c.every > 0 && l.saves && l.Version+int64(n)-l.saved >= c.every
}

// save returns the snapshot of an aggregate with the events that the log can read by now, none if it cannot be saved.
func (c *Category[S]) save(ctx context.Context, from streams.Log, l *loaded[S]) ([]streams.Snapshot, error) {
	if err := c.read(ctx, from, l); err != nil {
		return nil, err
	}
	return c.snapshot(l, c.every), nil
}

// snapshot returns the snapshot of an aggregate, none if it cannot be saved. It replaces one of another release if that
// is every events older.
func (c *Category[S]) snapshot(l *loaded[S], every int64) []streams.Snapshot {
	state, ok := encode(l.State)
	if !ok {
		return nil
	}
	return []streams.Snapshot{{Stream: l.Stream, Version: l.Version, Position: l.Position, Time: l.last,
		Fingerprint: c.fingerprint,
		State:       state, Generation: l.generation, Every: every}}
}

// SaveSnapshots saves snapshots of the category's aggregates among the streams of these events. It is the work of a
// snapshotter, a projection for streams that were long before the category had snapshots, or to which other programs
// append:
//
//	pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
//		return orders.SaveSnapshots(ctx, aggregate.Within(tenant, tx), events)
//	})
//
// An aggregate is looked at when the version of one of its events is a multiple of Snapshot's every, so the projection
// must get all events of the streams. Its snapshot is of the present state. It is saved if the stream has none that
// this category loads, or if every or more events came since that. After a change of the revision, a reset of the
// projection saves all snapshots anew.
//
// It returns the errors of Load, so a snapshotter parks the event of an aggregate that it cannot fold, such as one with
// ErrUnknownType during a rollout. It also returns an error if the category has no snapshots, or if the store has no
// table for them: Migrate creates it.
func (c *Category[S]) SaveSnapshots(ctx context.Context, s Store, events []event.Envelope) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.every == 0 {
		return fmt.Errorf("save snapshots of the category %s: it has none: see Category.Snapshot", c.name)
	}
	var ids []string
	for _, e := range events {
		if id, ok := c.ID(e.Stream); ok && e.Version%c.every == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // the order in which they are locked
	log, uncached := s.Streams(), *c
	uncached.cache = nil
	for _, id := range slices.Compact(ids) {
		if err := uncached.saveSnapshot(ctx, log, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *Category[S]) saveSnapshot(ctx context.Context, log streams.Log, id string) error {
	l := c.unread(id, c.Stream(id))
	if err := c.read(ctx, log, &l); err != nil {
		return err
	}
	if !l.saves {
		return &faults.Fault{Class: faults.Configuration,
			Err: fmt.Errorf("save a snapshot of %s: the store has no table of snapshots: call Migrate",
				excerpt.Quoted(l.Stream))}
	}
	if l.Snapshot > 0 && l.Version-l.Snapshot < c.every {
		return nil
	}
	list := c.snapshot(&l, 0)
	if len(list) == 0 {
		return nil
	}
	_, err := log.Commit(ctx,
		streams.Commit{Snapshots: func(context.Context, streams.Log) ([]streams.Snapshot, error) { return list, nil }})
	return err
}
