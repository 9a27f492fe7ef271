package pgtest_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
)

func TestDatabaseIsDroppedDespiteOpenSessions(t *testing.T) {
	witness := pgtest.Database(t)
	name := ""
	t.Run("a test with ünusual (characters) and a name that is longer than any that a database can have",
		func(t *testing.T) {
			dsn := pgtest.Database(t)
			name = ask(t, dsn, "select current_database()")
			ask(t, dsn, "create table t (n int)", "begin", "insert into t values (1)",
				"prepare transaction 'it''s open'")
			connect(t, dsn)
		})
	if !strings.Contains(name, "_testdatabaseisdropped") {
		t.Errorf("the name %q does not contain the name of the test", name)
	}
	if got := ask(t, witness, "select count(*) from pg_database where datname = '"+name+"'"); got != "0" {
		t.Errorf("database %s is left", name)
	}
}

func TestDatabaseIgnoresTheEnvironment(t *testing.T) {
	dsn := pgtest.Database(t)
	for name, value := range map[string]string{"PGHOST": "nowhere.invalid", "PGPORT": "1", "PGUSER": "none",
		"PGDATABASE": "none"} {
		t.Setenv(name, value)
	}
	if got := ask(t, dsn, "select 1"); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestConnectionStringsAreChanged(t *testing.T) {
	for _, test := range []struct{ dsn, host string }{
		{"postgres://u:p@example.org:99/old?sslmode=disable&dbname=older&options=-c%20a=b+c", "example.org"},
		{"postgresql://u:p@/old?host=/tmp/x&port=99&sslmode=disable", "/tmp/x"},
		{"host=example.org port=99 user=u password=p dbname=old sslmode=disable", "example.org"},
	} {
		dsn, err := pgtest.WithDatabase(test.dsn, "new")
		if err != nil {
			t.Fatal(err)
		}
		dsn, err = pgtest.WithSetting(dsn, "application_name", `it's \ me`)
		if err != nil {
			t.Fatal(err)
		}
		dsn, err = pgtest.WithSetting(dsn, "pool_max_conns", "3")
		if err != nil {
			t.Fatal(err)
		}
		pool, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		config := pool.ConnConfig
		if config.Database != "new" || config.Host != test.host || config.Port != 99 || config.User != "u" ||
			config.Password != "p" || pool.MaxConns != 3 || config.RuntimeParams["application_name"] != `it's \ me` {
			t.Errorf("%s became %s: %+v", test.dsn, dsn, config.Config)
		}
	}
	if _, err := pgtest.WithDatabase("postgres://u:secret@ho st:x/", "new"); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}

var _ pgtest.TB = (*testing.B)(nil)
