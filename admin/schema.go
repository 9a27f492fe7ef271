package admin

import (
	"context"
	"fmt"
)

// Schema compares the tables of a store with the migrations of this program.
type Schema struct {
	// Found is the version of the store's own tables, 0 if there are none. Newest is the newest version that this
	// program knows.
	Found  int `json:"found"`
	Newest int `json:"newest"`
	// Outdated are tenants that Migrate of the store would change, or whose tables are gone, at most 1,000.
	Outdated []string `json:"outdatedTenants"`
}

// Schema compares the tables of the store with the migrations of this program. The store need not be migrated. If Found
// is higher than Newest, the program is older than the store.
func (a *Admin) Schema(ctx context.Context) (Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	v, err := a.store.SchemaVersions(ctx)
	if err != nil {
		return Schema{}, fmt.Errorf("compare the schema: %w", err)
	}
	return Schema{Found: v.Found, Newest: v.Newest, Outdated: append([]string{}, v.Outdated...)}, nil
}
