package storecopy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// program is a program that runs on a file first, and on PostgreSQL later. Its read models have a row for each event. A
// row is inserted once, and after the row of the previous event of its stream. On the file, the events with a body of
// 3 fail.
type program struct {
	testing.TB
	source *sqlitestore.Store
	target *pgstore.Store

	mu   sync.Mutex
	sent map[string][]string // tokens of deliveries, by tenant and position
}

const (
	createApplied = `create table applied (projection text, tenant text, stream text, version bigint, primary key (projection, tenant, stream, version))`
	apply         = `insert into applied select $1, $2, $3, $4
		where $4 = 1 or exists (select 1 from applied where projection = $1 and tenant = $2 and stream = $3 and version = $4 - 1)`
)

var errBroken = errors.New("the handler is broken on this file")

// programTenants are the tenants of the program.
var programTenants = []string{projection.DefaultTenant, "acme"}

func (p *program) runtime(store millrace.Store, handler func(broken bool) millrace.Handler) *millrace.Runtime {
	rt := must(millrace.New(millrace.Config{Store: store}))(p)
	for _, one := range []millrace.Projection{
		{Name: "kept", Handler: handler(true), OnFailure: projection.ActionParkStream, MaxFailureShare: projection.NoLimit},
		{Name: "rebuilt", Handler: handler(false)},
		{Name: "split", Handler: handler(false), Partitions: 3},
		{Name: "paused", Handler: handler(false)},
		{Name: "mails", Handler: millrace.DeliverEach(p.send)},
	} {
		one.Retry = projection.RetryPolicy{MaxAttempts: 1, Base: time.Millisecond}
		noError(p, rt.Register(one))
	}
	return rt
}

func (p *program) send(ctx context.Context, e millrace.Delivered) error {
	id, _ := millrace.ProjectionFrom(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprint(id.Tenant, " ", e.Position)
	if p.sent == nil {
		p.sent = make(map[string][]string)
	}
	p.sent[key] = append(p.sent[key], e.Token)
	return nil
}

func applied(ctx context.Context, e event.Envelope, exec func(args ...any) (int64, error)) error {
	id, _ := millrace.ProjectionFrom(ctx)
	n, err := exec(id.Name, id.Tenant, e.Stream, e.Version)
	if err == nil && n != 1 {
		err = fmt.Errorf("version %d of stream %s comes before the previous one", e.Version, e.Stream)
	}
	return err
}

func (p *program) onFile() *millrace.Runtime {
	return p.runtime(p.source, func(broken bool) millrace.Handler {
		return sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
			if broken && string(e.Body) == "3" {
				return errBroken
			}
			return applied(ctx, e, func(args ...any) (int64, error) {
				result, err := tx.ExecContext(ctx, apply, args...)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			})
		})
	})
}

func (p *program) onServer() *millrace.Runtime {
	return p.runtime(p.target, func(bool) millrace.Handler {
		return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			return applied(ctx, e, func(args ...any) (int64, error) {
				tag, err := tx.Exec(ctx, pgApply, args...)
				return tag.RowsAffected(), err
			})
		})
	})
}

const pgApply = `insert into public.applied select $1::text, $2::text, $3::text, $4::bigint
	where $4 = 1 or exists (select 1 from public.applied where projection = $1 and tenant = $2 and stream = $3 and version = $4 - 1)`

// appends appends events to 5 streams of each tenant.
func (p *program) appends(n int, to func(tenant string) interface {
	Append(context.Context, string, event.Expected, ...event.Event) (event.Appended, error)
}) {
	for _, tenant := range programTenants {
		for i := range n {
			must(to(tenant).Append(testContext(p), fmt.Sprint("stream ", i%5), event.Any, event.Untyped("Counted", i%7)))(p)
		}
	}
}

// copyApplied copies the read models, except that of the projection that is rebuilt.
func (p *program) copyApplied(ctx context.Context, tx pgx.Tx, tenant string) error {
	rows, err := p.source.DB().QueryContext(ctx, `select projection, stream, version from applied where tenant = ? and projection <> 'rebuilt'`, tenant)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, stream string
		var version int64
		if err := rows.Scan(&name, &stream, &version); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into public.applied values ($1, $2, $3, $4)`, name, tenant, stream, version); err != nil {
			return err
		}
	}
	return rows.Err()
}

// TestProgramMovesToPostgres runs a program on a file, appends events that it does not handle there any more, copies the
// store, and runs the program on PostgreSQL. There each read model gets each event once.
func TestProgramMovesToPostgres(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := &program{TB: t, source: newSource(t), target: newTarget(t)}
	noError(t, p.source.CreateTenants(ctx, programTenants...))
	sqlite(t, p.source, createApplied)
	postgres(t, p.target, `create table public.applied (projection text, tenant text, stream text, version bigint, primary key (projection, tenant, stream, version))`)
	type appender = interface {
		Append(context.Context, string, event.Expected, ...event.Event) (event.Appended, error)
	}
	onFile := func(tenant string) appender { return must(p.source.ForTenant(tenant))(t) }
	onServer := func(tenant string) appender { return must(p.target.ForTenant(tenant))(t) }

	p.appends(40, onFile)
	must(p.onFile().RunUntilIdle(ctx))(t)
	paused := millrace.ProjectionID{Tenant: "acme", Name: "paused"}
	noError(t, p.onFile().Pause(ctx, paused))
	noError(t, p.onFile().Repartition(ctx, millrace.ProjectionID{Name: "split"}, 2))
	p.appends(20, onFile)
	must(Run(ctx, p.source, p.target, Options{
		Projections: map[string]ReadModel{"kept": Keep, "rebuilt": Rebuild, "split": Keep, "paused": Keep, "mails": Keep},
		ReadModels:  p.copyApplied,
	}))(t)
	p.mustNotRunOnFile(ctx)

	p.appends(10, onServer)
	rt := p.onServer()
	if status, err := rt.RunUntilIdle(ctx); !errors.Is(err, projection.ErrPaused) || status.Projection(paused).State != millrace.StatePaused {
		t.Errorf("the paused projection: %v, %+v", err, status.Projection(paused))
	}
	noError(t, rt.Resume(ctx, paused))
	must(rt.RunUntilIdle(ctx))(t)
	parked := p.replay(ctx, rt)
	if parked < 10 {
		t.Errorf("only %d dead letters", parked)
	}
	p.mustHaveApplied()
	of := make(map[string]string) // the token of each tenant's projection, with which tokens of deliveries begin
	for what, tokens := range p.sent {
		if len(tokens) != 1 {
			t.Errorf("%s was sent %d times", what, len(tokens))
		}
		tenant, _, _ := strings.Cut(what, " ")
		if token := tokens[0][:36]; of[tenant] == "" {
			of[tenant] = token
		} else if of[tenant] != token {
			t.Errorf("%s was sent with %s, others with %s", what, tokens[0], of[tenant])
		}
	}
	if n := len(p.sent); n != 70*len(programTenants) {
		t.Errorf("%d events were sent", n)
	}
}

// mustNotRunOnFile runs a program on the closed file, which must fail.
func (p *program) mustNotRunOnFile(ctx context.Context) {
	p.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	before := len(p.sent)
	if _, err := p.onFile().RunUntilIdle(ctx); !errors.Is(err, sqlitestore.ErrMoved) {
		p.Errorf("a runtime on the file: %v", err)
	}
	if after := len(p.sent); after != before {
		p.Error("a runtime on the file delivers")
	}
}

// replay replays the dead letters of the projection "kept", and returns how many there were.
func (p *program) replay(ctx context.Context, rt *millrace.Runtime) (parked int64) {
	p.Helper()
	for _, tenant := range programTenants {
		letters := p.target.DeadLetters(projection.ID{Tenant: tenant, Name: "kept"})
		n := must(letters.Count(ctx, projection.DeadLetterFilter{}, projection.DeadLetterParked))(p)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- rt.Run(running) }()
		result := must(letters.Replay(ctx, projection.DeadLetterFilter{All: true}, 1000))(p)
		stop()
		noError(p, <-ended)
		if int64(result.Done) != n || result.Failed > 0 {
			p.Errorf("tenant %s: replayed %+v of %d", tenant, result, n)
		}
		parked += n
	}
	return parked
}

// mustHaveApplied checks that each read model has each event.
func (p *program) mustHaveApplied() {
	p.Helper()
	want, got := make(map[string]int), make(map[string]int)
	for _, tenant := range programTenants {
		for _, name := range []string{"kept", "rebuilt", "split", "paused"} {
			want[tenant+" "+name] = 70
		}
	}
	for _, line := range collectPG(p, p.target, `select tenant || ' ' || projection from public.applied`) {
		got[line]++
	}
	if !maps.Equal(got, want) {
		p.Errorf("applied %v, want %v", got, want)
	}
}
