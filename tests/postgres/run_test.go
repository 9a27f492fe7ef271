package postgres_test

import (
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestPoolOfOneWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{}, "pool_max_conns", "1")
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))},
		millrace.Projection{Name: "d", Handler: millrace.DeliverEach(kit.Freely)}, millrace.Projection{Name: "q", Handler: b.Store.Batch(kit.Record("q")), Types: []string{"none"}}, millrace.Projection{Name: "r", Handler: b.Store.Batch(kit.Record("r")), MaxEvents: 7})
	b.Append("a", 1000)
	b.Start(rt)
	last := b.Append("a", 1).Positions[0]
	for _, name := range []string{"p", "q", "r", "d"} {
		b.Reaches(rt, name, last)
	}
	b.Verify("p")
	b.Verify("r")
}
