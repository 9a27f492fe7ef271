// Package sqlitestore is a millrace.Store in one SQLite file, without a server. It appends and reads events, manages
// tenants, and runs projections. Names and semantics are as in pgstore, with *sql.Tx for pgx.Tx.
//
// The file may be used by several processes of one machine at once. All of them may append, read, pause and resume. The
// file must not be on a network file system.
//
// One runtime at a time owns the file and runs projections. It holds a lock on a file beside it, whose name ends in
// -owner. Other runtimes, of this process or others, stand by: their Status shows the owner's node in
// admin.ProjectionStatus.Owner. When the owner ends, even by a crash, the system releases the lock, and another runtime
// takes over within about 100 ms. A process that is frozen keeps the lock, and the others wait for it: Summary shows
// the time since its last heartbeat. The lock file must not be removed while a runtime runs.
//
// The file has one writer: appends, transactions of InTx and batches of projections take turns, in the order in which
// they ask. Appends that wait at the same time share one turn. A batch of a projection is one turn, so a handler that
// takes long holds up all others. Appends that wait for a batch are made in its transaction, after everything of the
// batch, and share its sync of the disk.
//
// The option AsyncCommit of a millrace.Projection has no effect here: Options.Synchronous applies to the whole file.
// Foreign keys are enforced in all transactions of the store.
package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/follow"
	"github.com/millrace-go/millrace/internal/logging"
	"github.com/millrace-go/millrace/projection"
)

// defaultKeyRetention is the default of pgstore, for the same reason: deliveries are repeated for days.
const defaultKeyRetention = 7 * 24 * time.Hour

// Synchronous selects which commits survive a power loss. All commits survive the end of the process.
type Synchronous int

const (
	// SynchronousFull syncs each commit to the disk before it returns. A power loss undoes no commit that has
	// returned.
	SynchronousFull Synchronous = iota
	// SynchronousNormal syncs only at checkpoints of the write-ahead log, and commits faster. A power loss may undo the
	// last commits, including those that have returned. It undoes all commits after some point, so read models and
	// checkpoints still agree. Later events reuse the positions of lost events. If the disk fails to sync, and the
	// power is lost later, the file may be damaged.
	SynchronousNormal
)

// Options configure a Store. The zero value means the defaults.
type Options struct {
	// Synchronous selects which commits survive a power loss, those of appends and of batches alike. Set
	// SynchronousNormal if faster appends are worth the loss of the last ones. AsyncCommit of a millrace.Projection has
	// no effect on it. Default: SynchronousFull.
	Synchronous Synchronous
	// Readers is the maximum number of connections that read. Further reads wait. Lower it on a device with little
	// memory: after large reads, each connection takes some 2 MiB. Default: the number of CPUs, at least 4.
	Readers int
	// KeyRetention is the minimum time for which idempotency keys are kept (see event.Expected.WithKey). Appends with
	// keys delete older ones, a few at a time. An append that is repeated after its key was deleted appends again, or
	// returns a version conflict if it expects a version. Negative means for ever.
	// Raise it if clients repeat appends after weeks. Default: 7 days.
	KeyRetention time.Duration
	// AllowHardLinks allows a file with several hard links, as programs for backups make them. Otherwise Open returns
	// ErrSeveralNames. While a process has the file open, other names are still refused on Linux. But if a process is
	// killed, and the file is opened by another name before it is opened by the same one, the last commits are lost and
	// the file is damaged. A hard link is no backup of an open file, since it changes with the file. Default: false.
	AllowHardLinks bool
	// Types is the registry of event types: appends of other types are refused, and handlers and readers get current
	// events. See package eventtype. Default: none, and every type is taken and read as it is.
	Types *eventtype.Types
	// AppendMiddleware is called around each Append and AppendTx, the first outermost. See event.AppendMiddleware.
	// Default: none.
	AppendMiddleware []event.AppendMiddleware
	// Logger receives the logs, such as slog.Default(). Default: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Readers == 0 {
		o.Readers = max(4, runtime.NumCPU())
	}
	if o.KeyRetention == 0 {
		o.KeyRetention = defaultKeyRetention
	}
	return o
}

func (o Options) validate() error {
	if o.Synchronous != SynchronousFull && o.Synchronous != SynchronousNormal {
		return fmt.Errorf("Options.Synchronous is unknown: %d", o.Synchronous)
	}
	if o.Readers < 0 {
		return fmt.Errorf("Options.Readers must not be negative: %d", o.Readers)
	}
	return nil
}

// Store is an event store in a file. It is safe for concurrent use. Its methods for events and transactions
// work on projection.DefaultTenant. ForTenant returns other tenants.
type Store struct {
	// tenant is DefaultTenant.
	tenant *Tenant

	*database
	wakes eventlog.Wakes
	// followers follow tenants without a projection.
	followers *follow.Hub
	// appended has, for each open transaction of InTx and of a batch, the tenants to which it appended.
	appended sync.Map // *sql.Tx to *dirtied
	// appending has the transactions in which AppendTx runs.
	appending txLocks
	// middleware is around all appends, nil if there is none.
	middleware *eventlog.Middleware
	// abandoned counts the handlers that did not return.
	abandoned atomic.Int64
	// hasSnapshots reports that the table of snapshots was found.
	hasSnapshots atomic.Bool
}

// Open opens the store in a file, which it creates if it does not exist. The folder must exist.
//
// Open refuses other files and does not change them. It returns ErrForeignFile for the database of another program,
// ErrCorrupt for a damaged file, ErrNetworkFile for a file on a network file system, ErrSeveralNames for a file that
// may be used by several names, and ErrForeignObject for triggers of another program on the store's tables. Symbolic
// links are followed first.
//
// On Linux, Open turns on the open file description locks of modernc.org/sqlite for the whole process, unless the
// process has used SQLite before. Without them, a process that opens and closes the file without SQLite, for instance
// by os.Open, releases SQLite's locks. Another process may then overwrite commits. Without them, Open also does not
// notice that another process has opened the file by another name.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	store, err := open(ctx, path, opts, networkFile)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return store, nil
}

func open(ctx context.Context, path string, opts Options,
	networkFile func(folder string) (string, error)) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	middleware, err := eventlog.NewMiddleware(opts.AppendMiddleware)
	if err != nil {
		return nil, err
	}
	path, err = resolvePath(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(local(path, networkFile), oneName(path, opts)); err != nil {
		return nil, err
	}
	lockByDescription()
	at, err := openLocation(path)
	if err != nil {
		return nil, err
	}
	if err := examine(ctx, path); err != nil {
		return nil, errors.Join(err, at.close())
	}
	s := &Store{database: &database{path: path, opts: opts, log: logging.Slog(opts.Logger)}, middleware: middleware}
	s.writer, err = openWriter(ctx, at, opts)
	if err != nil {
		return nil, err
	}
	s.readers, err = openReaders(at, opts)
	if err != nil {
		return nil, errors.Join(err, s.writer.close())
	}
	s.writer.committed = s.readers
	s.tenant, s.followers = &Tenant{s, namedTenant{s.database, projection.DefaultTenant}}, follow.New(s.port(), s.log)
	return s, nil
}

// Close waits for the append or transaction in progress, and closes the file. Later calls fail. It may be called again.
func (s *Store) Close() {
	s.followers.Close()
	err := errors.Join(s.readers.Close(), s.writer.close())
	if err != nil {
		s.log.Warn("file not closed", zap.String("path", s.path), zap.Error(err))
	}
}

// DB returns the store's read connections, for queries on read models. Statements that write fail: see InTx.
func (s *Store) DB() *sql.DB { return s.readers }

// ForTenant returns a tenant by its name: 1 to 200 bytes of valid UTF-8 without control characters. It does not
// check whether the tenant exists. If it does not, the methods of Tenant return tenancy.ErrUnknown.
func (s *Store) ForTenant(name string) (*Tenant, error) {
	t, err := s.named(name)
	if err != nil {
		return nil, err
	}
	return &Tenant{s, t}, nil
}
