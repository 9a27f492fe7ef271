package main

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace/internal/report"
	"github.com/millrace-go/millrace/sqlitestore"
)

func TestKilledOwnerOfAFileIsReplacedByAStandby(t *testing.T) {
	t.Parallel()
	p := inFile(t)
	owner := start(t, p.args("node")...)
	ownerID := owner.awaitOutput(nodeID)
	owner.awaitOutput("runs 4 of 4 now: events_by_role, events_by_type, payments, streams\n")
	standby := start(t, p.args("node")...)
	standbyID := standby.awaitOutput(nodeID)
	standby.awaitOutput("stands by until node " + report.Short(ownerID) + " ends\n")
	load := start(t, p.args("load", "-events", "2000", "-rate", "500")...)
	eventually(t, "events are applied", func() bool {
		return p.counts("select 'applied', coalesce(sum(n), 0) from {schema}.streams")["applied"] > 100
	})
	if said := standby.output(); strings.Contains(said, "claimed") {
		t.Errorf("the standby claimed projections beside the owner:\n%s", said)
	}

	owner.signal(syscall.SIGKILL)
	owner.awaitExit(-1)
	standby.awaitOutput("took over from " + report.Short(ownerID) + ": ")
	standby.awaitOutput("runs 4 of 4 now")
	third := start(t, p.args("node")...)
	third.awaitOutput("stands by until node " + report.Short(standbyID) + " ends\n")
	load.awaitExit(0)
	check := start(t, p.args("check")...)
	check.awaitExit(0)
	check.awaitOutput("(?m)^2000 events in ")
	check.awaitOutput("verified: every event was applied exactly once\n$")

	// The file of a running node is not removed.
	runs(t, 1, "node "+report.Short(standbyID)+" is running: interrupt it first", p.args("clean")...)
	standby.signal(syscall.SIGINT)
	standby.awaitExit(0)
	standby.awaitOutput("stopped gracefully\n$")
	third.awaitOutput("runs 4 of 4 now")
	third.signal(syscall.SIGINT)
	third.awaitExit(0)
	runs(t, 0, "removed the file "+p.file+"\n", p.args("clean")...)
	if left := p.left(); left != "" {
		t.Errorf("%s is left", left)
	}
}

func TestSharedCommandsLeaveForeignFilesAlone(t *testing.T) {
	t.Parallel()
	commands := []string{"node", "load", "status", "check", "clean"}
	// Some other file.
	p := inFile(t)
	content := strings.Repeat("precious ", 100)
	if err := os.WriteFile(p.file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		runs(t, 1, "the file exists and is not a store of millrace", p.args(command)...)
	}
	if found, err := os.ReadFile(p.file); string(found) != content || p.left() != "demo.db" {
		t.Errorf("the file changed: %v, and the folder has %s", err, p.left())
	}
	// The store of another program.
	p = inFile(t)
	store, err := sqlitestore.Open(t.Context(), p.file, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "check"} {
		runs(t, 1, "there are no tables of the demo", p.args(command)...)
	}
	runs(t, 0, "nothing to remove", p.args("clean")...)
	err = store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "create table precious (n integer); insert into precious values (1)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		runs(t, 1, "another program created the file "+p.file, p.args(command)...)
	}
	var n int
	if err := store.DB().QueryRowContext(t.Context(), "select count(*) from precious").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v, want 1", n, err)
	}
}
