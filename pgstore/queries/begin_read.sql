-- Begins a read of a tenant's events: limits the wait for locks to $1 milliseconds, for this transaction alone, and
-- returns the incarnation. The same message then reads, in the same transaction and session. Locks nothing. Needs no
-- index.
select set_config('lock_timeout', $1::text, true), {control}.incarnation()
