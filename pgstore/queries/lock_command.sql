-- Locks command $1 before the other rows of its group: the functions that run its parts lock in this order too. Locks
-- and indexes: those of the function.
select c.id from {control}.lock_command($1::bigint) c
