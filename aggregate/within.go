package aggregate

import (
	"context"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/streams"
)

// TxStore is a store, or a tenant of one, whose transactions are of type Tx: pgx.Tx or *sql.Tx. Its method AppendTx
// says which.
type TxStore[Tx any] interface {
	Store
	AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected, events ...event.Event) (event.Appended,
		error)
}

// Within returns a Store in a transaction of the caller, such as that of a handler or of InTx. Load sees what the
// transaction has written, and Do and Run append in it, as AppendTx does: all of it commits or rolls back with the
// transaction. After the commit of a transaction that is neither a handler's nor that of InTx, call Wake of the store.
//
// Other transactions may commit meanwhile, so there are version conflicts here too, and the command is decided again in
// the same transaction. Nothing of a try is left after a conflict.
func Within[Tx any](s TxStore[Tx], tx Tx) Store {
	return within{log: s.Streams(), tx: tx}
}

type within struct {
	log streams.Log
	tx  any
}

// Streams is for packages of this module.
func (w within) Streams() streams.Log { return w.log.Within(w.tx) }
