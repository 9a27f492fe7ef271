-- Returns, for the positions of one tenant, the first event after each: the number {n} of the tenant, the place of the position from 1,
-- when the event was inserted in microseconds since 1970, and how many microseconds ago that was. Both are at most 285 years. It leaves
-- out positions without a later event. It is one of several such statements in a union. Another program may have inserted any time,
-- also infinity, which cannot be subtracted. Index: events_pkey. Locks nothing.
(select {n}, p.place, greatest(-9000000000000000, least(9000000000000000, extract(epoch from e.created_at) * 1000000))::bigint,
        least(9000000000000000, greatest(0, (extract(epoch from statement_timestamp()) - extract(epoch from e.created_at)) * 1000000))::bigint
   from unnest({positions}::bigint[]) with ordinality as p (position, place)
  cross join lateral (select x.created_at from {tenant}.events x where x.global_seq > p.position order by x.global_seq limit 1) e)
