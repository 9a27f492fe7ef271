package sqlitestore

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
)

// counting returns a runtime whose projection "count" counts events in the table counted, by the process's name. In a
// child, an event of type "Hang" is never done.
func counting(store *Store, name string, log *zap.Logger) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: store, Logger: log})
	if err != nil {
		return nil, err
	}
	return rt,
		rt.Register(millrace.Projection{Name: "count",
			Handler: Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
				_, err := tx.ExecContext(ctx, "insert into counted (name, position) values (?1, ?2)", name, e.Position)
				if name == "child" && e.Type == "Hang" {
					fmt.Println("hangs")
					<-ctx.Done()
				}
				return err
			})})
}

// started runs a runtime until stop is called, or the test ends.
func started(t *testing.T, rt *millrace.Runtime) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stop = func() {
		t.Helper()
		cancel()
		if done != nil {
			noError(t, <-done)
			done = nil
		}
	}
	t.Cleanup(stop)
	return stop
}

var countedBy = millrace.ProjectionID{Name: "count"}

// childRuns runs the projection until it is killed.
func childRuns(path string) error {
	store, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	rt, err := counting(store, "child", nil)
	if err != nil {
		return err
	}
	go func() {
		if err := rt.WaitFor(context.Background(), countedBy, 1); err == nil {
			fmt.Println("runs")
		}
	}()
	return rt.Run(context.Background())
}

// startChild starts a process that runs the projection, and waits until it has handled the first event. next returns
// the next line that it prints.
func startChild(t *testing.T, store *Store) (cmd *exec.Cmd, next func() string) {
	t.Helper()
	mustExec(t, store, "create table counted (name text, position integer primary key)")
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	cmd = child(testContext(t), "run", store.path)
	out := must(cmd.StdoutPipe())(t)
	noError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	next = func() string {
		line, _ := lines.ReadString('\n')
		return line
	}
	if line := next(); line != "runs\n" {
		t.Fatalf("the process says %q", line)
	}
	return cmd, next
}

func counts(t *testing.T, store *Store) string {
	t.Helper()
	return strings.Join(must(texts(store,
		"select name || ' ' || count(*) from counted group by name order by name"))(t), ", ")
}

func TestRuntimeStandsByQuietlyAndTakesOver(t *testing.T) {
	t.Parallel()
	ctx, store := testContext(t), newStore(t)
	cmd, _ := startChild(t, store)
	log, logs := observer.New(zap.InfoLevel)
	store.log = zap.New(log)
	rt := must(counting(store, "standby", zap.New(log)))(t)
	started(t, rt)
	// It waits for the work of the other process, and finds no work for itself.
	last := mustAppend(t, store.tenant, "s", event.Any, someEvents(10)...).Positions[9]
	noError(t, rt.WaitFor(ctx, countedBy, last))
	until(t, "it has stood by for some searches",
		func() bool { return logs.FilterMessageSnippet("standing by").Len() > 0 })
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second): // more than one search for leases
	}
	status := must(rt.Status(ctx, admin.StatusFilter{}))(t).Projection(countedBy)
	if status.State != admin.StateLive || status.Owner == "" || status.NotOwned != 0 {
		t.Errorf("the status is %+v", status)
	}
	summary := must(rt.Summary(ctx))(t)
	if !summary.Session.Connected || summary.Session.Reason != "" || len(summary.Nodes) != 1 ||
		summary.Nodes[0].ID != status.Owner || summary.NotOwned != 0 {
		t.Errorf("the summary is %+v", summary)
	}
	var said []string
	for _, entry := range logs.All() {
		said = append(said, entry.Message)
	}
	if want := fmt.Sprintf("process %d", cmd.Process.Pid); len(said) != 2 ||
		!strings.Contains(fmt.Sprint(logs.All()), want) {
		t.Errorf("it logged %v, want its start and who owns the file", said)
	}
	noError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	began := time.Now()
	last = mustAppend(t, store.tenant, "s", event.Any, someEvents(5)...).Positions[4]
	noError(t, rt.WaitFor(ctx, countedBy, last))
	t.Logf("took over and caught up in %v", time.Since(began))
	if by := counts(t, store); by != "child 11, standby 5" {
		t.Errorf("counted are %s", by)
	}
	if status := must(rt.Status(ctx, admin.StatusFilter{}))(t).Projection(countedBy); status.State != admin.StateLive ||
		status.Epoch != 2 {
		t.Errorf("the status is %+v", status)
	}
}

func TestRuntimesOfOneProcessFollowEachOther(t *testing.T) {
	t.Parallel()
	ctx, store := testContext(t), newStore(t)
	other := openStore(t, store.path, Options{Synchronous: SynchronousNormal})
	mustExec(t, store, "create table counted (name text, position integer primary key)")
	var stops []func()
	var runtimes []*millrace.Runtime
	for i, of := range []*Store{store, store, other} {
		rt := must(counting(of, fmt.Sprint("r", i), nil))(t)
		runtimes, stops = append(runtimes, rt), append(stops, started(t, rt))
		noError(t, rt.WaitFor(ctx, countedBy, 0))
	}
	for len(runtimes) > 0 {
		last := mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...).Positions[2]
		for _, rt := range runtimes {
			noError(t, rt.WaitFor(ctx, countedBy, last))
		}
		owner := -1
		for i, rt := range runtimes {
			status := must(rt.Status(ctx, admin.StatusFilter{}))(t)
			p := status.Projection(countedBy)
			if p.Owner == status.Node {
				owner = i
			}
			if p.State != admin.StateLive {
				t.Errorf("runtime %d: %+v", i, p)
			}
		}
		stops[owner]()
		runtimes, stops = append(runtimes[:owner], runtimes[owner+1:]...), append(stops[:owner], stops[owner+1:]...)
	}
	if n := one[int](t, store, "select count(distinct name) * 100 + count(*) from counted"); n != 309 {
		t.Errorf("names and events: %d, want 309", n)
	}
}

// The process has the file's lock for writes when it is killed.
func TestRuntimeTakesOverFromAProcessThatIsKilledInItsHandler(t *testing.T) {
	t.Parallel()
	ctx, store := testContext(t), newStore(t)
	cmd, next := startChild(t, store)
	rt := must(counting(store, "standby", nil))(t)
	started(t, rt)
	last := mustAppend(t, store.tenant, "s", event.Any, event.Event{Type: "T"}, event.Event{Type: "Hang"},
		event.Event{Type: "T"}).Positions[2]
	if line := next(); line != "hangs\n" {
		t.Fatalf("the process says %q", line)
	}
	noError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	noError(t, rt.WaitFor(ctx, countedBy, last))
	if n := one[int](t, store, "select count(*) from counted"); n != 4 {
		t.Errorf("%d events were counted: %s", n, counts(t, store))
	}
	if p := must(rt.Status(ctx, admin.StatusFilter{}))(t).Projection(countedBy); p.Epoch != 2 || p.Parked != 0 {
		t.Errorf("the status is %+v", p)
	}
}
