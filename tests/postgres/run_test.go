package postgres_test

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

func TestRunRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	if err := b.runtime(millrace.Config{}).Run(b.ctx); err == nil {
		t.Error("it ran without a projection")
	}
	p := millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))}
	rt := b.runtime(millrace.Config{}, p)
	if err := rt.Register(p); err == nil {
		t.Error("a doubled name was accepted")
	}
	if err := b.runtime(millrace.Config{Tenants: []string{"nobody"}}, p).Run(b.ctx); !errors.Is(err, projection.ErrUnknownTenant) {
		t.Errorf("unknown tenant: %v", err)
	}
	raw, err := pgstore.Open(b.ctx, b.dsn, pgstore.Options{Schema: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := b.runtime(millrace.Config{Store: raw}, p).Run(b.ctx); !errors.Is(err, pgstore.ErrNotMigrated) {
		t.Errorf("not migrated: %v", err)
	}
	b.start(rt)
	b.eventually("it runs", func() bool { return b.status(rt, "p").State == millrace.StateLive })
	if err := rt.Run(b.ctx); err == nil {
		t.Error("it ran twice at once")
	}
	if err := rt.Register(millrace.Projection{Name: "q", Handler: pgstore.Batch(record("q"))}); err == nil {
		t.Error("a projection was registered while it ran")
	}
}

func TestPoolOfOneWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "1")
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))},
		millrace.Projection{Name: "d", Handler: millrace.DeliverEach(freely)}, millrace.Projection{Name: "q", Handler: pgstore.Batch(record("q")), Types: []string{"none"}}, millrace.Projection{Name: "r", Handler: pgstore.Batch(record("r")), MaxEvents: 7})
	b.append("a", 1000)
	b.start(rt)
	last := b.append("a", 1).Positions[0]
	for _, name := range []string{"p", "q", "r", "d"} {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
	}
	b.verify("p")
	b.verify("r")
}
