package eventlog

import (
	"errors"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/valid"
)

const (
	// PageEvents is the number of events that one statement of an iterator reads: enough to make round trips cheap, few
	// enough to waste little when the caller stops early.
	PageEvents = 500
	// PageBytes bounds the memory of a page of large events.
	PageBytes = 4 << 20
)

// Page is a part of a read.
type Page struct {
	Events []event.Envelope
	// Truncated reports that the page ended early because of PageBytes.
	Truncated bool
}

// Pages reads page by page.
type Pages struct {
	// From is where the next page begins, in the numbers of Next: positions or versions.
	From int64
	// Limit is the number of events of the first page, at most PageEvents. 0 means PageEvents.
	Limit int
	// Next returns where the page after an event begins.
	Next func(last event.Envelope) int64
	// Read reads a page of at most limit events.
	Read func(from int64, limit int) (Page, error)
}

// Each yields events until yield returns false. An event that cannot be read is yielded with the reason.
func (p Pages) Each(yield func(event.Envelope, error) bool) error {
	limit := PageEvents
	if p.Limit > 0 {
		limit = min(p.Limit, PageEvents)
	}
	for {
		page, err := p.Read(p.From, limit)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if !yield(e, e.Unreadable) {
				return nil
			}
		}
		if len(page.Events) < limit && !page.Truncated {
			return nil
		}
		p.From = p.Next(page.Events[len(page.Events)-1])
		limit = NextLimit(len(page.Events), page.Truncated, limit, PageEvents)
	}
}

// NextLimit returns the limit of the page after one with n events. If that ended early because of PageBytes, the rest
// of it was read for nothing, so the next page is smaller.
func NextLimit(n int, truncated bool, limit, most int) int {
	if truncated {
		return max(1, n)
	}
	return min(2*limit, most)
}

// ValidSelection returns an error if no event can have the stream or one of the types that a read selects.
func ValidSelection(stream string, types []string) error {
	err := valid.Text("stream", stream)
	for _, eventType := range types {
		err = errors.Join(err, valid.Text("event type", eventType))
	}
	return err
}
