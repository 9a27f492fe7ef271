package moves_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// A move that is refused changes nothing.
func TestMoveIsRefused(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		must(from.create(t, "taken").Append(ctx, "s", event.NoStream, happened))(t)
		must(to.create(t, "taken").Append(ctx, "s", event.NoStream, happened))(t)
		to.create(t, "empty")
		must(from.create(t, "empty").Append(ctx, "s", event.NoStream, happened))(t)
		var h handled
		must(h.node(t, from, "plain").RunUntilIdle(ctx))(t)
		other := admin.MoveOptions{Projections: map[string]admin.MoveAction{"plain": 3}}
		wrongHook := keep()
		var calls int
		var none error
		wrongHook.ReadModels = writeTotals(map[bool]*place{true: {},
			false: {file: &sqlitestore.Store{}}}[to.file != nil], &calls, &none)
		for name, try := range map[string]struct {
			from, to *place
			tenant   string
			opts     admin.MoveOptions
			want     string
		}{
			"an unknown tenant": {from, to, "unknown", keep(), tenancy.ErrUnknown.Error()},
			"the same store":    {from, from, "acme", keep(), "both stores are the same"},
			"a target that has another": {
				from, to, "taken", keep(), tenancy.ErrNotEmpty.Error() + ": it has events, streams",
			},
			"a projection is not named": {
				from, to, "acme", admin.MoveOptions{}, "MoveOptions.Projections lacks projections of the tenant: plain",
			},
			"an action that is not one": {
				from, to, "acme", other, `MoveOptions.Projections["plain"] must be MoveKeep or MoveRebuild: 3`,
			},
			"a hook of the other driver": {from, to, "acme", wrongHook, "MoveOptions.ReadModels takes "},
		} {
			if _, err := admin.MoveTenant(ctx, try.from, try.to, try.tenant, try.opts); err == nil ||
				!strings.Contains(err.Error(), try.want) {
				t.Errorf("%s: error %v, want %s", name, err, try.want)
			}
		}
		if from.file == nil {
			again := openSchema(t, from.path, "millrace")
			if _, err := admin.MoveTenant(ctx, from, again, "acme", keep()); err == nil ||
				!strings.Contains(err.Error(), "both stores are the same") {
				t.Errorf("another pool: %v", err)
			}
		}
		for _, tenant := range []string{"acme", "taken", "empty"} {
			from.mustBe(t, tenant, tenancy.Active)
		}
		to.mustLack(t, "acme")
		moveIt(t, from, to, "empty", keep())
		to.mustBe(t, "empty", tenancy.Active)
	})
}

func TestOpenOperationsRefuseAMove(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		var h handled
		must(h.node(t, from, "plain").RunUntilIdle(ctx))(t)
		if from.file != nil {
			from.exec(t,
				`insert into millrace_operations (tenant, name, kind, holds, options, requested_at) select tenant, name, 'rebuild', '[]', '{}', 0 from millrace_projections`)
		} else {
			from.exec(t,
				`insert into {control}.operations (tenant, name, kind, holds, options) select tenant, name, 'rebuild', '{}', '{}' from {control}.projections`)
		}
		if _, err := admin.MoveTenant(ctx, from, to, "acme", keep()); !errors.Is(err, projection.ErrOperationOpen) {
			t.Errorf("error %v", err)
		}
		from.mustBe(t, "acme", tenancy.Active)
	})
}

// The error names an event that PostgreSQL refuses, or that does not match its checksum.
func TestEventsThatCannotMoveAreNamed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]struct{ body, checksum, want string }{
		"a number that is too large": {
			`1e200000`,
			`millrace_checksum(id, version, created_at, stream_id, type, '1e200000', headers, causation_id, correlation_id)`, "the event at position 2: body contains",
		},
		"a wrong checksum": {`{"n":2}`, `checksum`, "the event at position 2 does not match its checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			from, to := newFile(t), newDatabase(t)
			must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened, happened, happened))(t)
			from.exec(t, "update millrace_events set body = '"+damage.body+"', checksum = "+damage.checksum+
				" where position = 2")
			if _, err := admin.MoveTenant(ctx, from, to, "acme", keep()); err == nil ||
				!strings.Contains(err.Error(), damage.want) {
				t.Errorf("error %v, want %s", err, damage.want)
			}
			to.mustLack(t, "acme")
			from.mustBe(t, "acme", tenancy.Active)
		})
	}
}

// Triggers in the target change what is inserted.
func TestDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]struct{ sql, want string }{
		"another value": {`create function public.change() returns trigger language plpgsql as $$ begin new.version := new.version + 1; return new; end $$;
			create trigger t before insert on {acme}.streams for each row when (new.stream_id = 'b') execute function public.change()`,
			`compare streams: the stores differ in version of {"stream":"b"`},
		"a missing row": {`create function public.change() returns trigger language plpgsql as $$ begin return null; end $$;
			create trigger t before insert on {acme}.events for each row when (new.global_seq = 3) execute function public.change()`,
			`compare events: the stores differ in the row of {"position":3`},
		"another row": {`create function public.change() returns trigger language plpgsql as $$ begin insert into {acme}.streams values ('z', 1); return new; end $$;
			create trigger t before insert on {acme}.streams for each row when (new.stream_id = 'b') execute function public.change()`,
			`compare streams: the source does not have {"stream" : "z"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			from, to := newFile(t), newDatabase(t)
			acme := from.create(t, "acme")
			for _, stream := range []string{"a", "b", "c"} {
				must(acme.Append(ctx, stream, event.NoStream, happened))(t)
			}
			to.create(t, "acme")
			to.exec(t, trigger.sql)
			if _, err := admin.MoveTenant(ctx, from, to, "acme", keep()); err == nil ||
				!strings.Contains(err.Error(), trigger.want) {
				t.Errorf("error %v, want %s", err, trigger.want)
			}
			if rows := to.contents(t, "acme"); len(rows["streams"])+len(rows["events"]) > 0 {
				t.Errorf("the target has %v", rows)
			}
			from.mustBe(t, "acme", tenancy.Active)
		})
	}
}

// childMain moves a tenant in a process of its own, and waits for its death in the transaction of the target.
func childMain() bool {
	sources, child := os.LookupEnv("MILLRACE_MOVE_CHILD")
	if !child {
		return false
	}
	ctx := context.Background()
	open := func(path string) (s millrace.Store, err error) {
		if strings.HasSuffix(path, ".db") {
			s, err = sqlitestore.Open(ctx, path, sqlitestore.Options{})
		} else {
			s, err = pgstore.Open(ctx, path, pgstore.Options{})
		}
		return s, err
	}
	from, to, _ := strings.Cut(sources, "\n")
	opts := keep()
	opts.Progress = func(p admin.MoveProgress) {
		if p.Table == "projections" && p.Compared {
			_ = os.WriteFile(os.Getenv("MILLRACE_MOVE_MARK"), nil, 0o600)
			select {}
		}
	}
	source, err := open(from)
	if err != nil {
		panic(err)
	}
	target, err := open(to)
	if err != nil {
		panic(err)
	}
	_, err = admin.MoveTenant(ctx, source, target, "acme", opts)
	panic(err)
}

// A deferred trigger of the target fails the commit. The source cannot know whether the commit has happened.
func TestTenantStaysArchivedIfTheCommitFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	from, to := newFile(t), newDatabase(t)
	must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
	opts := keep()
	opts.ReadModels = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `create table totals (n integer);
			create function fails() returns trigger language plpgsql as $$ begin raise 'on purpose'; end $$;
			create constraint trigger fails after insert on totals deferrable initially deferred for each row execute function fails();
			insert into totals values (1)`, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if _, err := admin.MoveTenant(ctx, from, to, "acme", opts); err == nil ||
		!strings.Contains(err.Error(), "on purpose") || !strings.Contains(err.Error(), "the tenant may have moved") {
		t.Errorf("error %v", err)
	}
	from.mustBe(t, "acme", tenancy.Archived)
	to.mustLack(t, "acme")
	if report := moveIt(t, from, to, "acme", keep()); report.Earlier || report.State != tenancy.Active {
		t.Errorf("report %+v", report)
	}
}
