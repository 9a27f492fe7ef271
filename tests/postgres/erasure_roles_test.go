package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// The first erasure makes a table that the owner alone writes. The doctor does not ask for rights to write it.
func TestErasuresAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	erase := func(b *bundle, owner *pgstore.Store) {
		_, err := owner.Append(b.Ctx, "person-1", event.Any, event.Untyped("Named", nil))
		b.Must(err)
		_, err = owner.EraseStream(b.Ctx, "person-1", "request 1")
		b.Must(err)
	}
	for name, before := range map[string]func(admin *bundle){
		"erased before roles.sql": func(admin *bundle) {
			admin.Must(admin.store.Migrate(admin.Ctx))
			erase(admin, admin.store)
		},
		"erased after it": func(*bundle) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, b := newRoles(t, before)
			erase(b, owner)
			found, err := pgstore.Diagnose(b.Ctx, b.dsn, pgstore.Options{}, pgstore.DiagnoseOptions{})
			b.Must(err)
			for _, f := range found {
				if f.Check == "permissions" {
					t.Errorf("the doctor finds %+v", f)
				}
			}
			for _, sql := range []string{"insert into millrace.erasures (tenant, reason, requested_at) values ('default', 'mine', now())",
				"update millrace.erasures set reason = 'mine'", "delete from millrace.erasures"} {
				_, err := b.store.Pool().Exec(b.Ctx, sql)
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if list, err := b.store.Erasures(b.Ctx); err != nil || len(list) == 0 {
				t.Errorf("the role that runs sees %+v, %v", list, err)
			}
		})
	}
}
