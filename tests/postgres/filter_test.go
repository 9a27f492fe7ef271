package postgres_test

import (
	"fmt"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// A tenant that no projection wants is not read, so it does not matter in which state its schema is.
func TestTenantThatNoProjectionWantsIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(3)
	last := b.AppendTo(tenants[1], "a", 5)
	b.exec("drop schema " + tenants[2].(interface{ EventsSchema() string }).EventsSchema() + " cascade")
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p")), Tenants: []string{tenants[1].Name()}}
	rt := b.Runtime(millrace.Config{}, p)
	b.RunUntilIdle(rt)
	b.Must(b.CheckOf(tenants[1], "p"))
	if rows := value[int](b, "select count(*) from millrace.projections"); rows != 1 {
		t.Errorf("%d projections have rows, want 1", rows)
	}
	b.Start(rt)
	b.ReachesOf(rt, tenants[1].Name(), "p", last)
}

// A filter of thousands of names is registered, and read by other nodes, without a limit on its size.
func TestFilterMayHaveThousandsOfNames(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	tenants := b.Tenants(4)
	names := []string{tenants[1].Name()}
	for i := range 5000 {
		names = append(names, fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	}
	filtered := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing), Tenants: names}
	nodes := []*millrace.Runtime{
		b.Another(millrace.Config{}, filtered), b.Another(millrace.Config{}, filtered, b.Recorders("q")[0]),
	}
	for _, node := range nodes {
		b.Start(node)
	}
	b.ReachesOf(nodes[0], tenants[1].Name(), "p", b.AppendTo(tenants[1], "a", 5))
	b.Eventually("the second node runs what it alone knows",
		func() bool { return len(b.StatusOf(nodes[0]).Projections) == 5 })
	for _, node := range b.Summary(nodes[0]).Nodes {
		if len(node.Filters["p"]) != len(names) {
			t.Errorf("%d of %d names are registered", len(node.Filters["p"]), len(names))
		}
	}
}
