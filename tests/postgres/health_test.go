package postgres_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// An outage must not restart the processes, which would only add load to the database.
func TestProcessStaysAliveWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{})
	p := b.Probe()
	p.Becomes(http.StatusOK, "")
	b.Must(server.Kill())
	p.Becomes(http.StatusServiceUnavailable, "no heartbeat for 45s: ") // longer than any loop may stand still
	b.Must(server.StartAgain(b.Ctx))
	if a := p.Becomes(http.StatusOK, ""); len(a.Reasons) > 0 {
		t.Errorf("%+v", a)
	}
	b.Eventually("nothing needs attention", func() bool { return len(p.Get("readyz").Degraded) == 0 })
	p.Terminate()
	if code := p.End(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// An append that stays open holds the mark back. The node works, and a restart would not help.
func TestFrozenMarkDegradesAProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	p := b.Probe()
	p.Becomes(http.StatusOK, "")
	open, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	defer func() { _ = open.Rollback(b.Ctx) }()
	_, err = b.store.AppendTx(b.Ctx, open, "frozen", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	b.Append("s", 1)
	a := p.Becomes(http.StatusOK, "the settled mark of tenant default is held back below 2 for 3")
	if len(a.Degraded) != 1 ||
		!strings.Contains(a.Degraded[0], fmt.Sprintf("by backend %d", open.Conn().PgConn().PID())) {
		t.Errorf("%+v", a)
	}
	b.Must(open.Rollback(b.Ctx))
	b.Eventually("nothing needs attention", func() bool { return len(p.Get("readyz").Degraded) == 0 })
}

// Nothing settles while no tenant's events can be read.
func TestProcessThatCannotReadEventsIsNotReady(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	p := b.Probe()
	b.Append("s", 1)
	p.Becomes(http.StatusOK, "")
	locking, err := b.store.Pool().Begin(b.Ctx)
	b.Must(err)
	defer func() { _ = locking.Rollback(b.Ctx) }()
	_, err = locking.Exec(b.Ctx, "lock table millrace_default.events in access exclusive mode")
	b.Must(err)
	_, err = b.store.AppendTx(b.Ctx, locking, "s", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	b.store.Wake() // nothing else makes the process read
	p.Becomes(http.StatusServiceUnavailable, "the events of no tenant can be read: ")
	b.Must(locking.Commit(b.Ctx))
	p.Becomes(http.StatusOK, "")
}

// Probes come from several sides every second, and the statement for the whole deployment may be slow.
func TestManyProbesReadTheFiguresOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt, sent := b.traced(b.Recorders("p")...)
	b.Start(rt)
	b.Eventually("the runtime is ready", func() bool { return rt.Health(b.Ctx).Ready })
	sent.taken()
	began := time.Now()
	var probers sync.WaitGroup
	for range 8 {
		probers.Go(func() {
			for range 200 {
				if h := rt.Health(b.Ctx); !h.Ready || h.Degraded {
					t.Errorf("%+v", h)
				}
			}
		})
	}
	probers.Wait()
	texts, _ := sent.taken()
	figures := 0
	for _, text := range texts {
		if strings.Contains(text, "with recursive owner") {
			figures++
		}
	}
	if most := 1 + int(time.Since(began)/(5*time.Second)); figures > most {
		t.Errorf("1600 probes in %v sent %d statements, want at most %d", time.Since(began), figures, most)
	}
}
