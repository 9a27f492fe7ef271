package eventlog

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/cause"
)

// Caused returns events with the ids of a cause, where they have none of their own. It does not change the slice that
// it gets. The copy of a redacted event stays without ids: they are among what was removed from it.
func Caused(c cause.Cause, events []event.Event) []event.Event {
	correlation := c.CorrelationID()
	if correlation == "" {
		return events
	}
	causation, caused := c.CausationID(), events
	for i, e := range events {
		if e.CausationID != "" && e.CorrelationID != "" || redacted(e) {
			continue
		}
		if &caused[0] == &events[0] {
			caused = slices.Clone(events)
		}
		caused[i].CausationID = cmp.Or(e.CausationID, causation)
		caused[i].CorrelationID = cmp.Or(e.CorrelationID, correlation)
	}
	return caused
}

// redacted reports whether an event is the copy of a redacted one. Headers that cannot be encoded belong to no such
// event.
func redacted(e event.Event) bool {
	raw, err := e.RawHeaders()
	return err == nil && event.Envelope{RawHeaders: raw}.Redacted()
}
