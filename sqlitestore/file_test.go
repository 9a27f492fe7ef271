package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/migration"
)

// foreignFile makes a database of another program.
func foreignFile(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := must(sql.Open("sqlite", dsn(path)))(t)
	for _, statement := range statements {
		must(db.ExecContext(testContext(t), statement))(t)
	}
	noError(t, db.Close())
}

// filledWith is how many events filled appends: some pages.
const filledWith = 1000

// filled makes the file of a store with events, and closes it.
func filled(t *testing.T, path string) {
	t.Helper()
	store := migrated(t, openStore(t, path, Options{}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(filledWith)...)
	store.Close()
}

func TestOtherFilesAreRefusedByNameAndNotChanged(t *testing.T) {
	t.Parallel()
	write := func(content string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { noError(t, os.WriteFile(path, []byte(content), 0o600)) }
	}
	change := func(change func(content []byte) []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			filled(t, path)
			content := must(os.ReadFile(path))(t)
			noError(t, os.WriteFile(path, change(content), 0o600))
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    error
		says    string
	}{
		"text":       {write(strings.Repeat("Dear Sir or Madam,\n", 500)), ErrForeignFile, "not a database"},
		"short text": {write("x"), ErrForeignFile, "it has 1 bytes"},
		"zeros":      {write(strings.Repeat("\x00", 8192)), ErrForeignFile, ""},
		"folder": {
			func(t *testing.T, path string) { noError(t, os.Mkdir(path, 0o700)) }, ErrForeignFile, "folder",
		},
		"other tables": {
			func(t *testing.T, path string) { foreignFile(t, path, "create table t (n int)") }, ErrForeignFile,
			"application id is 0x0",
		},
		"other versions": {
			func(t *testing.T, path string) { foreignFile(t, path, "pragma user_version = 3") }, ErrForeignFile,
			"application id",
		},
		"other program": {func(t *testing.T, path string) {
			foreignFile(t, path, "pragma application_id = 0x0f055112", "pragma user_version = 1",
				"create table t (n int)")
		}, ErrForeignFile, "application id is 0xf055112, not 0x4d696c6c"},
		"write-ahead log of another program": {func(t *testing.T, path string) {
			foreignFile(t, path, "pragma journal_mode = wal", "create table t (n int)")
		}, ErrForeignFile, "application id"},
		"cut off": {change(func(content []byte) []byte { return content[:len(content)/2] }), ErrCorrupt, "malformed"},
		"first page damaged": {change(func(content []byte) []byte {
			return slices.Replace(content, 100, 200, bytes.Repeat([]byte{0xA5}, 100)...)
		}), ErrCorrupt, "malformed"},
		"header damaged": {
			change(func(content []byte) []byte {
				return slices.Replace(content, 0, 50,
					bytes.Repeat([]byte{0xA5}, 50)...)
			}), ErrForeignFile, "not a database",
		},
		"page size is damaged": {
			change(func(content []byte) []byte { return slices.Replace(content, 16, 18, 0x03, 0x03) }), ErrForeignFile,
			"not a database",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			c.prepare(t, path)
			before := contents(t, filepath.Dir(path))
			_, err := Open(testContext(t), path, Options{})
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "open store: "+path) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.says)
			}
			if after := contents(t, filepath.Dir(path)); after != before {
				t.Errorf("the folder has changed: %.200q, was %.200q", after, before)
			}
		})
	}
}

// contents returns the names and contents of the files of a folder.
func contents(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	for _, entry := range must(os.ReadDir(folder))(t) {
		content, _ := os.ReadFile(filepath.Join(folder, entry.Name()))
		fmt.Fprintf(&all, "%s\x00%s\x00", entry.Name(), content)
	}
	return all.String()
}

func TestDamageThatIsFoundLaterIsNamed(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	filled(t, path)
	content := must(os.ReadFile(path))(t)
	// Every page but the first ones, which have the schema and the roots of the tables.
	const first = 36
	if len(content) < (first+4)*4096 {
		t.Fatalf("the file has only %d bytes", len(content))
	}
	for page := first; (page+1)*4096 <= len(content); page++ {
		copy(content[page*4096:], bytes.Repeat([]byte{0xA5}, 4096))
	}
	noError(t, os.WriteFile(path, content, 0o600))
	store, err := Open(testContext(t), path, Options{})
	if err == nil {
		defer store.Close()
		for _, err = range store.ReadAll(testContext(t), event.ReadOptions{}) {
			if err != nil {
				break
			}
		}
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); !errors.Is(err, ErrCorrupt) {
		t.Errorf("append: %v", err)
	}
}

func TestAnyNameOfAFileIsThatFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var want []string
	for _, name := range []string{"a b.db", "q?mode=memory.db", "h#x", "p%41", "ü&_pragma=synchronous(0).db",
		"':memory:'", "plus+"} {
		want = append(want, name)
		path := filepath.Join(folder, name)
		filled(t, path)
		if n := len(all(t, openStore(t, path, Options{}).tenant)); n != filledWith {
			t.Errorf("%q: %d events", name, n)
		}
	}
	var got []string
	for _, entry := range must(os.ReadDir(folder))(t) {
		if !strings.HasSuffix(entry.Name(), "-wal") && !strings.HasSuffix(entry.Name(), "-shm") &&
			!strings.HasSuffix(entry.Name(), "-queue") {
			got = append(got, entry.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	for path, says := range map[string]string{
		"": "must not be empty", ":memory:": "must be that of a file", "file:a.db": "must be that of a file", folder +
			"/a\x00": "NUL",
		filepath.Join(folder, "missing", "a.db"): "the file's folder",
		filepath.Join(folder, "a b.db", "c.db"):  "folder",
	} {
		if _, err := Open(testContext(t), path, Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want one with %q", path, err, says)
		}
	}
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	asked := ""
	_, err := open(testContext(t), path, Options{}, func(folder string) (string, error) {
		asked = folder
		return "NFS", nil
	})
	if !errors.Is(err, ErrNetworkFile) || !strings.Contains(err.Error(), "NFS") || asked != filepath.Dir(path) {
		t.Errorf("error %v, asked for %q", err, asked)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
	// A link leads to the folder of its file.
	filled(t, path)
	link := newPath(t)
	noError(t, os.Symlink(path, link))
	_, err = open(testContext(t), link, Options{}, func(folder string) (string, error) {
		return map[bool]string{true: "NFS"}[folder == asked], nil
	})
	if !errors.Is(err, ErrNetworkFile) {
		t.Errorf("by a link: %v", err)
	}
	if kind, err := networkFile(filepath.Dir(path)); kind != "" || err != nil {
		t.Errorf("the folder of the tests is on %q, %v", kind, err)
	}
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	for says, opts := range map[string]Options{
		"Options.Synchronous is unknown: 7":        {Synchronous: 7},
		"Options.Readers must not be negative: -1": {Readers: -1},
	} {
		if _, err := Open(testContext(t), newPath(t), opts); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want one with %q", err, says)
		}
	}
}

func TestCommitsAreSyncedAsTheOptionsSay(t *testing.T) {
	t.Parallel()
	for opts, want := range map[Synchronous]int{SynchronousFull: 2, SynchronousNormal: 1} {
		store := migrated(t, openStore(t, newPath(t), Options{Synchronous: opts}))
		setting := func() (n int) {
			noError(t, store.writer.transact(testContext(t), func(tx *sql.Tx) error {
				return tx.QueryRowContext(testContext(t), "pragma synchronous").Scan(&n)
			}))
			return n
		}
		if got := setting(); got != want {
			t.Errorf("synchronous is %d, want %d", got, want)
		}
		// A transaction cannot change it for others.
		noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, "pragma synchronous = off")
			return nil
		}))
		if got := setting(); got != want {
			t.Errorf("synchronous is %d after a transaction, want %d", got, want)
		}
	}
}

func TestNothingWorksBeforeMigrate(t *testing.T) {
	t.Parallel()
	store := openStore(t, newPath(t), Options{})
	ctx := testContext(t)
	_, appendErr := store.Append(ctx, "s", event.Any, someEvents(1)...)
	_, tenantsErr := store.Tenants(ctx)
	_, createErr := store.CreateTenant(ctx, "a")
	var readErr error
	for _, readErr = range store.ReadAll(ctx, event.ReadOptions{}) {
	}
	_, projectionsErr := store.plane().Projections(ctx, engine.ProjectionFilter{})
	_, nodesErr := store.plane().Nodes(ctx)
	_, overviewErr := store.plane().Overview(ctx, 0, nil)
	for what, err := range map[string]error{"append": appendErr, "tenants": tenantsErr, "create": createErr,
		"read": readErr, "projections": projectionsErr,
		"nodes": nodesErr, "overview": overviewErr} {
		if !errors.Is(err, ErrNotMigrated) ||
			!strings.Contains(err.Error(), fmt.Sprintf("schema version 0 is older than this program's %d",
				len(ownMigrations))) {
			t.Errorf("%s: %v", what, err)
		}
	}
	migrated(t, store)
	migrated(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
}

// A new version of the command line shows the status of a file that an old program runs.
func TestStatusOfAnOlderFileIsRead(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	ensured(t, store, "p")
	noError(t, store.writer.transact(testContext(t), func(tx *sql.Tx) error {
		return setHeader(testContext(t), tx, "set_user_version", "{version}", int64(len(ownMigrations)-1))
	}))
	store.Close()
	store = openStore(t, path, Options{})
	if rows := must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t); len(rows) != 1 {
		t.Errorf("%+v", rows)
	}
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("an append: %v", err)
	}
}

func TestFileMayBeOneVersionAhead(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[int]error{1: nil, 2: ErrSchemaTooNew} {
		path := newPath(t)
		store := migrated(t, openStore(t, path, Options{}))
		noError(t, store.writer.transact(testContext(t), func(tx *sql.Tx) error {
			return setHeader(testContext(t), tx, "set_user_version", "{version}", int64(len(ownMigrations)+ahead))
		}))
		store.Close()
		store = openStore(t, path, Options{})
		_, appendErr := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
		_, tenantsErr := store.Tenants(testContext(t))
		_, projectionsErr := store.plane().Projections(testContext(t), engine.ProjectionFilter{})
		for what, err := range map[string]error{"append": appendErr, "tenants": tenantsErr,
			"projections": projectionsErr, "migrate": store.Migrate(testContext(t))} {
			if !errors.Is(err, want) {
				t.Errorf("%d ahead: %s: %v", ahead, what, err)
			}
		}
		if version := one[int](t, store, "pragma user_version"); version != len(ownMigrations)+ahead {
			t.Errorf("version %d", version)
		}
	}
}

func TestVersionBelowZeroIsNamed(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	filled(t, path)
	foreignFile(t, path, "pragma user_version = -1")
	_, err := Open(testContext(t), path, Options{})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "user_version is -1") {
		t.Errorf("open: %v", err)
	}
	store := newStore(t)
	store.migrated.Store(false)
	foreignFile(t, store.path, "pragma user_version = -1")
	_, appendErr := store.Append(testContext(t), "s", event.Any, someEvents(1)...)
	_, versionsErr := store.port().SchemaVersions(testContext(t))
	for what, err := range map[string]error{"migrate": store.Migrate(testContext(t)), "append": appendErr,
		"versions": versionsErr} {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "user_version is -1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMigrationIsAppliedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	store := openStore(t, newPath(t), Options{})
	ctx := testContext(t)
	list := append(slices.Clone(ownMigrations), migration.Step{Name: "more",
		SQL: "create table more (n int); insert into more values (1); select broken"})
	if err := store.migrate(ctx, list); err == nil || !strings.Contains(err.Error(), "migration more: ") {
		t.Fatalf("error %v", err)
	}
	if version, tables := one[int](t, store, "pragma user_version"),
		one[int](t, store, "select count(*) from sqlite_schema where name = 'more'"); version != len(ownMigrations) ||
		tables != 0 {
		t.Errorf("version %d, %d tables of the migration that failed", version, tables)
	}
	list[len(ownMigrations)].SQL = "create table more (n int)"
	noError(t, together(4, func(int) error { return store.migrate(ctx, list) }))
	if version := one[int](t, store, "pragma user_version"); version != len(list) {
		t.Errorf("version %d", version)
	}
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
}

// The file is examined again and again, while its tables are created.
func TestFileOfWhichTheTablesAreBeingCreatedIsAStore(t *testing.T) {
	t.Parallel()
	const files, examiners = 20, 4
	for range files {
		path := newPath(t)
		var created atomic.Bool
		noError(t, together(1+examiners, func(i int) error {
			if i == 0 {
				defer created.Store(true)
				store, err := Open(testContext(t), path, Options{})
				if err != nil {
					return err
				}
				defer store.Close()
				return store.Migrate(testContext(t))
			}
			for !created.Load() {
				if err := examine(testContext(t), path); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func TestTablesOfAnotherProgramAreNotMigratedOver(t *testing.T) {
	t.Parallel()
	store := openStore(t, newPath(t), Options{})
	foreignFile(t, store.path, "create table millrace_events (n int)")
	if err := store.Migrate(testContext(t)); !errors.Is(err, ErrForeignFile) {
		t.Errorf("error %v", err)
	}
	if n := one[int](t, store, "select count(*) from sqlite_schema"); n != 1 {
		t.Errorf("%d objects", n)
	}
}
