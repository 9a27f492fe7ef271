-- The highest visible position, 0 where there is none. Index: events_pkey, backwards. Locks nothing.
select coalesce(max(global_seq), 0) from {tenant}.events
