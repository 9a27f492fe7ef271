package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// The file to which a customer moved is lost. The operator, who knows that, goes on with the file from which the
// customer came.
func ExampleAbandonMove() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	open := func(name string) *sqlitestore.Store {
		store, err := sqlitestore.Open(ctx, filepath.Join(folder, name), sqlitestore.Options{})
		check(err)
		check(store.Migrate(ctx))
		return store
	}
	from, lost := open("from.db"), open("lost.db")
	defer from.Close()
	acme, err := from.CreateTenant(ctx, "acme")
	check(err)
	_, err = admin.MoveTenant(ctx, from, lost, "acme", admin.MoveOptions{})
	check(err)
	lost.Close()

	err = from.UnarchiveTenant(ctx, "acme")
	fmt.Println("refused:", errors.Is(err, tenancy.ErrMoved))
	var moved *tenancy.MovedError
	if errors.As(err, &moved) {
		check(admin.AbandonMove(ctx, from, "acme", moved.Target))
	}
	state, err := acme.State(ctx)
	check(err)
	fmt.Println(state)
	// Output:
	// refused: true
	// active
}
