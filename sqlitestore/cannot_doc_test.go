package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

// cannot are attempts at what docs/sqlite.md says that a file cannot do, by the errors that it names.
var cannot = map[string]struct {
	want error
	try  func(t *testing.T) error
}{
	"context.DeadlineExceeded": {context.DeadlineExceeded, func(t *testing.T) error {
		store := newStore(t)
		return store.InTx(testContext(t), func(context.Context, *sql.Tx) error {
			soon, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
			defer cancel()
			_, err := store.Append(soon, "s", event.Any, someEvents(1)...)
			return err
		})
	}},
	"sqlitestore.ErrWithinTx": {ErrWithinTx, func(t *testing.T) error {
		store := newStore(t)
		return store.InTx(testContext(t), func(ctx context.Context, _ *sql.Tx) error {
			_, err := store.Append(ctx, "s", event.Any, someEvents(1)...)
			return err
		})
	}},
	"sqlitestore.ErrTxControl": {ErrTxControl, func(t *testing.T) error {
		return newStore(t).InTx(testContext(t), func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })
	}},
	"sqlitestore.ErrNetworkFile": {ErrNetworkFile, func(t *testing.T) error {
		_, err := open(testContext(t), newPath(t), Options{}, func(string) (string, error) { return "NFS", nil })
		return err
	}},
	"sqlitestore.ErrSeveralNames": {ErrSeveralNames, func(t *testing.T) error {
		store := newStore(t)
		store.Close()
		noError(t, os.Link(store.path, store.path+"2"))
		_, err := Open(testContext(t), store.path, Options{})
		return err
	}},
	"sqlitestore.ErrReplaced": {ErrReplaced, func(t *testing.T) error {
		store := newStore(t)
		noError(t, os.Rename(store.path, store.path+"2"))
		_, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
		return err
	}},
	"sqlitestore.ErrForeignFile": {ErrForeignFile, func(t *testing.T) error {
		path := newPath(t)
		other := must(sql.Open("sqlite", path))(t)
		_, err := other.ExecContext(testContext(t), "create table customers (name text)")
		noError(t, errors.Join(err, other.Close()))
		_, err = Open(testContext(t), path, Options{})
		return err
	}},
	"sqlitestore.ErrForeignObject": {ErrForeignObject, func(t *testing.T) error {
		store := newStore(t)
		must(otherProgram(t, store).Exec("create trigger audit after insert on millrace_events begin select 1; end"))(t)
		_, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
		return err
	}},
	"sqlitestore.ErrCorrupt": {ErrCorrupt, func(t *testing.T) error {
		store := newStore(t)
		mustAppend(t, must(store.ForTenant("default"))(t), "s", event.Any, someEvents(1)...)
		noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx,
				`insert into millrace_events (id, slot, stream_id, version, type, body, created_at, checksum)
				select id + 1, slot, stream_id, version + 1, type, body, created_at, checksum from millrace_events`)
			return err
		}))
		for _, err := range store.ReadStream(testContext(t), "s", 1) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	"sqlitestore.ErrMoved": {ErrMoved, func(t *testing.T) error {
		store := newStore(t)
		must(otherProgram(t,
			store).Exec(`create trigger millrace_tenants_update_closed before update on millrace_tenants
			begin select raise(abort, 'millrace: the store was moved to a database'); end`))(t)
		_, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
		return err
	}},
}

func TestWhatAFileCannotDoHasTheDocumentedErrors(t *testing.T) {
	t.Parallel()
	for name, attempt := range cannot {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := attempt.try(t); !errors.Is(err, attempt.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	document := must(os.ReadFile("../docs/sqlite.md"))(t)
	_, section, _ := strings.Cut(string(document), "## What a file cannot do\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := regexp.MustCompile("`((?:sqlitestore|context)\\.\\w+)`")
	seen := make(map[string]bool)
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, match := range named.FindAllStringSubmatch(cells[3], -1) {
			seen[match[1]] = true
			if cannot[match[1]].try == nil {
				t.Errorf("docs/sqlite.md names %s, which no attempt returns", match[1])
			}
		}
	}
	for name := range cannot {
		if !seen[name] {
			t.Errorf("docs/sqlite.md does not name %s", name)
		}
	}
}
