// Package eventfile reads events from NDJSON files: one JSON object in each line, plain or compressed by gzip. A line
// stands for an event, or for an event that could not be read when the file was written.
package eventfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
	"unicode/utf8"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/redact"
	"github.com/millrace-go/millrace/internal/valid"
)

// maxLine is the longest line of a file. It has room for the largest body, the largest headers, and as much for all
// else. It is bounded because an event is in memory several times.
const maxLine = 3 * valid.MaxPrinted

// firstTime is the earliest time that a store keeps, which has microseconds. It is not the zero time, for which an
// append takes its own time.
var firstTime = time.Time{}.Add(time.Nanosecond)

// Record is an event and its stream.
type Record struct {
	Stream string
	Event  event.Event
	// Line is the number of its line, from 1.
	Line int
}

// Unreadable stands in a file in place of an event that could not be read or upcast. It is the member unreadable of an
// object without other members, so that no program takes the line for an event.
type Unreadable struct {
	Tenant   string    `json:"tenant,omitempty"`
	Position int64     `json:"position"`
	Stream   string    `json:"stream"`
	Version  int64     `json:"version"`
	Type     string    `json:"type"`
	Time     time.Time `json:"time"`
	Reason   string    `json:"reason"`
	// Body is that of an event whose upcaster failed, as it is stored.
	Body json.RawMessage `json:"body,omitempty"`
}

// LeftOutError is yielded for a line with an Unreadable. Later lines follow.
type LeftOutError struct{ Unreadable }

func (e *LeftOutError) Error() string {
	return fmt.Sprintf("event %d (%s of stream %s, version %d) could not be read when the file was written: %s",
		e.Position, excerpt.Of(e.Type), excerpt.Quoted(e.Stream), e.Version, e.Reason)
}

// line is one line of a file. The bodies are kept as they are, so that no number becomes a float. Other members are
// ignored, such as the position and the version of an exported event: the store assigns new ones.
type line struct {
	Stream text            `json:"stream"`
	Type   text            `json:"type"`
	Body   json.RawMessage `json:"body"`
	// Time is when the event was appended to the store that wrote the file. Data is another name of Body, and At is
	// when the event happened, for files of other programs.
	Data          json.RawMessage `json:"data"`
	At            text            `json:"at"`
	Headers       headers         `json:"headers"`
	CausationID   text            `json:"causationId"`
	CorrelationID text            `json:"correlationId"`
	Time          *time.Time      `json:"time"`
	Unreadable    *Unreadable     `json:"unreadable"`
}

// text is a JSON string. Decoding puts U+FFFD in the place of escapes that are no character.
type text struct {
	value string
	err   error // the first such escape
}

func (t *text) UnmarshalJSON(raw []byte) error {
	t.err = valid.Escapes(raw)
	return json.Unmarshal(raw, &t.value)
}

// headers are the headers of an event: texts, or what a redacted event has in their place.
type headers struct {
	texts    map[string]string
	redacted json.RawMessage
	err      error // the first escape that is no character
}

func (h *headers) UnmarshalJSON(text []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	if redact.Is(compact.Bytes()) {
		h.redacted = compact.Bytes()
		return nil
	}
	h.err = valid.Escapes(text)
	return json.Unmarshal(text, &h.texts)
}

// validate returns an error if a text was changed when the line was decoded.
func (l line) validate() error {
	for _, member := range []struct {
		name string
		err  error
	}{
		{"stream", l.Stream.err}, {"type", l.Type.err}, {"at", l.At.err}, {"headers", l.Headers.err},
		{"causationId", l.CausationID.err}, {"correlationId", l.CorrelationID.err},
	} {
		if member.err != nil {
			return fmt.Errorf("%s contains %w", member.name, member.err)
		}
	}
	return nil
}

// Open reads a file. Errors have the file's name and the number of the line.
func Open(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Record{}, fmt.Errorf("open the input: %w", err))
			return
		}
		defer func() { _ = file.Close() }()
		for r, err := range Read(file) {
			if err != nil {
				err = fmt.Errorf("read %s: %w", path, err)
			}
			if !yield(r, err) || ends(err) {
				return
			}
		}
	}
}

// ends reports whether no line is read after an error.
func ends(err error) bool { return err != nil && !errors.As(err, new(*LeftOutError)) }

// Read reads line by line and ignores empty lines. Errors have the line's number, from 1.
func Read(from io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		plain, err := decompressed(from)
		if err != nil {
			yield(Record{}, err)
			return
		}
		lines := bufio.NewScanner(plain)
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		number := 1
		for ; lines.Scan(); number++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			r, err := parse(text)
			r.Line = number
			if err != nil {
				err = fmt.Errorf("line %d: %w", number, err)
			}
			if !yield(r, err) || ends(err) {
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(Record{}, fmt.Errorf("line %d: longer than %d bytes", number, maxLine))
		} else if err != nil {
			yield(Record{}, fmt.Errorf("line %d: %w", number, err))
		}
	}
}

func decompressed(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(from)
	if start, _ := buffered.Peek(2); !bytes.Equal(start, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return plain, nil
}

// parse decodes a line. The record does not refer to text.
func parse(text []byte) (Record, error) {
	if !utf8.Valid(text) {
		return Record{}, errors.New("not valid UTF-8")
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Record{}, fmt.Errorf("not a JSON object with stream, type and body: %w", err)
	}
	if l.Unreadable != nil {
		return Record{}, &LeftOutError{*l.Unreadable}
	}
	if l.Stream.value == "" {
		return Record{}, errors.New("stream is missing or empty")
	}
	if err := l.validate(); err != nil {
		return Record{}, err
	}
	if err := valid.ID("stream", l.Stream.value); err != nil {
		return Record{}, err
	}
	if len(l.Body) > 0 && len(l.Data) > 0 {
		return Record{}, errors.New("body and data exclude each other: both are the body of the event")
	}
	e := l.event()
	err := e.Validate()
	if err == nil {
		_, err = e.RawHeaders() // they may be too long
	}
	return Record{Stream: l.Stream.value, Event: e}, err
}

func (l line) event() event.Event {
	body := l.Body
	if len(body) == 0 {
		body = l.Data
	}
	e := event.Event{
		Type: l.Type.value, Body: body, Headers: l.Headers.texts, CausationID: l.CausationID.value,
		CorrelationID: l.CorrelationID.value,
	}
	if l.Headers.redacted != nil {
		e = event.Envelope{Type: l.Type.value, Body: body, RawHeaders: l.Headers.redacted}.Event()
	} else if l.At.value != "" {
		// This is when it happened, and time is when a store appended it.
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers["at"] = l.At.value
	}
	if l.Time != nil {
		e.Time = *l.Time
		if e.Time.IsZero() {
			e.Time = firstTime
		}
	}
	return e
}
