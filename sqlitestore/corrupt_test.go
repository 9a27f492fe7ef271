package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

var (
	damageSeed = flag.Uint64("damage.seed", 0, "seed of TestDamagedFileIsRefusedOrRight; 0: a new one")
	damages    = flag.Int("damage.files", 150, "how many damaged files TestDamagedFileIsRefusedOrRight makes")
)

// pageSize is that of the store's files.
const pageSize = 4096

// damage is a way of damaging the content of a file.
type damage struct {
	name string
	do   func(content []byte, random *rand.Rand) []byte
}

var damageWays = []damage{
	{"bytes", func(content []byte, random *rand.Rand) []byte {
		for range 1 + random.IntN(8) {
			content[random.IntN(len(content))] ^= byte(1 + random.IntN(255))
		}
		return content
	}},
	{"a byte of the structure", func(content []byte, random *rand.Rand) []byte {
		at := random.IntN(len(content)/pageSize+1)*pageSize + random.IntN(24)
		content[at%len(content)] ^= byte(1 + random.IntN(255))
		return content
	}},
	{"swapped pages", func(content []byte, random *rand.Rand) []byte {
		a, b := page(content, random), page(content, random)
		was := append([]byte(nil), a...)
		copy(a, b)
		copy(b, was)
		return content
	}},
	{"an old page in place of another", func(content []byte, random *rand.Rand) []byte {
		copy(page(content, random), page(content, random))
		return content
	}},
	{"zeros", func(content []byte, random *rand.Rand) []byte {
		at := random.IntN(len(content))
		clear(content[at:min(len(content), at+1+random.IntN(3*pageSize))])
		return content
	}},
	{"noise", func(content []byte, random *rand.Rand) []byte {
		for i := range page(content, random) {
			content[i] = byte(random.Uint32())
		}
		return content
	}},
	{"cut off", func(content []byte, random *rand.Rand) []byte { return content[:random.IntN(len(content))] }},
	{"cut off at a page", func(content []byte, random *rand.Rand) []byte {
		return content[:random.IntN(len(content)/pageSize+1)*pageSize]
	}},
}

// page returns a page of the content.
func page(content []byte, random *rand.Rand) []byte {
	at := random.IntN(max(1, len(content)/pageSize)) * pageSize
	return content[at:min(len(content), at+pageSize)]
}

// sound is a store whose copies are damaged.
type sound struct {
	folder string
	events map[int64]event.Envelope
}

func newSound(t testing.TB) sound {
	t.Helper()
	folder := t.TempDir()
	store := migrated(t, openStore(t, filepath.Join(folder, "store.db"), Options{}))
	mustExec(t, store, "create table model (at integer primary key autoincrement, position integer not null)")
	newBatcherOf(t, store, "model")
	for i := range 60 {
		events := someEvents(1 + i%7)
		events[0].Body = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat(fmt.Sprint(i), 1+i*i))
		mustAppend(t, store.tenant, fmt.Sprint("s", i%5), event.Any.WithKey(fmt.Sprint(i)), events...)
		if i == 40 { // the file has these, the log has the others
			must(store.writer.db.ExecContext(testContext(t), "pragma wal_checkpoint(truncate)"))(t)
		}
	}
	s := sound{t.TempDir(), make(map[int64]event.Envelope)}
	for _, e := range all(t, store.tenant) {
		s.events[e.Position] = e
	}
	for _, name := range []string{"store.db", "store.db-wal"} {
		noError(t, os.WriteFile(filepath.Join(s.folder, name),
			must(os.ReadFile(filepath.Join(folder, name)))(t), 0o600))
	}
	return s
}

// copied returns the path of a copy, whose named file is changed by do.
func (s sound) copied(t testing.TB, name string, do func(content []byte) []byte) string {
	t.Helper()
	folder := must(os.MkdirTemp(t.TempDir(), ""))(t)
	noError(t, os.CopyFS(folder, os.DirFS(s.folder)))
	path := filepath.Join(folder, name)
	noError(t, os.WriteFile(path, do(must(os.ReadFile(path))(t)), 0o600))
	return filepath.Join(folder, "store.db")
}

// use uses a damaged store like a program. The result says how the damage showed: "" for not at all. An error means
// that a result was wrong, or that the store's error does not name the damage.
func (s sound) use(t testing.TB, path string, ofLog bool) (result string, _ error) {
	t.Helper()
	content := func() string { // of the file and its log; SQLite creates its shared memory to read a log
		log, _ := os.ReadFile(path + "-wal")
		return string(must(os.ReadFile(path))(t)) + string(log)
	}
	before := content()
	store, err := Open(testContext(t), path, Options{})
	if err != nil {
		// SQLite finds damaged constraints of a table only when it opens the file for writing. It may copy the log into
		// the file then, when it closes it.
		if content() != before && nonempty(path+"-wal") {
			return "", fmt.Errorf("the refused file has changed, from %d bytes to %d: %w",
				len(before), len(content()), err)
		}
		return "refused", mustName(path, err)
	}
	defer store.Close()
	if err := store.Migrate(testContext(t)); err != nil {
		return "named", mustName(path, err)
	}
	for what, step := range []func(*Store) (string, error){s.read, s.project, s.appendMore} {
		result, err := step(store)
		switch {
		case errors.Is(err, errWrong):
			return "", err
		case err != nil:
			return "named", mustName(path, fmt.Errorf("step %d: %w", what, err))
		case result == "missing" && !ofLog:
			// SQLite's own check must see why.
			var says string
			if err := store.DB().QueryRow("pragma integrity_check").Scan(&says); err == nil && says == "ok" {
				return "", fmt.Errorf("events are missing: %w", errWrong)
			}
			return result, nil
		case result != "":
			return result, nil
		}
	}
	return "", nil
}

// errWrong is wrapped by errors that say that a result was wrong.
var errWrong = errors.New("wrong result")

// mustName returns an error unless err names the damage and the file.
func mustName(path string, err error) error {
	if (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrForeignFile)) && strings.Contains(err.Error(), path) {
		return nil
	}
	if is(err, sqlite3.SQLITE_ERROR) {
		return nil // a name in the text of the schema has changed, and the error says which one is missing
	}
	return fmt.Errorf("the error does not name the damage of %s: %w", path, err)
}

// check returns an error unless the event equals the appended event at its position.
func (s sound) check(e event.Envelope) error {
	if want, ok := s.events[e.Position]; !ok || !reflect.DeepEqual(e, want) {
		return fmt.Errorf("the event at %d is %.200v: %w", e.Position, e, errWrong)
	}
	return nil
}

// read reads all events. They may be missing, but not wrong or out of order.
func (s sound) read(store *Store) (string, error) {
	n, last := 0, int64(0)
	for e, err := range store.ReadAll(context.Background(), event.ReadOptions{}) {
		if err != nil {
			return "", err
		}
		if err := s.check(e); err != nil {
			return "", err
		}
		if e.Position <= last {
			return "", fmt.Errorf("the event at %d follows that at %d: %w", e.Position, last, errWrong)
		}
		n, last = n+1, e.Position
	}
	if n < len(s.events) {
		return "missing", nil
	}
	return "", nil
}

// project applies a batch.
func (s sound) project(store *Store) (string, error) {
	ctx := context.Background()
	lease := engine.Lease{
		Owner: "node-1", Epoch: 3, Row: 1, ID: projection.ID{Tenant: projection.DefaultTenant, Name: "model"},
		Incarnation: incarnation,
	}
	_, head, err := store.tenant.head(ctx)
	if err != nil {
		return "", err
	}
	page, err := store.port().Read(ctx, lease.ID.Tenant, engine.ReadRange{UpTo: head, Limit: 50})
	if err != nil || len(page.Events) == 0 {
		return "", err
	}
	batch := engine.Batch{Events: page.Events, To: page.Events[len(page.Events)-1].Position}
	err = store.port().Apply(Batch(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		for _, e := range events {
			if err := s.check(e); err != nil {
				return err
			}
		}
		return record(ctx, tx, events)
	}).Engine(), engine.ApplyOptions{Timeout: limit})(ctx, lease, batch)
	if err != nil && !errors.Is(err, errWrong) {
		return "batch failed", nil // the lease or the table may be damaged, and that has no checksum
	}
	return "", err
}

// appendMore appends to each stream. No position may be given again.
func (s sound) appendMore(store *Store) (string, error) {
	for i := range 5 {
		r, err := store.Append(context.Background(), fmt.Sprint("s", i), event.Any, someEvents(2)...)
		if err != nil {
			return "", err
		}
		if _, taken := s.events[r.Positions[0]]; taken {
			return "", fmt.Errorf("position %d is given again: %w", r.Positions[0], errWrong)
		}
	}
	return "", nil
}

func TestDamagedFileIsRefusedOrRight(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*damageSeed, rand.Uint64())
	t.Logf("again with the same choices: -damage.seed=%d", seed)
	s := newSound(t)
	counts := make(map[string]int)
	for i := range *damages {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		name := []string{"store.db", "store.db", "store.db-wal"}[i%3]
		way := damageWays[random.IntN(len(damageWays))]
		path := s.copied(t, name, func(content []byte) []byte { return way.do(content, random) })
		result, err := s.use(t, path, name != "store.db")
		if err != nil {
			t.Errorf("%d, %s of %s: %v", i, way.name, name, err)
		}
		counts[name+" "+cmp.Or(result, "right")]++
		noError(t, os.RemoveAll(filepath.Dir(path)))
	}
	t.Log(counts)
}

// No column of an event can change without notice.
func TestChangedEventIsNotRead(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"body = '[1]'", "headers = '{}'", "stream_id = 'other'", "version = 7", "type = 'Other'", "causation_id = 'c'",
		"correlation_id = 'c'",
		"created_at = created_at + 1", "checksum = checksum + 1", "id = id + 1", "headers = body, body = ''",
	} {
		store := newStore(t)
		mustAppend(t, store.tenant, "s", event.Any, someEvents(2)...)
		mustExec(t, store, "update millrace_events set "+change+" where position = 2")
		var err error
		for _, err = range store.ReadAll(testContext(t), event.ReadOptions{}) {
		}
		if err == nil {
			t.Errorf("%s: both events are read", change)
		}
		noError(t, mustName(store.path, err))
	}
}

// FuzzDamagedFile writes bytes into the file or its log, and cuts it off.
func FuzzDamagedFile(f *testing.F) {
	s := newSound(f)
	f.Add(false, uint32(100), []byte{0x0d, 0, 0, 0, 0}, uint32(1<<31))
	f.Add(true, uint32(32), []byte{0, 0, 0, 1}, uint32(1<<31))
	f.Add(false, uint32(18), []byte{1, 1}, uint32(20_000))
	f.Add(false, uint32(0), []byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, ofLog bool, at uint32, bytes []byte, size uint32) {
		name := "store.db"
		if ofLog {
			name = "store.db-wal"
		}
		path := s.copied(t, name, func(content []byte) []byte {
			copy(content[int(at)%len(content):], bytes)
			return content[:min(len(content), int(size))]
		})
		if _, err := s.use(t, path, ofLog); err != nil {
			t.Error(err)
		}
	})
}
