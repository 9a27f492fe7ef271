package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// Typed is the body of an event that names its event type. The name is stored with each event, so it must never change.
// EventType is also called on the zero value of a type, to find the events that belong to it.
type Typed interface{ EventType() string }

// New returns an event with that body, encoded as JSON. If the body cannot be encoded, the append returns the error
// before it writes anything.
func New[T Typed](body T) Event { return Untyped(body.EventType(), body) }

// Of is a stored event with its decoded body. Envelope.Body is the body as stored.
type Of[T Typed] struct {
	Envelope
	Body T
}

// As decodes an event as T. JSON members that T does not have are ignored, unless Strict is among the options. It
// returns a *DecodeError if the event has another type or its body does not fit, and with ErrRedacted if the event is
// redacted, unless IncludeRedacted is among the options.
func As[T Typed](e Envelope, options ...DecodeOption) (Of[T], error) {
	var body T // alone, since what json.Unmarshal gets is allocated
	if want := body.EventType(); e.Type != want {
		return Of[T]{Envelope: e}, newDecodeError(e, &body, fmt.Errorf("its type is not %s", excerpt.Quoted(want)))
	}
	err := e.Decode(&body, options...)
	return Of[T]{Envelope: e, Body: body}, err
}

// Decode decodes the body into v, as json.Unmarshal does. It returns a *DecodeError if the body does not fit. For a
// redacted event the error is ErrRedacted. With IncludeRedacted there is none, and v is unchanged.
func (e Envelope) Decode(v any, options ...DecodeOption) error {
	if e.Redacted() {
		if slices.Contains(options, IncludeRedacted) {
			return nil
		}
		return newDecodeError(e, v, ErrRedacted)
	}
	if err := json.Unmarshal(e.Body, v); err != nil {
		return newDecodeError(e, v, err)
	}
	if slices.Contains(options, Strict) {
		return strictly(e, v)
	}
	return nil
}

// DecodeError is returned for a body that does not decode. The same body never decodes, so a projection does not retry
// an event whose handler returns a DecodeError.
type DecodeError struct {
	// Position is 0 if the event is not stored yet.
	Position int64
	Stream   string
	Type     string
	// Path is the place in the body, such as items[2].amount. It is empty if the decoder reports none.
	Path string
	// Into is the Go type of the destination.
	Into string
	Err  error
}

func newDecodeError(e Envelope, v any, err error) *DecodeError {
	failed := &DecodeError{
		Position: e.Position, Stream: e.Stream, Type: e.Type, Into: strings.TrimPrefix(fmt.Sprintf("%T", v), "*"),
		Err: err,
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		failed.Path = pathAt(e.Body, mismatch.Offset)
	}
	return failed
}

func (e *DecodeError) Error() string {
	at := ""
	if e.Path != "" {
		at = " at " + excerpt.Of(e.Path)
	}
	if e.Position == 0 { // it is not stored
		return fmt.Sprintf("decode the body of an event of type %s as %s%s: %v", excerpt.Of(e.Type), e.Into, at, e.Err)
	}
	return fmt.Sprintf("decode event %d (%s of stream %s) as %s%s: %v", e.Position, excerpt.Of(e.Type),
		excerpt.Quoted(e.Stream), e.Into, at, e.Err)
}

// Unwrap returns the error of the decoder.
func (e *DecodeError) Unwrap() error { return e.Err }

// level is an object or an array around a value. tokens counts its keys and values so far.
type level struct {
	array  bool
	tokens int
	key    string
}

// pathAt returns the path of the value at which a decoder stopped: the first whose first token ends at offset or later.
func pathAt(body []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var around []*level
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			around = around[:len(around)-1]
			continue
		}
		if len(around) > 0 {
			inner := around[len(around)-1]
			if !inner.array && inner.tokens%2 == 0 {
				inner.key = token.(string)
			}
			inner.tokens++
		}
		switch {
		case decoder.InputOffset() >= offset:
			return path(around)
		case isDelim:
			around = append(around, &level{array: delim == '['})
		}
	}
}

func path(around []*level) string {
	var b strings.Builder
	for _, l := range around {
		if l.array {
			b.WriteString("[" + strconv.Itoa(l.tokens-1) + "]")
		} else {
			b.WriteString("." + l.key)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
