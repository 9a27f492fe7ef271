package sqlitestore

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/sqlitestore/internal/powerloss"
)

// Repeat a failure with the same choices by -power.seed. The times at which goroutines run differ.
var (
	powerSeed = flag.Uint64("power.seed", 0, "seed of the choices in the tests of power losses; 0: a new one")
	powerCuts = flag.Int("power.cuts", leastCuts, "how many power losses each of the tests makes")
)

// leastCuts is three records of one file: among them the power fails after each kind of operation.
const leastCuts = 3 * cutsOfRecord

// cutsOfRecord is the number of power losses for which the operations of one run of a store are used.
const cutsOfRecord = 25

// powerTest makes power losses with one setting of synchronous.
type powerTest struct {
	synchronous string // of SQLite
	cuts        int
	random      *rand.Rand
	options     Options
	// met are the kinds of operations that were the last ones before a power loss.
	met map[string]int
	// lost is the number of power losses that undid answered appends.
	lost int
}

func newPowerTest(synchronous string, seed uint64) *powerTest {
	p := &powerTest{
		synchronous: synchronous, cuts: *powerCuts, random: rand.New(rand.NewPCG(seed, 1)), met: make(map[string]int),
	}
	if synchronous == "NORMAL" {
		p.options.Synchronous = SynchronousNormal
	}
	return p
}

// choices returns the seed of a test's choices.
func choices(t *testing.T) uint64 {
	seed := cmp.Or(*powerSeed, rand.Uint64())
	t.Logf("again with the same choices: -power.seed=%d", seed)
	return seed
}

// durable reports whether an answered append must survive.
func (p *powerTest) durable() bool { return p.synchronous == "FULL" }

// run makes the power losses and returns the first error. Each run of the store begins with the files that a power loss
// of the run before left, so that the power also fails while the store recovers.
func (p *powerTest) run(t *testing.T) error {
	t.Helper()
	var folder string
	var was *history
	for cuts := 0; cuts < p.cuts; {
		if cuts%leastCuts == 0 {
			folder, was = newFolder(t), &history{} // a new file
		}
		recorded := p.work(t, folder, was)
		next := p.random.IntN(cutsOfRecord)
		for i := range cutsOfRecord {
			at := p.choose(recorded.disk, i)
			choices := p.random.Uint64()
			build := func() string {
				cut := newFolder(t)
				noError(t, recorded.disk.Cut(at, rand.New(rand.NewPCG(choices, 2)), cut))
				noError(t, os.WriteFile(filepath.Join(cut, "store.db-shm"), make([]byte, 100*(i%3)), 0o600))
				return cut
			}
			cut := build()
			found, err := p.check(t, cut, recorded.history, at)
			if err != nil {
				return fmt.Errorf("power loss %d, after operation %d of %d (%s): %w", cuts, at, recorded.disk.Len(),
					last(recorded.disk, at), err)
			}
			noError(t, os.RemoveAll(cut))
			if i == next {
				folder, was = build(), found
			}
			cuts++
		}
	}
	return nil
}

// newFolder returns a folder without symbolic links in its path. It is in memory if possible, since only the recorded
// syncs count.
func newFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "millrace-")
	if err != nil {
		return must(filepath.EvalSymlinks(t.TempDir()))(t)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// choose returns the number of operations before power loss i of a record. The first ones follow one operation of each
// kind, since most are writes to the write-ahead log. Of the others, half are among the first operations, which recover
// from the power loss before.
func (p *powerTest) choose(disk *powerloss.Disk, i int) int {
	n := disk.Len()
	kinds := make(map[string][]int)
	for i := range n + 1 {
		kinds[last(disk, i)] = append(kinds[last(disk, i)], i)
	}
	at := p.random.IntN(n + 1)
	if names := slices.Sorted(maps.Keys(kinds)); i < len(names) {
		of := kinds[names[i]]
		at = of[p.random.IntN(len(of))]
	} else if i%2 == 0 {
		at = p.random.IntN(min(n, 100) + 1)
	}
	p.met[last(disk, at)]++
	return at
}

// last describes the last operation before a power loss.
func last(disk *powerloss.Disk, at int) string {
	if at == 0 {
		return "none"
	}
	o := disk.At(at - 1)
	return o.Kind.String() + " " + o.Name
}

// check opens the files that a power loss left. It returns what is in them, and an error if anything is wrong.
func (p *powerTest) check(t *testing.T, folder string, h *history, at int) (_ *history, err error) {
	t.Helper()
	ctx := testContext(t)
	store, err := Open(ctx, filepath.Join(folder, "store.db"), p.options)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	var integrity string
	if err := store.DB().QueryRowContext(ctx, "pragma integrity_check").Scan(&integrity); err != nil {
		return nil, fmt.Errorf("integrity check: %w", err)
	}
	if integrity != "ok" {
		return nil, fmt.Errorf("integrity check: %s", integrity)
	}
	found := &history{}
	tenants, err := store.Tenants(ctx)
	for _, tenant := range tenants {
		err = errors.Join(err, found.read(ctx, store, tenant))
	}
	if err != nil {
		return nil, err
	}
	lost, err := h.compare(found, at)
	if lost != nil {
		p.lost++
		if p.durable() {
			err = errors.Join(lost, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if rows, err := texts(store, "select position from model limit 1"); err == nil && len(rows) > 0 {
		p.met["a batch"]++
	}
	return found, errors.Join(found.continues(ctx, store), checkModel(ctx, store, found))
}

// recording is a run of a store: what it did to its files, and what it answered.
type recording struct {
	*history
	disk *powerloss.Disk
}

// work lets a store run on the files of a folder and records it.
func (p *powerTest) work(t *testing.T, folder string, was *history) recording {
	t.Helper()
	disk, stop, err := powerloss.Watch(folder)
	noError(t, err)
	defer stop()
	w := &workload{powerTest: p, disk: disk, path: filepath.Join(folder, "store.db"), history: was.durable()}
	for range 2 { // closing the store deletes the write-ahead log
		w.session(t)
	}
	return recording{w.history, disk}
}

func TestPowerLossLosesNoAnsweredAppend(t *testing.T) {
	t.Parallel()
	p := newPowerTest("FULL", choices(t))
	noError(t, p.run(t))
	t.Logf("the power failed after %v", p.met)
	for _, o := range []string{
		"create store.db", "write store.db", "truncate store.db", "sync store.db", "write store.db-journal",
		"delete store.db-journal", "sync folder store.db-journal",
		"create store.db-wal", "write store.db-wal", "sync store.db-wal", "sync folder store.db-wal",
		"delete store.db-wal", "a batch",
	} {
		if p.met[o] == 0 && *powerCuts >= leastCuts {
			t.Errorf("the power never failed after %s", o)
		}
	}
}

func TestPowerLossUndoesLastCommitsWhole(t *testing.T) {
	t.Parallel()
	p := newPowerTest("NORMAL", choices(t))
	p.cuts /= 2
	noError(t, p.run(t))
	t.Logf("%d of %d power losses undid answered appends", p.lost, p.cuts)
	if p.lost == 0 {
		t.Error("no power loss undid an answered append, so that of the other test could not be seen")
	}
}

// Without syncs, the same power losses must be noticed: otherwise the checks are too weak.
func TestPowerLossIsNoticedWithoutSyncs(t *testing.T) {
	t.Parallel()
	p := newPowerTest("OFF", choices(t))
	err := p.run(t)
	if err == nil {
		t.Fatalf("%d power losses were survived without syncs, %d of them undid answered appends", p.cuts, p.lost)
	}
	t.Logf("noticed: %.300s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// A file that a power loss left while it was created can be opened, and is empty or whole.
func TestPowerLossWhileTheFileIsCreated(t *testing.T) {
	t.Parallel()
	p := newPowerTest("FULL", choices(t))
	w := watch(t, newFolder(t), &history{})
	defer w.close()
	w.store = must(Open(testContext(t), w.path, Options{}))(t)
	created := w.disk.Len()
	noError(t, w.store.Migrate(testContext(t)))
	for at := range w.disk.Len() + 1 {
		for range 6 {
			cut := newFolder(t)
			noError(t, w.disk.Cut(at, p.random, cut))
			if _, err := p.check(t, cut, w.history, at); err != nil {
				t.Fatalf("after operation %d of %d (%s): %v", at, w.disk.Len(), last(w.disk, at), err)
			}
			if at > created+3 {
				break // the tables are being written
			}
		}
	}
}

// What a power loss left in the header of a file that was being created does not become part of the new file.
func TestHeaderOfAnInterruptedFileIsNotKept(t *testing.T) {
	t.Parallel()
	w := watch(t, newFolder(t), &history{})
	defer w.close()
	w.store = must(Open(testContext(t), w.path, Options{}))(t)
	at := 0
	for last(w.disk, at) != "write store.db" {
		at++
	}
	cut := newFolder(t)
	noError(t, w.disk.Cut(at, rand.New(rand.NewPCG(1, 1)), cut))
	file := must(os.OpenFile(filepath.Join(cut, "store.db"), os.O_RDWR, 0))(t)
	must(file.WriteAt(must(os.ReadFile(w.path))(t), 0))(t)
	must(file.WriteAt([]byte{0, 0, 0, 1}, incrementalVacuum))(t)
	noError(t, file.Close())
	if _, err := w.check(t, cut, w.history, at); err != nil {
		t.Error(err)
	}
}

// incrementalVacuum is where the header says that free pages are given back now and then.
const incrementalVacuum = 64

// workload is a store at work.
type workload struct {
	*powerTest
	*history
	disk  *powerloss.Disk
	path  string
	store *Store
	close func()
	mu    sync.Mutex
}

// session opens the store, and closes it after some work.
func (w *workload) session(t *testing.T) {
	t.Helper()
	ctx := testContext(t)
	w.store = must(Open(ctx, w.path, w.options))(t)
	defer w.store.Close()
	must(w.store.writer.db.ExecContext(ctx, "pragma wal_autocheckpoint = 60"))(t)
	if w.synchronous == "OFF" {
		must(w.store.writer.db.ExecContext(ctx, "pragma synchronous = OFF"))(t)
	}
	noError(t, w.store.Migrate(ctx))
	must(w.store.CreateTenant(ctx, "acme"))(t)
	noError(t, w.createModel(ctx))
	tenants := []string{"default", "acme"}
	var appended sync.WaitGroup
	finished, finish := context.WithCancel(ctx)
	const appenders = 3
	choices := [appenders]uint64{w.random.Uint64(), w.random.Uint64(), w.random.Uint64()}
	appended.Add(appenders)
	go func() {
		defer finish()
		appended.Wait()
	}()
	noError(t, together(appenders+2, func(i int) error {
		switch i {
		case appenders:
			return w.project(finished)
		case appenders + 1:
			return w.maintain(ctx, finished)
		}
		defer appended.Done()
		return w.appendSome(ctx, rand.New(rand.NewPCG(choices[i], 3)), tenants, fmt.Sprint("s", i))
	}))
}
