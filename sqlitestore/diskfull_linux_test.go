package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
)

// A full disk is an outage, and not a fault of an event. Afterwards the runtime continues by itself.
func TestFullDiskParksNothing(t *testing.T) {
	t.Parallel()
	folder, ctx := smallDisk(t, "4m"), testContext(t)
	store := migrated(t, openStore(t, filepath.Join(folder, "store.db"), Options{}))
	mustExec(t, store, "create table bulky (position integer primary key, t text)")
	mustAppend(t, store.tenant, "s", event.Any, someEvents(5)...)
	log, logs := observer.New(zap.InfoLevel)
	rt := must(millrace.New(millrace.Config{Store: store, Logger: zap.New(log)}))(t)
	full, waiting := make(chan struct{}), make(chan struct{}, 1000)
	noError(t,
		rt.Register(millrace.Projection{Name: "p",
			Handler: Batch(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				waiting <- struct{}{}
				<-full
				for _, e := range events {
					if _, err := tx.ExecContext(ctx, "insert into bulky values (?, ?)", e.Position,
						strings.Repeat("x", 100_000)); err != nil {
						return err
					}
				}
				return nil
			})}))
	started(t, rt)
	<-waiting
	filler := filepath.Join(folder, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	close(full)
	until(t, "the full disk is met",
		func() bool { return logs.FilterMessage("database unusable, all actors wait").Len() > 0 })
	p := millrace.ProjectionID{Name: "p"}
	if s := must(rt.Status(ctx, admin.StatusFilter{}))(t).Projection(p); s.Parked+int64(s.Attempts) != 0 {
		t.Errorf("counted: %+v", s)
	}
	noError(t, os.Remove(filler))
	noError(t, rt.WaitFor(ctx, p, 5))
	if n := one[int](t, store, "select count(*) from bulky"); n != 5 || len(waiting) > 5 {
		t.Errorf("%d events of 5 are handled, in %d attempts", n, len(waiting)+1)
	}
}

// On a disk that is really full, appends fail with an error that names the cause. They succeed as soon as there is
// space.
func TestFullDiskRefusesAppendsUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	folder := smallDisk(t, "2m")
	filler := filepath.Join(folder, "filler")
	noError(t, os.WriteFile(filler, make([]byte, 512<<10), 0o600))
	store := migrated(t, openStore(t, filepath.Join(folder, "store.db"), Options{}))
	ctx := testContext(t)
	large := event.Event{Type: "T", Body: []byte(`"` + strings.Repeat("x", 20_000) + `"`)}
	answered := 0
	var err error
	for err == nil {
		_, err = store.Append(ctx, "s", event.Exact(int64(answered)), large)
		if err == nil {
			answered++
		}
	}
	if !is(err, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) {
		t.Errorf("a full disk is reported as %v", err)
	}
	if n := len(all(t, store.tenant)); n != answered {
		t.Errorf("%d events, %d appends were answered", n, answered)
	}
	noError(t, os.Remove(filler))
	r := must(store.Append(ctx, "s", event.Exact(int64(answered)), large))(t)
	if r.Positions[0] != int64(answered+1) {
		t.Errorf("%+v after %d", r, answered)
	}
	if check := one[string](t, store, "pragma integrity_check"); check != "ok" {
		t.Error(check)
	}
}

// smallDisk returns a folder on a disk of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	folder := newFolder(t)
	err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs root, to mount a small tmpfs")
	}
	noError(t, err)
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	return folder
}
