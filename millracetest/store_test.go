package millracetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// serverOf returns the parts of the address of the tests' server.
func serverOf(t testing.TB) (host, port, user string) {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return config.Host, fmt.Sprint(config.Port), config.User
}

func TestDatabaseOfTheProgramIsNotThatOfTheTests(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://production.invalid/shop")
	k := Postgres(t, "", table)
	k.When(kinds["a database"].totals())
	given := pgtest.Database(t)
	t.Setenv(pgtest.Variable, given)
	Postgres(t, "").Then("select current_database() = '"+pgxName(t, given)+"'", "f")
	t.Setenv(pgtest.Variable, "postgres://tests.invalid/shop?connect_timeout=5")
	if text := failures(t, func(t testing.TB) { Postgres(t, "") }); !strings.Contains(text, "tests.invalid") {
		t.Errorf("%q", text)
	}
}

func TestDSNsThatOpenAcceptsAreAccepted(t *testing.T) {
	t.Parallel()
	host, port, user := serverOf(t)
	for _, dsn := range []string{
		"host=" + host + " port=" + port + " user=" + user + " dbname=postgres sslmode=disable",
		"host=" + host + " port=" + port + " user=" + user +
			" database = postgres sslmode=disable pool_max_conns=3 default_query_exec_mode=exec ",
		"host=" + host + " port=" + port + " user=" + user + ` password='a://b\'' dbname=postgres sslmode=disable`,
		"host=/nowhere.invalid," + host + " port=1," + port + " user=" + user + " dbname=postgres sslmode=disable",
		"postgres://" + user + "@/postgres?host=" + host + "&port=" + port +
			"&sslmode=disable&pool_max_conns=3&default_query_exec_mode=simple_protocol",
		"postgresql:///?host=" + host + "&port=" + port + "&user=" + user +
			"&dbname=postgres&sslmode=disable&pool_max_conn_lifetime=1m",
	} {
		t.Run("", func(t *testing.T) {
			store, err := pgstore.Open(t.Context(), dsn, pgstore.Options{})
			if err != nil {
				t.Fatalf("Open does not accept %s: %v", dsn, err)
			}
			store.Close()
			k := Postgres(t, dsn, table)
			k.When(kinds["a database"].totals())
			k.Then("select current_database() = 'postgres'", "f")
		})
	}
	for _, dsn := range []string{"host", "postgres://u:secret@ho st:x/", "host=" + host + " pool_max_conns=none"} {
		_, err := pgstore.Open(t.Context(), dsn, pgstore.Options{})
		text := failures(t, func(t testing.TB) { Postgres(t, dsn) })
		if err == nil || text == "" || strings.Contains(text, "secret") {
			t.Errorf("%s: Open returns %v, Postgres %q", dsn, err, text)
		}
	}
}

// Kits beside a node would add work to it, and their user may be allowed to do anything.
func TestDatabaseInWhichProjectionsRunIsRefused(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{"databases": pgtest.Database(t), "schemas": withoutDatabases(t)} {
		t.Run(name, func(t *testing.T) {
			store, err := pgstore.Open(t.Context(), dsn, pgstore.Options{Schema: "shop events"})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			Postgres(t, dsn, table) // beside a store without a node
			exec := func(sql string) {
				if _, err := store.Pool().Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			exec(`insert into "shop events".nodes (id, name, projections, tenants, session_key, expires_at)
				values (gen_random_uuid(), 'shop-1', '{}', '{}', 1, clock_timestamp() + interval '1 hour')`)
			for what, make := range map[string]func(t testing.TB){
				"Postgres": func(t testing.TB) { Postgres(t, dsn) },
				"Database": func(t testing.TB) { Database(t, dsn) },
			} {
				if text := failures(t, make); !strings.Contains(text, `projections run in the database`) ||
					!strings.Contains(text, `"shop events"`) || !strings.Contains(text, "shop-1") {
					t.Errorf("%s: %q", what, text)
				}
			}
			exec(`update "shop events".nodes set expires_at = clock_timestamp() - interval '1 s'`)
			Postgres(t, dsn)
		})
	}
}
