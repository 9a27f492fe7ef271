package commandline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

const (
	// asNode makes the test binary a node of the store that it names. The others are the projections of a node, its
	// name, a file: while it exists, the handlers are repaired, and the address of the store for the role that creates
	// tables, if it is another one.
	asNode       = "MILLRACE_TEST_NODE"
	ownerOf      = "MILLRACE_TEST_OWNER"
	registered   = "MILLRACE_TEST_PROJECTIONS"
	nodeName     = "MILLRACE_TEST_NAME"
	repairedFile = "MILLRACE_TEST_REPAIRED"
)

// Events of these types and the name of a projection make its handler try again for ever, stop the projection, or use a
// table that is missing.
const retryAt, stopAt, missAt = "Retry ", "Stop ", "Miss "

// poison is the event type at which each projection of a node fails, until the file of repairedFile exists.
var poison = map[string]string{"mails": "Bounce", "totals": "Poison", "sums": "Poison"}

// models are the read models of the nodes of a store. Each version of a projection writes the positions of its events
// to a table of its own. Readers use a view with the name of the projection. It shows the version that is in use in
// each tenant.
type models struct {
	kit.Store
	// schema has the tables of all tenants.
	schema, createView string
}

func openModels(ctx context.Context, at string) (m models, err error) {
	kind := kit.SQLite
	m.schema, m.createView = "main", "create view if not exists"
	if strings.Contains(at, "://") {
		kind = kit.Postgres
		m.schema, m.createView = "public", "create or replace view"
	}
	m.Store, err = kind.Open(ctx, at, nil)
	return m, err
}

// createdBy creates the tables and views that do not exist, as the role of another address if there is one.
func (m models) createdBy(ctx context.Context, owner string) error {
	if owner == "" {
		return m.create(ctx)
	}
	m, err := openModels(ctx, owner)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.create(ctx)
}

// create creates the tables and views that do not exist.
func (m models) create(ctx context.Context) error {
	return m.InTx(ctx, func(ctx context.Context, tx kit.Tx) error {
		for _, name := range []string{"mails", "totals"} {
			for _, statement := range []string{
				"create table if not exists %[1]s.%[2]s_1 (tenant text not null, position bigint not null)",
				"create table if not exists %[1]s.%[2]s_2 (tenant text not null, position bigint not null)",
				"create table if not exists %[1]s.%[2]s_swapped (tenant text not null)",
				m.createView + ` %[1]s.%[2]s as
					select tenant, position from %[1]s.%[2]s_1 where tenant not in (select tenant from %[1]s.%[2]s_swapped)
					union all
					select tenant, position from %[1]s.%[2]s_2 where tenant in (select tenant from %[1]s.%[2]s_swapped)`,
			} {
				if err := tx.Exec(ctx, fmt.Sprintf(statement, m.schema, name)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// exec runs a statement about the read model of the projection that ctx belongs to. It may name its view as %[1]s, the
// table of its version as %[2]s and its tenant as %[3]s.
func (m models) exec(ctx context.Context, tx kit.Tx, statement string) error {
	id, _ := millrace.ProjectionFrom(ctx)
	name, version := id.Version()
	if name == "sums" { // the projection was renamed, and its tables were not
		name = "totals"
	}
	view := m.schema + "." + name
	return tx.Exec(ctx, fmt.Sprintf(statement, view, fmt.Sprintf("%s_%d", view, version), "'"+id.Tenant+"'"))
}

// projection returns a projection whose handler fails at poison.
func (m models) projection(name string) millrace.Projection {
	hook := func(statement string) millrace.Hook {
		return m.Hook(func(ctx context.Context, tx kit.Tx) error { return m.exec(ctx, tx, statement) })
	}
	const empty = "delete from %[2]s where tenant = %[3]s"
	p := millrace.Projection{
		OnFailure: projection.ActionPark, Retry: projection.RetryPolicy{MaxAttempts: 2, Base: 10 * time.Millisecond},
		Reset: hook(empty),
	}
	p.Name, p.Version = (millrace.ProjectionID{Name: name}).Version()
	if p.Version > 1 {
		p.Swap, p.Drop = hook("insert into %[1]s_swapped (tenant) values (%[3]s)"), hook(empty)
	}
	p.Handler = m.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
		if _, err := os.Stat(os.Getenv(repairedFile)); e.Type == poison[name] && err != nil {
			return errors.New("division by zero")
		}
		switch {
		case e.Type == retryAt+name:
			return projection.Retry(errors.New("no such account"))
		case e.Type == stopAt+name:
			return projection.Stop(errors.New("no such account"))
		case e.Type == missAt+name:
			return m.exec(ctx, tx, "delete from %[1]s_missing where tenant = %[3]s")
		case p.Version > 1 && e.Position%5 == 0:
			kit.Pass(ctx, time.Millisecond) // new versions catch up slowly
		}
		return m.exec(ctx, tx, fmt.Sprintf("insert into %%[2]s (tenant, position) values (%%[3]s, %d)", e.Position))
	})
	return p
}

// runNode runs projections on a store until it is interrupted.
func runNode(at string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m, err := openModels(ctx, at)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.createdBy(ctx, os.Getenv(ownerOf)); err != nil {
		return err
	}
	runtime, err := millrace.New(nodeConfig(m.Store))
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(os.Getenv(registered), ",") {
		if err := runtime.Register(m.projection(name)); err != nil {
			return err
		}
	}
	return runtime.Run(ctx)
}

func nodeConfig(s millrace.Store) millrace.Config {
	return millrace.Config{
		Store:    tuning.Settings{Store: s, Advance: 50 * time.Millisecond, Reconcile: 100 * time.Millisecond},
		NodeName: os.Getenv(nodeName),
	}
}

// node is a process that runs projections.
type node struct {
	t *testing.T
	*exec.Cmd
}

// startNode starts a node. It is killed at the end of the test.
func (p place) startNode(t *testing.T) node {
	t.Helper()
	return p.startNodeOf(t, "shop-1", filepath.Join(t.TempDir(), "repaired"), "mails,totals")
}

// startNodeOf starts a node that registers these projections.
func (p place) startNodeOf(t *testing.T, name, repaired, projections string) node {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := node{t, exec.Command(program)}
	n.Env = append(os.Environ(), asNode+"="+p.at, ownerOf+"="+p.owner, nodeName+"="+name, repairedFile+"="+
		repaired, registered+"="+projections)
	n.Stderr = os.Stderr
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.Process.Kill()
		_ = n.Wait()
	})
	return n
}

// end ends the process by a signal, and waits for its end.
func (n node) end(by os.Signal) {
	n.t.Helper()
	if err := n.Process.Signal(by); err != nil {
		n.t.Fatal(err)
	}
	if err := n.Wait(); err != nil && by != os.Kill {
		n.t.Fatal(err)
	}
}
