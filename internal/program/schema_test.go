package program

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestOnlyOneProgramClaimsSchemas(t *testing.T) {
	pool := Pool(t, pgtest.Database(t))
	schemas := []string{"mill", "mill_race"}
	// All check before one creates.
	const claimants = 3
	var checked, done sync.WaitGroup
	checked.Add(claimants)
	errs := make([]error, claimants)
	for i := range claimants {
		done.Go(func() {
			errs[i] = Claim(t.Context(), pool, schemas, func(tx pgx.Tx) error {
				checked.Done()
				checked.Wait()
				_, err := tx.Exec(t.Context(), "create schema mill; create schema mill_race; create table mill.t ()",
					pgx.QueryExecModeSimpleProtocol)
				return err
			})
		})
	}
	done.Wait()
	claimed := 0
	for _, err := range errs {
		if err == nil {
			claimed++
		} else if !errors.Is(err, ErrUnderWay) {
			t.Errorf("got %v, want ErrUnderWay", err)
		}
	}
	if claimed != 1 {
		t.Errorf("%d claimed the schemas, want one", claimed)
	}

	err := Claim(t.Context(), pool, schemas, func(pgx.Tx) error {
		t.Error("create was called for existing schemas")
		return nil
	})
	var taken *TakenError
	if !errors.As(err, &taken) || !slices.Equal(taken.Schemas, schemas) {
		t.Errorf("got %v, want both schemas named as taken", err)
	}
	if err := Remove(t.Context(), pool, schemas); err != nil {
		t.Error(err)
	}
	if left := Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}

func TestFailedClaimLeavesNothing(t *testing.T) {
	pool := Pool(t, pgtest.Database(t))
	reason := errors.New("broken")
	err := Claim(t.Context(), pool, []string{"mill"}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "create schema mill")
		return errors.Join(err, reason)
	})
	if !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}
	if left := Schemas(t, pool); left != "" {
		t.Errorf("schemas %s are left", left)
	}
}
