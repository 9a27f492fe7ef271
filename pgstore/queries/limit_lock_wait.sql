-- Ends statements of this transaction that wait longer than $1 for a lock. Locks nothing, needs no index.
select set_config('lock_timeout', $1::text, true)
