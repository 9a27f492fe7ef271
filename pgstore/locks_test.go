package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

// One scan serves all who asked before it began, and none who asked after.
func TestLockScanBeginsAfterItWasAskedFor(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := newTenant(t, store, "other")
	for i := range 20 {
		txs := map[*Tenant]pgx.Tx{store.tenant: openTx(t, store), other: openTx(t, store)}
		err := together(2, func(n int) error {
			tenant := []*Tenant{store.tenant, other}[n]
			ctx, cancel := context.WithTimeout(context.Background(), hangs)
			defer cancel()
			if _, _, err := tenant.AppendTx(ctx, txs[tenant], "a", event.Any, someEvents(1)...); err != nil {
				return err
			}
			holders, _, err := store.locks.scan(ctx, tenant.EventsSchema())
			if err == nil && (len(holders) != 1 || holders[0].String() != backend(txs[tenant])) {
				t.Errorf("round %d: %s is held by %v, and not by %s", i, tenant.Name(), holders, backend(txs[tenant]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, tx := range txs {
			rollback(t, tx)
		}
	}
}

func TestLockScansAreFew(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	begin := time.Now()
	const rounds = 10
	for range rounds {
		if err := together(30, func(int) error {
			_, _, err := store.locks.scan(testContext(t), store.EventsSchema())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if passed := time.Since(begin); passed < (rounds-1)*scanInterval {
		t.Errorf("%d rounds took %v: more than one scan in %v", rounds, passed, scanInterval)
	}
}

func TestCloseEndsLockScans(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]func(store *Store) (resume func()){
		"one that waits for its time": func(store *Store) func() {
			store.locks.last = time.Now().Add(time.Hour)
			return func() {}
		},
		"one that waits for a connection": func(store *Store) func() {
			conn := must(store.pool.Acquire(testContext(t)))(t)
			return conn.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := onePool(t)
			resume := delay(store)
			defer resume()
			ctx, cancel := context.WithTimeout(testContext(t), hangs)
			defer cancel()
			var scans []*lockScan
			for range 3 {
				scan, err := store.locks.join(store.EventsSchema())
				if err != nil {
					t.Fatal(err)
				}
				scans = append(scans, scan)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				store.Close()
			}()
			for _, scan := range scans {
				select {
				case <-scan.done:
				case <-ctx.Done():
					t.Fatal("a scan still waits")
				}
				if !errors.Is(scan.err, errClosed) {
					t.Error(scan.err)
				}
			}
			<-ended
			if _, _, err := store.locks.scan(ctx, store.EventsSchema()); !errors.Is(err, errClosed) {
				t.Errorf("after that: %v", err)
			}
		})
	}
}
