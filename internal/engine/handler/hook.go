package handler

import (
	"context"
	"fmt"
	"reflect"

	"github.com/millrace-go/millrace/internal/usercode"
)

// Hook is a function of a projection that runs in a transaction of the store, beside its handler.
type Hook struct {
	// Tx is the type of the transaction that Run takes.
	Tx reflect.Type
	// Run runs the function. A panic is an error.
	Run func(ctx context.Context, tx any) error
}

// NewHook makes a Hook of a function.
func NewHook[Tx any](f func(ctx context.Context, tx Tx) error) Hook {
	if f == nil {
		return Hook{Tx: reflect.TypeFor[Tx]()}
	}
	return Hook{Tx: reflect.TypeFor[Tx](), Run: func(ctx context.Context, tx any) error {
		return usercode.Protect(func() error { return f(ctx, tx.(Tx)) })
	}}
}

// Call runs the function, if there is one.
func (h Hook) Call(ctx context.Context, tx any) error {
	if h.Run == nil {
		return nil
	}
	return h.Run(ctx, tx)
}

// HookHolder is a hook as users have it.
type HookHolder interface{ Engine() Hook }

// transactions are what the hooks of a store are checked against: its type, and that of its transactions.
type transactions interface {
	Name() string
	TxType() reflect.Type
}

// HookOf returns the hook of that field, or an error if the store cannot run it. Run is nil if the field is not set.
func HookOf(field string, hook HookHolder, database transactions) (Hook, error) {
	if hook == nil {
		return Hook{}, nil
	}
	h := hook.Engine()
	if h.Tx != database.TxType() {
		return h, fmt.Errorf("%s takes %v, but %s gives %v", field, h.Tx, database.Name(), database.TxType())
	}
	return h, nil
}
