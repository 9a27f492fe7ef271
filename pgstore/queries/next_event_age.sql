-- Returns how many microseconds ago the first event after position $1 was inserted, -1 if there is none. Index:
-- events_pkey. Locks nothing.
select coalesce((select greatest(0, extract(epoch from clock_timestamp() - e.created_at) * 1000000)::bigint
                   from {tenant}.events e where e.global_seq > $1::bigint order by e.global_seq limit 1), -1)
