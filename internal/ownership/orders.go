package ownership

import "github.com/millrace-go/millrace/internal/engine"

// Orders decides which orders of users a node reads from the database: those for the rows that notifications name.
type Orders struct {
	// notified are the rows for which a notification came. true means that the desired state was set.
	notified map[int32]bool
	// reading are those of the read in progress, nil if there is none.
	reading map[int32]bool
}

// Notified records a notification about a row.
func (o *Orders) Notified(n engine.Notice) { o.add(n.Row, !n.Commanded) }

func (o *Orders) add(row int32, desired bool) {
	if o.notified == nil {
		o.notified = make(map[int32]bool)
	}
	o.notified[row] = o.notified[row] || desired
}

// Next returns the rows of the next read, none if there is nothing to read or a read is in progress. Read or Failed
// follows. A row without a lease is forgotten, unless the search in progress may claim it.
func (o *Orders) Next(t *Table, s *Search) (rows []int32) {
	if o.reading != nil {
		return nil
	}
	reading := make(map[int32]bool)
	for row, desired := range o.notified {
		if _, phase := t.Lease(row); phase != "" {
			reading[row] = desired
			rows = append(rows, row)
		} else if s.Busy() {
			continue
		}
		delete(o.notified, row)
	}
	if len(rows) > 0 {
		o.reading = reading
	}
	return rows
}

// Read ends a read. Of the projections that should run, those whose desired state was set try again at once.
func (o *Orders) Read(t *Table, orders map[int32]engine.Orders) (effects []Effect) {
	effects = t.Order(orders)
	for row, desired := range o.reading {
		if key, phase := t.Lease(row); phase == Running && desired && orders[row].Desired.Runs() {
			effects = append(effects, Effect{Action: Resume, Key: key})
		}
	}
	o.reading = nil
	return effects
}

// Failed ends a read that failed. Its rows are read by the next one.
func (o *Orders) Failed() {
	for row, desired := range o.reading {
		o.add(row, desired)
	}
	o.reading = nil
}

// Order drains the projections that are paused, and lets those with commands read them.
func (t *Table) Order(orders map[int32]engine.Orders) (effects []Effect) {
	for row, o := range orders {
		key, phase := t.Lease(row)
		if !o.Desired.Runs() {
			effects = append(effects, t.Drain(row)...)
		} else if o.HasCommands && phase == Running {
			effects = append(effects, Effect{Action: Command, Key: key})
		}
	}
	return effects
}
