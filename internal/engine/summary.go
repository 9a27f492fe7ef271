package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// MaxSummarized is how many projections, and how many tenants, a summary names at most. So its size is bounded.
const MaxSummarized = 10

// NodeSummary describes the projections that a node runs. A heartbeat carries it to the database as JSON. Nodes of
// other versions read it, so fields never change their meaning. An unchanged summary is not written again, so it has no
// ages.
type NodeSummary struct {
	// States counts the projections in each state.
	States map[string]int `json:"states,omitempty"`
	// Lagging are the projections that are furthest behind their settled marks, the worst first.
	Lagging []LaggingProjection `json:"lagging,omitempty"`
	// LaggingTenants are the tenants with the projections that are furthest behind, the worst first.
	LaggingTenants []LaggingTenant `json:"laggingTenants,omitempty"`
	// Held are the tenants whose settled marks are held back or whose events cannot be read, the longest first.
	Held []HeldTenant `json:"held,omitempty"`
	// Standing are the projections that do not move although events wait, or with which a tenant cannot begin, as a
	// person should know, the longest first. StandingCount counts all of them.
	Standing      []StandingProjection `json:"standing,omitempty"`
	StandingCount int                  `json:"standingCount,omitempty"`
	// Hour has the figures of the last hour, nil if nothing happened in it. It changes once a minute.
	Hour *Hour `json:"hour,omitempty"`
	// Tenures are the last that began or ended on the node, the newest last.
	Tenures []Tenure `json:"tenures,omitempty"`
}

// Tenure is a time in which a node ran a projection under one epoch of its lease, by the clock of the node.
type Tenure struct {
	ID    projection.ID `json:"id"`
	Epoch int64         `json:"epoch"`
	Began time.Time     `json:"began"`
	// Ended is zero while the tenure goes on.
	Ended time.Time `json:"ended,omitzero"`
}

// EndedBatch is a batch that had events or failed.
type EndedBatch struct {
	// Ended is when it ended, by the clock of the node, and Took how long it took after it got its slot.
	Ended time.Time     `json:"ended"`
	Took  time.Duration `json:"took"`
	// Events is how many events it had. Fault is the kind of its fault, empty if all went well.
	Events int    `json:"events"`
	Fault  string `json:"fault,omitempty"`
}

// MaxWorst is how many projections an Hour names at most.
const MaxWorst = 3

// Hour has figures of each minute of the last hour.
type Hour struct {
	// Series sums all projections of the node. Its Lag is the longest.
	Series
	// Worst has the series of the projections with the longest lags.
	Worst []ProjectionSeries `json:"worst,omitempty"`
}

// ProjectionSeries is the series of one projection.
type ProjectionSeries struct {
	ID projection.ID `json:"id"`
	Series
}

// Series has figures of minutes, the oldest first, at most 60. All lists have the same length.
type Series struct {
	// Last is the last minute, counted from 1970 by the clock of the node.
	Last int64 `json:"last,omitempty"`
	// Applied counts the events that were handled in each minute. Behind and Lag are how far the projections were
	// behind at its end, in positions and in seconds.
	Applied []int64 `json:"applied,omitempty"`
	Behind  []int64 `json:"behind,omitempty"`
	Lag     []int64 `json:"lag,omitempty"`
}

// StandingProjection is a projection that does not move although events wait.
type StandingProjection struct {
	ID projection.ID `json:"id"`
	// Since is when it moved last or the events began to wait, by the clock of its node.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// LaggingProjection is a projection that has not handled all settled events.
type LaggingProjection struct {
	ID       projection.ID `json:"id"`
	State    string        `json:"state"`
	Position int64         `json:"position"`
	Mark     int64         `json:"mark"`
	Rate     float64       `json:"rate,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	// Batches are its last batches, the newest first.
	Batches []EndedBatch `json:"batches,omitempty"`
}

// Behind is how many positions the projection is behind the settled mark.
func (l LaggingProjection) Behind() int64 { return max(0, l.Mark-l.Position) }

// LaggingTenant is a tenant with projections that have not handled all settled events.
type LaggingTenant struct {
	// Worst is the projection that is furthest behind, with its position and the settled mark.
	Worst    projection.ID `json:"worst"`
	Position int64         `json:"position"`
	Mark     int64         `json:"mark"`
	// Lagging counts the tenant's projections that are behind.
	Lagging int `json:"lagging"`
}

// Behind is how many positions the worst projection is behind the settled mark.
func (l LaggingTenant) Behind() int64 { return max(0, l.Mark-l.Position) }

// HeldTenant is a tenant whose settled mark does not move.
type HeldTenant struct {
	Tenant string `json:"tenant"`
	Mark   int64  `json:"mark"`
	// Since is when the node first noticed it, by its own clock.
	Since time.Time `json:"since"`
	// Held is the gap that the mark waits for. It is nil if the events cannot be read, and Reason then says why.
	Held   *Held  `json:"held,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// LongestHeld returns the tenants that are held back for the longest time, at most MaxSummarized, and each once.
func LongestHeld(held []HeldTenant) []HeldTenant {
	slices.SortFunc(held, func(a, b HeldTenant) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Tenant, b.Tenant))
	})
	seen := make(map[string]bool)
	held = slices.DeleteFunc(held, func(h HeldTenant) bool {
		known := seen[h.Tenant]
		seen[h.Tenant] = true
		return known
	})
	return held[:min(MaxSummarized, len(held))]
}

// summaryText is the maximum number of bytes of a reason in an encoded summary. Each heartbeat may write it.
const summaryText = 300

// Encode returns the summary as JSON, with short texts. It replaces characters that a store may refuse, so that an
// error text of a user cannot make heartbeats fail.
func (s *NodeSummary) Encode() (string, error) {
	fit := NodeSummary{States: s.States, Lagging: slices.Clone(s.Lagging), LaggingTenants: s.LaggingTenants,
		Held:     slices.Clone(s.Held),
		Standing: slices.Clone(s.Standing), StandingCount: s.StandingCount, Hour: s.Hour, Tenures: s.Tenures}
	for i := range fit.Lagging {
		fit.Lagging[i].Reason = excerpt.Storable(excerpt.UpTo(fit.Lagging[i].Reason, summaryText))
	}
	for i := range fit.Standing {
		fit.Standing[i].Reason = excerpt.Storable(excerpt.UpTo(fit.Standing[i].Reason, summaryText))
	}
	for i := range fit.Held {
		h := &fit.Held[i]
		h.Reason = excerpt.Storable(excerpt.UpTo(h.Reason, summaryText))
		if h.Held != nil {
			held := *h.Held
			held.Holders = held.Holders[:min(MaxSummarized, len(held.Holders))]
			h.Held = &held
		}
	}
	raw, err := json.Marshal(fit)
	return string(raw), err
}

// DecodeSummary returns nil for null, and for a summary that a node of another version has written in another form.
func DecodeSummary(raw []byte) *NodeSummary {
	var summary *NodeSummary
	if err := json.Unmarshal(raw, &summary); err != nil {
		return nil
	}
	return summary
}
