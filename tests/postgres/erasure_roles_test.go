package postgres_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// The first erasure and the first move make tables that the owner alone writes. The doctor does not ask for rights to
// write them.
func TestErasuresAndMovesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	erase := func(b *bundle, owner *pgstore.Store) {
		_, err := owner.Append(b.Ctx, "person-1", event.Any, event.Untyped("Named", nil))
		b.Must(err)
		_, err = owner.EraseStream(b.Ctx, "person-1", "request 1")
		b.Must(err)
		_, err = owner.CreateTenant(b.Ctx, "guest")
		b.Must(err)
		file, err := sqlitestore.Open(b.Ctx, filepath.Join(t.TempDir(), "store.db"), sqlitestore.Options{})
		b.Must(err)
		t.Cleanup(file.Close)
		b.Must(file.Migrate(b.Ctx))
		_, err = admin.MoveTenant(b.Ctx, owner, file, "guest", admin.MoveOptions{})
		b.Must(err)
		b.Must(owner.DropTenant(b.Ctx, "guest", tenancy.DropOptions{Confirm: "guest"}))
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
				"update millrace.erasures set reason = 'mine'", "delete from millrace.erasures",
				"insert into millrace.moves (tenant, id, store, away, active, began_at) values ('default', '1', 'mine', true, true, now())",
				"update millrace.moves set store = 'mine'", "delete from millrace.moves"} {
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
