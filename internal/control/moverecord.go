package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/tenancy"
)

// moveRecord is what a store keeps of the last move of a tenant. The source writes it in the transaction that archives
// the tenant, and the target in the transaction that inserts the tenant.
type moveRecord struct {
	// id is the same in both stores.
	id string
	// store is the name of the other store.
	store string
	// away reports that the tenant leaves this store, or has left it. active reports that it was active before.
	// repeated reports that a second call has taken up the move.
	away, active, repeated bool
	// moved is when the other store had committed. It is zero if that is not known.
	began, moved time.Time
}

// moveOf returns the record of the last move of a tenant, or the zero value.
func moveOf(v store.View, tenant string) (r moveRecord, err error) {
	made, err := movesTable.wasMade(v)
	if !made || err != nil {
		return moveRecord{}, err
	}
	_, err = v.One("move_of", []any{tenant}, &r.id, &r.store, &r.away, &r.active, &r.repeated, &r.began, &r.moved)
	return r, err
}

func (p Tenants) moveOf(ctx context.Context, tenant string) (r moveRecord, err error) {
	err = p.db.View(ctx, func(v store.View) (err error) {
		r, err = moveOf(v, tenant)
		return err
	})
	return r, p.wrap(err, "read the move of tenant %q", tenant)
}

// MakeMoves creates the table of moves if it does not exist.
func (p Tenants) MakeMoves(ctx context.Context) error { return p.makeTable(ctx, movesTable) }

// err is the error of what must not happen to a tenant that leaves the store, or has left it.
func (r moveRecord) err() error {
	return &tenancy.MovedError{Target: r.store, BeganAt: r.began.UTC(), MovedAt: r.moved.UTC()}
}

// arrived reports whether a tenant has come here by a move.
func (p Tenants) arrived(ctx context.Context, tenant, id string) (bool, error) {
	r, err := p.moveOf(ctx, tenant)
	return r.id == id && !r.away, err
}

// name returns the name of the store. The table of moves exists.
func (p Tenants) name(ctx context.Context) (name string, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		_, err := v.One("store_name", nil, &name)
		return err
	})
	return name, p.wrap(err, "read the name of the store")
}

// Unarchive is the decision of UnarchiveTenant. A tenant that a move has, or may have, committed to another store stays
// archived.
func Unarchive(tenant string) store.Decision {
	return func(tx store.Tx, state tenancy.State) (tenancy.State, error) {
		if state == tenancy.Archived {
			r, err := moveOf(tx, tenant)
			if err == nil && r.away {
				err = r.err()
			}
			if err != nil {
				return "", err
			}
		}
		return tenancy.Active, nil
	}
}

// Abandon returns the decision that forgets the move of a tenant to a store, which the caller names. A tenant that was
// active becomes active again. It returns an error if there is no such move, and the decision does if the move has gone
// on meanwhile.
func (p Tenants) Abandon(ctx context.Context, tenant, target string) (store.Decision, error) {
	before, err := p.moveOf(ctx, tenant)
	switch {
	case err != nil:
		return nil, err
	case !before.away:
		return nil, errors.New("the store has no record of a move of the tenant to another store")
	case before.store != target:
		return nil, fmt.Errorf("%w, and not to %s", before.err(), excerpt.Quoted(target))
	}
	return func(tx store.Tx, state tenancy.State) (tenancy.State, error) {
		r, err := moveOf(tx, tenant)
		switch {
		case err != nil:
			return "", err
		case r.id != before.id || !r.moved.Equal(before.moved):
			return "", errors.New("the move has gone on meanwhile")
		}
		return r.forget(tx, tenant, state), nil
	}, nil
}

// forget deletes the record of a move, and returns the state that the tenant had before.
func (r moveRecord) forget(tx store.Tx, tenant string, state tenancy.State) tenancy.State {
	tx.Exec("delete_move", tenant)
	if r.active && state == tenancy.Archived {
		return tenancy.Active
	}
	return state
}

// Prepare makes the tables of moves, and reports whether an earlier call has moved the tenant, which is archived.
// exists reports whether the target has a tenant of that name. Without such a move it must be empty.
func (p Tenants) Prepare(ctx context.Context, to Plane, m *Move, active, exists bool) (moved bool, err error) {
	err = cmp.Or(to.MakeMoves(ctx), p.MakeMoves(ctx))
	if err != nil {
		return false, err
	}
	m.record.store, err = to.name(ctx)
	if err != nil {
		return false, err
	}
	m.source, err = p.name(ctx)
	if err != nil {
		return false, err
	}
	r, err := p.moveOf(ctx, m.Tenant)
	if err == nil && r.away && !active && r.store == m.record.store {
		moved, err = to.arrived(ctx, m.Tenant, r.id)
	}
	if moved {
		err = p.db.Tx(ctx, func(tx store.Tx) error { tx.Exec("end_move", m.Tenant, r.id); return nil })
	}
	if moved || err != nil {
		return moved, p.wrap(err, "record the end of the move")
	}
	if err := m.mayLeave(r, active); err != nil {
		return false, err
	}
	if exists {
		err = to.empty(ctx, m.Tenant)
	}
	return false, err
}

// mayLeave returns an error if the tenant has left by another move, or may have. If it has moved to the target, the
// target has it no more.
func (m *Move) mayLeave(r moveRecord, active bool) error {
	if r.away && (r.store != m.record.store || !active && !r.moved.IsZero()) {
		return r.err()
	}
	return nil
}

// Leave is the decision that archives the tenant, and records that it leaves. A repeat of a move finds the record of
// the call before.
func (m *Move) Leave(tx store.Tx, state tenancy.State) (tenancy.State, error) {
	if err := Changing(state); err != nil {
		return "", err
	}
	r, err := moveOf(tx, m.Tenant)
	active := state != tenancy.Archived
	if err != nil {
		return "", err
	}
	if err := m.mayLeave(r, active); err != nil {
		return "", err
	}
	m.Begun, m.State = !r.away || active, tenancy.Archived
	if m.Begun {
		r = moveRecord{id: rand.Text(), store: m.record.store, active: active}
		tx.Exec("insert_move", m.Tenant, r.id, r.store, r.active)
	} else {
		tx.Exec("repeat_move", m.Tenant)
	}
	m.record = r
	if r.active || m.Active {
		m.State = tenancy.Active
	}
	return tenancy.Archived, nil
}

// Return is the decision after an error of the call that has begun the move, and has not come to the commit. It forgets
// the move, and a tenant that was active becomes active again. If a second call has taken up the move, that may have
// moved the tenant: then it returns an error.
func (m *Move) Return(tx store.Tx, state tenancy.State) (tenancy.State, error) {
	r, err := moveOf(tx, m.Tenant)
	switch {
	case err != nil:
		return "", err
	case !r.away || r.id != m.record.id: // it was abandoned
		return state, nil
	case r.repeated:
		return "", errors.New("another call has taken up the move: repeat it")
	}
	return r.forget(tx, m.Tenant, state), nil
}
