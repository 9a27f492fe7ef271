-- Returns the highest visible position, or 0 if there is none. Index: events_pkey, backwards. Locks nothing.
select coalesce(max(global_seq), 0) from {tenant}.events
