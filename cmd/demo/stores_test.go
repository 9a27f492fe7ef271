package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
)

// testPlace is a place for the demo in a test.
type testPlace struct {
	t *testing.T
	place
	storeFlags
	// exec changes one row, by any SQL of the store.
	exec func(sql string)
	// left returns the schemas or files that are there.
	left func() string
	// names are the names of the store's own tables.
	names *strings.Replacer
	// found is the database that existing has opened.
	found *database
}

func onEachStore(t *testing.T, test func(p testPlace)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(inDatabase(t))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(inFile(t))
	})
}

// inDatabase is an empty database.
func inDatabase(t *testing.T) testPlace {
	t.Helper()
	dsn := pgtest.Database(t)
	pool := program.Pool(t, dsn)
	return testPlace{
		t: t, place: postgresPlace{url: dsn}, storeFlags: storeFlags{databaseURL: dsn}, found: new(database),
		exec: func(sql string) { t.Helper(); program.MustExec(t, pool, sql) },
		left: func() string { t.Helper(); return program.Schemas(t, pool) },
		names: strings.NewReplacer("{letters}", "demo_millrace.dead_letters", "{projections}",
			"demo_millrace.projections", "{version}", "stream_version", "{stored}", "demo_millrace_default.events"),
	}
}

// inFile is a file that does not exist.
func inFile(t *testing.T) testPlace {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.db")
	p := testPlace{
		t: t, place: filePlace{path: path}, storeFlags: storeFlags{file: path}, found: new(database),
		names: strings.NewReplacer("{letters}", "millrace_dead_letters", "{projections}", "millrace_projections",
			"{version}", "version", "{stored}", "millrace_events"),
	}
	p.exec = func(statement string) {
		t.Helper()
		err := p.existing().(*fileDatabase).InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			result, err := tx.ExecContext(ctx, statement)
			if err == nil {
				n, err := result.RowsAffected()
				if n != 1 {
					t.Errorf("%s: %d rows, %v", statement, n, err)
				}
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	p.left = func() string {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return strings.Join(names, ", ")
	}
	return p
}

// args returns arguments with those that select the store.
func (p testPlace) args(args ...string) []string {
	if p.file != "" {
		return append(slices.Clone(args), "-file", p.file)
	}
	return append(slices.Clone(args), "-database-url", p.databaseURL)
}

// existing opens the tables that a run has kept, once.
func (p testPlace) existing() database {
	p.t.Helper()
	if *p.found == nil {
		d, err := p.open(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(d.Close)
		*p.found = d
	}
	return *p.found
}

// change changes one row of the read models ({schema}.streams) or of the store ({letters}, {projections}).
func (p testPlace) change(statement string) {
	p.t.Helper()
	p.exec(p.names.Replace(p.existing().dialect().sql(statement)))
}

// counts returns the rows of a query on the read models and {events}.
func (p testPlace) counts(statement string) map[string]int64 {
	p.t.Helper()
	got := make(map[string]int64)
	var key string
	var n int64
	err := query(p.t.Context(), p.existing(), p.names.Replace(statement), nil, []any{&key, &n}, func() { got[key] = n })
	if err != nil {
		p.t.Fatalf("%s: %v", statement, err)
	}
	return got
}

// check checks the read models of a finished run.
func (p testPlace) check(f *fault) checkResult {
	p.t.Helper()
	d := p.existing()
	runtime, err := millrace.New(millrace.Config{Store: d})
	if err != nil {
		p.t.Fatal(err)
	}
	status, err := runtime.Status(p.t.Context(), ofDemo)
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := check(p.t.Context(), d, status, f)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// apply applies all events.
func (p testPlace) apply() {
	p.t.Helper()
	d, err := p.share(p.t.Context(), 0, zap.NewNop())
	if err != nil {
		p.t.Fatal(err)
	}
	defer d.Close()
	runtime, err := newRuntime(d, millrace.Config{}, new(fault))
	if err == nil {
		_, err = runtime.RunUntilIdle(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
