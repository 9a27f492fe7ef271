package admin

import (
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// RebuildStatus is the progress of a projection that was set back by Rebuild or Reset. It is complete when the
// projection reaches To.
type RebuildStatus struct {
	// Since is when the projection was set back. From is the position to which it was set back, and To is the last
	// position of the tenant at that time.
	Since time.Time `json:"since"`
	From  int64     `json:"from"`
	To    int64     `json:"to"`
	// Done is the share of the positions from From to To that the projection has passed, from 0 to 1.
	Done float64 `json:"done"`
	// Left is an estimate of the remaining time, by the rate since Since. It is 0 while there is no rate. For the
	// partitions of a projection together, it is that of the slowest one.
	Left time.Duration `json:"left,omitzero"`
}

// OperationStatus is an open operation of a projection: a rebuild, or the swap or the drop of a version.
type OperationStatus struct {
	// Number is the operation's number. Kind is "rebuild", "swap" or "drop".
	Number int64  `json:"number"`
	Kind   string `json:"kind"`
	// RequestedAt is when it was requested, and StartedAt when the first node began it. Node is the id of the node that
	// carries it out, empty if any node may carry it out. Until a node has begun, StartedAt is zero.
	RequestedAt time.Time `json:"requestedAt"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	Node        string    `json:"node,omitempty"`
	// Holds reports whether the projection stands still for the operation.
	Holds bool `json:"holds"`
	// Error is why its last try failed. It is tried again.
	Error string `json:"error,omitempty"`
}

// withOperation adds what a row says about a rebuild and about an open operation.
func (s *ProjectionStatus) withOperation(row engine.ProjectionRow) {
	if o := row.Operation; o.Number != 0 {
		s.Operation = &OperationStatus{Number: o.Number, Kind: string(o.Kind), RequestedAt: o.RequestedAt.UTC(),
			StartedAt: o.StartedAt.UTC(),
			Node:      o.Node, Holds: row.Held, Error: o.Error}
		if row.Held && s.State == StatePaused && row.Desired.Runs() {
			s.Reason = fmt.Sprintf("held by operation %d (%s)", o.Number, o.Kind)
		}
	}
	if row.RebuildSince.IsZero() || s.Position >= row.RebuildTo {
		return
	}
	r := &RebuildStatus{Since: row.RebuildSince.UTC(), From: row.RebuildFrom, To: row.RebuildTo}
	if done := s.Position - r.From; done > 0 {
		r.Done = float64(done) / float64(r.To-r.From)
		r.Left = time.Duration(float64(row.RebuildFor) * (1 - r.Done) / r.Done)
	}
	s.Rebuild = r
}

// rebuildOf returns the progress of all partitions of a projection together, nil if none is being rebuilt. A partition
// that has ended its rebuild counts as complete.
func rebuildOf(parts []ProjectionStatus) *RebuildStatus {
	var all *RebuildStatus
	done := 0.0
	for _, p := range parts {
		r := p.Rebuild
		if r == nil {
			done++
			continue
		}
		done += r.Done
		if all == nil {
			first := *r
			all = &first
			continue
		}
		all.From, all.To, all.Left = min(all.From, r.From), max(all.To, r.To), max(all.Left, r.Left)
	}
	if all != nil {
		all.Done = done / float64(len(parts))
	}
	return all
}
