package millrace_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A call that writes with the context of a transaction would commit without it, so it is refused. OutsideTx allows it.
func Example_outsideTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "events.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	audit := func(ctx context.Context) error {
		_, err := store.Append(ctx, "audit", event.Any, event.Untyped("Tried", nil))
		return err
	}
	var within context.Context
	err = store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		within = ctx
		return audit(ctx)
	})
	fmt.Println("within:", errors.Is(err, projection.ErrWithinTx))
	fmt.Println("after it:", errors.Is(audit(within), projection.ErrWithinTx))
	fmt.Println("outside:", audit(projection.OutsideTx(within)))
	// Output:
	// within: true
	// after it: true
	// outside: <nil>
}
