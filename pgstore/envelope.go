package pgstore

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
)

// readEnvelopes decodes the columns of tail.sql by hand from the binary format: reading events is what this library does
// most. It stops after the event with which the events have limitBytes or more, 0 meaning no limit, and returns in truncated
// whether it left some out. Those still come over the wire, so callers should bound the rows as well.
//
// The events share memory, held bytes in all: one that is kept may keep up to decoderChunk of text and of JSON from being freed.
func readEnvelopes(rows *pgconn.ResultReader, limitBytes int) (events []event.Envelope, held int, truncated bool, err error) {
	dec := decoder{types: make(map[string]string)}
	size := 0
	for rows.NextRow() {
		if truncated || err != nil {
			continue
		}
		if limitBytes > 0 && size >= limitBytes {
			truncated = true
			continue
		}
		var e event.Envelope
		if e, err = dec.envelope(rows.Values()); err == nil {
			events = append(events, e)
			size += e.Size()
		}
	}
	if _, closeErr := rows.Close(); closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return nil, 0, false, err
	}
	return events, dec.held, truncated, nil
}

// binaryFormat is how the columns of tail.sql come.
var binaryFormat = []int16{pgx.BinaryFormatCode}

// decoder turns rows into envelopes. It copies them into chunks, so that not every value is an allocation. The first chunks
// fit one row, and each is twice as large as the one before: at most half of what a read allocates stays unused.
type decoder struct {
	text  strings.Builder
	bytes []byte
	types map[string]string
	held  int // bytes allocated
}

const (
	// decoderChunk is the size up to which chunks grow.
	decoderChunk = 16 << 10
	// envelopeColumns are those of tail.sql.
	envelopeColumns = 9
	// jsonbVersion precedes the text of a binary jsonb value.
	jsonbVersion = 1
)

// microsTo2000 is what PostgreSQL's times count from, in microseconds since 1970.
const microsTo2000 = 946_684_800_000_000

// envelope decodes one row. The row's memory is the connection's and is used again for the next one.
func (d *decoder) envelope(row [][]byte) (event.Envelope, error) {
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
	if e.Body, err = d.jsonb(row[4]); err == nil {
		e.RawHeaders, err = d.jsonb(row[5])
	}
	if err != nil {
		return event.Envelope{}, fmt.Errorf("decode the event at position %d: %w", e.Position, err)
	}
	return e, nil
}

// timeOf is the time of a binary timestamptz. It is split before the epochs are added: near the ends of its range, where
// PostgreSQL keeps infinity, the sum would overflow.
func timeOf(micros int64) time.Time {
	const million = 1_000_000
	return time.Unix(micros/million+microsTo2000/million, micros%million*1000).UTC()
}

// makeRoom makes room for the values of one row. Values that were returned keep the old chunks.
func (d *decoder) makeRoom(text, json int) {
	if d.text.Cap()-d.text.Len() < text {
		size := max(text, min(2*d.text.Cap(), decoderChunk))
		d.text = strings.Builder{}
		d.text.Grow(size)
		d.held += d.text.Cap()
	}
	if cap(d.bytes)-len(d.bytes) < json {
		d.bytes = make([]byte, 0, max(json, min(2*cap(d.bytes), decoderChunk)))
		d.held += cap(d.bytes)
	}
}

// string copies a text; null becomes empty.
func (d *decoder) string(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	d.text.Write(raw)
	s := d.text.String()
	return s[len(s)-len(raw):]
}

// intern is string for values that are few.
func (d *decoder) intern(raw []byte) string {
	if s, ok := d.types[string(raw)]; ok {
		return s
	}
	s := string(raw)
	d.types[s] = s
	d.held += len(s)
	return s
}

// jsonb copies a JSON value; null becomes nil.
func (d *decoder) jsonb(raw []byte) ([]byte, error) {
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
