package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// TestAppendsContinueAfterTheCopy appends to the target after a copy. The results must be those that the source would
// have returned.
func TestAppendsContinueAfterTheCopy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	for _, name := range []string{"acme", "archived", "emptied"} {
		must(source.CreateTenant(ctx, name))(t)
	}
	acme := must(source.ForTenant("acme"))(t)
	first := must(acme.Append(ctx, "orders", event.NoStream.WithKey("first"), happened, happened))(t)
	must(acme.Append(ctx, "gone", event.NoStream, happened, happened))(t)
	emptied := must(source.ForTenant("emptied"))(t)
	must(emptied.Append(ctx, "gone", event.NoStream, happened, happened, happened))(t)
	sqlite(t, source, `delete from millrace_events where stream_id = 'gone'`)
	noError(t, source.ArchiveTenant(ctx, "archived"))
	// The target has such a tenant, in which positions were drawn.
	drawn := must(target.CreateTenant(ctx, "drawn"))(t)
	must(drawn.Append(ctx, "s", event.NoStream, happened, happened, happened, happened))(t)
	postgres(t, target, `delete from millrace_drawn.events`)
	postgres(t, target, `delete from millrace_drawn.streams`)
	must(must(source.CreateTenant(ctx, "drawn"))(t).Append(ctx, "s", event.NoStream, happened))(t)
	must(Run(ctx, source, target, Options{}))(t)
	if next := must(drawn.Append(ctx, "s", event.Exact(1), happened))(t); next.Positions[0] != 5 {
		t.Errorf("the next event of a tenant whose positions were drawn got %+v, want position 5", next)
	}

	moved := must(target.ForTenant("acme"))(t)
	repeated := must(moved.Append(ctx, "orders", event.Any.WithKey("first"), happened, happened))(t)
	if !repeated.Repeated || !slices.Equal(repeated.Positions, first.Positions) || repeated.Version != 2 {
		t.Errorf("a keyed append is repeated: %+v, want %+v", repeated, first)
	}
	var conflict *event.VersionConflictError
	if _, err := moved.Append(ctx, "gone", event.NoStream, happened); !errors.As(err, &conflict) || conflict.Actual != 2 {
		t.Errorf("append to a stream whose events were deleted: %v", err)
	}
	next := must(moved.Append(ctx, "gone", event.Exact(2), happened))(t)
	if next.Positions[0] != 5 || next.Version != 3 {
		t.Errorf("the next event got %+v, want position 5 and version 3", next)
	}
	of := must(target.ForTenant("emptied"))(t)
	if next := must(of.Append(ctx, "new", event.NoStream, happened))(t); next.Positions[0] != 4 {
		t.Errorf("the next event of the emptied tenant got %+v, want position 4", next)
	}
	if next := must(target.Append(ctx, "new", event.NoStream, happened))(t); next.Positions[0] != 1 {
		t.Errorf("the first event of the empty tenant got %+v", next)
	}
	archived := must(target.ForTenant("archived"))(t)
	if _, err := archived.Append(ctx, "s", event.Any, happened); !errors.Is(err, projection.ErrTenantArchived) {
		t.Errorf("append to an archived tenant: %v", err)
	}
	noError(t, target.UnarchiveTenant(ctx, "archived"))
	must(archived.Append(ctx, "s", event.NoStream, happened))(t)
}

// TestCopyJoinsAStoreThatHasOtherTenants copies two files into one database. Their ids collide.
func TestCopyJoinsAStoreThatHasOtherTenants(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	target := newTarget(t)
	// Programs that use only other tenants have a default tenant too.
	must(target.Append(ctx, "s", event.NoStream, happened))(t)
	var sources []*sqlitestore.Store
	var names [][]string
	for i := range 2 {
		source := newSource(t)
		names = append(names, []string{fmt.Sprint("first of ", i), fmt.Sprint("second of ", i)})
		fillSome(t, source, uint64(i), 10, names[i])
		sources = append(sources, source)
	}
	want := make(map[string]lines)
	for i, source := range sources {
		if i == 0 {
			for _, name := range names[0] {
				want[name] = expected(t, source, name)
			}
		}
		must(Run(ctx, source, target, keepAll()))(t)
		must(Verify(ctx, source, target))(t)
	}
	mustHave(t, target, want) // the second copy changed nothing of the first one
	// All references stay within their tenant.
	if wrong := collectPG(t, target, `select c.id::text from millrace.commands c cross join unnest(c.dead_letter_ids || c.current_dead_letter) as u (id)
			join millrace.projections p on p.id = c.projection_id
		 where u.id is not null and not exists (select from millrace.dead_letters d join millrace.projections o on o.id = d.projection_id
			where d.id = u.id and right(o.tenant, 1) = right(p.tenant, 1))
		union all select c.id::text from millrace.commands c where c.root is not null and not exists (select from millrace.commands r
			where r.id = c.root and r.projection_id = c.projection_id)`); len(wrong) > 0 {
		t.Errorf("commands with references to other tenants: %q", wrong)
	}
	// New rows get ids of their own.
	postgres(t, target, `insert into millrace.commands (projection_id, kind, max_events) select id, 'replay', 1 from millrace.projections`)
	postgres(t, target, `insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
		select id, 1000, 's', 1, 'T', '', '', 1, now(), now() from millrace.projections`)
	postgres(t, target, `insert into millrace.projections (tenant, name) select tenant, 'new' from millrace.tenants`)
}

// TestReadModelsAreCopiedOnce copies the table of a read model, with interruptions at the end of each transaction.
func TestReadModelsAreCopiedOnce(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, _ := small(t)
	target := newTarget(t)
	sqlite(t, source, `create table totals (tenant text, n integer)`)
	sqlite(t, source, `insert into totals values ('default', 5), ('acme', 7)`)
	postgres(t, target, `create table public.totals (tenant text, n integer)`)
	calls := make(map[string]int)
	opts := keepAll()
	opts.ReadModels = func(ctx context.Context, tx pgx.Tx, tenant string) error {
		calls[tenant]++
		var n int
		if err := source.DB().QueryRowContext(ctx, `select n from totals where tenant = ?`, tenant).Scan(&n); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into public.totals values ($1, $2)`, tenant, n); err != nil {
			return err
		}
		switch calls[tenant] {
		case 1:
			return errInterrupted
		case 2:
			panic("a mistake in the function")
		}
		return nil
	}
	for i := 0; ; i++ {
		_, err := Run(ctx, source, target, opts)
		if err == nil {
			break
		}
		if i > 10 {
			t.Fatal(err)
		}
	}
	if got := collectPG(t, target, `select tenant || ' ' || n from public.totals order by 1`); !slices.Equal(got, []string{"acme 7", "default 5"}) {
		t.Errorf("read models: %q", got)
	}
	if calls["acme"] != 3 || calls["default"] != 3 {
		t.Errorf("calls: %v", calls)
	}
	var steps int
	opts.ReadModels = func(context.Context, pgx.Tx, string) error {
		steps++
		return nil
	}
	must(Run(ctx, source, target, opts))(t)
	if steps > 0 {
		t.Errorf("read models were copied %d times after the end", steps)
	}
}

func TestRebuiltProjectionBeginsAtTheFirstEvent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	opts := keepAll()
	opts.Projections["resplit"] = Rebuild
	must(Run(ctx, source, target, opts))(t)
	rows := collectPG(t, target, `select distinct tenant || ' ' || (checkpoint = 0 and passed_from = '{}' and parked = 0 and skipped = 0 and attempts = 0 and failing_position = 0 and not halted
			and failed_reason is null and not exists (select from millrace.dead_letters d where d.projection_id = p.id)
			and not exists (select from millrace.parked_streams d where d.projection_id = p.id) and not exists (select from millrace.commands d where d.projection_id = p.id)
			and slot_from < slot_to and partitions > 1 and exists (select from millrace.projections s where s.name = 'split' and s.token <> p.token))
		from millrace.projections p join millrace.leases l using (id) where name = 'resplit' order by 1`)
	if !slices.Equal(rows, []string{"acme true", "default true"}) {
		t.Errorf("rebuilt: %q", rows)
	}
	// The others are as they were.
	for tenant, all := range want {
		got := copied(t, target, tenant, all["events"])
		for i, line := range all["projections"] {
			if !strings.Contains(line, `"resplit"`) && got["projections"][i] != line {
				t.Errorf("tenant %s:\n%s\n%s", tenant, line, got["projections"][i])
			}
		}
		if kept := len(got["dead letters"]); kept == 0 || kept >= len(all["dead letters"]) {
			t.Errorf("tenant %s: %d of %d dead letters are kept", tenant, kept, len(all["dead letters"]))
		}
	}
}
