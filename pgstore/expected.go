package pgstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
)

// Expected says what must be true of a stream for an append to it: Any, NoStream or Exact, each of them WithKey or
// without. The zero value is Any.
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
	// Any appends to the stream as it is, and begins it where there is none.
	Any = Expected{}
	// NoStream appends only where the stream has no events yet.
	NoStream = Expected{kind: expectNone}
)

// Exact appends only where the stream's last event has version n. Exact(0) is NoStream.
func Exact(n int64) Expected {
	if n == 0 {
		return NoStream
	}
	return Expected{kind: expectExact, version: n}
}

// WithKey returns e with an idempotency key: of all appends to a tenant under one key only the first appends, and the
// others return its result, whatever else they ask for. A repeat wins over a version conflict, so that an append that is
// sent again after it succeeded succeeds again. An append that fails does not use its key up. The key belongs to one
// stream and is 1 to 200 bytes long; the id of the command that led to the events is a good one. Keys are kept for
// Options.KeyRetention, 7 days by default; after that a repeat may append again.
func (e Expected) WithKey(key string) Expected {
	e.key, e.keyed = key, true
	return e
}

// String is the expectation in words.
func (e Expected) String() string {
	switch e.kind {
	case expectNone:
		return "no stream"
	case expectExact:
		return fmt.Sprintf("version %d", e.version)
	}
	return "any version"
}

// met reports whether a stream at that version is as expected.
func (e Expected) met(version int64) bool {
	return e.kind == expectAny || e.version == version // NoStream has version 0
}

func (e Expected) validate() error {
	if e.version < 0 {
		return fmt.Errorf("expected version %d is negative", e.version)
	}
	if !e.keyed {
		return nil
	}
	if e.key == "" {
		return errors.New("the idempotency key is empty")
	}
	if len(e.key) > maxKeyBytes {
		return fmt.Errorf("the idempotency key is %d bytes long, at most %d are allowed", len(e.key), maxKeyBytes)
	}
	return event.ValidText("idempotency key", e.key)
}

var (
	// ErrVersionConflict tells that a stream was not as an append expected it. The error is a *VersionConflictError.
	ErrVersionConflict = errors.New("version conflict")
	// ErrKeyReused tells that an idempotency key was used before, for another stream.
	ErrKeyReused = errors.New("idempotency key used before")
)

// VersionConflictError tells how a stream was when an append expected it to be otherwise. Nothing was appended.
type VersionConflictError struct {
	Stream   string
	Expected Expected
	// Actual is the stream's version, read right after the conflict; 0 means that it has no events.
	Actual int64
}

func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("%v: stream %s is at version %d, expected %v", ErrVersionConflict, excerpt.Quoted(e.Stream), e.Actual, e.Expected)
}

// Unwrap returns ErrVersionConflict.
func (e *VersionConflictError) Unwrap() error { return ErrVersionConflict }

func encodeHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(headers)
	return string(raw), err
}
