package postgres_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// smallDatabase is a database on a disk of its own, of a few megabytes.
func smallDatabase(t *testing.T) *bundle {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small tmpfs")
	}
	b, server := private(t, pgtest.Options{})
	data := value[string](b, "show data_directory")
	dir, err := os.MkdirTemp("", "millrace-small-")
	b.Must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("needs a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	owner, err := os.Stat(data)
	b.Must(err)
	who := owner.Sys().(*syscall.Stat_t)
	b.Must(os.Chown(dir, int(who.Uid), int(who.Gid)))
	b.exec("create tablespace small location '" + dir + "'")
	b.exec("create database small template template0 tablespace small")
	return setupAt(t, server.DSN("small"), pgstore.Options{})
}

// A full disk is an outage, and no fault of an event.
func TestFullDiskParksNothing(t *testing.T) {
	t.Parallel()
	b := smallDatabase(t)
	b.exec("create table filler (t text); create table bulky (t text)")
	const words = "(select string_agg(md5((g * random())::text), '') from generate_series(1, 20000) g)"
	b.Append("a", 5)
	full, waiting := make(chan struct{}), make(chan struct{}, 1000)
	var met atomic.Int64
	log, logs := kit.Logs()
	rt := b.Running(millrace.Config{Logger: log}, millrace.Projection{Name: "p", Retry: kit.Soon(0),
		Handler: kit.Limited(b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			waiting <- struct{}{}
			<-full
			err := kit.Exec("insert into bulky values ("+words+")")(ctx, tx)
			if err != nil && strings.Contains(err.Error(), "53100") {
				met.Add(1)
			}
			if err != nil {
				return err
			}
			return tx.Record(ctx, "p", events...)
		}), faults.Limits{Faults: 1, Over: 1})})
	<-waiting
	for _, chunk := range []string{words, "repeat('x', 2000)"} {
		for {
			if _, err := b.store.Pool().Exec(b.Ctx, "insert into filler values ("+chunk+")"); err != nil {
				if !strings.Contains(err.Error(), "53100") {
					t.Fatal(err)
				}
				break
			}
		}
	}
	close(full)
	away := func() int { return logs.FilterMessage("database unusable, all actors wait").Len() }
	b.Eventually("the full disk is met", func() bool { return met.Load() > 0 && away() > 0 })
	kit.Pass(b.Ctx, 2e9)
	if s := b.Status(rt, "p"); s.Parked+int64(s.Attempts) != 0 {
		t.Errorf("counted: %+v", s)
	}
	if met.Load() > 3 {
		t.Errorf("the handler was called %d times while the disk was full", met.Load())
	}
	b.exec("drop table filler")
	b.MustCatchUp(rt, "p")
}
