package millracetest

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// SQLite returns a Kit on a new file in a folder of the test, for projections whose handlers take a *sql.Tx. setup are statements
// that make the tables of read models.
func SQLite(t testing.TB, setup ...string) *Kit {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "events.db"), sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	k := New(t, store)
	k.Exec(setup...)
	return k
}

// Postgres returns a Kit on a store of its own in PostgreSQL, for projections whose handlers take a pgx.Tx. setup are statements
// that make the tables of read models.
//
// The store is in a new database, as Database documents. If dsn or DATABASE_URL is set, and its user may not create
// databases, the store and the tables are in new schemas of that database instead, which are dropped at the end of the test.
// For a store with options, open it on Database and use New.
func Postgres(t testing.TB, dsn string, setup ...string) *Kit {
	t.Helper()
	options := pgstore.Options{}
	if database := cmp.Or(dsn, os.Getenv("DATABASE_URL")); database != "" && !mayCreateDatabases(t, database) {
		place := pgtest.SchemaOn(t, database)
		dsn, options.Schema = place.DSN, place.Store
	} else {
		dsn = Database(t, dsn)
	}
	store, err := pgstore.Open(t.Context(), dsn, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	k := New(t, store)
	k.Exec(setup...)
	return k
}

func mayCreateDatabases(t testing.TB, dsn string) bool {
	t.Helper()
	may, err := pgtest.MayCreateDatabases(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return may
}

// serversEnd reports that a private server ends with the process that started it.
var serversEnd = runtime.GOOS == "linux"

// Database returns the DSN of a new, empty database, which is dropped at the end of the test. dsn is an address on a server where
// the user may create databases. If it is empty, DATABASE_URL is used. If that is empty too, a private server is started from
// the installed binaries, such as those of apt-get install postgresql. On Linux all tests of a package share it; on other
// systems each test has one of its own. Without binaries the test fails.
func Database(t testing.TB, dsn string) string {
	t.Helper()
	switch {
	case dsn != "":
		return pgtest.DatabaseOn(t, dsn)
	case serversEnd || os.Getenv("DATABASE_URL") != "":
		return pgtest.Database(t)
	}
	return pgtest.Private(t, pgtest.Options{}).DSN("postgres")
}
