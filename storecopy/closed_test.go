package storecopy

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/transfer"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

var happened = event.Event{Type: "Happened"}

// duringCopy begins a copy, and interrupts it before it compares the rows.
func duringCopy(t testing.TB, source *sqlitestore.Store, target *pgstore.Store) {
	t.Helper()
	err := runFaulty(testContext(t), source, target, keepAll(), &faults{at: 3 + len(must(source.Tenants(testContext(t)))(t))})
	if !errors.Is(err, errInterrupted) {
		t.Fatal(err)
	}
}

func TestFileIsClosedFromTheBeginOfItsCopy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	fill(t, source, 1, 5)
	duringCopy(t, source, target)
	mustBeClosed(t, source)
	must(Run(ctx, source, target, keepAll()))(t)
	mustBeClosed(t, source)

	noError(t, Reopen(ctx, source))
	noError(t, Reopen(ctx, source)) // it may be repeated
	result := must(source.Append(ctx, "after", event.NoStream, happened))(t)
	if result.Version != 1 {
		t.Errorf("appended %+v", result)
	}
	sqlite(t, source, `delete from millrace_commands`)
}

// mustBeClosed checks that all writes to a file fail, and reads work.
func mustBeClosed(t testing.TB, source *sqlitestore.Store) {
	t.Helper()
	ctx := testContext(t)
	before := len(must(source.Tenants(ctx))(t))
	noError(t, source.Migrate(ctx))
	noError(t, source.CreateTenants(ctx, "acme"))
	_, appended := source.Append(ctx, "s", event.Any, happened)
	_, keyed := source.Append(ctx, "s", event.Any.WithKey("closed"), happened)
	_, created := source.CreateTenant(ctx, "new")
	_, alias := source.Alias(ctx, "closed")
	calls := map[string]error{"append": appended, "keyed append": keyed, "create a tenant": created, "make an alias": alias, "archive": source.ArchiveTenant(ctx, "acme")}
	calls["append in a transaction"] = source.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, _, err := source.AppendTx(ctx, tx, "s", event.Any, happened)
		return err
	})
	for _, statement := range []string{
		`update millrace_tenants set paused = 1`, `insert into millrace_streams (tenant, stream_id, version) values (1, 's', 1)`,
		`delete from millrace_events`, `update millrace_leases set checkpoint = 0`, `update millrace_projections set desired_state = 'run'`,
		`insert into millrace_nodes (id, projections, tenants, filters, started_at) values ('n', '[]', '[]', '[]', 0)`,
		`delete from millrace_dead_letters`, `delete from millrace_commands`, `insert into millrace_notices (tenant) values ('acme')`,
		`delete from millrace_append_keys`, `delete from millrace_aliases`, `update millrace_parked_streams set last_command = 0`,
	} {
		calls[statement] = source.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
	}
	for call, err := range calls {
		if !errors.Is(err, sqlitestore.ErrMoved) || !strings.Contains(err.Error(), "the store was moved to PostgreSQL") {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, err := range source.ReadAll(ctx, event.ReadOptions{}) {
		noError(t, err)
	}
	admin := must(millrace.NewAdmin(source))(t)
	for _, p := range must(admin.Status(ctx, millrace.StatusFilter{}))(t).Projections {
		if p.State == millrace.StateLive {
			t.Errorf("%s is %s in a closed file", p.ID, p.State)
		}
	}
	must(admin.Summary(ctx))(t)
	sqlite(t, source, `create table if not exists of_the_user (n integer)`)
	if after := len(must(source.Tenants(ctx))(t)); after != before {
		t.Errorf("%d tenants became %d", before, after)
	}
}

func TestFileOfARunningRuntimeIsRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	release := must(source.CopySource().Lock(ctx))(t)
	for what, err := range map[string]error{
		"run": second(Run(ctx, source, target, keepAll())), "cancel": Cancel(ctx, source, target), "reopen": Reopen(ctx, source),
	} {
		if err == nil || !strings.Contains(err.Error(), "another runtime owns the file (process "+strconv.Itoa(os.Getpid())+")") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(source.Append(ctx, "s", event.Any, happened))(t)
	noError(t, release())
	must(Run(ctx, source, target, keepAll()))(t)
}

func second[T any](_ T, err error) error { return err }

func TestTenantIsClosedUntilItsCopyIsComplete(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	fill(t, source, 1, 5)
	duringCopy(t, source, target)
	for _, name := range []string{projection.DefaultTenant, "acme"} {
		tenant := must(target.ForTenant(name))(t)
		if state := must(tenant.State(ctx))(t); state != projection.TenantCopying {
			t.Errorf("state %s", state)
		}
		calls := map[string]error{"archive": target.ArchiveTenant(ctx, name), "unarchive": target.UnarchiveTenant(ctx, name)}
		_, calls["append"] = tenant.Append(ctx, "s", event.Any, happened)
		_, calls["keyed append"] = tenant.Append(ctx, "s", event.Any.WithKey("copying"), happened)
		for call, err := range calls {
			if !errors.Is(err, projection.ErrTenantCopying) {
				t.Errorf("%s: %v", call, err)
			}
		}
		// Inserts of other programs and of replication fail too.
		insert := `insert into ` + quoted(tenant.EventsSchema()) + `.events (stream_id, stream_version, type, body) values ('s', 1, 'T', '1')`
		for _, before := range []string{"", "set local session_replication_role = replica; ", "set local millrace.copy = ''; "} {
			if _, err := target.Pool().Exec(ctx, before+insert); err == nil || !strings.Contains(err.Error(), "MR009") {
				t.Errorf("%s: %v", before, err)
			}
		}
	}
	// Its projections were not copied, and a runtime adds none.
	if n := collectPG(t, target, `select name from millrace.projections`); len(n) > 0 {
		t.Errorf("projections %q", n)
	}
	noError(t, target.Migrate(ctx))
	must(Run(ctx, source, target, keepAll()))(t)
	must(target.Append(ctx, "s", event.NoStream, happened))(t)
}

func TestTargetIsEmptyAndOfOneSource(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, other, target := newSource(t), newSource(t), newTarget(t)
	fill(t, source, 1, 5)
	must(other.CreateTenant(ctx, "acme"))(t)

	// A tenant with events, streams, keys or projections is refused, and stays as it is.
	occupied := newTarget(t)
	acme := must(occupied.CreateTenant(ctx, "acme"))(t)
	must(acme.Append(ctx, "s", event.NoStream, happened))(t)
	_, err := Run(ctx, source, occupied, keepAll())
	if !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), `tenant "acme"`) || !strings.Contains(err.Error(), "events, streams") {
		t.Errorf("a tenant that is not empty: %v", err)
	}
	must(acme.Append(ctx, "s", event.Exact(1), happened))(t)
	must(source.Append(ctx, "s", event.Any, happened))(t)
	noError(t, occupied.DropTenant(ctx, "acme", "acme", pgstore.DropOptions{}))

	// A copy that has begun must not continue elsewhere.
	duringCopy(t, source, occupied)
	_, err = Run(ctx, source, target, keepAll())
	if !errors.Is(err, ErrOtherTarget) || !strings.Contains(err.Error(), occupied.CopyTarget(nil, nil).Name()) {
		t.Errorf("another target: %v", err)
	}
	if _, err := Verify(ctx, source, target); !errors.Is(err, ErrOtherTarget) {
		t.Errorf("verify with another target: %v", err)
	}
	noError(t, Cancel(ctx, source, occupied))
	acme = must(occupied.ForTenant("acme"))(t)
	must(acme.Append(ctx, "s", event.NoStream, happened))(t)

	duringCopy(t, source, target)
	_, err = Run(ctx, other, target, Options{})
	if !errors.Is(err, ErrOtherSource) || !strings.Contains(err.Error(), source.CopySource().Name()) {
		t.Errorf("another source: %v", err)
	}
	if _, err := Run(ctx, source, target, keepAll()); err != nil {
		t.Errorf("the copy is not continued: %v", err)
	}
	if _, err := Run(ctx, other, target, Options{}); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("another source after the copy: %v", err)
	}
}

func TestNothingChangesIfRunRefusesToBegin(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	fill(t, source, 1, 5)
	lacking := keepAll()
	delete(lacking.Projections, "split")
	delete(lacking.Projections, "Ünïcode")
	wrong := keepAll()
	wrong.Projections["plain"] = 7
	for want, opts := range map[string]Options{
		"Options.Projections lacks projections of the file: split, Ünïcode": lacking,
		`Options.Projections["plain"] must be Keep or Rebuild: 7`:           wrong,
	} {
		if _, err := Run(ctx, source, target, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	sqlite(t, source, `update millrace_tenants set state = 'dropping' where name = 'acme'`)
	if _, err := Run(ctx, source, target, keepAll()); err == nil || !strings.Contains(err.Error(), `tenant "acme" is in the state "dropping"`) {
		t.Errorf("a tenant that is being dropped: %v", err)
	}
	if err := Cancel(ctx, source, target); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, err := Verify(ctx, source, target); err == nil || !strings.Contains(err.Error(), "no copy of the file has begun") {
		t.Errorf("verify: %v", err)
	}
	must(source.Append(ctx, "s", event.Any, happened))(t)
	if n := collectPG(t, target, `select tenant from millrace.tenants where tenant <> 'default' union all select id::text from millrace.copies`); len(n) > 0 {
		t.Errorf("the target has %q", n)
	}
	if c := must(source.CopySource().Copy(ctx))(t); c != (transfer.Copy{}) {
		t.Errorf("the file has %+v", c)
	}

	unmigrated := openSource(t, t.TempDir()+"/new.db")
	if _, err := Run(ctx, unmigrated, target, keepAll()); !errors.Is(err, sqlitestore.ErrNotMigrated) {
		t.Errorf("a file that is not migrated: %v", err)
	}
	postgres(t, target, `drop schema millrace cascade`)
	if _, err := Run(ctx, newSource(t), target, keepAll()); !errors.Is(err, pgstore.ErrNotMigrated) {
		t.Errorf("a target that is not migrated: %v", err)
	}
}

// TestEventThatTheTargetRefusesIsNamed has events that earlier versions appended: a number that PostgreSQL cannot store, and a body that
// it could store and not read again.
func TestEventThatTheTargetRefusesIsNamed(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"n": 1e200000}`, "[" + strings.TrimSuffix(strings.Repeat("1e131071,", 9000), ",") + "]"} {
		ctx := testContext(t)
		source, target := newSource(t), newTarget(t)
		must(source.Append(ctx, "s", event.NoStream, happened, happened, happened, happened))(t)
		replaceBody(t, source, 3, body)
		_, err := Run(ctx, source, target, Options{})
		if err == nil || !strings.Contains(err.Error(), `tenant "default": copy events: the event at position 3: body `) {
			t.Errorf("%.20s: %v", body, err)
		}
		mustBeRefused(t, target, "default")
		noError(t, Cancel(ctx, source, target))
		sqlite(t, source, `delete from millrace_events where position = 3`)
		must(Run(ctx, source, target, Options{}))(t)
	}
}

// replaceBody gives an event of the default tenant another body and the checksum of the event with it. The event has neither headers
// nor causes.
func replaceBody(t *testing.T, source *sqlitestore.Store, position int64, body string) {
	t.Helper()
	noError(t, source.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		var id, version, created int64
		var stream, eventType string
		row := tx.QueryRowContext(ctx, `select id, version, created_at, stream_id, type from millrace_events where position = ?`, position)
		if err := row.Scan(&id, &version, &created, &stream, &eventType); err != nil {
			return err
		}
		var data []byte
		for _, n := range []int64{id, version, created} {
			data = binary.LittleEndian.AppendUint64(data, uint64(n))
		}
		for _, text := range []string{stream, eventType, body, "", "", ""} {
			data = append(binary.AppendUvarint(data, uint64(len(text))), text...)
		}
		sum := int64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
		_, err := tx.ExecContext(ctx, `update millrace_events set body = ?, checksum = ? where id = ?`, body, sum, id)
		return err
	}))
}
