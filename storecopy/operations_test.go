package storecopy

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// idle runs projections that do nothing until they are idle.
func idle(t *testing.T, store millrace.Store, handler millrace.Handler, versions ...int) {
	t.Helper()
	rt := must(millrace.New(millrace.Config{Store: store}))(t)
	for _, version := range versions {
		noError(t, rt.Register(millrace.Projection{Name: "p", Version: version, Handler: handler}))
	}
	must(rt.RunUntilIdle(testContext(t)))(t)
}

func inFile(context.Context, *sql.Tx, []event.Envelope) error { return nil }

// An open operation would be lost. The copy is refused until it has ended.
func TestOpenOperationIsNotLost(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	must(source.Append(ctx, "s", event.Any, happened))(t)
	idle(t, source, sqlitestore.Batch(inFile), 1)
	id := millrace.ProjectionID{Name: "p"}
	must(control.On(source.Engine()).InsertOperation(ctx, engine.NewOperation{ID: id, Kind: engine.OperationRebuild, Holds: []string{"p"}}))(t)
	opts := Options{Projections: map[string]ReadModel{"p": Keep}}
	if _, err := Run(ctx, source, target, opts); !errors.Is(err, projection.ErrOperationOpen) {
		t.Fatalf("the copy returned %v", err)
	}
	must(source.Append(ctx, "s", event.Any, happened))(t)
	admin := must(millrace.NewAdmin(source))(t)
	noError(t, admin.CancelOperation(ctx, id))
	must(Run(ctx, source, target, opts))(t)
}

// A version that was replaced in the file does not begin again in PostgreSQL.
func TestReplacedVersionStaysReplaced(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	must(source.Append(ctx, "s", event.Any, happened))(t)
	idle(t, source, sqlitestore.Batch(inFile), 1, 2)
	rt := must(millrace.New(millrace.Config{Store: source}))(t)
	noError(t, rt.Register(millrace.Projection{Name: "p", Version: 2, Handler: sqlitestore.Batch(inFile)}))
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(running) }()
	noError(t, rt.Swap(ctx, millrace.ProjectionID{Name: "p@2"}, millrace.SwapOptions{}))
	cancel()
	noError(t, <-ended)
	must(Run(ctx, source, target, Options{Projections: map[string]ReadModel{"p@2": Keep}}))(t)
	must(target.Append(ctx, "s", event.Any, happened))(t)
	again := must(millrace.New(millrace.Config{Store: target}))(t)
	handler := pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return nil })
	noError(t, again.Register(millrace.Projection{Name: "p", Handler: handler}, millrace.Projection{Name: "p", Version: 2, Handler: handler}))
	if _, err := again.RunUntilIdle(ctx); !errors.Is(err, projection.ErrRetired) {
		t.Errorf("the replaced version: %v", err)
	}
	rows := must(control.On(target.Engine()).Projections(ctx, engine.ProjectionFilter{}))(t)
	if len(rows) != 1 || rows[0].ID.Name != "p@2" {
		t.Errorf("rows: %+v", rows)
	}
}
