package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Move is the move of a tenant to another store: see lifecycle.Move.
type Move struct {
	Tenant string
	// Active makes the tenant active in the target, even if it was not active in the source.
	Active bool
	// Rebuild are the projections that begin at the first event.
	Rebuild []string
	// ReadModels runs in the transaction of the target.
	ReadModels handler.Hook
	// Progress is called after each page and each table. compared reports whether the rows of the table were compared.
	Progress func(table string, rows int64, compared bool)
	// Wait is how long the writer of the target is waited for, while the move holds that of the source.
	Wait time.Duration

	// State is what the tenant gets in the target: active or archived.
	State tenancy.State
	// Head is the last position that was given to an event. Rows are the rows of each table.
	Head int64
	Rows map[string]int64
	// Begun reports that this call has recorded the move, and Ended that the transaction of the target may have
	// committed.
	Begun, Ended bool

	// record is that of the source, and source the name of that store.
	record moveRecord
	source string
	has    struct{ paused, erasures bool } // the source
	// added is what is added to ids.
	added struct{ commands, letters int64 }
}

// table is a kind of rows of a tenant. The statement copy returns them. Those of paste insert them.
type table struct {
	copy  string
	paste []string
	// ids is the number of arguments that say what is added to ids.
	ids int
}

// name returns the name of the table.
func (t table) name() string { return strings.TrimPrefix(t.copy, "copy_") }

// movedTables are the tables in the order in which they are moved.
var movedTables = []table{
	{copy: "copy_events", paste: []string{"paste_events"}},
	{copy: "copy_streams", paste: []string{"paste_streams"}},
	{copy: "copy_keys", paste: []string{"paste_keys"}},
	{copy: "copy_aliases", paste: []string{"paste_aliases"}},
	{copy: "copy_projections", paste: []string{"paste_projections", "paste_leases"}},
	{copy: "copy_retired_projections", paste: []string{"paste_retired_projections"}},
	{copy: "copy_dead_letters", paste: []string{"paste_dead_letters"}, ids: 2},
	{copy: "copy_parked_streams", paste: []string{"paste_parked_streams"}, ids: 1},
	{copy: "copy_commands", paste: []string{"paste_commands"}, ids: 2},
	{copy: "copy_erasures", paste: []string{"paste_erasures"}},
}

// CanLeave returns the names of the tenant's projections, or projection.ErrOperationOpen.
func (p Tenants) CanLeave(ctx context.Context, tenant string) (names []string, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		if err := noOperationOf(v, tenant); err != nil {
			return err
		}
		names, err = column[string](v, "projection_names", tenant)
		return err
	})
	return names, p.wrap(err, "read the projections of tenant %q", tenant)
}

func noOperationOf(v store.View, tenant string) error {
	var name string
	open, err := v.One("operation_of_tenant", []any{tenant}, &name)
	if open {
		err = fmt.Errorf("projection %s: %w", excerpt.Quoted(name), projection.ErrOperationOpen)
	}
	return err
}

// empty returns tenancy.ErrNotEmpty unless a tenant is empty.
func (p Tenants) empty(ctx context.Context, tenant string) error {
	return p.db.View(ctx, func(v store.View) error { return isEmpty(v, tenant) })
}

func isEmpty(v store.View, tenant string) error {
	var contents []string
	_, err := v.One("tenant_contents", []any{tenant}, &contents)
	if err == nil && len(contents) > 0 {
		err = fmt.Errorf("%w: it has %s", tenancy.ErrNotEmpty, strings.Join(contents, ", "))
	}
	return err
}

// Move moves an archived tenant, none of whose projections runs, to another store, unless another call has moved it.
// Meanwhile the transaction of the source has the structural lock of the tenant and the locks of its projections and
// leases, so nothing of it changes.
func (p Tenants) Move(ctx context.Context, to Plane, m *Move) (moved bool, err error) {
	var failed error
	there := false // the target has committed
	err = p.db.Change(ctx, m.Tenant, func(tx store.Tx, state tenancy.State) error {
		tx.Exec("allow_idle")
		if !there {
			failed = m.begin(tx, state)
			if failed == nil {
				moved, failed = to.arrived(ctx, m.Tenant, m.record.id)
			}
			if failed == nil && !moved {
				failed = m.send(ctx, tx, to)
			}
			there = failed == nil
		}
		if there {
			tx.Exec("end_move", m.Tenant, m.record.id)
		}
		return nil // if the target fails, the transaction of the source does not begin again
	})
	if there {
		return moved, nil // also if the record lacks the end
	}
	return false, cmp.Or(failed, p.wrap(err, "read the source"))
}

// begin locks the tenant in the source.
func (m *Move) begin(tx store.Tx, state tenancy.State) error {
	still, _, err := still(tx, m.Tenant)
	if err != nil {
		return err
	}
	r, err := moveOf(tx, m.Tenant)
	switch {
	case err != nil:
		return err
	case state != tenancy.Archived || !still || !r.away || r.id != m.record.id:
		return projection.ErrResumed
	}
	if err := noOperationOf(tx, m.Tenant); err != nil {
		return err
	}
	if _, err := tx.One("last_position", []any{m.Tenant}, &m.Head); err != nil {
		return err
	}
	m.has.erasures, err = erasuresTable.wasMade(tx)
	return err
}

func (m *Move) send(ctx context.Context, from store.Tx, to Plane) error {
	if err := m.reserve(ctx, from, to); err != nil {
		return err
	}
	if m.has.erasures {
		if err := to.makeTable(ctx, erasuresTable); err != nil {
			return err
		}
	}
	ctx, begins, cancel := m.beginning(ctx)
	defer cancel()
	err := to.db.Receive(ctx, store.Reception{Tenant: m.Tenant, Hook: m.ReadModels,
		Fill: func(tx store.Tx) error { begins(); return m.fill(from, tx) },
		End: func(tx store.Tx) (tenancy.State, error) {
			// If the session of the source has ended, its locks have too.
			if _, err := from.One("tenant_paused", []any{m.Tenant}, &m.has.paused); err != nil {
				return "", fmt.Errorf("the source: %w", err)
			}
			Restore(tx, m.Tenant, m.State, m.has.paused)
			tx.Exec("let_leases_sleep", m.Tenant)
			tx.Exec("insert_arrival", m.Tenant, m.record.id, m.source)
			m.Ended = true
			return m.State, nil
		}})
	return to.wrap(notBegun(ctx, err), "write to the target")
}

var errNotBegun = errors.New("while appends to the source wait: another process writes to the target, perhaps a move in the opposite direction")

// beginning returns a context that ends after m.Wait, unless begins is called first.
func (m *Move) beginning(ctx context.Context) (_ context.Context, begins, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(m.Wait, func() {
		end(fmt.Errorf("no transaction of the target could begin within %v, %w", m.Wait, errNotBegun))
	})
	return ctx, func() { timer.Stop() }, func() { timer.Stop(); end(nil) }
}

// notBegun adds errNotBegun to an error if that has ended the context.
func notBegun(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && !errors.Is(err, errNotBegun) && errors.Is(cause, errNotBegun) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// reserve reserves ids in the target. They stay the same if no such id was given there yet.
func (m *Move) reserve(ctx context.Context, from store.Tx, to Plane) error {
	var commands, letters struct{ low, high int64 }
	if _, err := from.One("ids_of_tenant", []any{m.Tenant}, &commands.low, &commands.high, &letters.low,
		&letters.high); err != nil {
		return err
	}
	ctx, begins, cancel := m.beginning(ctx)
	defer cancel()
	err := to.db.Tx(ctx, func(tx store.Tx) error {
		begins()
		m.added.commands, m.added.letters = 0, 0
		tx.Exec("lock_ids")
		if commands.high > 0 {
			tx.Later("reserve_ids", []any{"commands", commands.low, commands.high}, &m.added.commands)
		}
		if letters.high > 0 {
			tx.Later("reserve_ids", []any{"dead_letters", letters.low, letters.high}, &m.added.letters)
		}
		return nil
	})
	return to.wrap(notBegun(ctx, err), "reserve ids")
}

// fill inserts all rows into the tenant of the target, and compares them with those of the source.
func (m *Move) fill(from, to store.Tx) error {
	if err := isEmpty(to, m.Tenant); err != nil {
		return err
	}
	m.Rows = make(map[string]int64)
	for _, t := range movedTables {
		if t.name() == "erasures" && !m.has.erasures {
			continue
		}
		m.Rows[t.name()] = 0
		if err := m.paste(from, to, t); err != nil {
			return fmt.Errorf("move %s: %w", t.name(), err)
		}
		if err := m.compare(from, to, t); err != nil {
			return fmt.Errorf("compare %s: %w", t.name(), err)
		}
		m.Progress(t.name(), m.Rows[t.name()], true)
	}
	to.Exec("continue_positions", m.Tenant, m.Head)
	if err := m.lower(to); err != nil {
		return err
	}
	return m.rebuild(to)
}

// paste inserts the rows of a table.
func (m *Move) paste(from, to store.Tx, t table) error {
	var page transfer.Page
	insert := func() error {
		args := append([]any{m.Tenant, page.JSON()}, []any{m.added.commands, m.added.letters}[:t.ids]...)
		for _, statement := range t.paste {
			if _, err := to.One(statement, args); err != nil {
				return named(t, page.Rows, err)
			}
		}
		m.Rows[t.name()] += int64(len(page.Rows))
		m.Progress(t.name(), m.Rows[t.name()], false)
		page = transfer.Page{}
		return nil
	}
	for row, err := range rowsOf(from, t, m.Tenant, 0, 0) {
		if err != nil {
			return err
		}
		if page.Add(row) {
			if err := insert(); err != nil {
				return err
			}
		}
	}
	if len(page.Rows) == 0 {
		return nil
	}
	return insert()
}

// mostPrinted is how many bytes the body of an event may have as PostgreSQL prints it, which prints at most 1 GB.
const mostPrinted = 256 << 20

// named adds the event that the target refuses to its error.
func named(t table, rows []string, err error) error {
	if t.name() != "events" {
		return err
	}
	var first, last any
	for _, row := range rows {
		members, failed := transfer.Members(row)
		if failed != nil {
			return err
		}
		for _, what := range []string{"body", "headers"} {
			text, _ := members[what].(string)
			if refused := valid.Printed(what, []byte(text), mostPrinted); refused != nil {
				return fmt.Errorf("the event at position %v: %w: %w", members["position"], refused, err)
			}
		}
		first, last = cmp.Or(first, members["position"]), members["position"]
	}
	return fmt.Errorf("the events from position %v to %v: %w", first, last, err)
}

var errStopped = errors.New("stopped")

// rowsOf yields the rows of a table, without what was added to their ids.
func rowsOf(v store.View, t table, tenant string, commandIDs, letters int64) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var row string
		args := append([]any{tenant}, []any{commandIDs, letters}[:t.ids]...)
		err := v.Each(t.copy, args, []any{&row}, func() error {
			if !yield(transfer.Storable(row), nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield("", err)
		}
	}
}

// compare compares the rows of a table in both stores.
func (m *Move) compare(from, to store.Tx, t table) error {
	next, stop := iter.Pull2(rowsOf(to, t, m.Tenant, m.added.commands, m.added.letters))
	defer stop()
	for row, err := range rowsOf(from, t, m.Tenant, 0, 0) {
		if err != nil {
			return err
		}
		if strings.Contains(row, `"intact":0`) && t.name() == "events" {
			if err := intact(row); err != nil {
				return err
			}
		}
		there, err, found := next()
		member := "the row"
		if found && err == nil {
			member, err = transfer.Different(row, there)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", excerpt.Of(row), err)
		case member != "":
			return fmt.Errorf("the stores differ in %s of %s", member, excerpt.Of(row))
		}
	}
	if there, err, found := next(); found {
		return cmp.Or(err, fmt.Errorf("the source does not have %s", excerpt.Of(there)))
	}
	return nil
}

// intact returns an error if an event of the source does not match its checksum.
func intact(row string) error {
	members, err := transfer.Members(row)
	if err == nil && members["intact"] == json.Number("0") {
		err = fmt.Errorf("the event at position %v does not match its checksum", members["position"])
	}
	return err
}

// lower lowers checkpoints above the last event, as a file has them after its last events were deleted. PostgreSQL
// would treat such a checkpoint as a loss of events.
func (m *Move) lower(to store.Tx) error {
	var end int64
	if _, err := to.One("newest_position", []any{m.Tenant}, &end); err != nil {
		return err
	}
	to.Exec("lower_moved_leases", m.Tenant, end)
	to.Exec("lower_moved_projections", m.Tenant, end)
	return nil
}

// rebuild lets projections begin at the first event. They keep their tokens, partitions and desired states.
func (m *Move) rebuild(to store.Tx) error {
	if len(m.Rebuild) == 0 {
		return nil
	}
	all, err := lockPartitions(to, m.Tenant, m.Rebuild...)
	if err != nil || len(all) == 0 {
		return err
	}
	rows := all.rows()
	to.Exec("delete_commands_of", rows)
	to.Exec("delete_dead_letters_of", rows)
	to.Exec("delete_parked_streams_of", rows)
	return all.reset(to, m.Tenant, 0, new(engine.ResetResult))
}
