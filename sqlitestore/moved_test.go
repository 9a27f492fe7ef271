package sqlitestore

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// The version before copied whole files to PostgreSQL. It recorded that in the file, and triggers refused writes.
func TestFileThatAnEarlierVersionMovedIsRefused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	db := otherProgram(t, store)
	must(db.Exec(`insert into millrace_copy (singleton, id, from_name, to_name) values (1, '1', 'a file', 'PostgreSQL db:5432, database "shop"');
		create trigger millrace_tenants_update_closed before update on millrace_tenants
			begin select raise(abort, 'millrace: the store was moved to PostgreSQL db:5432, database "shop"'); end`))(t)
	_, appended := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
	for what, err := range map[string]error{"an append": appended, "a runtime": store.port().Runnable(testContext(t))} {
		if !errors.Is(err, ErrMoved) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(store.Tenants(testContext(t)))(t)

	// A file of the schema before is not migrated.
	must(db.Exec(`drop table millrace_aliases; pragma user_version = 1`))(t)
	if err := store.Migrate(testContext(t)); !errors.Is(err, ErrMoved) {
		t.Errorf("migrate: %v", err)
	}
}
