package runbook_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// scenarios act out the entries of the page, by their anchors.
var scenarios = make(map[string]func(s *scenario))

// add adds scenarios. Each file of scenarios has a variable that calls it.
func add(some map[string]func(s *scenario)) bool {
	maps.Copy(scenarios, some)
	return true
}

// TestRunbook follows each entry of docs/runbook.md.
func TestRunbook(t *testing.T) {
	if _, err := commandLine(); err != nil {
		t.Fatal(err)
	}
	entries := readEntries(t, pageFile)
	for _, e := range entries {
		act, found := scenarios[e.anchor]
		if !found {
			t.Errorf("the entry %q has no scenario %q", e.title, e.anchor)
			continue
		}
		t.Run(e.anchor, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, e)
			act(s)
			for _, left := range e.blocks[s.next:] {
				t.Errorf("the scenario does not run the block\n%s", left.text)
			}
			s.recovers()
		})
	}
	for anchor := range scenarios {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.anchor == anchor }) {
			t.Errorf("the scenario %q has no entry", anchor)
		}
	}
}

// scenario acts out an entry.
type scenario struct {
	*testing.T
	ctx   context.Context
	entry entry
	// next is the index of the block that follow runs next.
	next int
	// dir is the folder in which commands run.
	dir string
	// dsn is where the store is, for the role that runs. It is the DATABASE_URL of commands. env are further variables
	// of theirs.
	dsn   string
	env   []string
	store *pgstore.Store
	// superuser is the address for SQL. ownerDSN is that of the role that owns the tables, which is the OWNER_URL of
	// commands.
	superuser, ownerDSN string
	owner               *pgstore.Store
	// names are what the page calls by example: a pid that is 4711 there.
	names map[string]string
}

func newScenario(t *testing.T, e entry) *scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	t.Cleanup(cancel)
	return &scenario{T: t, ctx: ctx, entry: e, dir: t.TempDir(), names: make(map[string]string)}
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// call gives a name of the page what it is in this run.
func (s *scenario) call(onPage, here string) { s.names[onPage] = here }

// here replaces the names of the page.
func (s *scenario) here(text string) string {
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		text = strings.ReplaceAll(text, name, s.names[name])
	}
	return text
}

// sound are settings of a server in which the doctor finds nothing.
func sound(more map[string]string) pgtest.Options {
	settings := map[string]string{"fsync": "on"}
	maps.Copy(settings, more)
	return pgtest.Options{InMemory: true, Settings: settings}
}

// shared is a server that the scenarios share.
var shared = sync.OnceValues(func() (*pgtest.Server, error) {
	return pgtest.Start(context.Background(), sound(map[string]string{"max_connections": "400"}))
})

// database creates a store in a database of the shared server, or of that of "DATABASE_URL".
func (s *scenario) database() {
	s.Helper()
	if os.Getenv(pgtest.Variable) != "" {
		s.open(pgtest.Database(s))
		return
	}
	server, err := shared()
	s.must(err)
	s.open(pgtest.DatabaseOn(s, server.DSN("postgres")))
}

// open creates a store under the two roles of docs/roles.sql, and the table of its read model.
func (s *scenario) open(superuser string) {
	s.Helper()
	s.roles(superuser)
	s.owner = s.opened(s.ownerDSN, pgstore.Options{})
	s.must(s.owner.Migrate(s.ctx))
	s.creates("create table totals (stream text primary key, n bigint not null)")
	s.store = s.opened(s.dsn, pgstore.Options{})
}

// roles makes the two roles in a database.
func (s *scenario) roles(superuser string) {
	s.Helper()
	s.superuser = superuser
	s.ownerDSN, s.dsn = kit.RolesOf(s.T, superuser)
	s.env = append(s.env, "OWNER_URL="+s.ownerDSN)
}

// creates runs statements as the owner.
func (s *scenario) creates(statements string) {
	s.Helper()
	_, err := s.owner.Pool().Exec(s.ctx, statements, pgx.QueryExecModeSimpleProtocol)
	s.must(err)
}

// opened opens a store, until the end of the test.
func (s *scenario) opened(dsn string, options pgstore.Options) *pgstore.Store {
	s.Helper()
	store, err := pgstore.Open(s.ctx, dsn, options)
	s.must(err)
	s.Cleanup(store.Close)
	return store
}

// sql runs statements as a superuser on a connection of its own.
func (s *scenario) sql(statements string) {
	s.Helper()
	conn := s.connection()
	_, err := conn.Exec(s.ctx, statements, pgx.QueryExecModeSimpleProtocol)
	s.must(err)
	s.must(conn.Close(s.ctx))
}

// connection opens a connection of the superuser, which lasts until the end of the test.
func (s *scenario) connection() *pgx.Conn {
	s.Helper()
	conn, err := pgx.Connect(s.ctx, s.superuser)
	s.must(err)
	s.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// append appends events of these types to the stream order-17 of a tenant.
func (s *scenario) append(tenant string, types ...string) {
	s.Helper()
	events := make([]event.Event, len(types))
	for i, of := range types {
		events[i] = event.Untyped(of, map[string]int{"amount": 12})
	}
	t, err := s.store.ForTenant(cmp.Or(tenant, projection.DefaultTenant))
	s.must(err)
	_, err = t.Append(s.ctx, "order-17", event.Any, events...)
	s.must(err)
}

// follow does what the next block of the entry shows.
func (s *scenario) follow() {
	s.Helper()
	if s.next == len(s.entry.blocks) {
		s.Fatal("the entry has no more blocks")
	}
	b := s.entry.blocks[s.next]
	s.next++
	switch b.language {
	case "console":
		for _, c := range b.commands {
			s.command(c)
		}
	case "sql":
		s.statements(s.here(b.text))
	default:
		s.Fatalf("a block of %q cannot be run:\n%s", b.language, b.text)
	}
}

// statements runs statements, and compares their rows with the comments of the block.
func (s *scenario) statements(text string) {
	s.Helper()
	var shown, printed []string
	for line := range strings.Lines(text) {
		if row, found := strings.CutPrefix(line, "-- "); found {
			shown = append(shown, row)
		}
	}
	conn := s.connection()
	results, err := conn.PgConn().Exec(s.ctx, text).ReadAll()
	s.must(err)
	s.must(conn.Close(s.ctx))
	for _, result := range results {
		for _, row := range result.Rows {
			printed = append(printed, string(bytes.Join(row, []byte(" | "))))
		}
	}
	if line, found := missing(shown, printed); found {
		s.Fatalf("%s\n%s\nit does not return: %s", text, strings.Join(printed, "\n"), line)
	}
	s.Logf("%s\n%s", text, strings.Join(printed, "\n"))
}

// observing are the commands that change nothing. They are repeated until they print what the page shows.
var observing = []string{"projections status", "projections list", "dead-letters list", "dead-letters show",
	"dead-letters count", "nodes", "tenants list",
	"check", "doctor", "migrate status", "events count", "events tail", "events stream"}

func observes(line string) bool {
	return strings.HasPrefix(line, "curl ") ||
		slices.ContainsFunc(observing, func(of string) bool { return strings.HasPrefix(line, "millrace "+of) })
}

// command runs a command of the page, and compares what it prints.
func (s *scenario) command(c command) {
	s.Helper()
	shown := strings.Split(s.here(strings.Join(c.shown, "\n")), "\n")
	if len(c.shown) == 0 {
		shown = nil
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for last := ""; ; {
		printed, fault := s.run(s.here(c.line), shown)
		if s.ctx.Err() != nil {
			s.Fatalf("$ %s\n%s", c.line, last)
		}
		last = printed + fault
		if fault == "" {
			s.Logf("$ %s\n%s", c.line, printed)
			return
		}
		if !observes(c.line) {
			s.Fatalf("$ %s\n%s", c.line, last)
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
		}
	}
}

// foundSomething is the exit status of commands that search.
const foundSomething = 3

// run runs a line in a shell. The fault says how the output differs from what is shown. A command that fails shows its
// error.
func (s *scenario) run(line string, shown []string) (printed, fault string) {
	s.Helper()
	bin, err := commandLine()
	s.must(err)
	cmd := exec.CommandContext(s.ctx, "sh", "-c", line)
	cmd.Dir = s.dir
	path := bin + string(filepath.ListSeparator) + os.Getenv("PATH")
	if programs, err := pgtest.Find(); err == nil {
		path += string(filepath.ListSeparator) + programs
	}
	cmd.Env = append(append(os.Environ(), "DATABASE_URL="+s.dsn, "PATH="+path), s.env...)
	out, err := cmd.CombinedOutput()
	printed = string(out)
	fails := slices.ContainsFunc(shown, func(line string) bool { return strings.HasPrefix(line, "millrace: ") })
	failed := err != nil && cmd.ProcessState.ExitCode() != foundSomething
	if line, found := missing(shown, strings.Split(printed, "\n")); found {
		return printed, "it does not print: " + line
	}
	if failed != fails {
		return printed, "it ends with " + cmd.ProcessState.String()
	}
	return printed, ""
}

// eventually waits until a condition holds.
func (s *scenario) eventually(what string, holds func() bool) {
	s.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			s.Fatal("never: " + what)
		}
	}
}

// admin returns an Admin of the store.
func (s *scenario) admin() *admin.Admin {
	s.Helper()
	a, err := admin.New(s.store)
	s.must(err)
	return a
}

// reaches waits until totals has handled the events of a tenant up to a position.
func (s *scenario) reaches(tenant string, position int64) {
	s.Helper()
	s.reachesAs(millrace.ProjectionID{Tenant: tenant, Name: "totals"}, position)
}

// reachesAs is reaches of any projection.
func (s *scenario) reachesAs(id millrace.ProjectionID, position int64) {
	s.Helper()
	s.eventually(id.Name+" exists",
		func() bool { return !errors.Is(s.admin().WaitFor(s.ctx, id, 0), projection.ErrUnknownProjection) })
	s.must(s.admin().WaitFor(s.ctx, id, position))
}
