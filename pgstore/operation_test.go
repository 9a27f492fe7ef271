package pgstore

import (
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// While another transaction has locked the first operation, for instance to take it, a node takes the second one.
func TestNodeTakesTheNextOperationWhileTheFirstIsLocked(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	node := aNode()
	node.Projections = []string{"p", "q"}
	ensured(t, store, node.Projections...)
	session := must(store.port().Connect(ctx, node))(t)
	defer func() { _ = session.Close(ctx) }()
	var numbers []int64
	for _, name := range node.Projections {
		o := engine.NewOperation{
			ID: projection.ID{Tenant: projection.DefaultTenant, Name: name}, Kind: engine.OperationRebuild,
			Holds: []string{name},
		}
		numbers = append(numbers, must(store.plane().InsertOperation(ctx, o))(t))
	}
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }()
	must(tx.Exec(ctx, "select from millrace.operations where id = $1 for update", numbers[0]))(t)
	if o := must(store.plane().TakeOperation(ctx, node, nil))(t); o == nil || o.Number != numbers[1] {
		t.Errorf("took %v, want operation %d", o, numbers[1])
	}
}
