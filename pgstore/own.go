package pgstore

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// ownBytes limits the events that an append returns for a feed of this process. An append with larger ones takes longer
// for what it returns, and a read of its events costs little beside it. A feed holds one append that it has not looked
// at.
const ownBytes = 8 << 10

// isSmall reports whether the events of an append may be returned to this process.
func (a appendCall) isSmall() bool {
	left := ownBytes
	for i, body := range a.Bodies {
		left -= event.Envelope{Stream: a.Stream, CausationID: a.Causations[i],
			CorrelationID: a.Correlations[i]}.Size() + len(a.Headers[i]) + len(a.Types[i])
		if len(body) > left {
			return false
		}
		printed, err := valid.PrintedBytes([]byte(body)) // more than its length, if it has a number such as 1e1000
		left -= printed
		if err != nil || left < 0 {
			return false
		}
	}
	return true
}

// handedOver returns the events of an append that has succeeded, nil if they were not returned or the server has no
// incarnation yet.
func (a appendCall) handedOver(result event.Appended) *engine.Page {
	if a.own == nil || a.own.Incarnation == 0 || len(a.own.Events) != len(result.Positions) {
		return nil
	}
	return a.own
}

// mayNotReturn reports whether an append may have failed because it returned its events: the role may append, but not
// read. It has written nothing.
func mayNotReturn(err error) bool { return pgerr.Is(err, pgerr.InsufficientPrivilege) }

// ownReader decodes the events that append_own.sql returns, in the binary format.
type ownReader struct {
	events      []event.Envelope
	decoder     wire.Decoder
	incarnation int64
}

// columns returns where the columns of append_own.sql are scanned. add decodes the others.
func (r *ownReader) columns() []any { return []any{nil, nil, nil, nil, nil, nil, nil, &r.incarnation} }

// add decodes a row, whose memory is used again for the next one. It leaves out what it cannot decode: the append has
// succeeded, and a read will show the reason.
func (r *ownReader) add(row [][]byte) {
	// In the order of read_tail.sql. An append returns position and version first.
	e, err := r.decoder.Envelope([][]byte{row[0], row[2], row[1], row[3], row[4], row[5], row[6], row[7], row[8]})
	if err != nil {
		return
	}
	r.events = append(r.events, e)
}

// page returns the events in the order of their positions.
func (r *ownReader) page() engine.Page {
	slices.SortFunc(r.events, func(a, b event.Envelope) int { return cmp.Compare(a.Position, b.Position) })
	return engine.Page{Events: r.events, Incarnation: engine.Incarnation(r.incarnation), Bytes: r.decoder.Allocated}
}
