package admin

import (
	"encoding/json"
	"time"
)

// durationText is a duration that is a text in JSON.
type durationText time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *durationText) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = durationText(parsed)
	return err
}

type (
	plainProjection ProjectionStatus
	plainNode       NodeStatus
	plainSummary    Summary
	plainRebuild    RebuildStatus
	plainMinute     Minute
	plainBatch      Batch

	// These types are encoded in place of the public ones. Their fields hide the fields of the same name in the
	// embedded structs.
	projectionJSON struct {
		*plainProjection
		NotOwned durationText `json:"notOwned,omitzero"`
		Lag      durationText `json:"lag,omitzero"`
	}
	nodeJSON struct {
		*plainNode
		Silent durationText `json:"silent"`
	}
	summaryJSON struct {
		*plainSummary
		OldestSnapshot durationText `json:"oldestSnapshot,omitzero"`
	}
	batchJSON struct {
		*plainBatch
		Duration durationText `json:"duration"`
	}
	minuteJSON struct {
		*plainMinute
		Lag durationText `json:"lag"`
	}
	rebuildJSON struct {
		*plainRebuild
		Left durationText `json:"left,omitzero"`
	}
)

// MarshalJSON implements json.Marshaler.
func (p ProjectionStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(projectionJSON{(*plainProjection)(&p), durationText(p.NotOwned), durationText(p.Lag)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *ProjectionStatus) UnmarshalJSON(data []byte) error {
	in := projectionJSON{(*plainProjection)(p), durationText(p.NotOwned), durationText(p.Lag)}
	err := json.Unmarshal(data, &in)
	p.NotOwned, p.Lag = time.Duration(in.NotOwned), time.Duration(in.Lag)
	return err
}

// MarshalJSON implements json.Marshaler.
func (n NodeStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(nodeJSON{(*plainNode)(&n), durationText(n.Silent)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *NodeStatus) UnmarshalJSON(data []byte) error {
	in := nodeJSON{(*plainNode)(n), durationText(n.Silent)}
	err := json.Unmarshal(data, &in)
	n.Silent = time.Duration(in.Silent)
	return err
}

// MarshalJSON implements json.Marshaler.
func (s Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(summaryJSON{(*plainSummary)(&s), durationText(s.OldestSnapshot)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Summary) UnmarshalJSON(data []byte) error {
	in := summaryJSON{(*plainSummary)(s), durationText(s.OldestSnapshot)}
	err := json.Unmarshal(data, &in)
	s.OldestSnapshot = time.Duration(in.OldestSnapshot)
	return err
}

// MarshalJSON implements json.Marshaler.
func (r RebuildStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(rebuildJSON{(*plainRebuild)(&r), durationText(r.Left)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *RebuildStatus) UnmarshalJSON(data []byte) error {
	in := rebuildJSON{(*plainRebuild)(r), durationText(r.Left)}
	err := json.Unmarshal(data, &in)
	r.Left = time.Duration(in.Left)
	return err
}

// MarshalJSON implements json.Marshaler.
func (m Minute) MarshalJSON() ([]byte, error) {
	return json.Marshal(minuteJSON{(*plainMinute)(&m), durationText(m.Lag)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Minute) UnmarshalJSON(data []byte) error {
	in := minuteJSON{(*plainMinute)(m), durationText(m.Lag)}
	err := json.Unmarshal(data, &in)
	m.Lag = time.Duration(in.Lag)
	return err
}

// MarshalJSON implements json.Marshaler.
func (b Batch) MarshalJSON() ([]byte, error) {
	return json.Marshal(batchJSON{(*plainBatch)(&b), durationText(b.Duration)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Batch) UnmarshalJSON(data []byte) error {
	in := batchJSON{(*plainBatch)(b), durationText(b.Duration)}
	err := json.Unmarshal(data, &in)
	b.Duration = time.Duration(in.Duration)
	return err
}
