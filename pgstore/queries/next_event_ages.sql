-- Returns, for the first event after each position: the number of its tenant, the place of the position from 1, when the event was
-- inserted in microseconds since 1970, and how many microseconds ago that was. Both are at most 285 years. {events} is a union of
-- next_events.sql of several tenants: these expressions in each of its parts took the planner half as long again. Another program may have
-- inserted any time, also infinity, which cannot be subtracted. Index: that of next_events.sql. Locks nothing.
select tenant, place, greatest(-9000000000000000, least(9000000000000000, extract(epoch from created_at) * 1000000))::bigint,
       least(9000000000000000, greatest(0, (extract(epoch from statement_timestamp()) - extract(epoch from created_at)) * 1000000))::bigint
  from ({events}) e
