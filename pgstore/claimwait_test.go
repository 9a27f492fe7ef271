package pgstore

import (
	"slices"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// A change that waits for a claim in progress must see the living node that claimed.
func TestChangesSeeTheOwnerOfAClaimForWhichTheyWait(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(store *Store) error{
		"repartition": func(store *Store) error { return store.plane().Repartition(testContext(t), projectionP, 2) },
		"rename": func(store *Store) error {
			return store.plane().Rename(testContext(t),
				engine.Rename{Tenant: projection.DefaultTenant, From: "p", To: "q"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			ctx := testContext(t)
			row := ensured(t, store, "p")[0]
			node := aNode()
			present(t, store, node)
			claim := must(store.pool.Begin(ctx))(t)
			_, err := claim.Exec(ctx, store.control.sql("claim"), node.ID, []int32{row}, true, []string{})
			noError(t, err)
			done := make(chan error)
			go func() { done <- change(store) }()
			waitBlocked(t, store, 1)
			noError(t, claim.Commit(ctx))
			noError(t, <-done)
			crashes := one[[]int32](t, store, "select array_agg(crash_count) from millrace.leases")
			if slices.Max(crashes) > 0 {
				t.Errorf("crashes %v although the owner is alive", crashes)
			}
		})
	}
}
