-- Returns how many microseconds ago the first event after position $1 was inserted, at most 285 years, and -1 if there is
-- none. Another program may have inserted any time, also infinity, which cannot be subtracted. Index: events_pkey. Locks
-- nothing.
select coalesce((select least(9000000000000000, greatest(0, (extract(epoch from clock_timestamp()) - extract(epoch from e.created_at)) * 1000000))::bigint
                   from {tenant}.events e where e.global_seq > $1::bigint order by e.global_seq limit 1), -1)
