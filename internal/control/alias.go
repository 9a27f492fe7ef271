package control

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/tenancy"
)

// Alias returns the id of the stream that has an alias. If none has it, a new id gets it. It returns
// tenancy.ErrUnknown, and tenancy.ErrArchived, ErrDropping or ErrCopying if the alias is free and the tenant takes no
// appends.
func (p Reads) Alias(ctx context.Context, tenant, name string) (id string, err error) {
	if err := valid.ID("the alias", name); err != nil {
		return "", err
	}
	err = p.db.View(ctx, func(v store.View) (err error) {
		id, err = readAlias(v, tenant, name)
		return err
	})
	if err != nil || id != "" {
		return id, err
	}
	err = p.db.Tx(ctx, func(tx store.Tx) (err error) {
		id, err = insertAlias(tx, tenant, name)
		return err
	})
	return id, err
}

// AliasIn is Alias in a transaction of the caller.
func AliasIn(tx store.Tx, tenant, name string) (string, error) {
	if err := valid.ID("the alias", name); err != nil {
		return "", err
	}
	if id, err := readAlias(tx, tenant, name); err != nil || id != "" {
		return id, err
	}
	return insertAlias(tx, tenant, name)
}

// readAlias returns the id of the stream that has an alias, empty if it is free.
func readAlias(v store.View, tenant, name string) (string, error) {
	var state tenancy.State
	var id *string
	found, err := v.One("alias", []any{tenant, name}, &state, &id)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", ofTenant(tenant, tenancy.ErrUnknown)
	case id != nil:
		return *id, nil
	case closed[state] != nil:
		return "", ofTenant(tenant, closed[state])
	}
	return "", nil
}

// aliasTries is how often insertAlias tries again after the tenant was opened between its statements.
const aliasTries = 3

// insertAlias gives the alias to a new id, unless another transaction was faster, and returns the id that has it. The
// insert holds the tenant active until the commit, and waits for others that insert the alias. The read after it is a
// statement of its own, so it sees what they have committed.
func insertAlias(tx store.Tx, tenant, name string) (string, error) {
	own, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	for range aliasTries {
		tx.Exec("insert_alias", tenant, name, own.String())
		if id, err := readAlias(tx, tenant, name); err != nil || id != "" {
			return id, err
		}
	}
	return "", ofTenant(tenant, errors.New("the alias was not inserted"))
}
