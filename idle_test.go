package millrace

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

func TestStatusAfterARunIsReadInPages(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "events.db"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	rt, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		handler := sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil })
		if err := rt.Register(Projection{Name: name, Handler: handler}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit <= 5; limit++ {
		status, err := rt.wholeStatus(ctx, nil, limit)
		if err != nil || len(status.Projections) != len(names) || status.At.IsZero() {
			t.Fatalf("pages of %d: %+v, %v", limit, status, err)
		}
		for i, p := range status.Projections {
			if p.ID.Name != names[i] {
				t.Errorf("pages of %d: projection %d is %v", limit, i, p.ID)
			}
		}
	}
	none, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := none.wholeStatus(ctx, []string{"none"}, 2); err != nil || status.Projections == nil {
		t.Errorf("%+v, %v", status, err)
	}
}
