package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// Move is the move of a tenant to another store: see tenancy.Move.
type Move struct {
	Tenant string
	// State is what the tenant gets in the target: active or archived.
	State projection.TenantState
	// Rebuild are the projections that begin at the first event.
	Rebuild []string
	// ReadModels runs in the transaction of the target.
	ReadModels engine.Hook
	// Progress is called after each page and each table. compared reports whether the rows of the table were compared.
	Progress func(table string, rows int64, compared bool)

	// Head is the last position that was given to an event. Rows are the rows of each table.
	Head int64
	Rows map[string]int64
	// Ended reports that the transaction of the target may have committed.
	Ended bool

	paused              bool
	erasures            bool
	commandIDs, letters int64 // what is added to ids of commands and dead letters
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
func (p Plane) CanLeave(ctx context.Context, tenant string) (names []string, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		if err := noOperationOf(v, tenant); err != nil {
			return err
		}
		names, err = column[string](v, "projection_names", tenant)
		return err
	})
	return names, p.failed(err, "read the projections of tenant %q", tenant)
}

func noOperationOf(v store.View, tenant string) error {
	var name string
	open, err := v.One("operation_of_tenant", []any{tenant}, &name)
	if open {
		err = fmt.Errorf("projection %s: %w", excerpt.Quoted(name), projection.ErrOperationOpen)
	}
	return err
}

// Has reports whether a tenant that is archived in a source has come here: it has the newest event and the erasures of the source. Otherwise
// it returns projection.ErrTenantNotEmpty unless the tenant is empty here.
func (p Plane) Has(ctx context.Context, source Plane, tenant string) (has bool, err error) {
	position, newest, err := source.eventAt(ctx, tenant, 0)
	if err == nil && newest != "" {
		has, err = p.hasEvent(ctx, tenant, position, newest)
	}
	if err == nil && has {
		has, err = p.hasErasuresOf(ctx, source, tenant)
	}
	if has || err != nil {
		return has && err == nil, err
	}
	return false, p.Empty(ctx, tenant)
}

// hasEvent reports whether a tenant has that event at its position.
func (p Plane) hasEvent(ctx context.Context, tenant string, position int64, event string) (bool, error) {
	_, here, err := p.eventAt(ctx, tenant, position)
	if err != nil || here == "" {
		return false, err
	}
	member, err := transfer.Different(event, here)
	return member == "", err
}

// HasByNow reports whether another call has moved a tenant here from a source. It waits for a move that another call has begun. If
// the target cannot be asked, it reports false.
func (p Plane) HasByNow(ctx context.Context, source Plane, tenant string) (has bool, err error) {
	err = source.db.Change(ctx, tenant, func(store.Tx, projection.TenantState) error {
		has, _ = p.Has(ctx, source, tenant)
		return nil
	})
	return has, source.failed(err, "wait for other moves of tenant %q", tenant)
}

// hasErasuresOf reports whether a tenant has as many erasures here as in a source, or more.
func (p Plane) hasErasuresOf(ctx context.Context, source Plane, tenant string) (bool, error) {
	there, err := source.Erasures(ctx, tenant)
	if err != nil {
		return false, err
	}
	here, err := p.Erasures(ctx, tenant)
	return len(here) >= len(there), err
}

// Empty returns projection.ErrTenantNotEmpty unless a tenant is empty.
func (p Plane) Empty(ctx context.Context, tenant string) error {
	return p.db.View(ctx, func(v store.View) error { return isEmpty(v, tenant) })
}

func (p Plane) eventAt(ctx context.Context, tenant string, position int64) (at int64, text string, err error) {
	err = p.db.View(ctx, func(v store.View) (err error) {
		at, text, err = eventAt(v, tenant, position)
		return err
	})
	return at, text, p.failed(err, "read an event of tenant %q", tenant)
}

// eventAt returns an event as a row, and its position. Position 0 means the newest event.
func eventAt(v store.View, tenant string, position int64) (at int64, text string, err error) {
	found, err := v.One("event_at", []any{tenant, position}, &text)
	if !found || err != nil {
		return 0, "", err
	}
	var event struct{ Position int64 }
	err = json.Unmarshal([]byte(text), &event)
	return event.Position, text, err
}

func isEmpty(v store.View, tenant string) error {
	var contents []string
	_, err := v.One("tenant_contents", []any{tenant}, &contents)
	if err == nil && len(contents) > 0 {
		err = fmt.Errorf("%w: it has %s", projection.ErrTenantNotEmpty, strings.Join(contents, ", "))
	}
	return err
}

// Move moves an archived tenant, none of whose projections runs, to another store. Nothing changes in the source. Meanwhile the transaction
// of the source has the structural lock of the tenant and the locks of its projections and leases, so nothing of it changes.
func (p Plane) Move(ctx context.Context, to Plane, m *Move) error {
	var failed error
	err := p.db.Change(ctx, m.Tenant, func(tx store.Tx, state projection.TenantState) error {
		tx.Exec("allow_idle")
		failed = m.begin(tx, state)
		if failed == nil {
			failed = m.send(ctx, tx, to)
		}
		return nil // if the target fails, the transaction of the source does not begin again
	})
	return cmp.Or(failed, p.failed(err, "read the source"))
}

// begin locks the tenant in the source.
func (m *Move) begin(tx store.Tx, state projection.TenantState) error {
	still, _, err := still(tx, m.Tenant)
	switch {
	case err != nil:
		return err
	case state != projection.TenantArchived || !still:
		return projection.ErrResumed
	}
	if err := noOperationOf(tx, m.Tenant); err != nil {
		return err
	}
	if _, err := tx.One("last_position", []any{m.Tenant}, &m.Head); err != nil {
		return err
	}
	_, err = tx.One("erasures_exist", nil, &m.erasures)
	return err
}

func (m *Move) send(ctx context.Context, from store.Tx, to Plane) error {
	if err := m.reserve(ctx, from, to); err != nil {
		return err
	}
	if m.erasures {
		if err := to.makeErasures(ctx); err != nil {
			return to.failed(err, "create the table of erasures")
		}
	}
	err := to.db.Receive(ctx, store.Reception{Tenant: m.Tenant, Hook: m.ReadModels,
		Fill: func(tx store.Tx) error { return m.fill(from, tx) },
		End: func(tx store.Tx) (projection.TenantState, error) {
			// If the session of the source has ended, its locks have too.
			if _, err := from.One("tenant_paused", []any{m.Tenant}, &m.paused); err != nil {
				return "", fmt.Errorf("the source: %w", err)
			}
			Restore(tx, m.Tenant, m.State, m.paused)
			tx.Exec("let_leases_sleep", m.Tenant)
			m.Ended = true
			return m.State, nil
		}})
	return to.failed(err, "write to the target")
}

// reserve reserves ids in the target. They stay the same if no such id was given there yet.
func (m *Move) reserve(ctx context.Context, from store.Tx, to Plane) error {
	var commands, letters struct{ low, high int64 }
	if _, err := from.One("ids_of_tenant", []any{m.Tenant}, &commands.low, &commands.high, &letters.low, &letters.high); err != nil {
		return err
	}
	err := to.db.Tx(ctx, func(tx store.Tx) error {
		m.commandIDs, m.letters = 0, 0
		tx.Exec("lock_ids")
		if commands.high > 0 {
			tx.Later("reserve_ids", []any{"commands", commands.low, commands.high}, &m.commandIDs)
		}
		if letters.high > 0 {
			tx.Later("reserve_ids", []any{"dead_letters", letters.low, letters.high}, &m.letters)
		}
		return nil
	})
	return to.failed(err, "reserve ids")
}

// fill inserts all rows into the tenant of the target, and compares them with those of the source.
func (m *Move) fill(from, to store.Tx) error {
	if err := isEmpty(to, m.Tenant); err != nil {
		return err
	}
	m.Rows = make(map[string]int64)
	for _, t := range movedTables {
		if t.name() == "erasures" && !m.erasures {
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
		args := append([]any{m.Tenant, page.JSON()}, []any{m.commandIDs, m.letters}[:t.ids]...)
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
	next, stop := iter.Pull2(rowsOf(to, t, m.Tenant, m.commandIDs, m.letters))
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

// lower lowers checkpoints above the last event, as a file has them after its last events were deleted. PostgreSQL would treat such a
// checkpoint as a loss of events.
func (m *Move) lower(to store.Tx) error {
	end, _, err := eventAt(to, m.Tenant, 0)
	if err != nil {
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
