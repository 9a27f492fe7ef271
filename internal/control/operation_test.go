package control

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// endingTx is a transaction in which the open operation of a projection ends after it has kept another one from being
// inserted.
type endingTx struct {
	store.Tx
	open    int // how often the open operation is found
	inserts int
}

func (*endingTx) Lock(...string) {}

func (*endingTx) Exec(string, ...any) {}

func (*endingTx) Notify(engine.Notice) {}

func (t *endingTx) One(statement string, _ []any, results ...any) (bool, error) {
	switch statement {
	case "insert_operation":
		t.inserts++
		if t.inserts == 1 {
			return false, nil
		}
		*results[0].(*int64) = 7
		return true, nil
	case "open_operation":
		t.open--
		return t.open >= 0, nil
	case "projection_exists":
		*results[0].(*bool), *results[1].(*bool) = true, true
	}
	return true, nil
}

func TestOperationIsInsertedWhenTheOpenOneHasJustEnded(t *testing.T) {
	o := engine.NewOperation{ID: projection.ID{Tenant: "default", Name: "p"}}
	tx := &endingTx{}
	number, err := insertOperation(tx, o)
	if number != 7 || err != nil || tx.inserts != 2 {
		t.Errorf("operation %d, %v, after %d inserts", number, err, tx.inserts)
	}
	number, err = insertOperation(&endingTx{open: 1}, o)
	if number != 0 || !errors.Is(err, projection.ErrOperationOpen) {
		t.Errorf("operation %d, %v", number, err)
	}
}
