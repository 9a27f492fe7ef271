package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

func FuzzEnvelope(f *testing.F) {
	f.Add(int64(1), int64(0), "stream", "type", []byte(`{"a":1}`), []byte(nil), "c", true)
	f.Add(int64(-1), int64(1<<63-1), "", "", []byte(`null`), []byte(`{}`), "", false)
	f.Fuzz(func(t *testing.T, position, micros int64, stream, eventType string, body, headers []byte, id string,
		whole bool) {
		big := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
		jsonb := func(b []byte) []byte { return append([]byte{jsonbVersion}, b...) }
		row := [][]byte{
			big(position), []byte(stream), big(7), []byte(eventType), jsonb(body), nil, []byte(id), nil, big(micros),
		}
		if !whole {
			// As it comes, whatever it is: it may be refused but must not panic.
			row[0], row[4], row[5] = body, body, headers
		}
		var dec Decoder
		for range 2 {
			e, err := dec.Envelope(row)
			if !whole || len(body) == 0 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Position != position || e.Version != 7 || e.Stream != stream || e.Type != eventType ||
				!bytes.Equal(e.Body, body) ||
				e.RawHeaders != nil || e.CausationID != id || e.CorrelationID != "" {
				t.Errorf("got %+v", e)
			}
			since := e.Time.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
			if micros > -1<<50 && micros < 1<<50 && since.Microseconds() != micros {
				t.Errorf("%d microseconds became %v", micros, e.Time)
			}
		}
	})
}
