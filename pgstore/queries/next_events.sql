-- Returns, for the positions of one tenant, the first event after each: the number {n} of the tenant, the place of the position from 1,
-- and when the event was inserted. It leaves out positions without a later event. Index: events_pkey. Locks nothing.
(select {n} as tenant, p.place, e.created_at
   from unnest({positions}::bigint[]) with ordinality as p (position, place)
  cross join lateral (select x.created_at from {tenant}.events x where x.global_seq > p.position order by x.global_seq limit 1) e)
