package runbook_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

var _ = add(map[string]func(s *scenario){
	"the-owner-of-a-file-is-frozen": frozenOwner,
	"a-file-is-damaged":             damagedFile,
	"the-disk-of-a-file-is-full":    fullDisk,
})

// file creates a store in the file shop.db of the folder of the commands.
func (s *scenario) file() *sqlitestore.Store {
	s.Helper()
	store, err := sqlitestore.Open(s.ctx, filepath.Join(s.dir, "shop.db"), sqlitestore.Options{})
	s.must(err)
	s.Cleanup(store.Close)
	s.must(store.Migrate(s.ctx))
	return store
}

func frozenOwner(s *scenario) {
	store := s.file()
	path := filepath.Join(s.dir, "shop.db")
	owner := s.process("shop-1", path, "")
	a, err := admin.New(store)
	s.must(err)
	s.eventually("a node owns the file", func() bool {
		summary, err := a.Summary(s.ctx)
		s.must(err)
		return len(summary.Nodes) > 0 && summary.Nodes[0].Leases == 2
	})
	// While this transaction is open, the owner has none that it could keep open.
	s.must(store.InTx(s.ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := owner.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_, err := store.AppendTx(ctx, tx, "order-17", event.Any, event.Untyped("OrderPlaced", nil))
		return err
	}))
	long := time.Now().Add(-time.Minute) // as if it had been frozen for so long
	s.must(os.Chtimes(path+"-owner", long, long))
	s.process("shop-2", path, "")
	s.call("4711", fmt.Sprint(owner.Process.Pid))
	s.follow()
	s.follow()
	s.follow()
}

func damagedFile(s *scenario) {
	store := s.file()
	_, err := store.Append(s.ctx, "order-17", event.Any, event.Untyped("OrderPlaced", nil))
	s.must(err)
	s.must(os.Mkdir(filepath.Join(s.dir, "backups"), 0o700))
	path := filepath.Join(s.dir, "shop.db")
	db, err := sql.Open("sqlite", path)
	s.must(err)
	_, err = db.ExecContext(s.ctx, "vacuum into $1", filepath.Join(s.dir, "backups", "shop.db"))
	s.must(errors.Join(err, db.Close()))
	store.Close()
	content, err := os.ReadFile(path)
	s.must(err)
	for i := 2 * 4096; i < len(content); i++ {
		content[i] ^= 0x55
	}
	s.must(os.WriteFile(path, content, 0o600))
	s.follow()
	s.follow()
}

func fullDisk(s *scenario) {
	if err := mountSmall(s.dir, "4m"); err != nil {
		s.Skipf("needs a small disk, which only root can mount: %v", err)
	}
	s.Cleanup(func() { unmount(s.dir) })
	store := s.file()
	s.process("shop-1", filepath.Join(s.dir, "shop.db"), "")
	_, err := store.Append(s.ctx, "order-17", event.Any, event.Untyped("OrderPlaced", nil))
	s.must(err)
	_ = os.WriteFile(filepath.Join(s.dir, "old.log"), make([]byte, 8<<20), 0o600)
	s.follow()
	s.follow()
}
