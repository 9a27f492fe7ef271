package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
)

// commitsOf returns a function that reports whether another connection has committed to the file since its last call.
func commitsOf(t *testing.T, store *Store) (committed func() bool) {
	t.Helper()
	db := must(sql.Open("sqlite", dsn(store.path)))(t)
	t.Cleanup(func() { noError(t, db.Close()) })
	db.SetMaxOpenConns(1) // the number counts what other connections than this one have committed
	version := func() (v int64) {
		noError(t, db.QueryRowContext(testContext(t), queries.Text("data_version")).Scan(&v))
		return v
	}
	last := version()
	return func() bool {
		before := last
		last = version()
		return last != before
	}
}

// An idle runtime looks for work all the time, and writes nothing, however many projections it has.
func TestIdleProjectionsWriteNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newTenant(t, store, "other")
	const often = 50 * time.Millisecond
	rt := must(millrace.New(millrace.Config{Store: tuning.Settings{Store: store, Heartbeat: often, Reconcile: often,
		Advance: often}, LeaseDuration: time.Minute, PollInterval: often}))(t)
	for i := range 100 {
		noError(t, rt.Register(millrace.Projection{Name: fmt.Sprint("p", i),
			Handler: Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil })}))
	}
	started(t, rt)
	last := mustAppend(t, store.tenant, "s", event.Any, someEvents(10)...).Positions[9]
	for i := range 100 {
		noError(t, rt.WaitFor(testContext(t), millrace.ProjectionID{Name: fmt.Sprint("p", i)}, last))
	}
	committed := commitsOf(t, store)
	// The last summary of the runtime may still be written.
	until(t, "the runtime is idle", func() bool {
		<-time.After(20 * often)
		return !committed()
	})
	<-time.After(60 * often)
	if committed() {
		t.Error("an idle runtime writes")
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if !committed() {
		t.Error("the test does not notice a commit")
	}
}
