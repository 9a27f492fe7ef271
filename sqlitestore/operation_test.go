package sqlitestore

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// afterView is a port that calls then after each View.
type afterView struct {
	port
	then func()
}

func (a afterView) View(ctx context.Context, fn func(store.View) error) error {
	defer a.then()
	return a.port.View(ctx, fn)
}

// If the first operation is cancelled after a node has listed it, the node takes the second one.
func TestNodeTakesTheNextOperationIfTheFirstHasEnded(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), testContext(t)
	node := engine.Node{ID: uuid.NewString(), Projections: []string{"p", "q"}, LeaseDuration: time.Hour}
	connect(t, s, node)
	ensured(t, s, node.Projections...)
	var numbers []int64
	for _, name := range node.Projections {
		o := engine.NewOperation{
			ID: projection.ID{Tenant: projection.DefaultTenant, Name: name}, Kind: engine.OperationRebuild,
			Holds: []string{name},
		}
		numbers = append(numbers, must(s.plane().InsertOperation(ctx, o))(t))
	}
	cancel := func() { noError(t, s.plane().CancelOperation(ctx, projection.ID{Name: "p"})) }
	if o := must(control.On(afterView{s.port(), cancel}).TakeOperation(ctx, node, nil))(t); o == nil ||
		o.Number != numbers[1] {
		t.Errorf("took %v, want operation %d", o, numbers[1])
	}
}
