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

// SQLite returns a Kit on a new file in a folder of the test, for projections whose handlers take a *sql.Tx. setup are
// statements that make the tables of read models.
func SQLite(t testing.TB, setup ...string) *Kit {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "events.db"),
		sqlitestore.Options{Synchronous: sqlitestore.SynchronousNormal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	k := New(t, store)
	k.Exec(setup...)
	return k
}

// Postgres returns a Kit on a store of its own in PostgreSQL, for projections whose handlers take a pgx.Tx. setup are
// statements that make the tables of read models.
//
// The store is in a new database, as Database documents. If a server is given by dsn or MILLRACE_TEST_DATABASE_URL, and
// its user may not create databases, the store and the tables are in new schemas of that database instead, which are
// dropped at the end of the test. For a store with options, open it on Database and use New.
func Postgres(t testing.TB, dsn string, setup ...string) *Kit {
	t.Helper()
	options := pgstore.Options{}
	if given := given(t, dsn); given != "" && !mayCreateDatabases(t, given) {
		place := pgtest.SchemaOn(t, given)
		dsn, options.Schema = place.DSN, place.Store
	} else {
		dsn = newDatabase(t, given)
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

// Database returns the DSN of a new, empty database, which is dropped at the end of the test. dsn is any address that
// pgstore.Open accepts, of a database on a server where the user may create databases. If it is empty, the environment
// variable MILLRACE_TEST_DATABASE_URL is used. If that is empty too, a private server is started from the installed
// binaries, such as those of apt-get install postgresql. On Linux all tests of a package share it; on other systems
// each test has one of its own. Without binaries the test fails.
//
// DATABASE_URL is not used, since it often names the database of a program in production. If projections run in the
// given database, the test fails before anything is created.
func Database(t testing.TB, dsn string) string {
	t.Helper()
	return newDatabase(t, given(t, dsn))
}

// given returns the DSN that is given for tests, empty if none is. It ends the test if projections run in its database.
func given(t testing.TB, dsn string) string {
	t.Helper()
	dsn = cmp.Or(dsn, os.Getenv(pgtest.Variable))
	if dsn == "" {
		return ""
	}
	if err := pgtest.NotInUse(dsn); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// newDatabase creates a database on the server of a DSN, or on a private server.
func newDatabase(t testing.TB, given string) string {
	t.Helper()
	switch {
	case given != "":
		return pgtest.DatabaseOn(t, given)
	case serversEnd:
		return pgtest.Database(t)
	}
	return pgtest.Private(t, pgtest.Options{}).DSN("postgres")
}
