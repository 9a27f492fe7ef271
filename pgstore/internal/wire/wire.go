// Package wire reads and writes what goes over the connection by hand, where the driver's own way costs too much or
// does not fit: events in the binary format, parameters and integers in the text format.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/valid"
)

// Binary is the format of the result columns that ReadEvents decodes.
var Binary = []int16{pgx.BinaryFormatCode}

// Events are decoded events. They share memory: an event that is kept may keep up to maxChunk bytes of text and as many
// of JSON from being freed.
type Events struct {
	// List is empty if Reading.Take got the events. Count is their number.
	List  []event.Envelope
	Count int
	// Allocated is the size of the shared memory in bytes.
	Allocated int
	// Truncated reports whether events were left out: because of the limit, or because the rest could not be read.
	Truncated bool
}

// leastCut is how many bytes beyond the limit a read has got, at least, when it is cut. A cut costs a connection.
const leastCut = 1 << 20

// Reading says how ReadEvents reads.
type Reading struct {
	// MaxBytes is the size after which the read stops, 0 for no limit.
	MaxBytes int
	// Expected is how many events there will be, as far as is known: the list grows to that size at its first event.
	Expected int
	// Cut ends the read. It is called when the server has sent as many bytes after the last event that was wanted: then
	// a new connection costs less than the rest.
	Cut func()
	// Take gets each event while later ones are still on their way, until it returns false. It must not keep the
	// pointer. If it is nil, the events are listed.
	Take func(e *event.Envelope) (more bool)
}

// ReadEvents decodes the columns of read_tail.sql from the binary format. It does so by hand, since reading events is
// what this library does most. It stops after the event with which the events have MaxBytes or more. The server still
// sends the rows after that. With an error, ReadEvents returns the events before.
func ReadEvents(rows *pgconn.ResultReader, r Reading) (Events, error) {
	var dec Decoder
	var read Events
	var e event.Envelope
	var err error
	enough, size, beyond := false, 0, 0
	for rows.NextRow() {
		switch {
		case err != nil:
			continue
		case enough:
			read.Truncated = true
			beyond += rowBytes(rows.Values())
			if r.Cut != nil && beyond >= max(r.MaxBytes, leastCut) {
				r.Cut()
			}
			continue
		}
		e, err = dec.Envelope(rows.Values())
		if err != nil {
			continue
		}
		size += e.Size()
		enough = r.MaxBytes > 0 && size >= r.MaxBytes
		read.Count++
		if r.Take != nil {
			enough = !r.Take(&e) || enough
			continue
		}
		if read.List == nil {
			read.List = make([]event.Envelope, 0, max(1, r.Expected))
		}
		read.List = append(read.List, e)
	}
	if _, closeErr := rows.Close(); closeErr != nil {
		err = closeErr
	}
	read.Allocated = dec.Allocated
	return read, err
}

// rowBytes is the size of a row.
func rowBytes(row [][]byte) (bytes int) {
	for _, value := range row {
		bytes += len(value)
	}
	return bytes
}

// Decoder turns rows of read_tail.sql, in the binary format, into envelopes. The zero value is ready. It copies them
// into chunks, so that not every value is an allocation. The first chunks fit one row, and each is twice as large as
// the one before: at most half of what a read allocates stays unused.
type Decoder struct {
	text  strings.Builder
	bytes []byte
	types map[string]string
	// Allocated is the size of all chunks in bytes.
	Allocated int
}

const (
	// maxChunk is the size up to which chunks grow, in bytes.
	maxChunk = 16 << 10
	// envelopeColumns is the number of columns of read_tail.sql.
	envelopeColumns = 9
	// jsonbVersion precedes the text of a binary jsonb value.
	jsonbVersion = 1
)

// microsTo2000 is what PostgreSQL's times count from, in microseconds since 1970.
const microsTo2000 = 946_684_800_000_000

// Envelope decodes one row. The row's memory is the connection's and is used again for the next one.
func (d *Decoder) Envelope(row [][]byte) (event.Envelope, error) {
	var e event.Envelope
	if len(row) != envelopeColumns {
		return e, fmt.Errorf("decode an event: %d columns instead of %d", len(row), envelopeColumns)
	}
	var micros int64
	for _, column := range []struct {
		raw []byte
		to  *int64
	}{{row[0], &e.Position}, {row[2], &e.Version}, {row[8], &micros}} {
		if len(column.raw) != 8 {
			return e, fmt.Errorf("decode an event: a number of %d bytes", len(column.raw))
		}
		*column.to = int64(binary.BigEndian.Uint64(column.raw))
	}
	d.makeRoom(len(row[1])+len(row[6])+len(row[7]), len(row[4])+len(row[5]))
	e.Stream, e.Type = d.string(row[1]), d.intern(row[3])
	e.CausationID, e.CorrelationID = d.string(row[6]), d.string(row[7])
	e.Time = timeOf(micros)
	var err error
	e.Body, err = d.jsonb(row[4])
	if err != nil {
		return event.Envelope{}, fmt.Errorf("decode the event at position %d: %w", e.Position, err)
	}
	e.RawHeaders, err = d.jsonb(row[5])
	if err != nil {
		return event.Envelope{}, fmt.Errorf("decode the event at position %d: %w", e.Position, err)
	}
	return e, nil
}

// timeOf is the time of a binary timestamptz, within the years that JSON has: other programs insert any, also infinity.
// It is split before the epochs are added: near the ends of its range, where PostgreSQL keeps infinity, the sum would
// overflow.
func timeOf(micros int64) time.Time {
	const million = 1_000_000
	return valid.Time(time.Unix(micros/million+microsTo2000/million, micros%million*1000))
}

// makeRoom makes room for the values of one row. Values that were returned keep the old chunks.
func (d *Decoder) makeRoom(text, json int) {
	if d.text.Cap()-d.text.Len() < text {
		size := max(text, min(2*d.text.Cap(), maxChunk))
		d.text = strings.Builder{}
		d.text.Grow(size)
		d.Allocated += d.text.Cap()
	}
	if cap(d.bytes)-len(d.bytes) < json {
		d.bytes = make([]byte, 0, max(json, min(2*cap(d.bytes), maxChunk)))
		d.Allocated += cap(d.bytes)
	}
}

// string copies a text; null becomes empty.
func (d *Decoder) string(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	d.text.Write(raw)
	s := d.text.String()
	return s[len(s)-len(raw):]
}

// intern is string for values that are few.
func (d *Decoder) intern(raw []byte) string {
	if s, ok := d.types[string(raw)]; ok {
		return s
	}
	s := string(raw)
	if d.types == nil {
		d.types = make(map[string]string)
	}
	d.types[s] = s
	d.Allocated += len(s)
	return s
}

// jsonb copies a JSON value; null becomes nil.
func (d *Decoder) jsonb(raw []byte) ([]byte, error) {
	if raw == nil {
		return nil, nil
	}
	if len(raw) < 2 || raw[0] != jsonbVersion {
		return nil, fmt.Errorf("a jsonb value of an unknown format: % x", raw[:min(len(raw), 16)])
	}
	raw = raw[1:]
	start := len(d.bytes)
	d.bytes = append(d.bytes, raw...)
	// The capacity ends with the value, so that appending to it cannot reach the next one.
	return d.bytes[start:len(d.bytes):len(d.bytes)], nil
}

// Int is an integer parameter in text format.
func Int(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// TextArray is a text[] parameter in text format. Source: PostgreSQL documentation, "Array Input and Output Syntax".
func TextArray(items []string) []byte {
	b := []byte{'{'}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(item)...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// ReadInts decodes rows of integers in text format, and calls each with every row.
func ReadInts(rows *pgconn.ResultReader, each func(row []int64)) error {
	var err error
	for rows.NextRow() {
		row := make([]int64, len(rows.Values()))
		for i, raw := range rows.Values() {
			n, parseErr := strconv.ParseInt(string(raw), 10, 64)
			row[i], err = n, errors.Join(err, parseErr)
		}
		if err == nil {
			each(row)
		}
	}
	_, closeErr := rows.Close()
	return errors.Join(err, closeErr)
}
