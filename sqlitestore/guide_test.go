package sqlitestore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// The functions up to PaymentHandled are those of docs/sqlite.md.

// cents converts an amount such as 26.85 to 2685, without floating-point numbers.
func cents(amount json.Number) (int64, error) {
	whole, fraction, _ := strings.Cut(amount.String(), ".")
	if len(fraction) > 2 {
		return 0, fmt.Errorf("amount %s has fractions of a cent", amount)
	}
	return strconv.ParseInt(whole+fraction+"00"[len(fraction):], 10, 64)
}

func addPayment(ctx context.Context, tx *sql.Tx, e event.Of[PaymentHandled]) error {
	amount, err := cents(e.Body.Amount)
	if err != nil {
		return err
	}
	tenant, _ := millrace.TenantFrom(ctx)
	_, err = tx.ExecContext(ctx, `insert into payments values ($1, $2, 1)
		on conflict (tenant) do update set cents = cents + excluded.cents, n = n + 1`, tenant, amount)
	return err
}

func createPayments(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `create table if not exists payments (
		tenant text primary key, cents integer not null, n integer not null) strict`)
	return err
}

// leave removes a customer. It can be called again after an interruption.
func leave(ctx context.Context, store *sqlitestore.Store, customer string) error {
	err := store.ArchiveTenant(ctx, customer)
	if err != nil && !errors.Is(err, tenancy.ErrDropping) {
		return err
	}
	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `delete from payments where tenant = $1`, customer)
		return err
	})
	if err != nil {
		return err
	}
	return store.DropTenant(ctx, customer, tenancy.DropOptions{Confirm: customer})
}

// backUp copies a store that is in use to a new file.
func backUp(ctx context.Context, file, copied string) error {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `vacuum into $1`, copied+".partial")
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	written, err := os.OpenFile(copied+".partial", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(written.Sync(), written.Close()); err != nil {
		return err
	}
	return os.Rename(copied+".partial", copied)
}

// PaymentHandled is the event of docs/sqlite.md.
type PaymentHandled struct {
	Amount json.Number `json:"amount"`
}

func (PaymentHandled) EventType() string { return "PaymentHandled" }

func TestCentsAreExact(t *testing.T) {
	t.Parallel()
	for amount, want := range map[json.Number]int64{
		"26.85": 2685, "26.8": 2680, "26": 2600, "0.07": 7, "-0.05": -5, "-12.5": -1250,
		"90071992547409.93": 9007199254740993,
	} {
		if n, err := cents(amount); n != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", amount, n, err, want)
		}
	}
	for _, amount := range []json.Number{"1.005", "1e2", "1.5e1", "", "x", "92233720368547758.08"} {
		if n, err := cents(amount); err == nil && amount != "" {
			t.Errorf("%s: %d, want an error", amount, n)
		}
	}
}

// opened opens a store with the table of docs/sqlite.md, and returns it with a runtime.
func opened(t *testing.T, file string) (*sqlitestore.Store, *millrace.Runtime) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := errors.Join(store.Migrate(t.Context()), store.InTx(t.Context(), createPayments)); err != nil {
		t.Fatal(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err == nil {
		err = rt.Register(millrace.Projection{
			Name: "payments", Handler: sqlitestore.On(addPayment), Retry: projection.RetryPolicy{MaxAttempts: 1},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return store, rt
}

// runUntilIdle applies all events.
func runUntilIdle(t *testing.T, rt *millrace.Runtime) {
	t.Helper()
	if _, err := rt.RunUntilIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// paid returns the read model of a tenant, without the library.
func paid(t *testing.T, store *sqlitestore.Store, tenant string) (cents, n int64) {
	t.Helper()
	err := store.DB().QueryRowContext(t.Context(),
		`select coalesce(sum(cents), 0), coalesce(sum(n), 0) from payments where tenant = $1`, tenant).Scan(&cents, &n)
	if err != nil {
		t.Fatal(err)
	}
	return cents, n
}

// TestMoneyOfTenantsIsExact adds amounts whose sum in floating-point numbers would be wrong.
func TestMoneyOfTenantsIsExact(t *testing.T) {
	t.Parallel()
	store, rt := opened(t, filepath.Join(t.TempDir(), "app.db"))
	acme, err := store.CreateTenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	float, want := 0.0, int64(0)
	for i := range int64(500) {
		amount := json.Number(fmt.Sprintf("%d.%02d", i, (7*i)%100))
		n, err := amount.Float64()
		if err != nil {
			t.Fatal(err)
		}
		float, want = float+n, want+100*i+(7*i)%100
		if _, err := acme.Append(t.Context(), "a", event.Any, event.New(PaymentHandled{amount})); err != nil {
			t.Fatal(err)
		}
	}
	if int64(float*100) == want {
		t.Fatal("floating-point numbers would do")
	}
	if _, err := store.Append(t.Context(), "a", event.Any, event.New(PaymentHandled{"0.10"}),
		event.New(PaymentHandled{"0.001"})); err != nil {
		t.Fatal(err)
	}
	runUntilIdle(t, rt)
	if cents, n := paid(t, store, "acme"); cents != want || n != 500 {
		t.Errorf("acme has %d cents of %d payments, want %d of 500", cents, n, want)
	}
	if cents, n := paid(t, store, projection.DefaultTenant); cents != 10 || n != 1 {
		t.Errorf("the default tenant has %d cents of %d payments, want 10 of 1", cents, n)
	}
	letters, err := store.DeadLetters(millrace.ProjectionID{Name: "payments"}).List(t.Context(),
		projection.DeadLetterPage{})
	if err != nil || len(letters) != 1 || !strings.Contains(letters[0].Error, "amount 0.001 has fractions of a cent") {
		t.Errorf("%+v, %v, want the inexact amount", letters, err)
	}
}

// TestBackupOfALiveStoreContinues copies a store while writers append and projections run.
func TestBackupOfALiveStoreContinues(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	folder := t.TempDir()
	file, copied := filepath.Join(folder, "app.db"), filepath.Join(folder, "a copy's.db")
	live, rt := opened(t, file)
	running, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		if err := rt.Run(running); err != nil {
			t.Error(err)
		}
	})
	for i := range 4 {
		all.Go(func() {
			for running.Err() == nil {
				if _, err := live.Append(ctx, fmt.Sprint(i), event.Any, event.New(PaymentHandled{"0.01"})); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	id := millrace.ProjectionID{Name: "payments"}
	if err := rt.WaitFor(ctx, id, 200); err != nil {
		t.Error(err)
	}
	if err := backUp(ctx, file, copied); err != nil {
		t.Error(err)
	}
	appended, err := live.Append(ctx, "after the copy", event.Any, event.New(PaymentHandled{"0.01"}))
	if err == nil {
		err = rt.WaitFor(ctx, id, appended.Positions[0])
	}
	if err != nil {
		t.Error(err)
	}
	stop()
	all.Wait()

	live.Close()
	later := continues(t, file)

	// The copy takes the place of the file.
	for _, name := range []string{file, file + "-wal", file + "-shm", file + "-owner", file + "-queue"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(copied, file); err != nil {
		t.Fatal(err)
	}
	if restored := continues(t, file); restored >= later {
		t.Errorf("the restored store has %d events, and the later original %d", restored, later)
	}
}

// continues checks a store, appends an event, applies all events, and returns how many there are. Nothing is missing or
// applied twice.
func continues(t *testing.T, file string) int64 {
	t.Helper()
	store, rt := opened(t, file)
	defer store.Close()
	var check string
	if err := store.DB().QueryRowContext(t.Context(), "pragma integrity_check").Scan(&check); err != nil ||
		check != "ok" {
		t.Errorf("integrity: %s, %v", check, err)
	}
	var events int64
	for e, err := range store.ReadAll(t.Context(), event.ReadOptions{}) {
		events++
		if err != nil || e.Position != events {
			t.Fatalf("position %d, %v, want %d", e.Position, err, events)
		}
	}
	if applied, _ := paid(t, store, projection.DefaultTenant); applied < 200 || applied > events {
		t.Errorf("%d payments were applied of %d events", applied, events)
	}
	appended, err := store.Append(t.Context(), "0", event.Any, event.New(PaymentHandled{"0.01"}))
	if err != nil || appended.Positions[0] != events+1 {
		t.Errorf("the next position is %v, %v, want %d", appended.Positions, err, events+1)
	}
	runUntilIdle(t, rt)
	if cents, n := paid(t, store, projection.DefaultTenant); cents != events+1 || n != events+1 {
		t.Errorf("%d cents of %d payments, want %d", cents, n, events+1)
	}
	return events + 1
}
