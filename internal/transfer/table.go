package transfer

import (
	"encoding/json"
	"fmt"
)

// Kind is the type of a column's values.
type Kind int8

const (
	// Integer is an int64. Times are microseconds since 1970, booleans are 0 and 1.
	Integer Kind = iota
	// Text is a string of valid UTF-8 without NUL.
	Text
	// JSON is a string. It is compared by its value: see appendJSON.
	JSON
)

// Column is a column of a table. Any column that is not part of the key may be null.
type Column struct {
	Name string
	Kind Kind
}

// Row has the values of a table's columns: int64, string, or nil for null.
type Row []any

// Table is a kind of rows of a tenant.
type Table struct {
	Name string
	// Keys is the number of columns that are the key. They come first, and rows are read in their order. Texts are
	// ordered by their bytes.
	Keys    int
	Columns []Column
}

// After returns the key before the first row. Keys are positive numbers and texts that are not empty.
func (t Table) After() Row {
	key := make(Row, t.Keys)
	for i, c := range t.Columns[:t.Keys] {
		if key[i] = any(int64(0)); c.Kind == Text {
			key[i] = ""
		}
	}
	return key
}

// Key returns the key of a row.
func (t Table) Key(row Row) Row { return row[:t.Keys] }

// The tables of a tenant.
var (
	// Events are the events. The target computes slots itself, so the comparison checks them.
	Events = Table{"events", 1, columns(Integer, "position", "slot", Text, "stream", Integer, "version", Text, "type", JSON, "body", "headers",
		Text, "causation_id", "correlation_id", Integer, "created_at")}
	// Streams have the versions of streams, also of those whose events were deleted.
	Streams = Table{"streams", 1, columns(Text, "stream", Integer, "version")}
	// Keys are the idempotency keys of appends.
	Keys = Table{"keys", 1, columns(Text, "key", "stream", Integer, "first_version", "last_version", "created_at")}
	// Aliases are the ids of streams by names.
	Aliases = Table{"aliases", 1, columns(Text, "name", "stream", Integer, "created_at")}
	// Projections have the states of projections and of their leases. This table and those below have the ids of the
	// source.
	Projections = Table{"projections", 1, columns(Integer, "id", Text, "name", Integer, "partition", "partitions", "slot_from", "slot_to",
		JSON, "passed", Text, "token", "desired_state", "failed_reason", Integer, "failed_epoch", "halted", "skipped", "parked",
		"failing_position", "attempts", "crash_position", "crash_attempts", "crash_since", "failing_since",
		Text, "last_error", Integer, "last_error_at", "missing_object",
		"delivers", "rebuild_since", "rebuild_from", "rebuild_to", "epoch", "checkpoint", "crash_count")}
	// RetiredProjections are the names under which no projection is created any more.
	RetiredProjections = Table{"retired projections", 1, columns(Text, "name", "successor", "reason", Integer, "retired_at")}
	// DeadLetters are dead letters in any state.
	DeadLetters = Table{"dead letters", 2, columns(Integer, "projection", "position", "id", Text, "stream", Integer, "version", Text, "type",
		Integer, "blocked_by_stream", Text, "state", "error", "stack",
		Integer, "attempts", "replays", "open_replays", "last_command", "first_failed_at", "last_failed_at", "ended_at")}
	// ParkedStreams are the streams whose later events are parked.
	ParkedStreams = Table{"parked streams", 2, columns(Integer, "projection", Text, "stream", Integer, "last_command")}
	// Commands are commands on dead letters.
	Commands = Table{"commands", 2, columns(Integer, "projection", "id", "root", Text, "kind", JSON, "dead_letter_ids",
		Text, "stream", "type", "error", Integer, "max_events", Text, "current_stream",
		Integer, "after_position", "done", "failed", "current_dead_letter", "created_at", "ended_at")}

	// Tables lists all tables, in the order in which they are copied.
	Tables = []Table{Events, Streams, Keys, Aliases, Projections, RetiredProjections, DeadLetters, ParkedStreams, Commands}
)

// columns returns columns from kinds and names. A kind applies to all names up to the next kind.
func columns(list ...any) (columns []Column) {
	var kind Kind
	for _, item := range list {
		switch item := item.(type) {
		case Kind:
			kind = item
		case string:
			columns = append(columns, Column{item, kind})
		}
	}
	return columns
}

// InControl reports whether the rows are in the control schema of a target in PostgreSQL, where statements select by tenant.
func (t Table) InControl() bool { return t.Keys == 2 || t.OfTenant() }

// OfTenant reports whether the rows have names that are unique within a tenant: their tables have the tenant.
func (t Table) OfTenant() bool {
	return t.Name == Aliases.Name || t.Name == Projections.Name || t.Name == RetiredProjections.Name
}

// ParseKey returns the key of a row that was marshalled as JSON.
func (t Table) ParseKey(text string) (Row, error) {
	var values []json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil || len(values) != t.Keys {
		return nil, fmt.Errorf("the key of %s is not valid: %s", t.Name, text)
	}
	key := make(Row, t.Keys)
	for i, value := range values {
		var number int64
		var s string
		var err error
		if t.Columns[i].Kind == Integer {
			err = json.Unmarshal(value, &number)
			key[i] = number
		} else {
			err = json.Unmarshal(value, &s)
			key[i] = s
		}
		if err != nil {
			return nil, fmt.Errorf("the key of %s is not valid: %s", t.Name, text)
		}
	}
	return key, nil
}
