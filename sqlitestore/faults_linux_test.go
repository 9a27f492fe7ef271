package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/powerloss"
)

// fault is what fails in a test: the operations of one kind with a result code of SQLite, from one of them on.
type fault struct {
	name string
	kind powerloss.Kind
	code int
	// lasts means that all later operations of the kind fail, too, until the fault ends.
	lasts bool
}

var diskFaults = []fault{
	{"disk is full", powerloss.Write, sqlite3.SQLITE_FULL, true},
	{"write is refused once by a full disk", powerloss.Write, sqlite3.SQLITE_FULL, false},
	{"write fails", powerloss.Write, sqlite3.SQLITE_IOERR_WRITE, false},
	{"sync fails", powerloss.Sync, sqlite3.SQLITE_IOERR_FSYNC, false},
	{"syncs fail", powerloss.Sync, sqlite3.SQLITE_IOERR_FSYNC, true},
	{"read fails", powerloss.Read, sqlite3.SQLITE_IOERR_READ, false},
	{"truncation fails", powerloss.Truncate, sqlite3.SQLITE_IOERR_TRUNCATE, false},
	{"deletion fails", powerloss.Delete, sqlite3.SQLITE_IOERR_DELETE, false},
}

// begin makes operations fail from the nth one on. The returned function ends the fault, and reports whether it was
// met.
func (f fault) begin(disk *powerloss.Disk, n int) (end func() bool) {
	var mu sync.Mutex
	met := 0
	disk.Fail(func(o powerloss.Operation) int {
		mu.Lock()
		defer mu.Unlock()
		if o.Kind != f.kind {
			return 0
		}
		met++
		if met == n || met > n && f.lasts {
			return f.code
		}
		return 0
	})
	return func() bool {
		disk.Fail(nil)
		mu.Lock()
		defer mu.Unlock()
		return met >= n
	}
}

// everyFault makes the tests try each operation.
var everyFault = flag.Bool("faults.every", false,
	"let each operation fail in turn; default: each of the first ones, then some")

// after returns the number of the operation that fails after operation n.
func after(n int) int {
	if n < 4 || *everyFault {
		return n + 1
	}
	return n + 1 + rand.IntN(20)
}

// is reports whether the error names the fault.
func (f fault) is(err error) bool { return is(err, f.code&0xff) || errors.Is(err, powerloss.ErrFault) }

// init lets the disk see what the store writes without SQLite.
func init() {
	openRewritten = func(path string) (rewrittenFile, error) { return powerloss.OpenFile(path) }
}

// faulty is what a store does while operations fail. It notes answered appends, and returns the error of the others.
type faulty struct {
	name string
	do   func(t *testing.T, w *workload) error
}

var faultyWork = []faulty{
	{"append", func(t *testing.T, w *workload) error { return w.appendOne(testContext(t), "s", 3) }},
	{"group", func(t *testing.T, w *workload) error {
		errs := make([]error, 5)
		wait := queue(t, w.store, len(errs), func(i int) error {
			errs[i] = w.appendOne(testContext(t), fmt.Sprint("s", i), 1+i%2)
			return nil
		})
		noError(t, wait())
		return errors.Join(errs...)
	}},
	{"projection", func(t *testing.T, w *workload) error { return w.projectOnce(testContext(t)) }},
	{"projection with riders", func(t *testing.T, w *workload) error {
		errs := make([]error, 4)
		var group sync.WaitGroup
		repeated := false
		errs[0] = w.projectNext(testContext(t), func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
			for i := 1; i < len(errs) && !repeated; i++ {
				group.Go(func() { errs[i] = w.appendOne(testContext(t), fmt.Sprint("s", i), i) })
				until(t, "the append waits", func() bool { return w.store.waitingAppends() == i })
			}
			repeated = true // a batch whose riders end its transaction runs again
			return w.model(ctx, tx, events)
		})
		group.Wait()
		return errors.Join(errs...)
	}},
	{"tenant", func(t *testing.T, w *workload) error {
		_, err := w.store.CreateTenant(testContext(t), "new")
		return err
	}},
	{"checkpoint", func(t *testing.T, w *workload) error {
		_, err := w.store.writer.db.ExecContext(testContext(t), "pragma wal_checkpoint(truncate)")
		return err
	}},
	{"vacuum", func(t *testing.T, w *workload) error {
		_, err := w.store.writer.db.ExecContext(testContext(t), "vacuum")
		return err
	}},
	{"reopening", func(t *testing.T, w *workload) (err error) {
		w.store.Close()
		return w.open(testContext(t))
	}},
}

// appendOne appends to the default tenant and notes the events if the append is answered.
func (w *workload) appendOne(ctx context.Context, stream string, n int) error {
	return w.appendTo(ctx, w.store.tenant, stream, fmt.Sprint(rand.Uint64()), n, "")
}

func (w *workload) open(ctx context.Context) (err error) {
	w.store, err = Open(ctx, w.path, w.options)
	if err != nil {
		return err
	}
	err = w.store.Migrate(ctx)
	if err != nil {
		w.store.Close()
	}
	return err
}

// projectOnce applies the next events to the read model.
func (w *workload) projectOnce(ctx context.Context) error { return w.projectNext(ctx, w.model) }

// projectNext handles the next events, in a batch of the projection "model".
func (w *workload) projectNext(ctx context.Context, handle handlerFunc) error {
	lease := engine.Lease{
		Owner: "node-1", Epoch: 3, ID: projection.ID{Tenant: projection.DefaultTenant, Name: "model"},
		Incarnation: incarnation,
	}
	var head int64
	err := w.store.DB().QueryRowContext(ctx,
		"select l.id, l.checkpoint, t.head from millrace_leases l, millrace_tenants t").Scan(&lease.Row,
		&lease.Checkpoint, &head)
	if err != nil {
		return err
	}
	page, err := w.store.port().Read(ctx, lease.ID.Tenant,
		engine.ReadRange{After: lease.Checkpoint, UpTo: head, Limit: 4})
	if err != nil || len(page.Events) == 0 {
		return err
	}
	batch := engine.Batch{Events: page.Events, To: page.Events[len(page.Events)-1].Position}
	return w.store.port().Apply(Batch(handle).Engine(), engine.ApplyOptions{Timeout: limit})(ctx, lease, batch)
}

// worked is what a power loss left of a store that had a read model and a write-ahead log.
type worked struct {
	folder  string
	history *history
}

func newWorked(t *testing.T) worked {
	t.Helper()
	w := watch(t, newFolder(t), &history{})
	ctx := testContext(t)
	noError(t, w.open(ctx))
	defer w.store.Close()
	noError(t, w.createModel(ctx))
	mustExec(t, w.store, "create table big (id integer primary key, t text)")
	newBatcherOf(t, w.store, "model")
	for range 5 {
		noError(t, w.appendOne(ctx, "s", 2))
	}
	folder := newFolder(t)
	noError(t, w.disk.Cut(w.disk.Len(), w.random, folder))
	return worked{folder, w.history}
}

// open opens a copy of the store, until the test ends.
func (o worked) open(t *testing.T) *workload {
	t.Helper()
	folder := newFolder(t)
	noError(t, os.CopyFS(folder, os.DirFS(o.folder)))
	w := watch(t, folder, o.history)
	noError(t, w.open(testContext(t)))
	return w
}

// watch records what a store does in a folder, until close.
func watch(t *testing.T, folder string, was *history) *workload {
	t.Helper()
	disk, stop, err := powerloss.Watch(folder)
	noError(t, err)
	w := &workload{
		powerTest: newPowerTest("FULL", rand.Uint64()), history: was.durable(), disk: disk,
		path: filepath.Join(folder, "store.db"),
	}
	w.close = func() {
		if w.store != nil {
			w.store.Close()
		}
		stop()
	}
	return w
}

// Single writes, syncs and reads of the store fail in turn, in each kind of its work. Nothing is written in part, the
// error names the fault, the same store continues when the fault is over, and a power loss after that undoes nothing.
func TestStoreGoesOnAfterEachFaultOfTheDisk(t *testing.T) {
	t.Parallel()
	start := newWorked(t)
	for _, work := range faultyWork {
		for _, f := range diskFaults {
			t.Run(work.name+" "+f.name, func(t *testing.T) {
				t.Parallel()
				n := 1
				for faultAt(t, start, work, f, n) {
					n = after(n)
				}
				t.Logf("met about %d times", n-1)
			})
		}
	}
}

// faultAt makes the nth operation fail, and reports whether there was one.
func faultAt(t *testing.T, start worked, work faulty, f fault, n int) bool {
	t.Helper()
	w := start.open(t)
	defer w.close()
	ctx := testContext(t)
	end := f.begin(w.disk, n)
	err := work.do(t, w)
	met := end()
	if err != nil && (!met || !f.is(err)) {
		t.Fatalf("%s %d: error %v", f.name, n, err)
	}
	if work.name == "reopening" && err != nil {
		noError(t, w.open(ctx))
	}
	w.mustBeWhole(t, fmt.Sprintf("%s %d", f.name, n))
	for range 2 {
		noError(t, w.appendOne(ctx, "s", 1))
		noError(t, w.projectOnce(ctx))
	}
	w.mustBeWhole(t, fmt.Sprintf("%s %d, later", f.name, n))
	w.mustSurvive(t)
	return met
}

// mustBeWhole fails the test unless the store has exactly the answered events, and the read model agrees.
func (w *workload) mustBeWhole(t *testing.T, when string) {
	t.Helper()
	ctx := testContext(t)
	found := &history{}
	noError(t, found.read(ctx, w.store, "default"))
	lost, err := w.compare(found, w.disk.Len())
	err = errors.Join(lost, err, checkModel(ctx, w.store, found))
	if err != nil || len(found.events) != len(w.events) {
		t.Fatalf("%s: %d events, %d were answered: %v", when, len(found.events), len(w.events), err)
	}
}

// mustSurvive fails the test unless everything survives a power loss now.
func (w *workload) mustSurvive(t *testing.T) {
	t.Helper()
	cut := newFolder(t)
	noError(t, w.disk.Cut(w.disk.Len(), w.random, cut))
	if _, err := w.check(t, cut, w.history, w.disk.Len()); err != nil {
		t.Fatal(err)
	}
	noError(t, os.RemoveAll(cut))
}

// A new file is created and migrated while operations fail in turn. Later, the same path can be opened.
func TestFileIsCreatedAfterEachFaultOfTheDisk(t *testing.T) {
	t.Parallel()
	for _, f := range diskFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for n, met := 1, true; met; n = after(n) {
				w := watch(t, newFolder(t), &history{})
				end := f.begin(w.disk, n)
				err := w.open(testContext(t))
				met = end()
				if err != nil && (!met || !f.is(err)) {
					t.Fatalf("%d: error %v", n, err)
				}
				if err != nil {
					noError(t, w.open(testContext(t)))
				}
				noError(t, w.appendOne(testContext(t), "s", 1))
				w.mustBeWhole(t, fmt.Sprint(f.name, " ", n))
				w.mustSurvive(t)
				w.close()
			}
		})
	}
}

// A transaction of the user that meets a fault is rolled back completely, even if the function ignores the error of its
// statement.
func TestTransactionThatIgnoresAFaultIsUndoneOrWhole(t *testing.T) {
	t.Parallel()
	start := newWorked(t)
	for _, f := range diskFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for n, met := 1, true; met; n = after(n) {
				w := start.open(t)
				mustExec(t, w.store, "pragma cache_size = 5") // so that pages are written before the commit
				end := f.begin(w.disk, n)
				ignored := 0
				err := w.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
					for range 30 {
						if _, err := tx.ExecContext(ctx,
							"insert into big (t) values (hex(randomblob(2000)))"); err != nil {
							ignored++
						}
					}
					return nil
				})
				met = end()
				want := 30 - ignored
				if err != nil {
					want = 0
				}
				if got := one[int](t, w.store, "select count(*) from big"); got != want {
					t.Fatalf("%d: %d rows, %d statements failed, error %v", n, got, ignored, err)
				}
				noError(t, w.appendOne(testContext(t), "s", 1))
				w.mustBeWhole(t, fmt.Sprint(f.name, " ", n))
				w.mustSurvive(t)
				w.close()
			}
		})
	}
}

// The commit whose sync failed is not there, and the next one takes its positions.
func TestFailedSyncIsNotTakenForSuccess(t *testing.T) {
	t.Parallel()
	w := newWorked(t).open(t)
	defer w.close()
	ctx := testContext(t)
	end := failingSync.begin(w.disk, 1)
	err := w.appendOne(ctx, "failed", 3)
	if !end() || !failingSync.is(err) {
		t.Fatalf("error %v", err)
	}
	w.mustBeWhole(t, "after the sync that failed")
	next := w.heads["default"] + 1
	noError(t, w.appendOne(ctx, "s", 1))
	if w.heads["default"] != next {
		t.Errorf("position %d, want %d", w.heads["default"], next)
	}
	w.mustSurvive(t)
}

var failingSync = fault{kind: powerloss.Sync, code: sqlite3.SQLITE_IOERR_FSYNC, lasts: true}

// A process that opens the file reads the commit whose sync failed, and commits after it. A power loss must not undo
// both.
func TestCommitAfterAFailedSyncOfAnotherProcessSurvives(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(w *workload) error{
		"append": func(w *workload) error {
			_, err := w.store.Append(testContext(t), "failed", event.Any,
				event.Event{Type: "T", Body: []byte(`{"n":[0,1],"id":"failed"}`)})
			return err
		},
		"transaction": func(w *workload) error {
			return w.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "create table more (n int)")
				return err
			})
		},
		"probe": func(w *workload) error { return w.store.port().Probe(testContext(t)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorked(t).open(t)
			defer func() { w.close() }()
			end := failingSync.begin(w.disk, 1)
			if err := fail(w); !failingSync.is(err) {
				t.Fatalf("error %v", err)
			}
			w.store.Close()
			end()
			noError(t, w.open(testContext(t)))
			noError(t, w.appendOne(testContext(t), "s", 1))
			for range 20 {
				w.mustSurvive(t)
			}
		})
	}
}
