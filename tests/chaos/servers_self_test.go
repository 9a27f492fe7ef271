package chaos_test

import (
	"context"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestPoolerThatEndedIsFound(t *testing.T) {
	pooler := pgtest.Pooler(t, "postgres://nobody@127.0.0.1:1/none", pgtest.PgBouncerOptions{})
	s := &servers{poolers: []*pgtest.PgBouncer{pooler}}
	if found := s.missingPoolers(); len(found) > 0 {
		t.Errorf("found %v while it runs", found)
	}
	if err := pooler.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if found := s.missingPoolers(); len(found) != 1 {
		t.Errorf("found %v after its end", found)
	}
}
