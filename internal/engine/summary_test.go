package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

func TestNothingIsBehindBeyondItsMark(t *testing.T) {
	for _, c := range []struct{ position, mark, want int64 }{{3, 10, 7}, {10, 10, 0}, {12, 10, 0}} {
		projection, tenant := LaggingProjection{Position: c.position, Mark: c.mark},
			LaggingTenant{Position: c.position, Mark: c.mark}
		if projection.Behind() != c.want || tenant.Behind() != c.want {
			t.Errorf("%+v: %d and %d", c, projection.Behind(), tenant.Behind())
		}
	}
}

func TestSummaryIsShortAndReadByOtherNodes(t *testing.T) {
	long := strings.Repeat("x", 2*summaryText)
	holders := make([]string, 2*MaxSummarized)
	for i := range holders {
		holders[i] = fmt.Sprint(i)
	}
	s := &NodeSummary{
		Lagging: []LaggingProjection{{Reason: long}},
		Held:    []HeldTenant{{Tenant: "held", Held: &Held{Holders: holders}}, {Tenant: "unread", Reason: long}},
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read := DecodeSummary([]byte(text))
	if read == nil || len(read.Lagging[0].Reason) >= len(long) || len(read.Held[1].Reason) >= len(long) ||
		read.Held[1].Held != nil ||
		len(read.Held[0].Held.Holders) != MaxSummarized || len(s.Held[0].Held.Holders) != 2*MaxSummarized {
		t.Errorf("%+v", read)
	}
	for _, other := range []string{"", "null", `{"states": 7}`, "["} {
		if read := DecodeSummary([]byte(other)); read != nil {
			t.Errorf("%q: %+v", other, read)
		}
	}
}

func TestEachTenantIsHeldOnce(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	held := LongestHeld([]HeldTenant{
		{Tenant: "b", Since: at(5)}, {Tenant: "a", Since: at(9)}, {Tenant: "c", Since: at(5)},
		{Tenant: "a", Since: at(1)},
	})
	if len(held) != 3 || held[0].Tenant != "a" || held[0].Since != at(1) || held[1].Tenant != "b" ||
		held[2].Tenant != "c" {
		t.Errorf("%+v", held)
	}
}

func TestEventIsAloneUnlessAParkedOneStandsBefore(t *testing.T) {
	at := func(positions ...int64) (events []event.Envelope) {
		for _, p := range positions {
			events = append(events, event.Envelope{Position: p})
		}
		return events
	}
	for _, c := range []struct {
		events, blocked []event.Envelope
		want            bool
	}{
		{at(5), nil, true},
		{at(5), at(6), true},
		{at(5), at(4), false},
		{at(5, 6), nil, false},
		{nil, at(5), false},
	} {
		if got := (Batch{Events: c.events, BlockedByStream: c.blocked}).Alone(); got != c.want {
			t.Errorf("%d events, %d blocked: %v", len(c.events), len(c.blocked), got)
		}
	}
}

func TestSettingIsAYearAtMost(t *testing.T) {
	const year = 365 * 24 * time.Hour
	if err := ValidDuration("Config.X", year); err != nil {
		t.Error(err)
	}
	if err := ValidDuration("Config.X", year+1); err == nil ||
		!strings.HasPrefix(err.Error(), "Config.X must be at most") {
		t.Error(err)
	}
}
