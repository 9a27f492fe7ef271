package storecopy

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// TestDamagedCopyIsNamed damages the copy in one place after another. Each time Run must name the place, and open nothing.
func TestDamagedCopyIsNamed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	const events = `alter table millrace_acme.events disable trigger all; `
	for _, damage := range []struct{ table, difference, breaks, repairs string }{
		{"events", "another type", events + `update millrace_acme.events set type = type || '.' where global_seq = 2`,
			`update millrace_acme.events set type = left(type, -1) where global_seq = 2`},
		{"events", "another body", `update millrace_acme.events set body = jsonb_build_array(body) where global_seq = 5`, `update millrace_acme.events set body = body -> 0 where global_seq = 5`},
		{"events", "another created_at", `update millrace_acme.events set created_at = created_at + interval '1 microsecond' where global_seq = 5`,
			`update millrace_acme.events set created_at = created_at - interval '1 microsecond' where global_seq = 5`},
		{"events", "the target lacks it", `create table kept as select * from millrace_acme.events where global_seq = 4; delete from millrace_acme.events where global_seq = 4`,
			`insert into millrace_acme.events (global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at) overriding system value
				select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at from kept`},
		{"events", "the source does not have it", `insert into millrace_acme.events (global_seq, stream_id, stream_version, type, body) overriding system value values (3, 'x', 1, 'T', '1')`,
			`delete from millrace_acme.events where global_seq = 3`},
		{"streams", "another version", `update millrace_acme.streams set version = version + 1`, `update millrace_acme.streams set version = version - 1`},
		{"keys", "another last_version", `update millrace_acme.append_results set last_version = last_version + 1`, `update millrace_acme.append_results set last_version = last_version - 1`},
		{"keys", "another first_version", `create table results as select * from millrace_acme.append_results; delete from millrace_acme.append_results`,
			`insert into millrace_acme.append_results select * from results`},
		{"projections", "another checkpoint", `update millrace.leases set checkpoint = checkpoint + 1`, `update millrace.leases set checkpoint = checkpoint - 1`},
		{"projections", "another token", `create table tokens as select id, token from millrace.projections; update millrace.projections set token = gen_random_uuid()`,
			`update millrace.projections p set token = t.token from tokens t where t.id = p.id`},
		{"dead letters", "another error", `update millrace.dead_letters set error = error || ' '`, `update millrace.dead_letters set error = left(error, -1)`},
		{"dead letters", "another state", `update millrace.dead_letters set state = 'resolved' where state = 'discarded'`, `update millrace.dead_letters set state = 'discarded' where position = 23`},
		{"parked streams", "another last_command", `update millrace.parked_streams set last_command = last_command + 100`, `update millrace.parked_streams set last_command = last_command - 100`},
		{"commands", "another max_events", `update millrace.commands set max_events = max_events + 1`, `update millrace.commands set max_events = max_events - 1`},
		{"commands", "another dead_letter_ids", `update millrace.commands set dead_letter_ids = dead_letter_ids || 1::bigint where dead_letter_ids is not null`,
			`update millrace.commands set dead_letter_ids = trim_array(dead_letter_ids, 1) where dead_letter_ids is not null`},
	} {
		_, err := run(ctx, source.CopySource(), faultyTarget{Target: target.CopyTarget(nil, nil), faults: never(),
			damage: func() { postgres(t, target, damage.breaks) }}, keepAll())
		var different *DifferenceError
		if !errors.As(err, &different) || different.Table != damage.table || different.Difference != damage.difference || !strings.Contains(err.Error(), different.Key) || different.Key == "" {
			t.Errorf("%s: %v", damage.breaks, err)
		}
		if _, verified := Verify(ctx, source, target); verified == nil || verified.Error() != "verify a copy: "+err.Error() {
			t.Errorf("%s: %v, then %v", damage.breaks, err, verified)
		}
		postgres(t, target, damage.repairs)
	}
	postgres(t, target, `alter table millrace_acme.events enable always trigger millrace_closed`)
	if report, err := Verify(ctx, source, target); err != nil || len(report.Tenants) != 2 {
		t.Errorf("verify after all repairs: %+v, %v", report, err)
	}
	must(Run(ctx, source, target, keepAll()))(t)
	mustHave(t, target, want)
}

// TestReportIsThatOfBothStores compares the report with those of later calls.
func TestReportIsThatOfBothStores(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, _ := small(t)
	target := newTarget(t)
	first := must(Run(ctx, source, target, keepAll()))(t)
	verified := must(Verify(ctx, source, target))(t)
	must(target.Append(ctx, "after", event.Any, happened))(t)
	again := must(Run(ctx, source, target, keepAll()))(t)
	for i, tenant := range first.Tenants {
		for k, table := range tenant.Tables {
			if table != verified.Tenants[i].Tables[k] || table != again.Tenants[i].Tables[k] || len(table.Checksum) != 64 {
				t.Errorf("tenant %q: %+v, then %+v, then %+v", tenant.Tenant, table, verified.Tenants[i].Tables[k], again.Tenants[i].Tables[k])
			}
		}
	}
}

// An event that does not match its checksum must not be copied to another store. The error names it, and nothing is opened.
func TestChangedEventIsNotCopied(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	acme := must(source.CreateTenant(ctx, "acme"))(t)
	for range 3 {
		must(acme.Append(ctx, "s", event.Any, happened))(t)
	}
	sqlite(t, source, `update millrace_events set body = '2' where position = 2`)
	for range 2 { // a repeated call does not pass it either
		_, err := Run(ctx, source, target, keepAll())
		if !errors.Is(err, sqlitestore.ErrCorrupt) || !strings.Contains(err.Error(), `tenant "acme": copy events: `) || !strings.Contains(err.Error(), "the event at position 2 ") {
			t.Errorf("error %v", err)
		}
	}
	mustBeRefused(t, target, "acme")
	noError(t, Cancel(ctx, source, target))
}

// An event of the target that cannot be read when the stores are compared is named.
func TestEventOfTheTargetThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	must(source.Append(ctx, "s", event.Any, happened, happened, happened))(t)
	must(Run(ctx, source, target, keepAll()))(t)
	pgtest.MakeUnreadable(t, target.Pool(), 3, 3, "54000")
	_, err := Verify(ctx, source, target)
	if err == nil || !strings.Contains(err.Error(), `tenant "default": read events of the target: after position 2: ERROR: the text is too long`) {
		t.Errorf("error %v", err)
	}
}

// mustBeRefused checks that a tenant of the target takes no appends, since its copy is not complete.
func mustBeRefused(t *testing.T, target *pgstore.Store, name string) {
	t.Helper()
	tenant := must(target.ForTenant(name))(t)
	if _, err := tenant.Append(testContext(t), "s", event.Any, happened); !errors.Is(err, projection.ErrTenantCopying) {
		t.Errorf("an append to the target: %v", err)
	}
}
