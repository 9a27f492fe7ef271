package chaos_test

import "bytes"

// protection is what the suite can break, from outside of the library: in the database, or on the way to it.
type protection string

const (
	fence         protection = "fence"           // neither the lease is checked nor the owner and the epoch compared
	raisingFence  protection = "raising-fence"   // the fence compares, but a write that it refuses raises nothing, and commits
	serverClock   protection = "server-clock"    // leases are decided and extended by a clock that is an hour ahead
	settledMark   protection = "settling"        // what is visible is read, whatever may still appear below it
	faultClasses  protection = "fault-classes"   // faults of the infrastructure are taken for the handler's
	listening     protection = "listening"       // a new session does not listen
	seenLock      protection = "seen-lock"       // a session lock that is missing means death, though it was never seen
	oneServerLife protection = "one-incarnation" // every server has the same incarnation for ever
)

// breaks are the protections that are broken in the database, for all nodes, by replacing a function of the control schema.
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
	oneServerLife: `
create or replace function millrace.incarnation() returns bigint language plpgsql stable as $$ begin return 1; end $$;
create or replace function millrace.check_incarnation(expected bigint) returns void language plpgsql stable as $$ begin end $$`,
}

// tampering replaces a text on the connections of a node by another one of the same length.
type tampering struct {
	text, by string
	received bool // in what the server sends; else in what the node sends
	first    bool // only the first time on each connection
}

// tamperings are the protections that are broken on the connections of one node, from an order on.
var tamperings = map[protection]tampering{
	serverClock:  {text: "clock_timestamp()", by: "(now()+'1 hour') "},
	settledMark:  {text: "'RowExclusiveLock'", by: "'NoExclusiveLock_'"},
	faultClasses: {text: "C55P03\x00", by: "CP0001\x00", received: true}, // lock_not_available, raise_exception
	listening:    {text: `listen "millrace_`, by: `listen "mi11race_`},
	seenLock:     {text: "l.key is not null as locked", by: "true as locked             ", first: true},
}

// tampered returns the message as it goes on.
func (c *watchedConn) tampered(message []byte, received bool) []byte {
	t := c.orders.tampering.Load()
	if t == nil || t.received != received || t.first && c.met.Load() || !bytes.Contains(message, []byte(t.text)) {
		return message
	}
	c.met.Store(true)
	return bytes.ReplaceAll(message, []byte(t.text), []byte(t.by))
}
