package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

// leave runs a query and returns its rows, open. database/sql waits for rows that were scanned into sql.RawBytes.
func leave(t testing.TB, tx *sql.Tx, dest any) *sql.Rows {
	t.Helper()
	rows, err := tx.Query("select body from millrace_events")
	if err == nil && rows.Next() {
		err = rows.Scan(dest)
	}
	if err != nil {
		t.Error(err)
	}
	return rows
}

func TestRowsThatAFunctionLeavesOpenHoldUpNoOther(t *testing.T) {
	t.Parallel()
	type use = func(ctx context.Context, tx *sql.Tx) error
	for name, call := range map[string]func(b *batcher, leave use) error{
		"handler": func(b *batcher, leave use) error {
			return b.apply(func(ctx context.Context, tx *sql.Tx, _ []event.Envelope) error { return leave(ctx, tx) },
				limit)
		},
		"transaction": func(b *batcher, leave use) error { return b.store.InTx(testContext(b.t), leave) },
	} {
		for what, dest := range map[string]any{"scanned": new(string), "raw bytes": new(sql.RawBytes)} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				b := newBatcher(t, 3)
				var rows *sql.Rows
				// A blocked file continues then, so that the test ends.
				rescue := time.AfterFunc(20*time.Second, func() {
					t.Error("the file stands still until the rows are closed")
					_ = rows.Close()
				})
				defer rescue.Stop()
				noError(t, call(b, func(ctx context.Context, tx *sql.Tx) error {
					rows = leave(t, tx, dest)
					return record(ctx, tx, make([]event.Envelope, 1))
				}))
				mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
				if n := one[int](t, b.store, "select count(*) from model"); n != 1 {
					t.Errorf("%d rows were committed", n)
				}
				if rows.Next() {
					t.Error("another row")
				}
				_ = rows.Close()
				until(t, "the connection is closed",
					func() bool { return b.store.writer.db.Stats().OpenConnections == 1 })
			})
		}
	}
}

func TestAppendsOfOneTransactionDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "taken", event.Any, someEvents(1)...)
	for round := range 20 {
		var mu sync.Mutex
		var answered []int64
		noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			return together(8, func(i int) error {
				stream := fmt.Sprintf("s-%d-%d", round, i)
				if i%2 == 0 {
					stream = "taken"
				}
				result, err := store.AppendTx(ctx, tx, stream, event.NoStream, someEvents(2)...)
				var conflict *event.VersionConflictError
				if i%2 == 0 && errors.As(err, &conflict) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				answered = append(answered, result.Positions...)
				return err
			})
		}))
		for _, position := range answered {
			if one[int](t, store, "select count(*) from millrace_events where position = ?", position) != 1 {
				t.Errorf("position %d was answered, and there is no event", position)
			}
		}
	}
}
