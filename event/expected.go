package event

import (
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
)

// Expected is the state in which an append expects its stream: Any, NoStream or Exact, each with or without an
// idempotency key. The zero value is Any.
type Expected struct {
	kind    expectedKind
	version int64
	key     string
	keyed   bool
}

type expectedKind int8

const (
	expectAny expectedKind = iota
	expectNone
	expectExact
)

var (
	// Any appends to the stream as it is. A stream that does not exist is created.
	Any = Expected{}
	// NoStream appends only if the stream has no events yet.
	NoStream = Expected{kind: expectNone}
)

// Exact appends only if the stream's last event has version n. Exact(0) is NoStream.
func Exact(n int64) Expected {
	if n == 0 {
		return NoStream
	}
	return Expected{kind: expectExact, version: n}
}

// WithKey returns e with an idempotency key. Of all appends to a tenant with one key only the first appends. The others
// return the first one's result, whatever else they expect. A repeat wins over a version conflict, so an append that is
// sent again after it succeeded succeeds again. An append that fails does not use its key up.
//
// A key belongs to one stream and is 1 to 200 bytes long. The id of the command that led to the events is a good key.
// The store keeps keys for a limited time (see pgstore.Options.KeyRetention, 7 days by default). After that a repeat
// may append again.
func (e Expected) WithKey(key string) Expected {
	e.key, e.keyed = key, true
	return e
}

// Key returns the idempotency key, and false if there is none.
func (e Expected) Key() (key string, ok bool) { return e.key, e.keyed }

// Version returns the version that the stream must have, and false if it may have any. It is 0 for NoStream.
func (e Expected) Version() (version int64, ok bool) { return e.version, e.kind != expectAny }

// String returns the expectation in words.
func (e Expected) String() string {
	switch e.kind {
	case expectNone:
		return "no stream"
	case expectExact:
		return fmt.Sprintf("version %d", e.version)
	}
	return "any version"
}

// maxKeyBytes is the maximum length of an idempotency key, which stands in an index.
const maxKeyBytes = 200

// Validate returns an error if the version is negative or the key cannot be stored.
func (e Expected) Validate() error {
	if e.version < 0 {
		return fmt.Errorf("the expected version must not be negative: %d", e.version)
	}
	if !e.keyed {
		return nil
	}
	if e.key == "" {
		return errors.New("the idempotency key must not be empty")
	}
	if len(e.key) > maxKeyBytes {
		return fmt.Errorf("the idempotency key (%d bytes) must be at most %d bytes", len(e.key), maxKeyBytes)
	}
	return valid.Text("idempotency key", e.key)
}

// Appended is the result of an append.
type Appended struct {
	// Positions are the positions of the events in the tenant's global order, in the order in which the events were
	// given. They rise, but events of other streams may lie between them.
	Positions []int64
	// Version is the stream's version after the append, which is the version of its last event.
	Version int64
	// Repeated reports that the idempotency key was used before. Then nothing was appended now, and Positions and
	// Version are the results of the first append with the key.
	Repeated bool
}

// Last returns the position of the last event of the append, for WaitFor: a read model that has reached it shows what
// was appended. After a repeat it is that of the first append with the key, so that a caller who repeats a command
// waits for the same events. It is 0 for an Appended without events, which is the zero value, of a command that had
// nothing to append. WaitFor does not wait for 0.
func (a Appended) Last() int64 {
	if len(a.Positions) == 0 {
		return 0
	}
	return a.Positions[len(a.Positions)-1]
}

var (
	// ErrVersionConflict is returned if a stream is not in the state that an append expects. The error is a
	// *VersionConflictError.
	ErrVersionConflict = errors.New("version conflict")
	// ErrKeyReused is returned if an idempotency key was used before for another stream.
	ErrKeyReused = errors.New("idempotency key used before")
)

// VersionConflictError describes a version conflict. Nothing was appended.
type VersionConflictError struct {
	Stream   string
	Expected Expected
	// Actual is the stream's version, read right after the conflict. It is 0 if the stream has no events.
	Actual int64
}

func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("%v: stream %s is at version %d, expected %v", ErrVersionConflict, excerpt.Quoted(e.Stream),
		e.Actual, e.Expected)
}

// Unwrap returns ErrVersionConflict.
func (e *VersionConflictError) Unwrap() error { return ErrVersionConflict }
