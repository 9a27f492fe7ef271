package sqlitestore

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// newNode returns a node that can run these projections.
func newNode(projections ...string) engine.Node {
	return engine.Node{ID: uuid.NewString(), Projections: projections, LeaseDuration: 5 * time.Second}
}

// connect returns a session, which is closed when the test ends.
func connect(t testing.TB, store *Store, node engine.Node) *nodeSession {
	t.Helper()
	session := must(store.port().Connect(testContext(t), node))(t).(*nodeSession)
	t.Cleanup(func() { noError(t, session.Close(testContext(t))) })
	return session
}

// next waits for a notice that want accepts, and skips others.
func next(t testing.TB, session engine.Session, want func(engine.Notice) bool) engine.Notice {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), 30*time.Second)
	defer cancel()
	for {
		if n := must(session.Next(ctx))(t); want(n) {
			return n
		}
	}
}

// waitWithout waits for notices for a while, and fails if there is one.
func waitWithout(t testing.TB, session engine.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), 4*noticeInterval)
	defer cancel()
	if n, err := session.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("notice %+v, error %v", n, err)
	}
}

func newProjections(tenant string, names ...string) (list []engine.NewProjection) {
	for _, name := range names {
		list = append(list, engine.NewProjection{Tenant: tenant, Name: name, Partitions: 1})
	}
	return list
}

// rowsOf returns the rows of leases.
func rowsOf(free []engine.LeaseRef) (rows []int32) {
	for _, l := range free {
		rows = append(rows, l.Row)
	}
	return rows
}

// claimAll claims all leases that the node can claim.
func claimAll(t testing.TB, store *Store, node engine.Node) []engine.Lease {
	t.Helper()
	s := store.port()
	return must(s.Claim(testContext(t), node, rowsOf(must(s.Free(testContext(t), node, true, true))(t)), true))(t)
}

func TestSessionsOfOneFileStandByForEachOther(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(t *testing.T, store *Store) *Store{
		"one store":  func(_ *testing.T, store *Store) *Store { return store },
		"two stores": func(t *testing.T, store *Store) *Store { return openStore(t, store.path, Options{}) },
		"by another name": func(t *testing.T, store *Store) *Store {
			name := filepath.Join(t.TempDir(), "link.db")
			noError(t, os.Symlink(store.path, name))
			return openStore(t, name, Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			other := second(t, store)
			must(store.plane().Ensure(testContext(t), newProjections(projection.DefaultTenant, "p")))(t)
			a, b := newNode("p"), newNode("p")
			owner := connect(t, store, a)
			standby := connect(t, other, b)
			if n := len(claimAll(t, other, b)) + len(must(other.port().Claim(testContext(t),
				b, []int32{1}, true))(t)); n != 0 {
				t.Errorf("the standby claimed %d leases", n)
			}
			leases := claimAll(t, store, a)
			if len(leases) != 1 || leases[0].Owner != a.ID || leases[0].Epoch != 1 {
				t.Fatalf("the owner claimed %+v", leases)
			}
			noError(t, standby.Heartbeat(testContext(t), &engine.NodeSummary{}))
			waitWithout(t, standby)
			noError(t, owner.Deregister(testContext(t)))
			noError(t, owner.Close(testContext(t)))
			next(t, standby, func(n engine.Notice) bool { return n == engine.Notice{Control: true} })
			taken := claimAll(t, other, b)
			if len(taken) != 1 || taken[0].Owner != b.ID || taken[0].Epoch != 2 || taken[0].CrashCount != 1 {
				t.Errorf("the standby took over %+v", taken)
			}
			if n := len(claimAll(t, store, a)); n != 0 {
				t.Errorf("the previous owner claimed %d leases", n)
			}
		})
	}
}

func TestOwnerThatConnectsAgainKeepsItsLeases(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	must(store.plane().Ensure(testContext(t), newProjections(projection.DefaultTenant, "p")))(t)
	node := newNode("p")
	session := connect(t, store, node)
	claimAll(t, store, node)
	noError(t, session.Close(testContext(t)))
	connect(t, store, node)
	if owned := must(store.port().Owned(testContext(t), node))(t); len(owned) != 1 || owned[0].Epoch != 1 {
		t.Errorf("the node owns %+v", owned)
	}
	if free := must(store.port().Free(testContext(t), node, true, true))(t); len(free) != 0 {
		t.Errorf("its own leases look free: %+v", free)
	}
}

// childOwns is an owner of the file until it is killed. It claims everything.
func childOwns(path string) error {
	ctx := context.Background()
	store, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	node := newNode("p")
	if _, err := store.port().Connect(ctx, node); err != nil {
		return err
	}
	free, err := store.port().Free(ctx, node, true, true)
	if err != nil {
		return err
	}
	leases, err := store.port().Claim(ctx, node, rowsOf(free), true)
	fmt.Println(node.ID, len(leases), err)
	select {}
}

func TestKilledProcessIsFollowedByTheNodeThatStandsBy(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	must(store.plane().Ensure(testContext(t), newProjections(projection.DefaultTenant, "p")))(t)
	cmd := child(testContext(t), "own", store.path)
	out := must(cmd.StdoutPipe())(t)
	noError(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if rest != "1 <nil>" {
		t.Fatalf("the process says %q", line)
	}
	log, logs := observer.New(zap.InfoLevel)
	store.log = zap.New(log)
	node := newNode("p")
	standby := connect(t, store, node)
	waitWithout(t, standby)
	row := must(store.plane().Projections(testContext(t), engine.ProjectionFilter{}))(t)[0]
	if row.State != "elsewhere" || row.Owner != id || !row.OwnerAlive || row.NotOwned != 0 {
		t.Errorf("while the owner lives: %+v", row)
	}
	named := logs.FilterMessageSnippet("standing by").All()
	if want := fmt.Sprintf("process %d", cmd.Process.Pid); len(named) != 1 ||
		!strings.Contains(fmt.Sprint(named[0].ContextMap()), want) {
		t.Errorf("logged %v, want %q once", named, want)
	}
	noError(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	began := time.Now()
	next(t, standby, func(n engine.Notice) bool { return n == engine.Notice{Control: true} })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the node took over after %v", took)
	}
	if nodes := must(texts(store, "select id from millrace_nodes"))(t); !slices.Equal(nodes, []string{node.ID}) {
		t.Errorf("the nodes are %v, want %s alone", nodes, node.ID)
	}
	taken := claimAll(t, store, node)
	if len(taken) != 1 || taken[0].Epoch != 2 || taken[0].CrashCount != 1 {
		t.Errorf("the node took over %+v", taken)
	}
}

func TestNoticesArriveInOrderInThisProcessAndFromOthers(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	ctx := testContext(t)
	must(store.plane().Ensure(ctx, newProjections(projection.DefaultTenant, "p", "q")))(t)
	session := connect(t, store, newNode("p", "q"))
	want := []engine.Notice{
		{Control: true, Row: 1}, {Control: true, Row: 2}, {Control: true, Tenant: projection.DefaultTenant},
		{Control: true, Row: 1},
	}
	for _, from := range []*Store{store, other, store} {
		noError(t, errors.Join(
			from.plane().SetDesiredState(ctx, projection.ID{Name: "p"}, engine.WantPause),
			from.plane().SetDesiredState(ctx, projection.ID{Name: "q"}, engine.WantPause),
			from.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantPause),
			from.plane().SetDesiredState(ctx, projection.ID{Name: "p"}, engine.WantRun)))
		var got []engine.Notice
		for range want {
			got = append(got, must(session.Next(ctx))(t))
		}
		if !slices.Equal(got, want) {
			t.Errorf("notices %+v, want %+v", got, want)
		}
	}
	waitWithout(t, session)
}

func TestNoticeOfThisProcessArrivesWithoutAPoll(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	must(store.plane().Ensure(testContext(t), newProjections(projection.DefaultTenant, "p")))(t)
	session := connect(t, store, newNode("p"))
	session.next = time.Now().Add(time.Hour)
	noError(t, store.plane().SetDesiredState(testContext(t), projection.ID{Name: "p"}, engine.WantPause))
	next(t, session, func(n engine.Notice) bool { return n.Row == 1 })
}

// appendedTo is the notice of events that another process has appended.
func appendedTo(tenant string) engine.Notice {
	return engine.Notice{Tenant: tenant, Position: engine.UnknownPosition}
}

func TestEventsOfOtherProcessesAreNoticed(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	session := connect(t, store, newNode("p"))
	waitWithout(t, session) // of events from before
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	mustAppend(t, other.tenant, "s", event.Any, someEvents(1)...)
	next(t, session, func(n engine.Notice) bool { return n == appendedTo(projection.DefaultTenant) })
	mustAppend(t, newTenant(t, other, "new"), "s", event.Any, someEvents(1)...)
	next(t, session, func(n engine.Notice) bool { return n == appendedTo("new") })
	waitWithout(t, session)
}

// On a busy machine, a reading of the heads waits for a processor. Readings of few tenants follow each other all the
// same.
func TestHeadsOfFewTenantsAreReadOftenOnABusyMachine(t *testing.T) {
	t.Parallel()
	for _, reading := range []struct {
		took      time.Duration
		tenants   int
		least, to time.Duration
	}{
		{time.Second, 0, 0, noticeInterval}, {time.Second, 1, 0, noticeInterval}, {time.Minute, 100, 0, noticeInterval},
		{time.Millisecond, 100_000, headsShare * time.Millisecond, headsShare * time.Millisecond},
		{time.Second, 100_000, headsShare * time.Second, headsShare * time.Second},
	} {
		if pause := headsPause(reading.took, reading.tenants); pause < reading.least || pause > reading.to {
			t.Errorf("after %+v the pause is %v", reading, pause)
		}
	}
}

// If the lock file is removed, another runtime can own the file. The previous owner must notice it, and can commit
// nothing once its leases were claimed.
func TestOwnerWhoseLockFileWasRemovedEnds(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(ctx context.Context, session *nodeSession) error{
		"by its heartbeat": func(ctx context.Context, session *nodeSession) error {
			return session.Heartbeat(ctx, &engine.NodeSummary{})
		},
		"by a notice": func(ctx context.Context, session *nodeSession) error {
			_, err := session.Next(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			ensured(t, store, "p")
			a, b := newNode("p"), newNode("p")
			session := connect(t, store, a)
			lease := claimAll(t, store, a)[0]
			noError(t, session.Heartbeat(testContext(t), &engine.NodeSummary{}))
			noError(t, os.Remove(ownerlock.Name(store.path)))
			connect(t, store, b)
			ctx, cancel := context.WithTimeout(testContext(t), 20*time.Second)
			defer cancel()
			if err := ends(ctx, session); err == nil || !strings.Contains(err.Error(), "removed") {
				t.Errorf("the session continues: %v", err)
			}
			if free := must(store.port().Free(testContext(t), a, true, true))(t); len(free) != 0 {
				t.Errorf("the previous owner finds %+v", free)
			}
			if leases := claimAll(t, store, b); len(leases) != 1 || leases[0].Epoch != 2 {
				t.Errorf("the owner claimed %+v", leases)
			}
			if err := checkLeaseOf(store, lease); !errors.Is(err, projection.ErrLeaseLost) {
				t.Errorf("the previous owner could commit: %v", err)
			}
		})
	}
}

// A session whose context ends while it waits for the writer must not lose commits that it has seen.
func TestNoticeIsNotLostWhenAContextEnds(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "p")
	session := connect(t, store, newNode("p"))
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	for i := range 20 {
		noError(t, other.plane().SetDesiredState(testContext(t), projection.ID{Name: "p"}, engine.WantPause))
		mustAppend(t, other.tenant, "s", event.Any, someEvents(1)...)
		// The context ends somewhere within the poll.
		session.next = time.Now()
		ctx, cancel := context.WithTimeout(testContext(t), time.Duration(i)*20*time.Microsecond)
		n, err := session.Next(ctx)
		cancel()
		if err == nil {
			session.pending = append([]engine.Notice{n}, session.pending...)
		} else if ctx.Err() == nil {
			t.Fatal(err)
		}
		next(t, session, func(n engine.Notice) bool { return n.Row != 0 })
		next(t, session, func(n engine.Notice) bool { return !n.Control })
	}
}

// Numbers of data_version can be compared on one connection only: that of a new connection may be the same by chance.
func TestNoticeIsNotLostWithTheConnection(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "p")
	session := connect(t, store, newNode("p"))
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	waitWithout(t, session)
	for range 4 {
		noError(t, other.plane().SetDesiredState(testContext(t), projection.ID{Name: "p"}, engine.WantPause))
		mustAppend(t, other.tenant, "s", event.Any, someEvents(1)...)
		session.conn.SetMaxIdleConns(0)
		session.conn.SetMaxIdleConns(1)
		next(t, session, func(n engine.Notice) bool { return n.Row != 0 })
		next(t, session, func(n engine.Notice) bool { return !n.Control })
	}
}

func TestOldNoticesAreDeleted(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ensured(t, store, "p")
	noError(t, store.transact(testContext(t), func(tx *sql.Tx) error {
		for range 2 * keptNotices {
			if err := store.announce(testContext(t), tx, engine.Notice{Control: true}); err != nil {
				return err
			}
		}
		return nil
	}))
	if n := one[int](t, store, "select count(*) from millrace_notices"); n != keptNotices {
		t.Errorf("%d notices are kept, want %d", n, keptNotices)
	}
	session := connect(t, store, newNode("p"))
	waitWithout(t, session)
	noError(t, store.plane().SetDesiredState(testContext(t), projection.ID{Name: "p"}, engine.WantPause))
	next(t, session, func(n engine.Notice) bool { return n.Row != 0 })
}
