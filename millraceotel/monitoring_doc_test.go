package millraceotel_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millraceotel"
	"github.com/millrace-go/millrace/sqlitestore"
)

// observed is the function of docs/monitoring.md.
func observed(ctx context.Context, file string, projections ...millrace.Projection) error {
	telemetry, err := millraceotel.New(millraceotel.Options{})
	if err != nil {
		return err
	}
	store, err := sqlitestore.Open(ctx, file,
		sqlitestore.Options{AppendMiddleware: []event.AppendMiddleware{telemetry.Append}})
	if err != nil {
		return err
	}
	defer store.Close()
	rt, err := millrace.New(millrace.Config{
		Store:      store,
		Observer:   telemetry.Observer(),
		Middleware: []millrace.Middleware{telemetry.Handle},
	})
	if err != nil {
		return err
	}
	stopNode, err := telemetry.WatchNode(rt)
	if err != nil {
		return err
	}
	stopDeployment, err := telemetry.WatchDeployment(rt.Admin)
	if err != nil {
		return err
	}
	err = errors.Join(rt.Register(projections...), rt.Run(ctx))
	return errors.Join(err, stopNode(), stopDeployment())
}

func TestProgramOfTheMonitoringDocument(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "events.db")
	store, err := sqlitestore.Open(ctx, file, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(ctx, "order-1", event.NoStream, event.Untyped("OrderPlaced", nil)); err != nil {
		t.Fatal(err)
	}
	ends := millrace.Projection{Name: "ends",
		Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error {
			cancel()
			return nil
		})}
	if err := observed(ctx, file, ends); err != nil {
		t.Error(err)
	}
}
