package moves_test

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-go/millrace/tenancy"
)

// A tenant goes from a file to a database, to another schema of it, to another database, and to a file and another one.
func TestMoveKeepsEverything(t *testing.T) {
	t.Parallel()
	file, database := newFile(t), newDatabase(t)
	places := []*place{file, database, newSchema(t, database), newDatabase(t), newFile(t), newFile(t)}
	fill(t, file, "acme", rand.Uint64(), 120)
	file.exec(t, "update millrace_tenants set paused = 1")
	file.archive(t, "acme") // also frees the leases of dead owners
	want := file.contents(t, "acme")
	for table, rows := range want {
		if len(rows) < 2 && table != "tenant" {
			t.Errorf("%s: %q", table, rows)
		}
	}
	for i, to := range places[1:] {
		opts, state := keep(), tenancy.Archived
		if i%2 == 1 {
			opts.Active, state = true, tenancy.Paused
		} else {
			places[i].archive(t, "acme")
		}
		report := moveIt(t, places[i], to, "acme", opts)
		to.sameContents(t, "acme", want)
		places[i].sameContents(t, "acme", want)
		places[i].mustBe(t, "acme", tenancy.Archived)
		to.mustBe(t, "acme", state)
		if report.Rows["events"] != int64(len(want["events"])) || report.Rows["erasures"] != 2 || report.Earlier ||
			report.Head == 0 {
			t.Errorf("report %+v", report)
		}
		if t.Failed() {
			t.Fatalf("move %d", i+1)
		}
	}
}

// The target has dead letters and commands with the ids of the source.
func TestMovedIDsDoNotCollide(t *testing.T) {
	t.Parallel()
	for name, newTarget := range map[string]func(testing.TB) *place{"file": newFile, "PostgreSQL": newDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := newTarget(t)
			for i := range 2 {
				source, tenant := newFile(t), []string{"acme", "second"}[i]
				fill(t, source, tenant, 1, 100)
				source.archive(t, tenant)
				want := source.contents(t, tenant)
				moveIt(t, source, target, tenant, keep())
				back := newFile(t)
				moveIt(t, target, back, tenant, keep())
				if i == 0 {
					back.sameContents(t, tenant, want)
					continue
				}
				ids := target.column(t,
					map[bool]string{true: `select cast(min(d.id) as text) from millrace_dead_letters d join millrace_projections p on p.id = d.projection where p.tenant = {id}`,
						false: `select min(d.id)::text from {control}.dead_letters d join {control}.projections p on p.id = d.projection_id where p.tenant = $1`}[target.file != nil], tenant)
				if ids[0] == "1" {
					t.Error("the ids of the second tenant begin at 1")
				}
				// The ids differ by one number for all commands, and one for all dead letters.
				back.exec(t,
					`update millrace_commands set root = root - (select min(id) - 1 from millrace_commands), current_dead_letter = current_dead_letter - (select min(id) - 1 from millrace_dead_letters),
					dead_letter_ids = (select json_group_array(value - (select min(id) - 1 from millrace_dead_letters)) from json_each(dead_letter_ids)) where dead_letter_ids is not null or root is not null`)
				back.exec(t, `update millrace_commands set dead_letter_ids = null where dead_letter_ids = '[]'`)
				back.exec(t,
					`update millrace_dead_letters set last_command = last_command - (select min(id) - 1 from millrace_commands) where last_command > 0`)
				back.exec(t,
					`update millrace_parked_streams set last_command = last_command - (select min(id) - 1 from millrace_commands) where last_command > 0`)
				back.exec(t,
					`create temp table lowest as select (select min(id) - 1 from millrace_commands) as c, (select min(id) - 1 from millrace_dead_letters) as d;
					update millrace_commands set id = -(id - (select c from lowest)); update millrace_commands set id = -id;
					update millrace_dead_letters set id = -(id - (select d from lowest)); update millrace_dead_letters set id = -id; drop table lowest`)
				back.sameContents(t, tenant, want)
			}
		})
	}
}
