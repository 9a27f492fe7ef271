package chaos_test

import "bytes"

// protection names a protection of the library that the suite can break from outside: in the database, or on the way to
// it.
type protection string

const (
	fence         protection = "fence"           // neither the lease is checked, nor owner and epoch compared
	raisingFence  protection = "raising-fence"   // the fence compares, but does not raise: a refused write commits
	serverClock   protection = "server-clock"    // leases are claimed and extended by a clock that is an hour ahead
	settledMark   protection = "settling"        // visible events are read although others may still appear below them
	faultClasses  protection = "fault-classes"   // infrastructure faults are taken for the handler's
	listening     protection = "listening"       // a new session does not listen
	seenLock      protection = "seen-lock"       // a missing session lock means death although it was never seen
	oneServerLife protection = "one-incarnation" // the incarnation never changes
	passedEvents  protection = "passed"          // a split forgets what was handled beyond the new checkpoints
)

// breaks are the protections that are broken for all nodes, by replacing functions of the control schema.
var breaks = map[protection]string{
	fence: `
create or replace function millrace.check_lease(lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint) returns void
language plpgsql stable as $$ begin end $$;
create or replace function millrace.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint, old bigint, new bigint)
returns void language plpgsql as $$ begin update millrace.leases l set checkpoint = new where l.id = lease; end $$`,
	raisingFence: `
create or replace function millrace.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint, old bigint, new bigint)
returns void language plpgsql as $$ begin
	update millrace.leases l set checkpoint = new where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch and l.checkpoint = old;
end $$`,
	passedEvents: `
create or replace function public.forget_passed() returns trigger language plpgsql as $$ begin
	new.passed_from := '{}'; new.passed_to := '{}'; new.passed_upto := '{}';
	return new;
end $$;
create or replace trigger forget_passed before insert on millrace.projections for each row execute function public.forget_passed()`,
	oneServerLife: `
create or replace function millrace.incarnation() returns bigint language plpgsql stable as $$ begin return 1; end $$;
create or replace function millrace.check_incarnation(expected bigint) returns void language plpgsql stable as $$ begin end $$;
do $do$ declare fence text; begin
	for fence in select pg_get_functiondef(p.oid) from pg_proc p
		where p.pronamespace = 'millrace'::regnamespace and p.proname in ('check_lease', 'advance') loop
		execute regexp_replace(fence, 'and incarnation = [^;]*', '');
	end loop;
end $do$`,
}

// tampering replaces a text on the connections of a node by another of the same length.
type tampering struct {
	text, by string
	received bool // in messages of the server; else in those of the node
	once     bool // only once on each connection
}

// tamperings are the protections that are broken on the connections of a node, by orderBreak.
var tamperings = map[protection]tampering{
	serverClock:  {text: "clock_timestamp()", by: "(now()+'1 hour') "},
	settledMark:  {text: "'RowExclusiveLock'", by: "'NoExclusiveLock_'"},
	faultClasses: {text: "C55P03\x00", by: "CP0001\x00", received: true}, // lock_not_available, raise_exception
	listening:    {text: `listen "millrace_`, by: `listen "mi11race_`},
	seenLock:     {text: "l.key is not null as locked", by: "true as locked             ", once: true},
}

// tamper returns the message that is passed on.
func (c *watchedConn) tamper(message []byte, received bool) []byte {
	t := c.orders.tampering.Load()
	if t == nil || t.received != received || t.once && c.tampered.Load() || !bytes.Contains(message, []byte(t.text)) {
		return message
	}
	c.tampered.Store(true)
	return bytes.ReplaceAll(message, []byte(t.text), []byte(t.by))
}
