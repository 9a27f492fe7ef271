package sqlitestore

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// childEnv names what a process does that a test starts. It is this test program.
const childEnv = "MILLRACE_SQLITE_CHILD"

// childMain does what the environment says, and returns false if this is no child.
func childMain() bool {
	role := os.Getenv(childEnv)
	if role == "" {
		return false
	}
	run := map[string]func(path string) error{
		"append": childAppends,
		"own":    childOwns,
		"run":    childRuns,
		"count":  childCounts,
		"drop":   childDrops,
		"mount":  childMounts,
		"reopen": childReopens,
		"touch":  func(path string) error { return childTouches(path, false) },
		"touch with locks of POSIX": func(path string) error {
			return childTouches(path, true)
		},
	}[role]
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// child returns a process of this program with a role and the path of a file.
func child(ctx context.Context, role, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], path)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// childAppends appends from several goroutines until it is killed, and prints each append that was answered.
func childAppends(path string) error {
	store, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	return together(8, func(w int) error {
		for i := 0; ; i++ {
			result, err := store.Append(context.Background(), fmt.Sprint("s", w), event.Any, someEvents(1+i%3)...)
			if err != nil {
				return err
			}
			mu.Lock()
			fmt.Println(result.Positions[0], len(result.Positions), w, result.Version)
			mu.Unlock()
		}
	})
}

func TestKilledProcessLosesNoAnsweredAppend(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	store.Close()
	type answer struct{ position, events, writer, version int }
	var answered []answer
	const kills, appends = 4, 100
	for kill := range kills {
		cmd := child(testContext(t), "append", path)
		out := must(cmd.StdoutPipe())(t)
		noError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		// Lines that arrive after the kill were answered before it.
		for n := 0; lines.Scan(); n++ {
			if n == appends {
				noError(t, cmd.Process.Kill())
			}
			var a answer
			if _, err := fmt.Sscan(lines.Text(), &a.position, &a.events, &a.writer, &a.version); err != nil {
				break // a line that was cut off
			}
			answered = append(answered, a)
		}
		if err := cmd.Wait(); err == nil || len(answered) < (kill+1)*appends {
			t.Fatalf("the process was not killed: %v, %d answers", err, len(answered))
		}
	}
	store = openStore(t, path, Options{})
	events := all(t, store.tenant)
	for i, e := range events {
		if e.Position != int64(i+1) {
			t.Fatalf("event %d is at position %d", i+1, e.Position)
		}
	}
	for _, a := range answered {
		last := a.position + a.events - 1
		if last > len(events) || events[last-1].Stream != fmt.Sprint("s", a.writer) ||
			events[last-1].Version != int64(a.version) {
			t.Fatalf("%+v was answered, and is not there", a)
		}
	}
	if r := mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != int64(len(events)+1) {
		t.Errorf("%+v after %d events", r, len(events))
	}
	if check := one[string](t, store, "pragma integrity_check"); check != "ok" {
		t.Error(check)
	}
}

// visited is a connection to the file that is not the store's.
func visited(path, statement string, result *int) (err error) {
	db, err := sql.Open("sqlite", dsn(path, "_pragma=busy_timeout(10000)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.QueryRow(statement).Scan(result)
}

// childCounts prints how many events there are.
func childCounts(path string) error {
	var n int
	err := visited(path, "select count(*) from millrace_events", &n)
	fmt.Print(n)
	return err
}

// visitors are programs that are no part of this one: they write something and close the file. The driver of the store
// would not do as the last one to close it, since it keeps the write-ahead log.
var visitors = [][]string{
	{"sqlite3", "-cmd", ".timeout 10000", "{path}", "insert into visits values (1)"},
	{
		"python3", "-c",
		"import sqlite3; c = sqlite3.connect('{path}'); c.execute('insert into visits values (1)'); c.commit(); c.close()",
	},
}

func installed(program []string) bool {
	_, err := exec.LookPath(program[0])
	return err == nil
}

// visit runs the first visitor that is installed.
func visit(ctx context.Context, path string) error {
	program := slices.Clone(visitors[slices.IndexFunc(visitors, installed)])
	for i, arg := range program {
		program[i] = strings.ReplaceAll(arg, "{path}", path)
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// childTouches appends, opens and closes the file by other means than SQLite, lets another process open and close it,
// and appends again. It prints how many events a fresh process sees.
func childTouches(path string, posix bool) error {
	ctx := context.Background()
	if posix { // a process that used SQLite before keeps these locks
		var n int
		if err := visited(filepath.Join(filepath.Dir(path), "other.db"), "select count(*) from sqlite_schema",
			&n); err != nil {
			return err
		}
	}
	store, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	err = errors.Join(store.Migrate(ctx), store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "create table visits (n int)")
		return err
	}))
	if err != nil {
		return err
	}
	for range 2 {
		for range 100 {
			if _, err := store.Append(ctx, "s", event.Any, event.Event{Type: "T"}); err != nil {
				return err
			}
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Close(), visit(ctx, path)); err != nil {
			return err
		}
	}
	out, err := child(ctx, "count", path).Output()
	fmt.Print(string(out))
	return err
}

func TestHandleThatIsClosedElsewhereLosesNoAppend(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has locks that survive this")
	}
	if !slices.ContainsFunc(visitors, installed) {
		t.Skip("neither sqlite3 nor python3 is installed")
	}
	out, err := child(testContext(t), "touch", newPath(t)).Output()
	if err != nil || string(out) != "200" {
		t.Errorf("%s events of 200, %v", out, err)
	}
	// Control: with the locks of POSIX, the same check notices.
	cmd := child(testContext(t), "touch with locks of POSIX", newPath(t))
	var said strings.Builder
	cmd.Stderr = &said
	if out, err := cmd.Output(); err == nil && string(out) == "200" {
		t.Errorf("nothing is lost without these locks: %s", said.String())
	}
}
