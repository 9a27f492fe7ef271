package chaos_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// corruptions are statements, and the kinds of findings that they must cause.
var corruptions = []struct{ kind, sql string }{
	{"miscounted", "update millrace.projections set parked = parked + 1 where name = 'shipments'"},
	{
		"miscounted",
		"update millrace.commands set done = done + 1 where id = (select min(id) from millrace.commands where kind = 'replay')",
	},
	{"miscounted", "update millrace.dead_letters set replays = replays + 1 where id = " + anyWaiting},
	{"parked and applied", `insert into public.applied (tenant, projection, position, stream, version, node)
		select p.tenant, p.name, d.position, d.stream_id, d.stream_version, 'n1' from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where d.id = ` + anyWaiting},
	{
		"resolved and not applied",
		"delete from public.applied where projection = 'shipments' and position in (select position from millrace.dead_letters where state = 'resolved')",
	},
	{"overtaken", `insert into public.applied (tenant, projection, position, stream, version, node)
		select p.tenant, p.name, 0, d.stream_id, d.stream_version + 1, 'n1' from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id
		where d.id = ` + anyWaiting},
	{"stream is not parked", "delete from millrace.parked_streams"},
	{
		"parked stream without events",
		"update millrace.dead_letters set state = 'discarded' where state in ('parked', 'replaying')",
	},
	{
		"blocked by no other",
		`delete from millrace.dead_letters where state = 'resolved'; update millrace.dead_letters set blocked_by_stream = true`,
	},
	{"neither applied nor parked", "delete from millrace.dead_letters where id = " + anyWaiting},
	{
		"beyond the checkpoint",
		"update millrace.leases set checkpoint = 0 where id in (select id from millrace.projections where name = 'shipments')",
	},
	{"partitions do not fit", "update millrace.projections set partitions = 2 where name = 'shipments'"},
	{"partitions do not fit", "update millrace.projections set slot_to = slot_to / 2 where name = 'shipments'"},
	{"of another partition", "update millrace.projections set slot_to = 1 where name = 'shipments'"},
	{
		"beyond the checkpoint",
		`update millrace.leases set checkpoint = 0; update millrace.projections set passed_from = '{0}', passed_to = '{268435456}', passed_upto = '{1}'`,
	},
	{"neither applied nor parked", `update millrace.leases set checkpoint = 0;
		update millrace.projections set passed_from = '{0}', passed_to = '{268435456}', passed_upto = '{1000000}'; delete from public.applied`},
	{"still parked", "select 1"},
	{"stream is still parked", "delete from millrace.dead_letters"},
	{"command not finished", "update millrace.commands set ended_at = null"},
	{"left in tenants", "insert into millrace.tenants (tenant, schema_name, version) values ('guest', 'guest', 1)"},
	{
		"left in projections",
		"insert into millrace.tenants (tenant, schema_name, version) values ('guest', 'guest', 1); insert into millrace.projections (tenant, name) values ('guest', 'audit')",
	},
	{"left in leases", "set local session_replication_role = replica; insert into millrace.leases (id) values (-1)"},
	{
		"left in dead_letters",
		"set local session_replication_role = replica; update millrace.dead_letters set projection_id = -1 where id = " + anyWaiting,
	},
	{
		"left in parked_streams",
		"set local session_replication_role = replica; insert into millrace.parked_streams (projection_id, stream_id) values (-1, 's')",
	},
	{
		"left in commands",
		"set local session_replication_role = replica; insert into millrace.commands (projection_id, kind, max_events) values (-1, 'replay', 1)",
	},
	{"schema is left", "create schema millrace_guest"},
}

const anyWaiting = "(select min(d.id) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where p.name = 'shipments' and d.state in ('parked', 'replaying'))"

func TestDeadLetterChecksNoticeEveryDefect(t *testing.T) {
	t.Parallel()
	c := setup(t, options{limit: 2 * time.Minute, seed: 1, nodes: 1})
	c.must(c.untilDeadLetter("something is replayed", "d.state = 'resolved'"))
	over := c.withhold()
	c.must(c.untilDeadLetter("an event is blocked by one that fails", blocked))
	c.writers.stop()
	_, err := c.caughtUp(time.Minute)
	c.must(err)
	for _, f := range c.stopAll() {
		t.Error(f)
	}
	if found, err := c.contradictions(c.ctx, c.admin); err != nil || len(found) > 0 {
		t.Fatalf("before any corruption: %v, %v", found, err)
	}
	for _, test := range corruptions {
		if kinds := c.corrupt(test.sql); !slices.Contains(kinds, test.kind) {
			t.Errorf("after %q: found %q, want %q", test.sql, kinds, test.kind)
		}
	}
	// Nothing is left when the dependency is available and the nodes run again.
	over()
	c.nodes[0].start()
	c.finish()
}

// blocked selects events that are parked because of an earlier one of their stream, which still fails.
const blocked = `d.state = 'parked' and d.blocked_by_stream and exists (
	select from millrace.dead_letters e where e.projection_id = d.projection_id and e.stream_id = d.stream_id and e.state = 'parked' and e.type = 'poison'
	and e.position > (select o.available from public.dependency o where o.tenant = p.tenant))`

// untilDeadLetter waits for a dead letter of shipments.
func (c *cluster) untilDeadLetter(what, where string) error {
	return until(c.ctx, time.Minute, what, func() bool {
		n, err := value[int64](c,
			`select count(*) from millrace.dead_letters d join millrace.projections p on p.id = d.projection_id where p.name = 'shipments' and `+where)
		return err == nil && n > 0
	})
}

// block withholds the dependency of poison events until one of them blocks another event, which is replayed later.
func (c *cluster) block() error {
	defer c.withhold()()
	return c.untilDeadLetter("an event is blocked by one that fails", blocked)
}

// corrupt executes a statement, returns the kinds of findings after it, and rolls it back.
func (c *cluster) corrupt(sql string) (kinds []string) {
	c.t.Helper()
	tx, err := c.admin.Begin(c.ctx)
	c.must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(c.ctx)) }()
	_, err = tx.Conn().PgConn().Exec(c.ctx, sql).ReadAll()
	c.must(err)
	for _, check := range []func(context.Context, querier) ([]finding,
		error){c.contradictions, c.unfinished, c.leftovers} {
		found, err := check(c.ctx, tx)
		c.must(err)
		for _, f := range found {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}
