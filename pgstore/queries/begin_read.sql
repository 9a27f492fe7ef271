-- Begins a read of a tenant's events: bounds the wait for its locks, in milliseconds, for this transaction alone, and returns the
-- server's incarnation. The read follows in the same message, and so in the same transaction and session. Locks nothing. Needs no index.
select set_config('lock_timeout', $1::text, true), {control}.incarnation()
