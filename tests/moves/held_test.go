package moves_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// The servers limit statements and idle transactions.
func TestLimitsOfServersDoNotEndAMove(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		for _, p := range []*place{from, to} {
			if p.pg != nil {
				p.exec(t, `do $$ begin execute format('alter database %I set statement_timeout = 700', current_database());
					execute format('alter database %I set lock_timeout = 700', current_database());
					execute format('alter database %I set idle_in_transaction_session_timeout = 700', current_database()); end $$`)
				p.pg.Pool().Reset()
			}
		}
		acme := from.create(t, "acme")
		for n := range 12 {
			list := slices.Repeat([]event.Event{happened}, 1000)
			must(acme.Append(ctx, fmt.Sprint("s", n), event.NoStream, list...))(t)
		}
		opts := keep()
		opts.Progress = func(millrace.MoveProgress) { <-time.After(1500 * time.Millisecond) }
		g := newGate()
		opts.ReadModels = g.hook(to)
		go func() { <-g.reached; <-time.After(3 * time.Second); close(g.open) }()
		moveIt(t, from, to, "acme", opts)
	})
}

// Nodes run on both stores. The tenant goes there and back again and again.
func TestTenantMovesThereAndBack(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		var h handled
		nodes := map[*place]*millrace.Runtime{from: h.node(t, from, "plain", "resplit"), to: h.node(t, to, "plain", "resplit")}
		run(t, nodes[from])
		run(t, nodes[to])
		a, b, last := from, to, int64(0)
		for round := range 5 {
			for n := range 4 {
				key := event.Any
				if n == 1 {
					key = event.Any.WithKey(fmt.Sprint("k", round))
				}
				last = must(a.tenant(t, "acme").Append(ctx, fmt.Sprint("s", n), key, happened, happened))(t).Positions[1]
			}
			noError(t, nodes[a].WaitFor(ctx, millrace.ProjectionID{Tenant: "acme", Name: "plain"}, last))
			moveIt(t, a, b, "acme", keep())
			if a.file != nil {
				noError(t, a.file.DropTenant(ctx, "acme", "acme", sqlitestore.DropOptions{}))
			} else {
				noError(t, a.pg.DropTenant(ctx, "acme", "acme", pgstore.DropOptions{}))
			}
			a, b = b, a
			again := must(a.tenant(t, "acme").Append(ctx, "s1", event.Any.WithKey(fmt.Sprint("k", round)), happened, happened))(t)
			if again.Positions[1] != last-4 {
				t.Errorf("repeated at %v, last %d", again.Positions, last)
			}
		}
		last = must(a.tenant(t, "acme").Append(ctx, "s0", event.Any, happened))(t).Positions[0]
		var want []int64
		for position := range last {
			want = append(want, position+1)
		}
		for _, name := range []string{"plain", "resplit"} {
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			noError(t, nodes[a].WaitFor(short, millrace.ProjectionID{Tenant: "acme", Name: name}, last))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, name := range []string{"plain", "resplit"} {
			if !slices.Equal(h.positions[name], want) {
				t.Errorf("%s handled %v, want 1 to %d", name, h.positions[name], last)
			}
		}
	})
}

// A transaction that has begun before the move appends after the tenant was archived, or holds it up.
func TestOpenAppendIsMoved(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	from, to := newDatabase(t), newFile(t)
	from.create(t, "acme")
	acme := must(from.pg.ForTenant("acme"))(t)
	early := must(from.pg.Pool().Begin(ctx))(t)
	must(early.Exec(ctx, "select 1"))(t)
	open := must(from.pg.Pool().Begin(ctx))(t)
	_, _, err := acme.AppendTx(ctx, open, "s", event.NoStream.WithKey("k"), happened)
	noError(t, err)
	ended := make(chan error)
	go func() { _, err := millrace.MoveTenant(ctx, from, to, "acme", keep()); ended <- err }()
	<-time.After(1500 * time.Millisecond)
	noError(t, open.Commit(ctx))
	noError(t, <-ended)
	_, _, err = acme.AppendTx(ctx, early, "s", event.Any, happened)
	t.Log(err)
	if !errors.Is(err, projection.ErrTenantArchived) {
		t.Error(err)
	}
	_ = early.Rollback(ctx)
	if rows := to.contents(t, "acme"); len(rows["events"]) != 1 || len(rows["keys"]) != 1 {
		t.Error(rows)
	}
}
