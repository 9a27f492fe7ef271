package pgtest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// Each copy has what the template was filled with once, and nothing of another copy.
func TestCopiesOfATemplateDatabaseStayApart(t *testing.T) {
	t.Parallel()
	var fills atomic.Int32
	template := pgtest.NewTemplateDatabase(func(ctx context.Context, dsn string) error {
		fills.Add(1)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "create table t (n int); insert into t values (1)")
		return errors.Join(err, conn.Close(ctx))
	})
	for range 3 {
		dsn := template.Database(t)
		if got := ask(t, dsn, "insert into t values (2)",
			"select string_agg(n::text, ',' order by n) from t"); got != "1,2" {
			t.Errorf("a copy has %s, want 1,2", got)
		}
	}
	if n := fills.Load(); n != 1 {
		t.Errorf("the template was filled %d times", n)
	}
}
