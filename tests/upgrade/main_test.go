package upgrade_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/tests/upgrade/service"
)

// patient is a limit that only a hang exceeds.
const patient = 2 * time.Minute

// programVariable makes the test binary the program of package service.
const programVariable = "MILLRACE_UPGRADE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		if err := service.Main(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Run(withFolder{m})
}

// folder is where the old program is built. It exists while the tests run.
var folder string

type withFolder struct{ tests interface{ Run() int } }

func (f withFolder) Run() int {
	var err error
	folder, err = os.MkdirTemp("", "millrace-upgrade-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	return f.tests.Run()
}

// onEachStore runs a test with the place of a new store of each kind.
func onEachStore(t *testing.T, test func(t *testing.T, place string)) {
	t.Run("pgstore", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.Database(t))
	})
	t.Run("sqlitestore", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "store.db"))
	})
}

// opened returns the store at a place, which this release has migrated. It is closed at the end of the test.
func opened(t *testing.T, place string) service.Store {
	t.Helper()
	store, err := service.Open(limited(t), place)
	must(t, err)
	t.Cleanup(store.Close)
	return store
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
