-- Returns the slots of the events at the positions $1. Locks nothing. Index: events_pkey.
select e.global_seq, e.slot from {tenant}.events e where e.global_seq = any($1::bigint[])
